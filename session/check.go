package session

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
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

// Rules returns every rule, in the order in which Check applies them to a row.
// The caller owns the slice.
func Rules() []RuleDoc {
	docs := make([]RuleDoc, len(rules))
	for i, r := range rules {
		docs[i] = RuleDoc{r.name, r.doc}
	}
	return docs
}

// Check validates t against the rules of a canonical session. It returns the violations
// in the order of the rows: the session, then each message followed by its parts. A valid
// session gives nil.
//
// Check shares no code with the packages that build sessions, so it can validate their
// output. It does not change t, never panics, and needs time and memory in proportion to
// t. A nil t is validated as an empty transcript.
//
// A column that contains no valid JSON breaks one rule only: rules that depend on its
// content are not applied.
func Check(t *Transcript) []Violation {
	if t == nil {
		t = new(Transcript)
	}
	c := newChecker(t)
	for i := range rules {
		if f := rules[i].session; f != nil {
			c.rule = rules[i].name
			f(c)
		}
	}
	for i := range c.messages {
		m := &c.messages[i]
		for k := range rules {
			if f := rules[k].message; f != nil {
				c.rule = rules[k].name
				f(c, m)
			}
		}
		for j := range m.row.Parts {
			p := checkedPart{Part: &m.row.Parts[j], message: m, place: j}
			p.data, _ = object(p.DataJSON)
			for k := range rules {
				if f := rules[k].part; f != nil {
					c.rule = rules[k].name
					f(c, &p)
				}
			}
		}
	}
	return c.violations
}

// rule has a function for each kind of row that it applies to.
type rule struct {
	name, doc string
	session   func(*checker)
	message   func(*checker, *checkedMessage)
	part      func(*checker, *checkedPart)
}

// rules is the list of all invariants of a session.
var rules = []rule{
	{name: "ids", doc: "Every session, message and part has an id.",
		session: sessionID, message: messageID, part: partID},
	{name: "unique-ids", doc: "No two messages share an id, and no two parts do.",
		message: messageIDUnique, part: partIDUnique},
	{name: "owner", doc: "A message names its session, a part its message and its session.",
		message: messageOwner, part: partOwner},
	{name: "parent", doc: "A session has a parent_message_id only with a parent_id, and is not its own parent.",
		session: sessionParent},
	{name: "utf8", doc: "Every text column is valid UTF-8.",
		session: sessionUTF8, message: messageUTF8, part: partUTF8},
	{name: "times", doc: "No row was updated before it was created.",
		session: sessionTimes, message: messageTimes, part: partTimes},
	{name: "json",
		doc: "permissions_json is a JSON array; " +
			"metadata_json, data_json and a model_json that is not null are JSON objects.",
		session: sessionJSON, message: messageJSON, part: partJSON},
	{name: "permissions",
		doc: "A permission rule has a permission, a pattern and an action; " +
			"the action is allow, deny or ask, a source is manifest, session or project.",
		session: sessionPermissions},
	{name: "usage", doc: "Token counts are whole numbers and not negative.",
		session: sessionUsage, message: messageUsage},
	{name: "total", doc: "total_tokens is the sum of the five buckets.",
		session: sessionTotal},
	{name: "rollup",
		doc: "The session's buckets are the sums over its visible assistant messages " +
			"since the latest compaction's tail.",
		session: sessionRollup},
	{name: "cost", doc: "cost_usd is a number and not negative.",
		session: sessionCost},
	{name: "role", doc: "A message's role is user, assistant or system.",
		message: messageRole},
	{name: "message-order", doc: "Messages are in order of (created_at, id).",
		message: messageOrder},
	{name: "metadata",
		doc: "The values of a message's metadata_json for model, agent, system prompt and trace " +
			"have the kind of their key.",
		message: messageMetadata},
	{name: "part-index", doc: "The index of a part is not negative, and no other part of the message has it.",
		message: messageIndexes},
	{name: "part-order", doc: "Parts are in order of index.",
		part: partOrder},
	{name: "part-gap",
		doc: "The indexes of a message's parts count from 0 without a gap, " +
			"unless the message is marked incomplete.",
		message: messageGaps},
	{name: "type",
		doc: "A part is text, reasoning, tool-<name>, dynamic-tool, file, source-url, source-document, " +
			"step-start or data-<name>.",
		part: partType},
	{name: "type-column", doc: "A part's type column repeats data_json's type.",
		part: partTypeColumn},
	{name: "text", doc: "A text or reasoning part has a string text, and a state only of streaming or done.",
		part: partText},
	{name: "file", doc: "A file part has a mediaType and a url.",
		part: partFile},
	{name: "source",
		doc:  "A source-url part has a sourceId and a url; a source-document part a sourceId, a mediaType and a title.",
		part: partSource},
	{name: "data", doc: "A data part has data.",
		part: partData},
	{name: "compaction",
		doc: "A data-compaction part is in an assistant message " +
			"and has summary, tail_start_id, auto and summary_tokens in data.",
		part: partCompaction},
	{name: "tool", doc: "A tool part has a toolCallId, and a dynamic one a toolName.",
		part: partTool},
	{name: "tool-columns",
		doc: "tool_call_id and tool_state of a tool part repeat data_json's toolCallId and state; " +
			"other parts have no tool_state.",
		part: partToolColumns},
	{name: "tool-state",
		doc: "A tool part has a known state, what that state needs (input, output, errorText, approval) " +
			"and nothing that it excludes.",
		part: partToolState},
}

