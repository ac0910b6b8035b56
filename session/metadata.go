package session

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

// UsageOf returns the usage in a message's metadata_json that counts towards the rollup of its session, and the
// reported cost. A value that is absent or of the wrong type counts as zero. [MessageMetadata.Tokens] returns what the
// message used, which is a different figure.
func UsageOf(metadataJSON string) (Usage, float64) {
	var m struct {
		Usage Usage `json:"usage"`
		Trace struct {
			CostUSD float64 `json:"cost_usd"`
		} `json:"agenttrace"`
	}
	_ = json.Unmarshal([]byte(metadataJSON), &m) // reads what is of the right type
	return m.Usage.counted(), m.Trace.CostUSD
}

// TranscriptTrace is the object "agenttrace" in the metadata of a session that was
// imported from the transcript of its program.
type TranscriptTrace struct {
	// Transcript is the program.
	Transcript string `json:"transcript"`
	// SubagentID is the program's id of the sub-agent whose session it is, unique in
	// SubagentOf, the session that the user talks to. ParentSubagentID is that of the
	// sub-agent that started it, if one did, and CallID the tool call that started it.
	SubagentOf       string `json:"subagent_of,omitempty"`
	SubagentID       string `json:"subagent_id,omitempty"`
	ParentSubagentID string `json:"parent_subagent_id,omitempty"`
	CallID           string `json:"started_by,omitempty"`
	// Forked reports that the session goes on from its parent: its transcript begins with copies of that one's records,
	// or follows from one of them.
	Forked bool `json:"forked,omitempty"`
}

// TranscriptTraceOf returns what the metadata_json of a session reports of the transcript
// from which it was imported, the zero value for any other session.
func TranscriptTraceOf(metadataJSON string) TranscriptTrace {
	var m struct {
		Trace TranscriptTrace `json:"agenttrace"`
	}
	if json.Unmarshal([]byte(metadataJSON), &m) != nil || m.Trace.Transcript == "" {
		return TranscriptTrace{}
	}
	return m.Trace
}

// TranscriptOf returns the agent from whose transcript a session was imported, from the
// session's metadata_json, or "" for any other session.
func TranscriptOf(metadataJSON string) string { return TranscriptTraceOf(metadataJSON).Transcript }

// CompactionData is the data of a data-compaction part.
type CompactionData struct {
	Summary string `json:"summary"`
	// TailStartID is the first message that stays in the context verbatim; nil if there is none.
	TailStartID   *string `json:"tail_start_id"`
	Auto          bool    `json:"auto"`
	SummaryTokens int64   `json:"summary_tokens"`
}

// TypeCompaction is the type of the part that marks a compaction.
const TypeCompaction = "data-compaction"

// Types of the only part of a message without reported content. A message must have a
// part, because the AI SDK rejects one without. The data of the part is an [Absence].
const (
	// TypeError means that the turn ended in an error before any answer, or that the provider blocked it.
	TypeError = "data-error"
	// TypeWithheld means that the source does not report the content.
	TypeWithheld = "data-withheld"
	// TypeUnfinished means that the end of the work was not reported: it was aborted, or
	// the telemetry of its end is missing.
	TypeUnfinished = "data-unfinished"
)

// BlockedText is the reason where a filter of the provider's left nothing of an answer.
const BlockedText = "the provider blocked the answer"

// IsAbsence reports whether a part of the type represents missing content.
func IsAbsence(partType string) bool {
	return partType == TypeError || partType == TypeWithheld || partType == TypeUnfinished
}

// Absence is the data of a part that represents missing content.
type Absence struct {
	// Text is the reason, for a person.
	Text string `json:"text"`
}

// ParseCompaction reads a data-compaction part, in the AI SDK's form {type, data:{…}} or
// in the flat form of the guide. With an error it returns what is of the right type.
func ParseCompaction(dataJSON string) (CompactionData, error) {
	var wrapped struct {
		Data *CompactionData `json:"data"`
		CompactionData
	}
	err := json.Unmarshal([]byte(dataJSON), &wrapped)
	if wrapped.Data != nil {
		return *wrapped.Data, err
	}
	return wrapped.CompactionData, err
}

// TailStartID returns the tail_start_id of a data-compaction part, or "".
func TailStartID(dataJSON string) string {
	c, _ := ParseCompaction(dataJSON) // the rest is of no use here
	return Deref(c.TailStartID)
}

