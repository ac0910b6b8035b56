package session

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// ruleTexts are read when the first is asked for.
var ruleTexts = sync.OnceValue(func() (all struct {
	rules, notices []RuleDoc
	remedies       map[string]string
}) {
	all.remedies = make(map[string]string)
	for line := range strings.Lines(rulesText) {
		name, doc, _ := strings.Cut(strings.TrimSpace(line), ": ")
		notice, isNotice := strings.CutPrefix(name, "notice ")
		switch {
		case name == "" || line[0] == '#':
		case line[0] == ' ':
			all.remedies[all.notices[len(all.notices)-1].Rule] = strings.TrimSpace(line)
		case isNotice:
			all.notices = append(all.notices, RuleDoc{notice, doc})
		default:
			all.rules = append(all.rules, RuleDoc{name, doc})
		}
	}
	return all
})

// Rules returns every rule, in the order in which Check applies them to a row. The caller owns the slice.
func Rules() []RuleDoc { return slices.Clone(ruleTexts().rules) }

// NoticeRules returns the rules of [Notices]. The caller owns the slice.
func NoticeRules() []RuleDoc { return slices.Clone(ruleTexts().notices) }

// Check validates t against the rules of a canonical session. It returns the violations in the order of the rows: the
// session, then each message followed by its parts. A valid session gives nil.
//
// Check shares no code with the packages that build sessions, so it can validate their output. It does not change t,
// never panics, and needs time and memory in proportion to t. A nil t is validated as an empty transcript.
//
// A column that contains no valid JSON breaks one rule only: rules that depend on its content are not applied.
func Check(t *Transcript) []Violation {
	t = cmp.Or(t, new(Transcript))
	c := checker{t: t, seen: make(map[string]bool)}
	c.apply(&checkedRow{kind: ofSession, path: "session", id: t.Session.ID, created: t.Session.CreatedAt,
		updated: t.Session.UpdatedAt})
	var before *checkedRow
	for i := range t.Messages {
		m := &t.Messages[i]
		row := &checkedRow{kind: ofMessage, path: fmt.Sprintf("messages[%d]", i), id: m.Message.ID,
			created: m.Message.CreatedAt, updated: m.Message.UpdatedAt, message: m, before: before}
		row.data = object(m.Message.MetadataJSON)
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
	row.data = object(p.DataJSON)
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
	seen       map[string]bool // where the rows so far are
	violations []Violation
	// rule is the name of the rule being applied to row.
	rule string
	row  *checkedRow
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
	if len(raw) > maxNumber {
		return strings.ToValidUTF8(string(raw[:maxNumber]), "") + "…"
	}
	return cmp.Or(string(raw), "(none)")
}

// members are those of a JSON object; of other text they are nil.
type members map[string]json.RawMessage

// object parses text as a JSON object.
func object(text string) (o members) {
	_ = json.Unmarshal([]byte(text), &o)
	return o
}

// array parses text as a JSON array; of other text it is nil.
func array(text string) (a []json.RawMessage) {
	_ = json.Unmarshal([]byte(text), &a)
	return a
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
	i := slices.IndexFunc(t.Messages, func(m MessageAndParts) bool { return tail != "" && m.Message.ID == tail })
	if i >= 0 {
		start = &t.Messages[i].Message
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
		if p.Type == TypeCompaction && p.Index >= index && object(p.DataJSON) != nil {
			index, ok, tail = p.Index, true, TailStartID(p.DataJSON)
		}
	}
	return tail, ok
}

// rule is one of the invariants of a session, and the rows that it is applied to.
type rule struct {
	name string
	of   rowKind
	// check reports with [checker.report] how the row breaks the rule.
	check func(*checker, *checkedRow)
}

// rules is the list of all invariants of a session. Those on parts are what the AI SDK v6 requires of a UIMessagePart,
// and which values the columns beside data_json repeat.
var rules = []rule{
	{"ids", ofAny, func(c *checker, r *checkedRow) {
		c.reportIf(r.id == "", "id is empty")
	}},
	{"unique-ids", ofMessage | ofPart, func(c *checker, r *checkedRow) {
		c.reportIf(c.seen[r.where()], "%s has the id of an earlier %s", r.path, kindNames[r.kind])
		c.seen[r.where()] = true
	}},
	{"owner", ofMessage | ofPart, checkOwner},
	{"parent", ofSession, checkParent},
	{"utf8", ofAny, checkUTF8},
	{"times", ofAny, func(c *checker, r *checkedRow) {
		c.reportIf(r.updated < r.created, "updated_at %d is before created_at %d", r.updated, r.created)
	}},
	{"json", ofAny, checkJSON},
	{"permissions", ofSession, checkPermissions},
	{"usage", ofSession | ofMessage, checkUsage},
	{"total", ofSession, func(c *checker, _ *checkedRow) {
		got, want := c.t.Session.TotalTokens, c.t.Session.Usage().Total()
		c.reportIf(got != want, "total_tokens is %d, the buckets sum to %d", got, want)
	}},
	{"rollup", ofSession, func(c *checker, _ *checkedRow) {
		got, want := c.t.Session.Usage(), c.t.ContextUsage()
		c.reportIf(got != want, "buckets are %+v, the messages that count sum to %+v", got, want)
	}},
	{"cost", ofSession, func(c *checker, _ *checkedRow) {
		cost := c.t.Session.CostUSD
		c.reportIf(!(cost >= 0) || math.IsInf(cost, 0), "cost_usd is %v", cost)
	}},
	{"role", ofMessage, func(c *checker, r *checkedRow) {
		role := r.message.Message.Role
		c.reportIf(role != RoleUser && role != RoleAssistant && role != RoleSystem, "role is %q", role)
	}},
	{"message-order", ofMessage, func(c *checker, r *checkedRow) {
		if r.before != nil && r.message.Message.Compare(&r.before.message.Message) < 0 {
			c.report("comes after %s, which is later", r.before.where())
		}
	}},
	{"metadata", ofMessage, checkMetadata},
	{"part-index", ofMessage, checkIndexes},
	{"part-order", ofPart, func(c *checker, r *checkedRow) {
		if r.index > 0 {
			before := r.message.Parts[r.index-1].Index
			c.reportIf(r.part.Index < before, "index %d comes after index %d", r.part.Index, before)
		}
	}},
	{"part-gap", ofMessage, checkGaps},
	{"type", ofPart, checkType},
	{"type-column", ofData, func(c *checker, r *checkedRow) {
		raw := r.data["type"]
		c.reportIf(!isString(raw) || text(raw) != r.part.Type, "type is %q, in data_json it is %s", r.part.Type,
			show(raw))
	}},
	{"text", ofData, checkShape},
	{"file", ofData, checkShape},
	{"source", ofData, checkShape},
	{"data", ofData, checkData},
	{"compaction", ofData, checkCompaction},
	{"tool", ofData, checkShape},
	{"tool-columns", ofPart, checkToolColumns},
	{"tool-state", ofData, checkToolState},
}

// partShapes are what the data_json of parts has to have, by rule and type.
var partShapes = map[string]map[string]shape{
	"text": {"text": textShape, "reasoning": textShape},
	"file": {"file": {{"mediaType", aString, false}, {"url", aString, false}, {"filename", aString, true}}},
	"source": {
		"source-url": {{"sourceId", aString, false}, {"url", aString, false}, {"title", aString, true}},
		"source-document": {{"sourceId", aString, false}, {"mediaType", aString, false}, {"title", aString, false},
			{"filename", aString, true}},
	},
	"tool": {
		"tool-": {{"toolCallId", aString, false}, {"toolName", aString, true}, {"providerExecuted", aBool, true}},
		"dynamic-tool": {{"toolCallId", aString, false}, {"toolName", aString, false},
			{"providerExecuted", aBool, true}},
	},
}

// The shapes of parts of several types, and of other objects.
var (
	textShape       = shape{{"text", aString, false}, {"state", aTextState, true}}
	metadataShape   = shape{{"agent", anOptional, true}, {"system_prompt_digest", aDigest, true}}
	compactionShape = shape{{"summary", aString, false}, {"tail_start_id", aMessageID, true}, {"auto", aBool, true},
		{"summary_tokens", aCount, true}}
	permissionShape = shape{{"permission", aName, false}, {"pattern", aString, false}, {"action", aRuleAction, false},
		{"source", aRuleSource, true}, {"added_at", aTime, true}}
	usageShape = shape{{"input", aCount, true}, {"output", aCount, true}, {"reasoning", aCount, true},
		{"cache_read", aCount, true}, {"cache_write", aCount, true}}
	approvalShape = shape{{"id", aString, false}}
	reasonShape   = shape{{"reason", aString, true}}
)

func checkShape(c *checker, r *checkedRow) {
	c.want(partShapes[c.rule][typeFamily(r.part.Type)], r.data, "")
}

func checkOwner(c *checker, r *checkedRow) {
	got := r.message.Message.SessionID
	if r.part != nil {
		of, want := r.part.MessageID, r.message.Message.ID
		c.reportIf(of != want, "message_id is %q, want %q", of, want)
		got = r.part.SessionID
	}
	c.reportIf(got != c.t.Session.ID, "session_id is %q, want %q", got, c.t.Session.ID)
}

func checkParent(c *checker, _ *checkedRow) {
	s := &c.t.Session
	if s.ParentMessageID != nil && s.ParentID == nil {
		c.report("parent_message_id is %q, but parent_id is null", *s.ParentMessageID)
	}
	c.reportIf(s.ParentID != nil && *s.ParentID == s.ID, "parent_id is the session's own id")
}

func checkUTF8(c *checker, r *checkedRow) {
	var columns []string
	switch r.kind {
	case ofSession:
		columns = SessionColumns().InvalidUTF8(&c.t.Session)
	case ofMessage:
		columns = MessageColumns().InvalidUTF8(&r.message.Message)
	default:
		columns = PartColumns().InvalidUTF8(r.part)
	}
	for _, column := range columns {
		c.report("%s is not valid UTF-8", column)
	}
}

func checkJSON(c *checker, r *checkedRow) {
	s := &c.t.Session
	switch r.kind {
	case ofMessage:
		c.reportIf(r.data == nil, "metadata_json is not a JSON object")
	case ofPart:
		c.reportIf(r.data == nil, "data_json is not a JSON object")
	default:
		c.reportIf(array(s.PermissionsJSON) == nil, "permissions_json is not a JSON array")
		c.reportIf(object(s.MetadataJSON) == nil, "metadata_json is not a JSON object")
		c.reportIf(s.ModelJSON != nil && object(*s.ModelJSON) == nil, "model_json is neither null nor a JSON object")
	}
}

func checkPermissions(c *checker, _ *checkedRow) {
	for i, raw := range array(c.t.Session.PermissionsJSON) {
		if r := object(string(raw)); r != nil {
			c.want(permissionShape, r, fmt.Sprintf("permissions_json[%d].", i))
		} else {
			c.report("permissions_json[%d] is not an object", i)
		}
	}
}

func checkUsage(c *checker, r *checkedRow) {
	if r.kind == ofSession {
		columns := []string{"prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write"}
		for i, n := range c.t.Session.Usage().buckets() {
			c.reportIf(n < 0, "%s is %d", columns[i], n)
		}
		return
	}
	raw, has := r.data["usage"]
	if !has || isNull(raw) {
		return
	}
	if usage := object(string(raw)); usage != nil {
		c.want(usageShape, usage, "usage.")
	} else {
		c.report("usage is %s, want an object", show(raw))
	}
}

func checkMetadata(c *checker, r *checkedRow) {
	if raw, has := r.data["model"]; has && !isNull(raw) {
		if err := decodeValue("model", raw, new(Model)); err != nil {
			c.report("%v", err)
		}
	}
	c.want(metadataShape, r.data, "")
	if raw, has := r.data["agenttrace"]; has {
		var trace MessageTrace
		if err := decodeValue("agenttrace", raw, &trace); err != nil {
			c.report("%v", err)
		} else if d := trace.ToolCatalogDigest; d != "" && !isDigest(d) {
			c.report("agenttrace.tool_catalog_digest is %q, want %s", d, aDigest.name)
		}
	}
}

// checkIndexes reports with the rows of the parts.
func checkIndexes(c *checker, r *checkedRow) {
	seen := make(map[int64]bool, len(r.message.Parts))
	for j := range r.message.Parts {
		p := &r.message.Parts[j]
		c.row = &checkedRow{kind: ofPart, id: p.ID, path: fmt.Sprintf("%s.parts[%d]", r.path, j)}
		c.reportIf(p.Index < 0, "index is %d", p.Index)
		c.reportIf(seen[p.Index], "index %d is taken by an earlier part", p.Index)
		seen[p.Index] = true
	}
}

func checkGaps(c *checker, r *checkedRow) {
	places := make(map[int64]bool, len(r.message.Parts))
	last := int64(-1)
	for j := range r.message.Parts {
		if index := r.message.Parts[j].Index; index >= 0 {
			places[index] = true
			last = max(last, index)
		}
	}
	missing := int64(0)
	for places[missing] {
		missing++
	}
	incomplete := string(object(string(r.data["agenttrace"]))["incomplete"]) == "true"
	c.reportIf(missing <= last && !incomplete, "has %d parts up to index %d; %d is missing", len(places), last, missing)
}

// IsToolType reports whether parts of a type are tool calls: of a tool that the type names after
// "tool-", or of one that the part names. [Check] reports a type that names none.
func IsToolType(partType string) bool {
	return strings.HasPrefix(partType, "tool-") || partType == "dynamic-tool"
}

// typeFamily returns the type of a part, of which a name after "tool-" or "data-" is left out. It is "" if there is no
// name.
func typeFamily(partType string) string {
	for _, prefix := range []string{"tool-", "data-"} {
		if partType == prefix {
			return ""
		} else if strings.HasPrefix(partType, prefix) {
			return prefix
		}
	}
	return partType
}

// isTool reports whether the part is a tool call of a type that is valid.
func (r *checkedRow) isTool() bool {
	family := typeFamily(r.part.Type)
	return family == "tool-" || family == "dynamic-tool"
}

func checkType(c *checker, r *checkedRow) {
	switch typeFamily(r.part.Type) {
	case "text", "reasoning", "dynamic-tool", "file", "source-url", "source-document", "step-start", "tool-", "data-":
	default:
		c.report("type is %q", r.part.Type)
	}
}

func checkData(c *checker, r *checkedRow) {
	// A compaction without data violates a separate rule.
	if r.part.Type == TypeCompaction || typeFamily(r.part.Type) != "data-" {
		return
	}
	_, has := r.data["data"]
	c.reportIf(!has, "data is missing")
	c.want(shape{{"id", aString, true}}, r.data, "")
}

// checkCompaction requires the form that the AI SDK accepts. The flat form of the guide is
// a violation here, although readers of compactions accept it.
func checkCompaction(c *checker, r *checkedRow) {
	if r.part.Type != TypeCompaction {
		return
	}
	role := r.message.Message.Role
	c.reportIf(role != RoleAssistant, "is in a message of role %q", role)
	if data := object(string(r.data["data"])); data != nil {
		c.want(compactionShape, data, "data.")
	} else if _, flat := r.data["summary"]; flat {
		c.report("is flat: wrap its fields in data")
	} else {
		c.report("data is %s, want an object", show(r.data["data"]))
	}
}

func checkToolColumns(c *checker, r *checkedRow) {
	if !r.isTool() {
		if r.part.ToolState != nil {
			c.report("tool_state is %q on a part of type %q", *r.part.ToolState, r.part.Type)
		}
		return
	}
	if r.data == nil {
		return
	}
	for _, repeated := range []struct {
		column string
		got    *string
		key    string
	}{{"tool_call_id", r.part.ToolCallID, "toolCallId"}, {"tool_state", r.part.ToolState, "state"}} {
		raw := r.data[repeated.key]
		switch got, has, want := repeated.got, isString(raw), text(raw); {
		case got == nil && has:
			c.report("%s is null, %s is %q", repeated.column, repeated.key, want)
		case got != nil && (!has || *got != want):
			c.report("%s is %q, %s is %s", repeated.column, *got, repeated.key, show(raw))
		}
	}
}

// toolStates has the values that each state of a tool part requires. It excludes an output and an errorText that are not
// among them.
var toolStates = map[string]struct {
	needs []string
	// approval is what the approval of its call must be: nothing, or else its answer is one of these values of JSON,
	// where "" is an approval without an answer.
	approval []string
	// optional reports that it need not be there.
	optional bool
	// may are keys of this state alone.
	may shape
}{
	StateInputStreaming:    {nil, nil, true, nil},
	StateInputAvailable:    {[]string{"input"}, nil, true, nil},
	StateApprovalRequested: {[]string{"input"}, []string{""}, false, nil},
	StateApprovalResponded: {[]string{"input"}, []string{"true", "false"}, false, nil},
	StateOutputAvailable:   {[]string{"input", "output"}, []string{"true"}, true, shape{{"preliminary", aBool, true}}},
	StateOutputError:       {[]string{"errorText"}, []string{"true"}, true, shape{{"errorText", aString, true}}},
	StateOutputDenied:      {[]string{"input"}, []string{"false"}, false, nil},
}

func checkToolState(c *checker, r *checkedRow) {
	if !r.isTool() {
		return
	}
	name := text(r.data["state"])
	state, known := toolStates[name]
	if !known {
		c.report("state is %s", show(r.data["state"]))
		return
	}
	for _, key := range state.needs {
		c.reportIf(r.data[key] == nil, "state is %s, but %s is missing", name, key)
	}
	for _, key := range []string{"output", "errorText"} {
		c.reportIf(r.data[key] != nil && !slices.Contains(state.needs, key), "state is %s, but there is %s", name, key)
	}
	c.want(state.may, r.data, "")
	raw, has := r.data["approval"]
	switch {
	case !has && !state.optional:
		c.report("state is %s, but approval is missing", name)
	case has && state.approval == nil:
		c.report("state is %s, but there is approval", name)
	case has:
		c.approval(name, raw, state.approval)
	}
}

// approval checks the approval of a tool call, whose answer must be one of those given.
func (c *checker) approval(state string, raw json.RawMessage, answers []string) {
	approval := object(string(raw))
	if approval == nil {
		c.report("approval is %s, want an object", show(raw))
		return
	}
	c.want(approvalShape, approval, "approval.")
	answer, answered := approval["approved"]
	_, reasoned := approval["reason"]
	if answers[0] == "" {
		c.reportIf(answered || reasoned, "state is %s, but approval has an answer", state)
		return
	}
	right := slices.Contains(answers, string(answer))
	c.reportIf(!right, "state is %s, but approval.approved is %s", state, show(answer))
	c.want(reasonShape, approval, "approval.")
}
