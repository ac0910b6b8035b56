package session

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
)

// rule is one of the invariants of a session, and the rows that it is applied to.
type rule struct {
	name string
	of   rowKind
	doc  string
	// check reports with [checker.report] how the row breaks the rule.
	check func(*checker, *checkedRow)
}

// rules is the list of all invariants of a session. Those on parts are what the AI SDK v6 requires of a UIMessagePart,
// and which values the columns beside data_json repeat.
var rules = []rule{
	{"ids", ofAny, "Every session, message and part has an id.", checkID},
	{"unique-ids", ofMessage | ofPart, "No two messages share an id, and no two parts do.", checkUniqueID},
	{"owner", ofMessage | ofPart, "A message names its session, a part its message and its session.", checkOwner},
	{"parent", ofSession,
		"A session has a parent_message_id only with a parent_id, and is not its own parent.", checkParent},
	{"utf8", ofAny, "Every text column is valid UTF-8.", checkUTF8},
	{"times", ofAny, "No row was updated before it was created.", checkTimes},
	{"json", ofAny, "permissions_json is a JSON array; " +
		"metadata_json, data_json and a model_json that is not null are JSON objects.", checkJSON},
	{"permissions", ofSession, "A permission rule has a permission, a pattern and an action; " +
		"the action is allow, deny or ask, a source is manifest, session or project.", checkPermissions},
	{"usage", ofSession | ofMessage, "Token counts are whole numbers and not negative.", checkUsage},
	{"total", ofSession, "total_tokens is the sum of the five buckets.", checkTotal},
	{"rollup", ofSession, "The session's buckets are the sums over its visible assistant messages " +
		"since the latest compaction's tail.", checkRollup},
	{"cost", ofSession, "cost_usd is a number and not negative.", checkCost},
	{"role", ofMessage, "A message's role is user, assistant or system.", checkRole},
	{"message-order", ofMessage, "Messages are in order of (created_at, id).", checkMessageOrder},
	{"metadata", ofMessage, "The values of a message's metadata_json for model, agent, system prompt and trace " +
		"have the kind of their key.", checkMetadata},
	{"part-index", ofMessage, "The index of a part is not negative, and no other part of the message has it.",
		checkIndexes},
	{"part-order", ofPart, "Parts are in order of index.", checkPartOrder},
	{"part-gap", ofMessage, "The indexes of a message's parts count from 0 without a gap, " +
		"unless the message is marked incomplete.", checkGaps},
	{"type", ofPart, "A part is text, reasoning, tool-<name>, dynamic-tool, file, source-url, source-document, " +
		"step-start or data-<name>.", checkType},
	{"type-column", ofData, "A part's type column repeats data_json's type.", checkTypeColumn},
	{"text", ofData, "A text or reasoning part has a string text, and a state only of streaming or done.", checkText},
	{"file", ofData, "A file part has a mediaType and a url.", checkFile},
	{"source", ofData,
		"A source-url part has a sourceId and a url; a source-document part a sourceId, a mediaType and a title.",
		checkSource},
	{"data", ofData, "A data part has data.", checkData},
	{"compaction", ofData, "A data-compaction part is in an assistant message " +
		"and has summary, tail_start_id, auto and summary_tokens in data.", checkCompaction},
	{"tool", ofData, "A tool part has a toolCallId, and a dynamic one a toolName.", checkTool},
	{"tool-columns", ofPart, "tool_call_id and tool_state of a tool part repeat data_json's toolCallId and state; " +
		"other parts have no tool_state.", checkToolColumns},
	{"tool-state", ofData, "A tool part has a known state, what that state needs (input, output, errorText, approval) " +
		"and nothing that it excludes.", checkToolState},
}

func checkID(c *checker, r *checkedRow) {
	if r.id == "" {
		c.report("id is empty")
	}
}

func checkUniqueID(c *checker, r *checkedRow) {
	id := rowID{r.kind, r.id}
	if c.ids[id] && r.id != "" {
		c.report("%s has the id of an earlier %s", r.path(), kindNames[r.kind])
	}
	c.ids[id] = true
}