// Credible reports whether a time in Unix milliseconds is in the years 2000 to 2099. Other times are treated as unset:
// the clock was never set, the unit is wrong, or the value is not a time.
func Credible(milli int64) bool {
	const earliest, latest = 946_684_800_000, 4_102_444_800_000
	return milli >= earliest && milli <= latest
}

// UIPart is the UIMessagePart of the AI SDK that [Part.DataJSON] has: the fields of parts of
// every type, in the order in which we write them. Which ones are set follows from Type. A
// pointer is nil, and a raw value has no bytes, if the part has no such field.
//
// Code that changes parts of other writers must keep the fields that UIPart does not have.
type UIPart struct {
	Type string `json:"type"`

	// Text is that of a text or of reasoning.
	Text *string `json:"text,omitempty"`

	// SourceID, URL, Filename and Title describe a source; MediaType, URL and Filename a file.
	SourceID  *string `json:"sourceId,omitempty"`
	MediaType string  `json:"mediaType,omitempty"`
	URL       *string `json:"url,omitempty"`
	Filename  string  `json:"filename,omitempty"`
	Title     string  `json:"title,omitempty"`

	// ToolName is the tool of a dynamic-tool part. [ToolName] returns that of any tool part.
	ToolName   string `json:"toolName,omitempty"`
	ToolCallID string `json:"toolCallId,omitempty"`
	// State is a tool state such as [StateInputAvailable], or streaming or done for a text and for reasoning.
	State string          `json:"state,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// RawInput is the input of a failed call if it does not match the tool's schema.
	RawInput         json.RawMessage `json:"rawInput,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	ErrorText        *string         `json:"errorText,omitempty"`
	Approval         *Approval       `json:"approval,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`

	// Data is that of a data part.
	Data json.RawMessage `json:"data,omitempty"`

	// ProviderMetadata has an object for each provider, and ours under "agenttrace".
	ProviderMetadata map[string]json.RawMessage `json:"providerMetadata,omitempty"`
	ToolMetadata     ToolMetadata               `json:"toolMetadata,omitzero"`
}

// ToolMetadata is the object toolMetadata of a tool part, as far as it is ours.
type ToolMetadata struct {
	Trace ToolTrace `json:"agenttrace"`
}

// Approval is the request to a person to approve a tool call, and the answer.
type Approval struct {
	ID string `json:"id"`
	// Approved is nil until there is an answer.
	Approved *bool  `json:"approved,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// ParseUIPart reads data_json. It accepts the agent guide's error_text in the place of errorText. An error is that of
// encoding/json; after a [json.UnmarshalTypeError], the fields of the right type are set.
func ParseUIPart(dataJSON string) (UIPart, error) {
	var p struct {
		UIPart
		GuideErrorText *string `json:"error_text"`
	}
	err := json.Unmarshal([]byte(dataJSON), &p)
	p.ErrorText = cmp.Or(p.ErrorText, p.GuideErrorText)
	return p.UIPart, err
}

// DataURLSize is how many bytes a data: URL holds.
func DataURLSize(url string) int {
	head, body, _ := strings.Cut(url, ",")
	if strings.HasSuffix(head, ";base64") {
		return len(strings.TrimRight(body, "=")) * 3 / 4
	}
	return len(body)
}

// Trace returns our metadata of the part: that of a tool call in toolMetadata, of any other part in providerMetadata.
func (p *UIPart) Trace() ToolTrace {
	if IsToolType(p.Type) {
		return p.ToolMetadata.Trace
	}
	var t ToolTrace
	_ = json.Unmarshal(p.ProviderMetadata["agenttrace"], &t) // a value of the wrong type is skipped
	return t
}

// ToolName returns the name of a part's tool: what its type has after "tool-", or toolName,
// which a dynamic-tool part has. It is empty for parts of other types.
func ToolName(partType, toolName string) string {
	if name, ok := strings.CutPrefix(partType, "tool-"); ok {
		return name
	}
	if partType == "dynamic-tool" {
		return toolName
	}
	return ""
}

// TypeContext is the type of a part with what a client put around the words of the user: {"text": …}.
const TypeContext = "data-context"

// contextTags are the elements that clients put before or after what the user wrote.
var contextTags = []string{
	"current_datetime", "environment_context", "environment_details", "environment_info", "workspace_info",
	"session_context", "hook_context", "user_info", "user_instructions", "permissions instructions", "turn_aborted",
	"subagent_notification", "user_shell_command", "skill", "system-reminder", "system_reminder",
	"system_notification", "ide_selection", "ide_opened_file", "ide_diagnostics", "reminderInstructions",
	"editorContext", "additional_data", "attached_files", "open_and_recently_viewed_files", "EXTRA_INFO", "timestamp",
	"task-notification", "git-context", "hook_prompt", "goal_context", "codex_internal_context", "recommended_plugins",
}

// wordTags are the elements that clients put what the user wrote into.
var wordTags = []string{"user_input", "user_query", "userRequest", "user_request", "user_command", "user_message"}

// ideContext and ideRequest are the headings that Codex has before the state of an editor and the user's words.
const ideContext, ideRequest = "# Context from my IDE setup:", "\n## My request for Codex:\n"

// Referenced begins what Gemini CLI and Qwen Code put behind the user's words: the files that these name. referencedEnd
// ends it.
const Referenced, referencedEnd = "--- Content from referenced files ---", "--- End of content ---"

// agentContext is how Google's ADK reports what other agents did in the user's name.
var agentContext = lazy.Regexp(
	"^For context:\\s*(?:$|\\[[^\\]\n]+\\] (?:said: |called tool |`[^`]*` tool returned))")