// checker is the state of one Check: the rows with their JSON parsed once, and the
// violations so far.
type checker struct {
	t        *Transcript
	messages []checkedMessage
	// rule is the name of the rule being applied.
	rule       string
	violations []Violation

	messageIDs, partIDs map[string]struct{} // of the rows so far
}

type checkedMessage struct {
	row   *MessageAndParts
	place int
	meta  members // nil if metadata_json is not an object
	usage Usage   // the valid counts of meta's usage
}

type checkedPart struct {
	*Part
	message *checkedMessage
	place   int
	data    members // nil if data_json is not an object
}

func newChecker(t *Transcript) *checker {
	c := &checker{
		t:          t,
		messages:   make([]checkedMessage, len(t.Messages)),
		messageIDs: make(map[string]struct{}, len(t.Messages)),
		partIDs:    make(map[string]struct{}),
	}
	for i := range t.Messages {
		m := &c.messages[i]
		m.row, m.place = &t.Messages[i], i
		m.meta, _ = object(m.row.Message.MetadataJSON)
		usage, _ := object(string(m.meta["usage"]))
		for _, b := range m.usage.buckets() {
			if n, ok := count(usage[b.key]); ok {
				*b.n = n
			}
		}
	}
	return c
}

type bucket struct {
	key string
	n   *int64
}

func (u *Usage) buckets() [5]bucket {
	return [5]bucket{
		{"input", &u.Input}, {"output", &u.Output}, {"reasoning", &u.Reasoning},
		{"cache_read", &u.CacheRead}, {"cache_write", &u.CacheWrite},
	}
}

func (c *checker) report(where, format string, args ...any) {
	c.violations = append(c.violations, Violation{c.rule, where, fmt.Sprintf(format, args...)})
}

func (c *checker) where() string {
	if c.t.Session.ID == "" {
		return "session"
	}
	return "session " + c.t.Session.ID
}

func (m *checkedMessage) where() string {
	if m.row.Message.ID == "" {
		return fmt.Sprintf("messages[%d]", m.place)
	}
	return "message " + m.row.Message.ID
}

func (p *checkedPart) where() string {
	if p.ID == "" {
		return fmt.Sprintf("messages[%d].parts[%d]", p.message.place, p.place)
	}
	return "part " + p.ID
}

// maxScanned is the deepest nesting that is scanned; encoding/json takes deeper ones.
const maxScanned = 1000

// members are those of a JSON object; of other text they are nil.
type members map[string]json.RawMessage

// object parses text as a JSON object, whose values share its memory.
func object(text string) (members, bool) {
	o := make(members)
	if jsonscan.Object([]byte(text), maxScanned, func(key string, value json.RawMessage) { o[key] = value }) {
		return o, true
	}
	o = nil
	err := json.Unmarshal([]byte(text), &o)
	return o, err == nil && o != nil
}

// array parses text as a JSON array.
func array(text string) ([]json.RawMessage, bool) {
	var a []json.RawMessage
	err := json.Unmarshal([]byte(text), &a)
	return a, err == nil && a != nil
}

// str reads a JSON string. An absent value is not a string.
func str(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	if s, ok := jsonscan.Unquote(raw); ok {
		return s, true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// count reads a JSON number that is an integer and not negative.
func count(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= 0
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }
func isBool(raw json.RawMessage) bool { return string(raw) == "true" || string(raw) == "false" }

// ContextUsage sums the usage of the messages in the model's context: visible assistant
// messages, from the tail start of the latest visible compaction on. If a compaction
// names no message, or one that is missing, the tail starts with the compaction's own
// message. Positions are (created_at, id), so the result does not depend on the order of
// the slice.
func (t *Transcript) ContextUsage() Usage {
	return t.contextUsage(func(i int) Usage {
		usage, _ := UsageOf(t.Messages[i].Message.MetadataJSON)
		return usage
	})
}

// contextUsage is ContextUsage with the usage of the message at a place.
func (t *Transcript) contextUsage(usage func(place int) Usage) (sum Usage) {
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
			sum = sum.Add(usage(i))
		}
	}
	return sum
}

// compactionTail returns the tail_start_id of the last compaction among the parts, or "".
// It reads both the wrapped form {type, data:{…}} and the flat one.
func compactionTail(parts []Part) (tail string, ok bool) {
	index := int64(math.MinInt64)
	for i := range parts {
		if parts[i].Type != typeCompaction || parts[i].Index < index {
			continue
		}
		data, isObject := object(parts[i].DataJSON)
		if !isObject {
			continue
		}
		if inner, wrapped := object(string(data["data"])); wrapped {
			data = inner
		}
		index, ok = parts[i].Index, true
		tail, _ = str(data["tail_start_id"])
	}
	return tail, ok
}
