package session

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

// Violation reports that a row breaks a rule.
type Violation struct {
	// Rule is the name of the rule, one of [Rules].
	Rule string `json:"rule"`
	// Where identifies the row: "session ses_…", "message msg_…", "part prt_…", or its
	// place, such as "messages[3].parts[0]", if it has no id.
	Where string `json:"where"`
	// Detail describes the violation to a person.
	Detail string `json:"detail"`
}

// String returns "where: detail [rule]".
func (v Violation) String() string {
	return v.Where + ": " + v.Detail + " [" + v.Rule + "]"
}

// RuleDoc describes a rule that [Check] applies.
type RuleDoc struct {
	// Rule is the name of the rule in a [Violation].
	Rule string `json:"rule"`
	// Doc is the rule in one sentence.
	Doc string `json:"doc"`
}

// rulesText has what each rule of [Check] and of [Notices] demands, and a remedy for each of the latter.
//
//go:embed rules.txt
var rulesText string

var ruleDocs, noticeDocs, remedies = readRules()

func readRules() (rules, notices []RuleDoc, remedies map[string]string) {
	remedies = make(map[string]string)
	for line := range strings.Lines(rulesText) {
		name, doc, _ := strings.Cut(strings.TrimSpace(line), ": ")
		notice, isNotice := strings.CutPrefix(name, "notice ")
		switch {
		case name == "" || line[0] == '#':
		case line[0] == ' ':
			remedies[notices[len(notices)-1].Rule] = strings.TrimSpace(line)
		case isNotice:
			notices = append(notices, RuleDoc{notice, doc})
		default:
			rules = append(rules, RuleDoc{name, doc})
		}
	}
	return rules, notices, remedies
}

// Rules returns every rule, in the order in which Check applies them to a row. The caller owns the slice.
func Rules() []RuleDoc { return slices.Clone(ruleDocs) }

// NoticeRules returns the rules of [Notices]. The caller owns the slice.
func NoticeRules() []RuleDoc { return slices.Clone(noticeDocs) }

// Check validates t against the rules of a canonical session. It returns the violations in the order of the rows: the
// session, then each message followed by its parts. A valid session gives nil.
//
// Check shares no code with the packages that build sessions, so it can validate their output. It does not change t,
// never panics, and needs time and memory in proportion to t. A nil t is validated as an empty transcript.
//
// A column that contains no valid JSON breaks one rule only: rules that depend on its content are not applied.
func Check(t *Transcript) []Violation {
	if t == nil {
		t = new(Transcript)
	}
	c := checker{t: t, ids: make(map[rowID]bool)}
	c.apply(&checkedRow{kind: ofSession, path: "session", id: t.Session.ID, created: t.Session.CreatedAt,
		updated: t.Session.UpdatedAt})
	var before *checkedRow
	for i := range t.Messages {
		m := &t.Messages[i]
		row := &checkedRow{kind: ofMessage, path: fmt.Sprintf("messages[%d]", i), id: m.Message.ID,
			created: m.Message.CreatedAt, updated: m.Message.UpdatedAt, message: m, before: before}
		row.data, _ = object(m.Message.MetadataJSON)
		c.apply(row)
		before = row
		for j := range m.Parts {
			c.apply(row.below(j))
		}
	}
	return c.violations
}

// rowKind is a kind of row, or several in the table of rules.
type rowKind int

const (
	ofSession rowKind = 1 << iota
	ofMessage
	ofPart
	// ofData are parts whose data_json is an object.
	ofData

	ofAny = ofSession | ofMessage | ofPart
)

// checkedRow is a row of the session with its JSON parsed once.
type checkedRow struct {
	kind rowKind
	// path is the place of the row, such as "messages[3].parts[0]".
	path, id         string
	created, updated int64
	// message is that of a message or a part, and before the row of the message before it. part is that of a part, and
	// index its place.
	message *MessageAndParts
	before  *checkedRow
	part    *Part
	index   int
	data    members // metadata_json or data_json, nil if that is not an object
}

// below is the row of a part of the message.
func (r *checkedRow) below(j int) *checkedRow {
	p := &r.message.Parts[j]
	row := &checkedRow{kind: ofPart, path: fmt.Sprintf("%s.parts[%d]", r.path, j), id: p.ID, created: p.CreatedAt,
		updated: p.UpdatedAt, message: r.message, part: p, index: j}
	row.data, _ = object(p.DataJSON)
	return row
}

// kindNames are the kinds of rows in details.
var kindNames = map[rowKind]string{ofSession: "session", ofMessage: "message", ofPart: "part"}

func (r *checkedRow) where() string {
	if r.id == "" {
		return r.path
	}
	return kindNames[r.kind] + " " + r.id
}

// checker is the state of one Check.
type checker struct {
	t          *Transcript
	ids        map[rowID]bool // of the rows so far
	violations []Violation
	// rule is the name of the rule being applied to row.
	rule string
	row  *checkedRow
}

type rowID struct {
	kind rowKind
	id   string
}

// apply applies all rules to a row.
func (c *checker) apply(r *checkedRow) {
	kinds := r.kind
	if r.part != nil && r.data != nil {
		kinds |= ofData
	}
	for i := range rules {
		if c.rule, c.row = rules[i].name, r; rules[i].of&kinds != 0 {
			rules[i].check(c, r)
		}
	}
}

