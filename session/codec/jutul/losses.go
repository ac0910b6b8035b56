package jutul

import "github.com/agenttrace/agenttrace/session/codec"

// Losses are what a trace does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(codec.Losses{
	{What: "title", Note: "an empty one"},
	{What: "agent", Note: "it is read as jutul-agent"},
	{What: "session times", Note: "they are those of the first and the last event"},
	{What: "times of messages and parts", Note: "a time before that of the event above"},
	{What: "messages of their own", Note: "a user's message ends the answer, nothing else does"},
	{What: "messages that a rewind hid", Note: "they are written like the others"},
	{What: "tokens", Note: "a count that is too large"},
	{What: "tokens of each message, by kind", Note: "they are those of the whole answer"},
	{What: "borders between text parts", Note: "those of system messages"},
	{What: "reasoning", Note: "that of system messages"},
	{What: "data parts", Note: "data that is not an object is wrapped in one"},
	{What: "tool calls", Note: "those of system messages, and those without a name"},
	{What: "tool call ids", Note: "a call with the id of another gets its own"},
	{What: "tool inputs", Note: "an input that is not an object is wrapped in one"},
	{What: "tool outputs", Note: "they are texts"},
	{What: "tool outputs that are null", Note: "they are texts"},
	{What: "values that the source withholds", Note: "an input that is withheld is null"},
	{What: "results of tool calls", Note: "those of calls that are lost"},
	{What: "errors of tool calls", Note: "a denial has words in front of its reason"},
	{What: "denied tool calls", Note: "they are failed ones"},
	{What: "states of tool calls without a result", Note: "all states become one"},
	{What: "questions to a human", Note: "those that no decision has"},
},
	"session model", "mode", "workspace root", "outcome of the run", "ids of messages and parts",
	"messages without parts", "system messages", "models of messages", "agents of messages", "ends of turns",
	"errors of turns", "stop reasons", "unfinished messages", "turns that wait for approval", "files",
	"names and media types of files", "steps", "tails and sizes of compactions", "metadata of tool calls",
	"system prompts and tool catalogs")