func checkOwner(c *checker, r *checkedRow) {
	got := r.message.Message.SessionID
	if r.part != nil {
		if got, want := r.part.MessageID, r.message.Message.ID; got != want {
			c.report("message_id is %q, want %q", got, want)
		}
		got = r.part.SessionID
	}
	if want := c.t.Session.ID; got != want {
		c.report("session_id is %q, want %q", got, want)
	}
}

func checkParent(c *checker, _ *checkedRow) {
	s := &c.t.Session
	if s.ParentMessageID != nil && s.ParentID == nil {
		c.report("parent_message_id is %q, but parent_id is null", *s.ParentMessageID)
	}
	if s.ParentID != nil && *s.ParentID == s.ID {
		c.report("parent_id is the session's own id")
	}
}

func checkUTF8(c *checker, r *checkedRow) {
	var columns []string
	switch r.kind {
	case ofSession:
		columns = SessionColumns.InvalidUTF8(&c.t.Session)
	case ofMessage:
		columns = MessageColumns.InvalidUTF8(&r.message.Message)
	default:
		columns = PartColumns.InvalidUTF8(r.part)
	}
	for _, column := range columns {
		c.report("%s is not valid UTF-8", column)
	}
}

func checkTimes(c *checker, r *checkedRow) {
	if r.updated < r.created {
		c.report("updated_at %d is before created_at %d", r.updated, r.created)
	}
}

func checkJSON(c *checker, r *checkedRow) {
	s := &c.t.Session
	switch r.kind {
	case ofMessage:
		if r.data == nil {
			c.report("metadata_json is not a JSON object")
		}
		return
	case ofPart:
		if r.data == nil {
			c.report("data_json is not a JSON object")
		}
		return
	}
	if _, ok := array(s.PermissionsJSON); !ok {
		c.report("permissions_json is not a JSON array")
	}
	if _, ok := object(s.MetadataJSON); !ok {
		c.report("metadata_json is not a JSON object")
	}
	if s.ModelJSON != nil {
		if _, ok := object(*s.ModelJSON); !ok {
			c.report("model_json is neither null nor a JSON object")
		}
	}
}

func checkPermissions(c *checker, _ *checkedRow) {
	list, _ := array(c.t.Session.PermissionsJSON)
	for i, raw := range list {
		r, ok := object(string(raw))
		if !ok {
			c.report("permissions_json[%d] is not an object", i)
			continue
		}
		if text(r["permission"]) == "" {
			c.report("permissions_json[%d] has no permission", i)
		}
		if !isString(r["pattern"]) {
			c.report("permissions_json[%d] has no pattern", i)
		}
		for _, k := range []struct {
			key      string
			kind     valueKind
			optional bool
		}{{"action", aRuleAction, false}, {"source", aRuleSource, true}, {"added_at", aTime, true}} {
			if raw, has := r[k.key]; (has || !k.optional) && !k.kind.is(raw) {
				c.report("permissions_json[%d] has %s %s, want %s", i, k.key, show(raw), k.kind.name)
			}
		}
	}
}

func checkUsage(c *checker, r *checkedRow) {
	if r.kind == ofSession {
		columns := []string{"prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write"}
		for i, b := range new(c.t.Session.Usage()).buckets() {
			if *b.n < 0 {
				c.report("%s is %d", columns[i], *b.n)
			}
		}
		return
	}
	raw, has := r.data["usage"]
	if !has || isNull(raw) {
		return
	}
	usage, ok := object(string(raw))
	if !ok {
		c.report("usage is %s, want an object", show(raw))
		return
	}
	for _, b := range new(Usage).buckets() {
		if raw, has := usage[b.key]; has && !isCount(raw) {
			c.report("usage.%s is %s", b.key, show(raw))
		}
	}
}

func checkTotal(c *checker, _ *checkedRow) {
	if got, want := c.t.Session.TotalTokens, c.t.Session.Usage().Total(); got != want {
		c.report("total_tokens is %d, the buckets sum to %d", got, want)
	}
}