func (c *checker) report(format string, args ...any) {
	c.violations = append(c.violations, Violation{c.rule, c.row.where(), fmt.Sprintf(format, args...)})
}

// reportIf reports what breaks the rule if it does.
func (c *checker) reportIf(broken bool, format string, args ...any) {
	if broken {
		c.report(format, args...)
	}
}

// shape is what an object has to have: keys with values of a kind.
type shape []struct {
	key      string
	kind     valueKind
	optional bool // the key may be absent
}

// want reports the keys of an object whose value is not what it has to be. path is where the object is.
func (c *checker) want(s shape, o members, path string) {
	for _, k := range s {
		if raw, has := o[k.key]; (has || !k.optional) && !k.kind.is(raw) {
			c.report("%s%s is %s, want %s", path, k.key, show(raw), k.kind.name)
		}
	}
}

// valueKind is what a value has to be.
type valueKind struct {
	name string
	is   func(json.RawMessage) bool
}

var (
	aString     = valueKind{"a string", isString}
	aName       = valueKind{"a name", func(raw json.RawMessage) bool { return text(raw) != "" }}
	aBool       = valueKind{"true or false", isBool}
	aCount      = valueKind{"a count", isCount}
	aTime       = valueKind{"milliseconds", isCount}
	anOptional  = valueKind{"a string", func(raw json.RawMessage) bool { return isNull(raw) || isString(raw) }}
	aMessageID  = valueKind{"a message id or null", anOptional.is}
	aDigest     = valueKind{"a SHA-256 in lower-case hex", func(raw json.RawMessage) bool { return isDigest(text(raw)) }}
	aTextState  = oneOf("streaming or done", "streaming", "done")
	aRuleAction = oneOf("allow, deny or ask", "allow", "deny", "ask")
	aRuleSource = oneOf("manifest, session or project", "manifest", "session", "project")
)

func oneOf(name string, texts ...string) valueKind {
	return valueKind{name, func(raw json.RawMessage) bool { return slices.Contains(texts, text(raw)) }}
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }
func isNull(raw json.RawMessage) bool   { return string(raw) == "null" }
func isBool(raw json.RawMessage) bool   { return string(raw) == "true" || string(raw) == "false" }

func isCount(raw json.RawMessage) bool {
	_, ok := count(raw)
	return ok
}

var sha256Hex = lazy.Regexp("^[0-9a-f]{64}$")

func isDigest(s string) bool { return sha256Hex().MatchString(s) }

// show returns a JSON value for a detail, truncated to a line.
func show(raw json.RawMessage) string {
	const maxNumber = 60
	switch {
	case raw == nil:
		return "(none)"
	case len(raw) > maxNumber:
		n := maxNumber
		for !utf8.RuneStart(raw[n]) {
			n--
		}
		return string(raw[:n]) + "…"
	}
	return string(raw)
}

// members are those of a JSON object; of other text they are nil.
type members map[string]json.RawMessage

// object parses text as a JSON object.
func object(text string) (o members, ok bool) {
	err := json.Unmarshal([]byte(text), &o)
	return o, err == nil && o != nil
}

// array parses text as a JSON array.
func array(text string) ([]json.RawMessage, bool) {
	var a []json.RawMessage
	err := json.Unmarshal([]byte(text), &a)
	return a, err == nil && a != nil
}

// text reads a JSON string; of another value it is "".
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// count reads a JSON number that is an integer and not negative.
func count(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= 0
}

// ContextUsage sums the usage of the messages in the model's context: visible assistant messages, from the tail start
// of the latest visible compaction on. If a compaction names no message, or one that is missing, the tail starts with
// the compaction's own message. Positions are (created_at, id), so the result does not depend on the order of the
// slice.
func (t *Transcript) ContextUsage() (sum Usage) {
	var start *Message
	var tail string
	for i := range t.Messages {
		m := &t.Messages[i].Message
		if m.HiddenAt != nil || start != nil && m.Compare(start) < 0 {
			continue
		}
		if id, ok := compactionTail(t.Messages[i].Parts); ok {
			start, tail = m, id
		}
	}
	for i := range t.Messages {
		if m := &t.Messages[i].Message; tail != "" && m.ID == tail {
			start = m
			break
		}
	}
	for i := range t.Messages {
		m := &t.Messages[i].Message
		if m.Role == RoleAssistant && m.HiddenAt == nil && (start == nil || m.Compare(start) >= 0) {
			usage, _ := UsageOf(m.MetadataJSON)
			sum = sum.Add(usage)
		}
	}
	return sum
}

// compactionTail returns the tail_start_id of the last compaction among the parts, or "".
func compactionTail(parts []Part) (tail string, ok bool) {
	index := int64(math.MinInt64)
	for i := range parts {
		p := &parts[i]
		if p.Type != TypeCompaction || p.Index < index {
			continue
		}
		if _, isObject := object(p.DataJSON); isObject {
			index, ok, tail = p.Index, true, TailStartID(p.DataJSON)
		}
	}
	return tail, ok
}
