package ingest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/internal/nesting"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// The JSON values of a span are validated by the same rules as a stored session, because an invalid value would break
// readers. What is invalid is kept as text, so that a person can still read it.

// maxDepth is how deep JSON may be nested. SQLite's JSON functions end at 1000, and the value is nested in others.
const maxDepth = nesting.MaxDepth

// TooDeep reports that JSON is nested deeper than readers can follow.
func TooDeep(raw []byte) bool { return jsonscan.NestsDeeper(raw, maxDepth) }

// firstViolation reports what is wrong with a message's metadata and its part, or
// "" when nothing is. Either may be zero.
func firstViolation(role, metadata string, part *session.Part) string {
	m := session.MessageAndParts{Message: session.Message{ID: "m", SessionID: "s", Role: role, MetadataJSON: metadata}}
	if part != nil {
		p := *part
		p.MessageID, p.SessionID, p.Index, p.CreatedAt, p.UpdatedAt = "m", "s", 0, 0, 0
		m.Parts = []session.Part{p}
	}
	t := session.Transcript{
		Session:  session.Session{ID: "s", PermissionsJSON: "[]", MetadataJSON: "{}"},
		Messages: []session.MessageAndParts{m},
	}
	for _, v := range session.Check(&t) {
		// A message of the assistant that has usage is not in this session's rollup.
		if v.Rule != "rollup" {
			return v.Detail
		}
	}
	return ""
}

// validatePart keeps a part whose data is not what its type demands, or that cannot
// are in a message of the role, as text.
func (o *own) validatePart(c *store.PartChange, role string) {
	p := session.Part{ID: "p", Type: c.Type, DataJSON: string(c.Data)}
	if c.ToolCallID != "" {
		p.ToolCallID = &c.ToolCallID
	}
	if c.ToolState != "" {
		p.ToolState = &c.ToolState
	}
	if problem := firstViolation(role, "{}", &p); problem != "" {
		o.problem("part " + c.ID + ": " + problem)
		quarantine(c, string(c.Data))
	}
}

// validateMetadata quarantines metadata that breaks a rule, as text under "given".
func (o *own) validateMetadata(role string, metadata json.RawMessage) json.RawMessage {
	problem := "nested too deep"
	if !TooDeep(metadata) {
		problem = firstViolation(role, string(metadata), nil)
	}
	if problem == "" {
		return metadata
	}
	o.problem("message metadata: " + problem)
	b, _ := json.Marshal(map[string]string{"given": string(metadata)}) // strings can be encoded
	return b
}

// validateRules returns the permission rules that are valid, and the others.
func (o *own) validateRules(given json.RawMessage) (valid, others json.RawMessage) {
	violates := func(rules []byte) bool {
		t := session.Transcript{Session: session.Session{ID: "s", PermissionsJSON: string(rules), MetadataJSON: "{}"}}
		return TooDeep(rules) || len(session.Check(&t)) > 0
	}
	if len(given) == 0 || !violates(given) {
		return given, nil
	}
	o.problem("agenttrace.session.permissions: a rule is not one")
	var rules, good []json.RawMessage
	if json.Unmarshal(given, &rules) != nil {
		return nil, quoted(given)
	}
	for _, r := range rules {
		if !violates([]byte("[" + string(r) + "]")) {
			good = append(good, r)
		}
	}
	if len(good) > 0 {
		valid, _ = json.Marshal(good)
	}
	return valid, quoted(given)
}

// quoted is JSON as text.
func quoted(raw []byte) json.RawMessage {
	b, _ := json.Marshal(string(raw))
	return b
}

// digest returns a SHA-256 in lower-case hex, or "" if the text is not one.
func (o *own) digest(key, given string) string {
	d := strings.ToLower(given)
	if d != "" && (len(d) != 64 || strings.Trim(d, "0123456789abcdef") != "") {
		o.problem(key + ": not a SHA-256 in hex")
		return ""
	}
	return d
}

// MaxTokens and MaxDollars are the greatest count of tokens and the greatest cost that are taken from what a span
// measured: beyond them they are not credible, and their sums would not be exact.
const (
	MaxTokens  = 1 << 40
	MaxDollars = 100_000
)

// count returns a count of tokens, or 0 when it is not credible.
func (o *own) count(n int64) int64 {
	if n < 0 || n > MaxTokens {
		o.problem("a count of tokens is not credible")
		return 0
	}
	return n
}

// cost returns a stated cost, or nil when it is not credible.
func (o *own) cost(usd *float64) *float64 {
	if usd != nil && (*usd < 0 || *usd > MaxDollars) {
		o.problem("agenttrace.cost.usd: not credible")
		return nil
	}
	return usd
}

// boundFact keeps as text what should be JSON of a fact and is not, or is nested deeper than readers follow. Every
// value of a fact comes through here before it is encoded, so that what is written can be read: the decoder of JSON
// ends at 10,000 levels, and a value that is just below them is beyond them within the fact.
func boundFact(f *fact.Fact) {
	bound := func(what string, raw *json.RawMessage, levels int) {
		switch {
		case len(*raw) == 0 || jsonscan.IsValue(*raw, levels):
			return
		case jsonscan.NestsDeeper(*raw, levels):
			f.Problems = append(f.Problems, fmt.Sprintf("%s: JSON nested deeper than %d levels, kept as text", what, levels))
		case json.Valid(*raw):
			return // with space around it
		default:
			f.Problems = append(f.Problems, what+": invalid JSON, kept as text")
		}
		*raw = quoted(*raw)
	}
	parts := func(all []fact.Part) {
		for i := range all {
			p := &all[i]
			bound("input of tool "+p.Name, &p.Input, maxDepth)
			bound("output of tool "+p.Name, &p.Output, maxDepth)
			bound("part of a message", &p.Data, maxDepth)
		}
	}
	for i := range f.Input {
		parts(f.Input[i].Parts)
	}
	parts(f.Output)
	if t := f.Tool; t != nil {
		bound("input of tool "+t.Name, &t.Input, maxDepth)
		bound("output of tool "+t.Name, &t.Output, maxDepth)
	}
	if f.Usage != nil {
		bound("usage", &f.Usage.Raw, maxDepth)
	}
	if f.CostUSD != nil && *f.CostUSD < 0 {
		f.Problems = append(f.Problems, "cost: negative, and left out")
		f.CostUSD = nil
	}
	if a := f.SessionAttrs; a != nil && (TooDeep(a.Rules) || len(a.Rules) > 0 && !json.Valid(a.Rules)) {
		f.Problems = append(f.Problems, "permission rules: nested too deep or invalid, and left out")
		a.Rules = nil
	}
	// It must stay an object, which is a level around its values.
	f.Extra = eachMember(f.Extra, func(m *member) { bound(m.name, &m.value, maxDepth-1) })
	if !json.Valid(f.Extra) {
		f.Extra = nil
	}
	if catalog := json.RawMessage(f.ToolCatalog); TooDeep(catalog) {
		bound("tool catalog", &catalog, maxDepth)
		f.ToolCatalog = string(catalog)
	}
}
