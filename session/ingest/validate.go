package ingest

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/internal/nesting"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// The JSON values of a span are validated by the same
// rules as a stored session, because an invalid value would break readers. What
// is invalid is kept as text, so that a person can still read it.

// maxDepth is how deep JSON may be nested. SQLite's JSON functions end at 1000,
// and the value is nested in others.
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
	if isPlain(c.Type, c.Data) {
		return
	}
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

// isPlain reports that valid JSON is a text or reasoning part with nothing but its
// text, as nearly all are.
func isPlain(partType string, data []byte) bool {
	if partType != "text" && partType != "reasoning" {
		return false
	}
	text, begins := bytes.CutPrefix(data, []byte(`{"type":"`+partType+`","text":`))
	text, ends := bytes.CutSuffix(text, []byte("}"))
	return begins && ends && bytes.HasPrefix(text, []byte{'"'}) && jsonscan.IsValue(text, 1)
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
	b, err := json.Marshal(map[string]string{"given": string(metadata)})
	if err != nil {
		return nil
	}
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

// MaxTokens and MaxDollars are the greatest count of tokens and the greatest cost
// that are taken from what a span measured: beyond them they are not credible, and
// their sums would not be exact.
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
