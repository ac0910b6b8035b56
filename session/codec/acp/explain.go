package acp

import "github.com/agenttrace/agenttrace/session/codec"

// Losses are what a trace does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(codec.Losses{
	{What: "mode", Note: "a later update of the mode takes precedence"},
	{What: "messages of their own", Note: "the messages of an answer are one"},
	{What: "messages without parts", Note: "an answer without parts that does not end its turn"},
	{What: "messages that a rewind hid", Note: "they are written like the others"},
	{What: "ends of turns", Note: "a turn has one, if a prompt begins it"},
	{What: "errors of turns", Note: "those of turns that did not fail"},
	{What: "stop reasons", Note: "they are in the words of the protocol"},
	{What: "turns that wait for approval", Note: "the prompt has no response"},
	{What: "borders between text parts", Note: "those of system messages"},
	{What: "reasoning", Note: "that of users and of the system"},
	{What: "files", Note: "those of system messages"},
	{What: "names and media types of files", Note: "media that differ from the URL's, and names of images and sounds"},
	{What: "data parts", Note: "those that are not valid messages of the protocol"},
	{What: "tool calls", Note: "those of users and of the system, and those without an id"},
	{What: "tool call ids", Note: "a call with the id of another gets its own"},
	{What: "tool inputs", Note: "those of calls that are lost, and null"},
	{What: "tool outputs", Note: "those of calls that are lost"},
	{What: "values that the source withholds", Note: "they are written as texts"},
	{What: "results of tool calls", Note: "those of calls that are lost"},
	{What: "errors of tool calls", Note: "those of calls that have no error"},
	{What: "denied tool calls", Note: "those of calls that are lost"},
	{What: "states of tool calls without a result", Note: "several states become one"},
	{What: "questions to a human", Note: "those that no call shows"},
},
	"session model", "session times", "outcome of the run", "ids of messages and parts",
	"times of messages and parts", "system messages", "models of messages", "agents of messages", "tokens",
	"tokens of each message, by kind", "unfinished messages", "steps", "tails and sizes of compactions",
	"metadata of tool calls", "system prompts and tool catalogs")
