package acp

import "github.com/agenttrace/agenttrace/session/codec"

// Losses are what a trace does not hold of a session. The conformance suite checks the list.
var Losses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "times; a call with the id of another gets its own"},
	{What: "agents and models", Note: "all but the agent of the session"},
	{What: "columns of the session", Note: "all but its directory, and its mode if no update of it follows"},
	{What: "borders of messages, steps and texts", Note: "the messages of an answer are one, and have no steps"},
	{What: "rewinds", Note: "the messages are written like the others"},
	{What: "texts", Note: "those of system messages"},
	{What: "reasoning", Note: "that of users and of the system"},
	{What: "files and sources", Note: "those of system messages, names of images and sounds, and sources"},
	{What: "compactions", Note: "their tails and sizes"},
	{What: "ends of turns", Note: "a turn has one, in the words of the protocol, if a prompt begins it"},
	{What: "data parts", Note: "those that are not messages of the protocol"},
	{What: "tool calls", Note: "those of users and of the system, those without an id, and states without a result"},
	{What: "tool inputs and outputs", Note: "those of calls that are lost; withheld ones are texts"},
	{What: "permissions", Note: "questions that no call shows, and details"},
}, "tokens", "tokens and costs of messages", "system prompts and tool catalogs")
