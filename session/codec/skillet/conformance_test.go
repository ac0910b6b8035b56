package skillet_test

import (
	"errors"
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
// session store. Both keep less than rows: what is left says what.
var replayLog = codectest.Codec{
	Name:    "skillet log",
	Encode:  skillet.Encode,
	Decode:  skillet.Decode,
	Explain: skillet.Losses.Of, Listed: skillet.Losses, Foreign: true,
	Keeps:  func(s *codec.Session) []string { return spoken(what(s.Transcript, false)) },
	Fits:   func(s *codec.Session) bool { return len(what(s.Transcript, false)) > 0 },
	Damage: codectest.Tolerant, Native: []string{sampleLog},
}

var itemStore = codectest.Codec{
	Name: "skillet store",
	EncodeFile: func(dir string, all []*codec.Session) error {
		if len(all) != 1 {
			return errors.New("a conversation is one session")
		}
		return skillet.EncodeFile(filepath.Join(dir, "s.sqlite"), all[0], false)
	},
	DecodeFile: func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return skillet.DecodeFile(filepath.Join(dir, "s.sqlite"), report)
	},
	Foreign: true, Keeps: func(s *codec.Session) []string { return what(s.Transcript, true) },
	Fits: func(s *codec.Session) bool {
		return slices.ContainsFunc(s.Messages, func(m session.MessageAndParts) bool {
			return len(what(s.Transcript, true)) > 0
		})
	},
	Slow: true, Rounds: 8,
}

// spoken leaves out the answers that say nothing: the log has none that is incomplete,
// and Explain says so.
func spoken(all []string) []string {
	var kept []string
	for i, line := range all {
		if line != session.RoleAssistant || i+1 < len(all) && all[i+1] != session.RoleUser {
			kept = append(kept, line)
		}
	}
	return kept
}

func TestConformance(t *testing.T) {
	t.Run("log", func(t *testing.T) { codectest.Run(t, replayLog) })
	t.Run("store", func(t *testing.T) { codectest.Run(t, itemStore) })
}
