// Package pi reads and writes the session files of the coding agent Pi, which the Hugging Face Hub
// shows, too: a header and a line for each entry, in a tree. The way from the last entry to the first
// is the conversation. [Decode] reads versions 1 to 3, [Encode] writes 3.
//
// # From a file
//
//	user                     message with its text and images
//	assistant, toolResult    one assistant message between two user messages, a step for each of
//	                         Pi's, with its usage and cost; a call without a result is pending
//	bashExecution            system message, with a data-bash-execution part
//	custom, custom_message   system message
//	branch_summary           system message
//	compaction               message with a data-compaction part
//	session_info             the title
//	what is off the way      messages that a rewind hid
//
// Labels, and what extensions keep for themselves, leave no rows.
//
// # To a file
//
// A model call is a message of the assistant, in the order of its parts, and messages that a rewind
// hid are a branch that was left. [Losses] lists what has no entry.
package pi

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// version is that of the files that are written.
const version = 3

// agentName is what a session is the work of where its header names no harness.
const agentName = "pi"

// Looks reports whether an object with these keys is a line of Pi's; see codec.Reading.SniffKeys.
func Looks(keys map[string]string) bool {
	_, time := keys["timestamp"]
	_, versioned := keys["version"]
	_, dir := keys["cwd"]
	_, child := keys["parentId"]
	return time && (keys["type"] == "session" && keys["id"] != "" && (versioned || dir) ||
		child && keys["type"] == "message" && keys["message"] == "{")
}

// Roles of a message that are not the store's, and types of entries.
const (
	roleResult = "toolResult"
	roleBash   = "bashExecution"
	roleCustom = "custom"

	entryMessage       = "message"
	entryModel         = "model_change"
	entryThinking      = "thinking_level_change"
	entryCompaction    = "compaction"
	entryBranch        = "branch_summary"
	entryCustom        = "custom"
	entryCustomMessage = "custom_message"
	entryInfo          = "session_info"
)

// typeBash is the type of the part for a command that the user ran.
const typeBash = "data-bash-execution"

// typeResult is the type of a part for a result that no call waits for.
const typeResult = "data-tool-result"

// unknown replaces values that Pi requires.
const unknown = "unknown"

// ends are how a turn ended whose last model call stopped for a reason. After toolUse it went on.
var ends = map[string]string{
	"stop": semconv.EndFinish, "length": semconv.EndFinish, "aborted": semconv.EndAbort, "error": semconv.EndError,
}

// buckets are the fields of Pi's usage.
var buckets = []struct {
	key string
	of  func(*session.Usage) *int64
}{
	{"input", func(u *session.Usage) *int64 { return &u.Input }},
	{"output", func(u *session.Usage) *int64 { return &u.Output }},
	{"cacheRead", func(u *session.Usage) *int64 { return &u.CacheRead }},
	{"cacheWrite", func(u *session.Usage) *int64 { return &u.CacheWrite }},
}

// block returns the block of a part's data, nil where the format has none for it.
func block(data rows.Object) rows.Object {
	switch data.Text("type") {
	case "text":
		return rows.Of("type", "text", "text", data.Get("text"))
	case session.TypeWithheld:
		return rows.TextPart("text", codec.WithheldText)
	case "reasoning":
		return rows.Of("type", "thinking", "thinking", data.Get("text"))
	case "file":
		media, image, inline := strings.Cut(strings.TrimPrefix(data.Text("url"), "data:"), ";base64,")
		if _, err := base64.StdEncoding.DecodeString(image); inline && err == nil &&
			strings.HasPrefix(media, "image/") &&
			strings.HasPrefix(data.Text("url"), "data:") && media == data.Text("mediaType") {
			return rows.Of("type", "image", "data", image, "mimeType", media)
		}
	}
	return nil
}

// partOf is the inverse of block.
func partOf(block rows.Object) rows.Object {
	texts := func(keys ...string) bool {
		for _, key := range keys {
			if _, ok := rows.Text(block.Get(key)); !ok {
				return false
			}
		}
		return true
	}
	switch kind := block.Text("type"); {
	case kind == "text" && texts("text"):
		return rows.Of("type", "text", "text", block.Get("text"))
	case kind == "thinking" && texts("thinking"):
		return rows.Of("type", "reasoning", "text", block.Get("thinking"))
	case kind == "image" && texts("data", "mimeType"):
		return rows.FilePart(block.Text("mimeType"), "", "data:"+block.Text("mimeType")+";base64,"+block.Text("data"))
	}
	return nil
}

// blocks returns the blocks of a content, which may be a text.
func blocks(content json.RawMessage) (all []rows.Object) {
	if _, ok := rows.Text(content); ok {
		return []rows.Object{rows.Of("type", "text", "text", content)}
	}
	for _, raw := range rows.Elements(content) {
		all = append(all, rows.Read(string(raw)))
	}
	return all
}

// Losses are what a file does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "those of messages and calls; an entry has one time"},
	{What: "agents and models", Note: "those of users, of messages that are one, and agents of messages"},
	{What: "columns of the session", Note: "all but its directory, and the cost of model calls"},
	{What: "borders of messages, steps and texts", Note: "messages of the assistant are one until the user's next"},
	{What: "rewinds", Note: "those of messages of the assistant that are one"},
	{What: "reasoning", Note: "that of users"},
	{What: "files and sources", Note: "all but images of users without names"},
	{What: "compactions", Note: "their sizes"},
	{What: "tokens and costs of messages", Note: "tokens of reasoning are output; those of messages that are one"},
	{What: "ends of turns", Note: "errors of turns that did not fail, and reasons for which Pi has another word"},
	{What: "data parts", Note: "commands of the user are system messages"},
	{What: "tool calls", Note: "denied ones are failed, and states without a result become one"},
	{What: "tool inputs and outputs", Note: "outputs are texts; an input that is not an object is wrapped in one"},
}, "permissions", "system prompts and tool catalogs")
