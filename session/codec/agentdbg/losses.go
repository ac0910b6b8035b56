package agentdbg

import "github.com/agenttrace/agenttrace/session/codec"

// Losses are what a run does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "a run has a UUIDv4, and so have calls; times are those of events"},
	{What: "agents and models", Note: "all but the provider and the model of calls"},
	{What: "columns of the session", Note: "all but its directory"},
	{What: "borders of messages, steps and texts", Note: "a user's message ends the answer, and each call begins a step"},
	{What: "rewinds", Note: "the messages are written like the others"},
	{What: "texts", Note: "a question that repeats the last one; one without an answer is a state of the run; " +
		"those of the system are its prompt; what is longer than 20,000 bytes"},
	{What: "reasoning", Note: "that of the system, and of questions that are lost"},
	{What: "files and sources", Note: "those of the system, of questions that are lost, names, and sources"},
	{What: "compactions", Note: "they are states of the run"},
	{What: "tokens and costs of messages", Note: "input and output, with all that they include, are kept"},
	{What: "ends of turns", Note: "that of a turn in whose place another goes on, that a rewind hid, or that waits"},
	{What: "data parts", Note: "those of users and the system; loop warnings are given again"},
	{What: "tool calls", Note: "states without a result become one, and the type of an error is before its message"},
	{What: "tool inputs and outputs", Note: "one that is no object or text is wrapped in an object; long texts are cut"},
	{What: "system prompts and tool catalogs", Note: "catalogs, and prompts that no message names"},
}, "permissions")
