package skillet

import "github.com/agenttrace/agenttrace/session/codec"

// kept is where a state directory has what the log alone does not hold.
const kept = "in session_items, where both are written"

// Losses are what a replay log does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "an id that is the name of the conversation is kept by the path of the log, " +
		"and those of calls " + kept},
	{What: "agents and models", Note: "they are those of the first agent's step, and of final results"},
	{What: "borders of messages, steps and texts", Note: "a turn is a question and an answer, whose texts are joined"},
	{What: "texts", Note: "those of hidden and system messages, and withheld ones"},
	{What: "reasoning", Kept: kept},
	{What: "files and sources", Note: "those of answers, names of images and sounds, and sources"},
	{What: "ends of turns", Note: "a turn that ended otherwise has no final result"},
	{What: "data parts", Note: "all but steps of agents and handoffs"},
	{What: "tool calls", Note: "those of users and the system, and states without a result"},
	{What: "tool inputs and outputs", Note: "outputs are texts"},
}, "title", "rewinds", "compactions", "tokens", "tokens and costs of messages", "permissions",
	"system prompts and tool catalogs")
