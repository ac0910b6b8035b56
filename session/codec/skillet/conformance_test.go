package skillet_test

import (
	"iter"
	"path/filepath"
	"slices"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/skillet"
)

// replayLog is the codec as the suite takes it, with the replay log, and itemStore with the
// session store, which keeps less of some and more of others.
var replayLog = codectest.Codec{
	Encode: skillet.Encode, Decode: skillet.Decode, Losses: skillet.Losses, Native: []string{sampleLog},
	Fits: func(s *codec.Session) bool {
		return slices.ContainsFunc(s.Messages, func(m session.MessageAndParts) bool {
			compaction := len(m.Parts) == 1 && m.Parts[0].Type == session.TypeCompaction
			return m.Message.HiddenAt == nil && m.Message.Role != session.RoleSystem && !compaction
		})
	},
}

var itemStore = codectest.Codec{
	EncodeFile: func(dir string, all []*codec.Session) error {
		return skillet.EncodeFile(filepath.Join(dir, "s.sqlite"), all[0], false)
	},
	DecodeFile: func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return skillet.DecodeFile(filepath.Join(dir, "s.sqlite"), report)
	},
	Losses: codec.ForeignLosses(codec.Losses{
		{What: "texts"}, {What: "reasoning"}, {What: "files and sources"}, {What: "tool calls"},
		{What: "tool inputs and outputs"}, {What: "ids and times"}, {What: "agents and models"},
		{What: "borders of messages, steps and texts"}, {What: "ends of turns"}, {What: "data parts"},
	}, "title", "rewinds", "compactions", "tokens", "tokens and costs of messages", "permissions",
		"system prompts and tool catalogs"),
	Fits: func(s *codec.Session) bool {
		return slices.ContainsFunc(s.Messages, func(m session.MessageAndParts) bool {
			return m.Message.HiddenAt == nil && m.Message.Role == session.RoleUser
		})
	},
	Slow: true,
}

func TestConformance(t *testing.T) {
	t.Run("log", func(t *testing.T) { codectest.Run(t, replayLog) })
	t.Run("store", func(t *testing.T) { codectest.Run(t, itemStore) })
}
