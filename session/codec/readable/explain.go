package readable

import "github.com/agenttrace/agenttrace/session/codec"

// held are the aspects that a transcript shows.
var held = []string{
	"session id", "title", "agent", "session model", "mode", "workspace root", "permission rules", "parent session",
	"session times", "session cost", "outcome of the run", "messages of their own", "messages without parts",
	"messages that a rewind hid", "system messages", "models of messages", "tokens", "costs of messages",
	"ends of turns", "errors of turns", "unfinished messages", "turns that wait for approval", "texts",
	"borders between text parts", "reasoning", "files", "names and media types of files", "sources", "steps",
	"compactions", "summaries of compactions", "tails and sizes of compactions",
	"marks of content that was withheld or never finished", "data parts", "tool calls",
	"tool inputs", "tool outputs", "tool outputs that are null", "values that the source withholds",
	"results of tool calls", "errors of tool calls", "denied tool calls", "states of tool calls without a result",
	"questions to a human", "system prompts and tool catalogs", "tags, notes and scores",
}

// Explain lists what a transcript does not show of a session, full or cut.
func Explain(s *codec.Session, full bool) []codec.Loss {
	losses := codec.Unheld(s, held...)
	if parts := 0; !full {
		for i := range s.Messages {
			parts += len(s.Messages[i].Parts)
		}
		losses = codec.AddLoss(losses, "ends of long inputs, outputs and prompts, if any", "with --full", parts)
	}
	return losses
}
