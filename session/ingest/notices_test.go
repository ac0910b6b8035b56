package ingest_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// wrong is a session as check sees it: its rows, its spans and its children.
type wrong struct {
	*session.Transcript
	links    []store.SpanRef
	children []session.Session
}

// mistakes are what may be wrong in a session that was built from telemetry. Each changes it, and reports whether it
// could.
var mistakes = map[string]func(w *wrong) bool{
	"an answer is lost": func(w *wrong) bool {
		return w.cut(func(m *session.MessageAndParts) bool { return m.Message.Role == session.RoleAssistant })
	},
	"a prompt is lost": func(w *wrong) bool {
		return w.turns() > 1 && w.cut(func(m *session.MessageAndParts) bool { return m.Message.Role == session.RoleUser })
	},
	"an answer is there twice": func(w *wrong) bool { return w.double(session.RoleAssistant) },
	"a prompt is there twice":  func(w *wrong) bool { return w.double(session.RoleUser) },
	"a call is there twice": func(w *wrong) bool {
		return w.part(func(m *session.MessageAndParts, i int) bool {
			twin := m.Parts[i]
			twin.ID += "x"
			m.Parts = slices.Insert(m.Parts, i+1, twin)
			return true
		})
	},
	"a phantom stands beside a call": func(w *wrong) bool {
		return w.part(func(m *session.MessageAndParts, i int) bool {
			twin, id, state := m.Parts[i], "call_phantom", session.StateInputAvailable
			data, _ := session.ParseUIPart(twin.DataJSON)
			if len(data.Input) < 5 || *twin.ToolState == state {
				return false
			}
			data.State, data.ToolCallID, data.Output, data.ErrorText = state, id, nil, nil
			raw, _ := json.Marshal(data)
			twin.ID, twin.ToolCallID, twin.ToolState, twin.DataJSON = twin.ID+"x", &id, &state, string(raw)
			m.Parts = slices.Insert(m.Parts, i+1, twin)
			return true
		})
	},
	"tokens are lost": func(w *wrong) bool {
		lost := false
		for i := range w.Messages {
			var meta map[string]json.RawMessage
			m := &w.Messages[i].Message
			_ = json.Unmarshal([]byte(m.MetadataJSON), &meta)
			if meta["usage"] == nil || !strings.Contains(m.MetadataJSON, "usage_raw") {
				continue
			}
			delete(meta, "usage")
			raw, _ := json.Marshal(meta)
			m.MetadataJSON, lost = string(raw), true
		}
		return lost
	},
	"turns are one": func(w *wrong) bool {
		for i := 3; i < len(w.Messages); i++ {
			first, second := &w.Messages[i-2], &w.Messages[i]
			if first.Message.Role != session.RoleAssistant || second.Message.Role != session.RoleAssistant {
				continue
			}
			asked := w.Messages[i-1].Message.ID
			first.Parts = append(first.Parts, second.Parts...)
			for k := range w.links {
				if l := &w.links[k]; l.MessageID == second.Message.ID || l.MessageID == asked {
					l.MessageID = first.Message.ID
				}
			}
			w.Messages = slices.Delete(w.Messages, i-1, i+1)
			return true
		}
		return false
	},
	"a prompt has those before": func(w *wrong) bool {
		var before *session.MessageAndParts
		for i := range w.Messages {
			m := &w.Messages[i]
			if m.Message.Role == session.RoleUser && before != nil && m.Parts[0].Type == "text" &&
				before.Parts[0].Type == "text" {
				m.Parts = slices.Insert(m.Parts, 0, before.Parts[0])
				return true
			} else if m.Message.Role == session.RoleUser {
				before = m
			}
		}
		return false
	},
	"a child is there twice": func(w *wrong) bool {
		if len(w.children) == 0 || w.children[0].TotalTokens == 0 {
			return false
		}
		twin := w.children[0]
		twin.ID += "x"
		w.children = append(w.children, twin)
		return true
	},
}

func (w *wrong) turns() (n int) {
	for _, m := range w.Messages {
		if m.Message.Role == session.RoleUser {
			n++
		}
	}
	return n
}

// cut deletes the last message that is like this.
func (w *wrong) cut(is func(*session.MessageAndParts) bool) bool {
	for i := len(w.Messages) - 1; i >= 0; i-- {
		if is(&w.Messages[i]) {
			w.Messages = slices.Delete(w.Messages, i, i+1)
			return true
		}
	}
	return false
}

func (w *wrong) double(role string) bool {
	for i, m := range w.Messages {
		if m.Message.Role == role {
			m.Message.ID += "x"
			w.Messages = slices.Insert(w.Messages, i+1, m)
			return true
		}
	}
	return false
}

// part changes the message of the first tool call that can be.
func (w *wrong) part(change func(m *session.MessageAndParts, i int) bool) bool {
	for k := range w.Messages {
		m := &w.Messages[k]
		m.Parts = slices.Clone(m.Parts)
		for i := range m.Parts {
			if m.Parts[i].ToolCallID != nil && change(m, i) {
				return true
			}
		}
	}
	return false
}

// lacking are the captures of which a session lacks something, with the rules that say so: those that end before the
// last turn did, and those whose first request repeats what is not in the capture.
var lacking = map[string]string{"adk-js-2.0.0": "whole, turns", "openai-agents-js-0.20.0": "whole, turns",
	"genkit-js-1.42.0": "history", "keywordsai-tracing-1.0.44": "history"}

// TestCheckNoticesWrongSessions: check notices at least nine of ten sessions that are wrong, whatever is, and none of
// those that are right.
func TestCheckNoticesWrongSessions(t *testing.T) {
	all, noticed := make(map[string]int), make(map[string]int)
	dirs := append(captures(t), "testdata/delegated/claude-code/telemetry")
	for _, dir := range dirs {
		s := openStore(t)
		deliver(t, s, readCapture(t, dir))
		r := document.Reader{Reader: s}
		for _, row := range storetest.Sessions(t, s) {
			for name, spoil := range mistakes {
				in, err := r.Collect(t.Context(), row.ID)
				testscale.Must(t, err)
				w := &wrong{in.Transcript, in.SpanRefs, in.Children}
				before := w.notices()
				for _, n := range before {
					if client := filepath.Base(filepath.Dir(dir)); !strings.Contains(lacking[client], n.Rule) {
						t.Errorf("%s: session %s, which is right: %v", client, row.ID, n)
					}
				}
				if !spoil(w) {
					continue
				}
				if all[name]++; len(w.notices()) > len(before) {
					noticed[name]++
				} else {
					t.Logf("%s: %s: not noticed that %s", filepath.Base(filepath.Dir(dir)), row.ID, name)
				}
			}
		}
	}
	sum, found := 0, 0
	for name := range mistakes {
		sum, found = sum+all[name], found+noticed[name]
		if all[name] == 0 {
			t.Errorf("no session in which %s", name)
		}
	}
	t.Logf("noticed %d of %d: %v of %v", found, sum, noticed, all)
	if found*10 < sum*9 {
		t.Errorf("noticed %d of %d", found, sum)
	}
}

func (w *wrong) notices() []session.Notice {
	return document.NoticesOf(document.Input{Transcript: w.Transcript, SpanRefs: w.links,
		Now: time.UnixMilli(w.Session.UpdatedAt), IdleTimeout: time.Hour, Children: w.children})
}
