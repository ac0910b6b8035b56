package render

import "github.com/agenttrace/agenttrace/session/codec"

// losses are what no transcript shows.
var losses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "those of messages and parts"},
	{What: "agents and models", Note: "agents of messages"},
	{What: "columns of the session", Note: "when it was archived, and its metadata"},
	{What: "borders of messages, steps and texts", Note: "gaps in the order of parts"},
	{What: "tokens and costs of messages", Note: "tokens by kind"},
	{What: "ends of turns", Note: "stop reasons"},
	{What: "permissions", Note: "details of decisions"},
	{What: "tags, notes and scores", Note: "their authors and times"},
})

// Explain lists what a transcript does not show of a session, full or cut.
func Explain(s *codec.Session, full bool) []codec.Loss {
	losses := losses.Of(s)
	if parts := 0; !full {
		for i := range s.Messages {
			parts += len(s.Messages[i].Parts)
		}
		losses = codec.AddLoss(losses, "ends of long inputs, outputs and prompts, if any", "with --full", parts)
	}
	return losses
}