// Words splits a text in the user's name into what the user wrote and what the client put around it, such as the time,
// the state of an editor or a reminder. tags are further elements that the client puts what the user wrote into. A text
// that is all the user's is returned as it is.
//
//	<current_datetime>2026-01-02</current_datetime> fix it   "fix it", "<current_datetime>2026-01-02</current_datetime>"
//	<user_input mode="act">fix it</user_input>               "fix it", `<user_input mode="act">`
func Words(text string, tags ...string) (own string, around []string) {
	rest := strings.TrimSpace(text)
	if agentContext().MatchString(rest) {
		return "", []string{rest}
	}
	if strings.HasPrefix(rest, "# AGENTS.md instructions") {
		_, after, _ := strings.Cut(rest, "</INSTRUCTIONS>")
		around, rest = append(around, rest[:len(rest)-len(after)]), strings.TrimSpace(after)
	}
	if before, after, ok := strings.Cut(rest, ideRequest); ok && strings.HasPrefix(rest, ideContext) {
		around, rest = append(around, before), strings.TrimSpace(after)
	}
	if before, files, ok := strings.Cut(rest, Referenced); ok && strings.HasSuffix(files, referencedEnd) {
		around, rest = append(around, Referenced+files), strings.TrimSpace(before)
	}
	for _, tag := range append(tags, wordTags...) {
		start, end := strings.Index(rest, "<"+tag), strings.LastIndex(rest, "</"+tag+">")
		if start < 0 || end < start {
			continue
		}
		open, inner, closed := strings.Cut(rest[start:end], ">")
		before, plain := elements(rest[:start])
		after, plainToo := elements(rest[end+len(tag)+3:])
		if closed && plain && plainToo && (open == "<"+tag || open[len(tag)+1] == ' ') {
			if around = append(around, before...); open != "<"+tag {
				around = append(around, open+">")
			}
			rest, around = strings.TrimSpace(inner), append(around, after...)
			break
		}
	}
	for tag, e := element(rest); slices.Contains(contextTags, tag); tag, e = element(rest) {
		around, rest = append(around, e), strings.TrimSpace(rest[len(e):])
	}
	at := len(around)
	for {
		i := slices.IndexFunc(contextTags, func(tag string) bool { return strings.HasSuffix(rest, "</"+tag+">") })
		if i < 0 {
			break
		}
		start := strings.LastIndex(rest, "<"+contextTags[i])
		if start < 0 {
			break
		}
		around, rest = slices.Insert(around, at, rest[start:]), strings.TrimSpace(rest[:start])
	}
	if rest == strings.TrimSpace(text) {
		return text, nil
	}
	return rest, around
}

// elements returns the elements that a text consists of, and whether it consists of nothing else.
func elements(text string) (all []string, only bool) {
	text = strings.TrimSpace(text)
	for _, e := element(text); e != ""; _, e = element(text) {
		all, text = append(all, e), strings.TrimSpace(text[len(e):])
	}
	return all, text == ""
}

// element returns the element with which a text begins, and its tag; both are empty if it begins otherwise.
func element(text string) (tag, whole string) {
	open, _, _ := strings.Cut(text, ">")
	tag, ok := strings.CutPrefix(open, "<")
	if !ok {
		return "", ""
	}
	if !slices.Contains(contextTags, tag) { // it may have attributes
		tag, _, _ = strings.Cut(tag, " ")
	}
	end := strings.Index(text, "</"+tag+">")
	if tag == "" || end < 0 {
		return "", ""
	}
	return tag, text[:end+len(tag)+3]
}