func checkRollup(c *checker, _ *checkedRow) {
	if got, want := c.t.Session.Usage(), c.t.ContextUsage(); got != want {
		c.report("buckets are %+v, the messages that count sum to %+v", got, want)
	}
}

func checkCost(c *checker, _ *checkedRow) {
	if cost := c.t.Session.CostUSD; !(cost >= 0) || math.IsInf(cost, 0) {
		c.report("cost_usd is %v", cost)
	}
}

func checkRole(c *checker, r *checkedRow) {
	switch r.message.Message.Role {
	case RoleUser, RoleAssistant, RoleSystem:
	default:
		c.report("role is %q", r.message.Message.Role)
	}
}

func checkMessageOrder(c *checker, r *checkedRow) {
	if r.place == 0 {
		return
	}
	if before := &c.messages[r.place-1]; r.message.Message.Compare(&before.message.Message) < 0 {
		c.report("comes after %s, which is later", before.where())
	}
}

func checkMetadata(c *checker, r *checkedRow) {
	if raw, has := r.data["model"]; has && !isNull(raw) {
		if err := decodeRow(raw, new(Model)); err != nil {
			c.report("model: %v", err)
		}
	}
	c.may(anOptional, r.data, "", "agent")
	c.may(aDigest, r.data, "", "system_prompt_digest")
	if raw, has := r.data["agenttrace"]; has {
		var trace MessageTrace
		if err := decodeRow(raw, &trace); err != nil {
			c.report("agenttrace: %v", err)
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
		c.row = &checkedRow{kind: ofPart, id: p.ID, place: r.place, index: j}
		if p.Index < 0 {
			c.report("index is %d", p.Index)
		}
		if seen[p.Index] {
			c.report("index %d is taken by an earlier part", p.Index)
		}
		seen[p.Index] = true
	}
}

func checkPartOrder(c *checker, r *checkedRow) {
	if r.index == 0 {
		return
	}
	if before := r.message.Parts[r.index-1].Index; r.part.Index < before {
		c.report("index %d comes after index %d", r.part.Index, before)
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
	n := int64(len(places))
	if last < n {
		return
	}
	var trace struct {
		Incomplete bool `json:"incomplete"`
	}
	if raw, has := r.data["agenttrace"]; has && json.Unmarshal(raw, &trace) == nil && trace.Incomplete {
		return
	}
	missing := int64(0)
	for places[missing] {
		missing++
	}
	c.report("has %d parts up to index %d; %d is missing", n, last, missing)
}

// named reports whether the type is the prefix followed by a name.
func named(partType, prefix string) bool {
	return strings.HasPrefix(partType, prefix) && len(partType) > len(prefix)
}

// IsToolType reports whether parts of a type are tool calls: of a tool that the type names after
// "tool-", or of one that the part names. [Check] reports a type that names none.
func IsToolType(partType string) bool {
	return strings.HasPrefix(partType, "tool-") || partType == "dynamic-tool"
}

// isTool reports whether the part is a tool call of a type that is valid.
func (r *checkedRow) isTool() bool {
	return named(r.part.Type, "tool-") || r.part.Type == "dynamic-tool"
}

func checkType(c *checker, r *checkedRow) {
	switch r.part.Type {
	case "text", "reasoning", "dynamic-tool", "file", "source-url", "source-document", "step-start":
	default:
		if !named(r.part.Type, "tool-") && !named(r.part.Type, "data-") {
			c.report("type is %q", r.part.Type)
		}
	}
}

func checkTypeColumn(c *checker, r *checkedRow) {
	if raw := r.data["type"]; !isString(raw) || text(raw) != r.part.Type {
		c.report("type is %q, in data_json it is %s", r.part.Type, show(raw))
	}
}

func checkText(c *checker, r *checkedRow) {
	if r.part.Type == "text" || r.part.Type == "reasoning" {
		c.want(aString, r.data, "", "text")
		c.may(aTextState, r.data, "", "state")
	}
}

func checkFile(c *checker, r *checkedRow) {
	if r.part.Type == "file" {
		c.want(aString, r.data, "", "mediaType", "url")
		c.may(aString, r.data, "", "filename")
	}
}

func checkSource(c *checker, r *checkedRow) {
	switch r.part.Type {
	case "source-url":
		c.want(aString, r.data, "", "sourceId", "url")
		c.may(aString, r.data, "", "title")
	case "source-document":
		c.want(aString, r.data, "", "sourceId", "mediaType", "title")
		c.may(aString, r.data, "", "filename")
	}
}

func checkData(c *checker, r *checkedRow) {
	// A compaction without data violates a separate rule.
	if r.part.Type == TypeCompaction || !named(r.part.Type, "data-") {
		return
	}
	if _, has := r.data["data"]; !has {
		c.report("data is missing")
	}
	c.may(aString, r.data, "", "id")
}

// checkCompaction requires the form that the AI SDK accepts. The flat form of the guide is
// a violation here, although readers of compactions accept it.
func checkCompaction(c *checker, r *checkedRow) {
	if r.part.Type != TypeCompaction {
		return
	}
	if role := r.message.Message.Role; role != RoleAssistant {
		c.report("is in a message of role %q", role)
	}
	data, ok := object(string(r.data["data"]))
	if !ok {
		if _, flat := r.data["summary"]; flat {
			c.report("is flat: wrap its fields in data")
		} else {
			c.report("data is %s, want an object", show(r.data["data"]))
		}
		return
	}
	c.want(aString, data, "data.", "summary")
	c.may(aMessageID, data, "data.", "tail_start_id")
	c.may(aBool, data, "data.", "auto")
	c.may(aCount, data, "data.", "summary_tokens")
}

func checkTool(c *checker, r *checkedRow) {
	if !r.isTool() {
		return
	}
	c.want(aString, r.data, "", "toolCallId")
	if r.part.Type == "dynamic-tool" {
		c.want(aString, r.data, "", "toolName")
	} else {
		c.may(aString, r.data, "", "toolName")
	}
	c.may(aBool, r.data, "", "providerExecuted")
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

// toolStates has the values that each state of a tool part requires and excludes.
var toolStates = map[string]struct {
	needs, excludes []string
	// approval is what the approval of its call must be: nothing, or else its answer is one of these values of JSON,
	// where "" is an approval without an answer.
	approval []string
	// optional reports that it need not be there.
	optional bool
}{
	StateInputStreaming:    {nil, []string{"output", "errorText"}, nil, true},
	StateInputAvailable:    {[]string{"input"}, []string{"output", "errorText"}, nil, true},
	StateApprovalRequested: {[]string{"input"}, []string{"output", "errorText"}, []string{""}, false},
	StateApprovalResponded: {[]string{"input"}, []string{"output", "errorText"}, []string{"true", "false"}, false},
	StateOutputAvailable:   {[]string{"input", "output"}, []string{"errorText"}, []string{"true"}, true},
	StateOutputError:       {[]string{"errorText"}, []string{"output"}, []string{"true"}, true},
	StateOutputDenied:      {[]string{"input"}, []string{"output", "errorText"}, []string{"false"}, false},
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
		if _, has := r.data[key]; !has {
			c.report("state is %s, but %s is missing", name, key)
		}
	}
	for _, key := range state.excludes {
		if _, has := r.data[key]; has {
			c.report("state is %s, but there is %s", name, key)
		}
	}
	if name == StateOutputError {
		c.may(aString, r.data, "", "errorText")
	}
	if name == StateOutputAvailable {
		c.may(aBool, r.data, "", "preliminary")
	}
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
	approval, ok := object(string(raw))
	if !ok {
		c.report("approval is %s, want an object", show(raw))
		return
	}
	c.want(aString, approval, "approval.", "id")
	answer, answered := approval["approved"]
	_, reasoned := approval["reason"]
	if answers[0] == "" {
		if answered || reasoned {
			c.report("state is %s, but approval has an answer", state)
		}
		return
	}
	if !slices.Contains(answers, string(answer)) {
		c.report("state is %s, but approval.approved is %s", state, show(answer))
	}
	c.may(aString, approval, "approval.", "reason")
}
