package skillet

import "github.com/agenttrace/agenttrace/session/codec"

// kept is where a state directory has what the log alone does not hold.
const kept = "session_items, where both are written"

// Losses are what a replay log does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(codec.Losses{
	{What: "session id", Note: "one that is the name of the conversation is kept by the path of the log"},
	{What: "agent", Note: "it is that of the first step of an agent"},
	{What: "session model", Note: "it is that of the last final result"},
	{What: "messages of their own", Note: "the messages of a turn are a question and an answer"},
	{What: "messages without parts", Note: "a question has at least an empty text"},
	{What: "system messages", Note: "they are in session_items alone"},
	{What: "models of messages", Note: "those of turns without a final result"},
	{What: "agents of messages", Note: "those of later messages of a turn"},
	{What: "ends of turns", Note: "a turn that ended otherwise has no final result"},
	{What: "unfinished messages", Note: "a turn has one end"},
	{What: "turns that wait for approval", Note: "they have no final result"},
	{What: "texts", Note: "those of hidden and system messages, and withheld ones"},
	{What: "borders between text parts", Note: "texts that follow one another are one"},
	{What: "reasoning", Note: "that before an answer's texts and calls is in session_items, where both are written"},
	{What: "files", Note: "those of answers"},
	{What: "names and media types of files", Note: "names of images and sounds, and media types that no URL shows"},
	{What: "data parts", Note: "all but steps of agents and handoffs"},
	{What: "tool calls", Note: "those of users and the system"},
	{What: "tool call ids", Kept: kept},
	{What: "tool inputs", Note: "those of calls that are lost, and missing ones"},
	{What: "tool outputs", Note: "they are texts"},
	{What: "tool outputs that are null", Note: "they are texts"},
	{What: "values that the source withholds", Note: "they are texts"},
	{What: "results of tool calls", Note: "those of calls that are lost"},
	{What: "errors of tool calls", Note: "those of calls that are lost, and empty ones"},
	{What: "denied tool calls", Note: "those of calls that are lost, and that only a decision shows as denied"},
	{What: "states of tool calls without a result", Note: "all states become one"},
	{What: "metadata of tool calls", Note: "all but the agent"},
},
	"title", "mode", "workspace root", "session times", "outcome of the run", "ids of messages and parts",
	"times of messages and parts", "messages that a rewind hid", "tokens", "tokens of each message, by kind",
	"errors of turns", "stop reasons", "steps", "compactions", "summaries of compactions",
	"tails and sizes of compactions", "questions to a human", "system prompts and tool catalogs")
