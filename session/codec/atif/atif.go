// Package atif reads and writes the Agent Trajectory Interchange Format: a JSON document for each
// run of an agent, which benchmarks write and trainers read. [Decode] reads versions 1.0 to 1.8,
// [Encode] writes 1.7.
//
// # From a trajectory
//
//	step of source user, system  message with its text and images
//	steps of source agent        one assistant message between two user messages, a step each
//	message, reasoning_content   text and reasoning parts
//	tool_calls, observation      part tool-<name> with the output; without a result it is pending
//	other results                part data-observation
//	metrics                      usage and cost of the step: input is what is neither read from a
//	                             cache nor written to one
//	agent.tool_definitions       the catalog of tools
//	context_management           in extra of a system step: a message with a data-compaction part
//	subagent_trajectories        sessions of their own, <parent>-<trajectory_id>
//	notes, agent, extra          metadata_json.atif of the session
//
// Of other steps' extra, token ids and log probabilities nothing is kept.
//
// # To a trajectory
//
// A model call is a step. The first system prompt is the first step, and a later one a system step
// before the message that it was first used in. The first catalog of tools is the agent's. Messages
// that a rewind hid are not among the steps, and a message of a fork that its parent has is marked as
// copied. Below extra are the title, is_error of the result of a call that failed, the metrics of a
// compaction, and the session_id of a sub-agent; what the session used beside its steps is below extra of
// final_metrics. [Losses] lists what has no field.
package atif

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// versionPrefix is how the version of every trajectory begins, and version the one that is written.
const (
	versionPrefix = "ATIF-v"
	version       = versionPrefix + "1.7"
)

// Looks reports whether an object with these keys is a trajectory; see codec.Reading.SniffKeys.
func Looks(keys map[string]string) bool {
	return strings.HasPrefix(keys["schema_version"], versionPrefix)
}

// Sources of a step.
const (
	sourceSystem = "system"
	sourceUser   = "user"
	sourceAgent  = "agent"
)

// typeObservation is the type of a part for a result that is not a tool call's.
const typeObservation = "data-observation"

// imageTypes are the media types that an image may have.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// counts are the fields of metrics, with the tokens that they count. The first two are required of
// a step whose usage is known, and extra has the others.
var counts = []struct {
	key   string
	extra bool
	total string // in final_metrics
	of    func(session.Usage) int64
}{
	{"prompt_tokens", false, "total_prompt_tokens", func(u session.Usage) int64 {
		return u.Input + u.CacheRead + u.CacheWrite
	}},
	{"completion_tokens", false, "total_completion_tokens",
		func(u session.Usage) int64 { return u.Output + u.Reasoning }},
	{"cached_tokens", false, "total_cached_tokens", func(u session.Usage) int64 { return u.CacheRead }},
	{"reasoning_tokens", true, "", func(u session.Usage) int64 { return u.Reasoning }},
	{"cache_creation_input_tokens", true, "", func(u session.Usage) int64 { return u.CacheWrite }},
}

// content returns the blocks of a message or of a result as the format has them: one text alone is
// a string.
func content(blocks []rows.Object) json.RawMessage {
	switch {
	case len(blocks) == 0:
		return json.RawMessage(`""`)
	case len(blocks) == 1 && blocks[0].Text("type") == "text":
		return blocks[0].Get("text")
	}
	return rows.Raw(blocks)
}

// block returns the block of a part's data, nil where the format has none for it.
func block(data rows.Object) rows.Object {
	switch data.Text("type") {
	case "text":
		return rows.Of("type", "text", "text", data.Get("text"))
	case session.TypeWithheld:
		return rows.TextPart("text", codec.WithheldText)
	case "file":
		if media := data.Text("mediaType"); slices.Contains(imageTypes, media) {
			return image(media, data.Get("url"))
		}
	}
	return nil
}

// image is the block of an image, whose path may be a data: URL.
func image(media string, path json.RawMessage) rows.Object {
	return rows.Of("type", "image", "source", rows.Of("media_type", media, "path", path))
}

// Losses are what a trajectory does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(append(codec.Noted("those of messages that a rewind hid",
	"system messages", "tokens", "texts", "steps", "compactions", "summaries of compactions", "tool calls",
	"results of tool calls", "errors of tool calls"), codec.Losses{
	{What: "session model", Note: "the provider"},
	{What: "session times", Note: "they are those of the first and the last step"},
	{What: "session cost", Note: "what is not the cost of a step, if one has some"},
	{What: "session metadata", Note: "what was not read from a trajectory"},
	{What: "times of messages and parts", Note: "a step has one time"},
	{What: "messages of their own", Note: "messages of the assistant are one until the user's next"},
	{What: "messages without parts", Note: "those of the assistant are a step"},
	{What: "models of messages", Note: "the provider"},
	{What: "tokens of each message, by kind", Note: "those of messages that are one, or hidden"},
	{What: "costs of messages", Note: "those of messages that are one, or hidden"},
	{What: "borders between text parts", Note: "those of empty texts"},
	{What: "reasoning", Note: "that of a step is one text"},
	{What: "files", Note: "those that are not images"},
	{What: "names and media types of files", Note: "names of images"},
	{What: "tool call ids", Note: "a call with the id of another of its step gets its own"},
	{What: "tool inputs", Note: "an input that is not an object is wrapped in one"},
	{What: "tool outputs", Note: "they are texts"},
	{What: "values that the source withholds", Note: "an input that is withheld is wrapped in an object"},
	{What: "denied tool calls", Note: "they are failed ones"},
	{What: "states of tool calls without a result", Note: "all states become one"},
	{What: "system prompts and tool catalogs",
		Note: "the prompt is a system message, and a later catalog of another shape than OpenAI's is lost"},
}...),
	"mode", "workspace root", "outcome of the run", "ids of messages and parts", "messages that a rewind hid",
	"agents of messages", "ends of turns", "errors of turns", "stop reasons", "unfinished messages",
	"turns that wait for approval", "tails and sizes of compactions",
	"marks of content that was withheld or never finished", "data parts", "tool outputs that are null",
	"questions to a human", "metadata of tool calls")
