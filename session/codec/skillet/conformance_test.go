package skillet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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
	Name:   "skillet log",
	Encode: skillet.Encode,
	Decode: func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return skillet.Decode(r, skillet.Key{}, report)
	},
	Explain: skillet.Explain, Counts: counts, Left: func(s *codec.Session) []string { return spoken(what(s.Transcript, false)) },
	Fits:   func(s *codec.Session) bool { return len(what(s.Transcript, false)) > 0 },
	Damage: codectest.Tolerant, Native: []string{sampleLog},
	Head: func(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"kind":"user_message"`)) },
}

var itemStore = codectest.Codec{
	Name: "skillet store",
	EncodeFile: func(dir string, all []*codec.Session) error {
		if len(all) != 1 {
			return errors.New("a conversation is one session")
		}
		return skillet.EncodeFile(filepath.Join(dir, "s.sqlite"), all[0], skillet.Key{})
	},
	DecodeFile: func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return skillet.DecodeFile(filepath.Join(dir, "s.sqlite"), skillet.Key{}, report)
	},
	Left: func(s *codec.Session) []string { return what(s.Transcript, true) },
	Fits: func(s *codec.Session) bool {
		return slices.ContainsFunc(s.Messages, func(m session.MessageAndParts) bool { return len(what(s.Transcript, true)) > 0 })
	},
	Tables: []codectest.Table{{Name: "session_items", Columns: []string{"item_json", "created_at"}}}, Slow: true, Rounds: 8,
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

// counts are the losses that can be counted before and after.
var counts = []codectest.Count{
	{What: "permission decisions", Of: func(s *codec.Session) int { return len(s.Decisions) }},
	{What: "system prompts and tool catalogs", Of: func(s *codec.Session) int { return len(s.Blobs) }},
	{What: "messages that a rewind hid", Of: messages(func(m *session.MessageAndParts) bool { return m.Message.HiddenAt != nil })},
	{What: "system messages", Of: messages(func(m *session.MessageAndParts) bool {
		return m.Message.HiddenAt == nil && m.Message.Role == session.RoleSystem
	})},
	{What: "compactions", Of: messages(func(m *session.MessageAndParts) bool {
		return m.Message.HiddenAt == nil && len(m.Parts) == 1 && m.Parts[0].Type == session.TypeCompaction
	})},
	{What: "reasoning parts", Of: answered(func(p *session.Part) bool { return p.Type == "reasoning" })},
	{What: "parts of type step-start", Of: answered(func(p *session.Part) bool { return p.Type == "step-start" })},
	{What: "parts of type file", Of: answered(func(p *session.Part) bool { return p.Type == "file" })},
	{What: "approvals", Of: answered(func(p *session.Part) bool {
		var data struct{ Approval json.RawMessage }
		return p.ToolState != nil && json.Unmarshal([]byte(p.DataJSON), &data) == nil && data.Approval != nil
	})},
}

func messages(of func(*session.MessageAndParts) bool) func(*codec.Session) int {
	return func(s *codec.Session) (n int) {
		for i := range s.Messages {
			if of(&s.Messages[i]) {
				n++
			}
		}
		return n
	}
}

// answered counts parts of the assistant's messages that were not hidden.
func answered(of func(*session.Part) bool) func(*codec.Session) int {
	return func(s *codec.Session) (n int) {
		for i := range s.Messages {
			m := &s.Messages[i]
			if m.Message.HiddenAt != nil || m.Message.Role != session.RoleAssistant {
				continue
			}
			for j := range m.Parts {
				if of(&m.Parts[j]) {
					n++
				}
			}
		}
		return n
	}
}

func TestConformance(t *testing.T) {
	t.Run("log", func(t *testing.T) { codectest.Run(t, replayLog) })
	t.Run("store", func(t *testing.T) { codectest.Run(t, itemStore) })
}
