package jutul

import "github.com/agenttrace/agenttrace/session/codec"

// Losses are what a trace does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "those of messages; a call with the id of another gets its own"},
	{What: "title", Note: "an empty one"},
	{What: "borders of messages, steps and texts", Note: "a user's message ends the answer, which has no steps"},
	{What: "rewinds", Note: "the messages are written like the others"},
	{What: "texts", Note: "those of system messages"},
	{What: "reasoning", Note: "that of system messages"},
	{What: "compactions", Note: "their tails and sizes"},
	{What: "tokens", Note: "a count that is too large"},
	{What: "tokens and costs of messages", Note: "the tokens are those of the whole answer"},
	{What: "data parts", Note: "data that is not an object is wrapped in one"},
	{What: "tool calls", Note: "those of system messages, those without a name, and states without a result"},
	{What: "tool inputs and outputs", Note: "outputs are texts; an input that is not an object is wrapped in one"},
	{What: "permissions", Note: "questions that no decision has, and details"},
}, "agents and models", "ends of turns", "files and sources", "system prompts and tool catalogs")
