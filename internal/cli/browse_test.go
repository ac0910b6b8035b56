package cli

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// TestBrowse presses keys and reads the screen after each of them.
func TestBrowse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	testscale.Must(t, err)
	defer s.Close()
	said := func(text string) *store.Value { return &store.Value{Text: text, At: 1, Rank: store.RankFinal} }
	tell := func(id, text string, at int64) {
		t.Helper()
		b := &store.Batch{Sessions: []store.SessionChange{{ID: id, Start: at, End: at, Title: said("title of " + id),
			Agent: said("a")}},
			Messages: []store.MessageChange{{ID: id + text, SessionID: id, Role: "user", CreatedAt: at, UpdatedAt: at,
				Rank: store.RankFinal}},
			Parts: []store.PartChange{{ID: "p" + id + text, MessageID: id + text, SessionID: id, Type: "text",
				Data: []byte(`{"type":"text","text":"` + text + `"}`), CreatedAt: at, UpdatedAt: at, Rank: store.RankFinal}}}
		if _, err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	tell("older", strings.Repeat(`line\n`, 30)+"needle", 1795198540000)
	tell("newer", "hello", 1795198541000)
	r := testscale.Open(t, stores.OpenReader, path)
	f := stores.Follow(path)
	defer f.Close()
	b := &browser{ctx: t.Context(), r: document.Reader{Reader: r}, follower: f, height: 10,
		options: render.Options{Width: 60}}
	b.load()
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace, "end": tea.KeyEnd}
	for _, step := range []struct{ key, want, without string }{
		{"", "title of newer", "needle"},
		{"j", "title of older", ""}, {"enter", "❯ line", "newer"},
		{"/", "/▏", ""}, {"x", "/x▏", ""}, {"backspace", "/▏", ""}, {"N", "/N▏", ""}, {"eedle", "/Needle▏", ""},
		{"enter", "needle", "❯ line"}, {"g", "title of older", "needle"}, {"n", "needle", ""},
		{"end", "Tokens", "❯ line"}, {"e", "nothing failed, and nothing was denied", "needle"},
		{"e", "❯ line", "only failures"}, {"q", "title of newer", "❯ line"},
		{"/", "/▏", ""}, {"hello", "/hello▏", ""}, {"enter", "title of newer", "title of older"},
		{"esc", "title of older", ""}, {"e", "0 sessions", "title of"}, {"j", "[only errors]", ""},
		{"enter", "0 sessions", ""},
		{"e", "title of newer", ""}, {"enter", "❯ hello", ""}, {"f", "[following]", ""}, {"q", "title of newer", ""},
	} {
		key := tea.Key{Text: step.key}
		if code := named[step.key]; code != 0 {
			key = tea.Key{Code: code}
		}
		if step.key != "" {
			b.Update(tea.KeyPressMsg(key))
		}
		screen := ansi.Strip(b.View().Content)
		if lines := strings.Split(screen, "\n"); !strings.Contains(screen, step.want) || len(lines) != 10 ||
			step.without != "" && strings.Contains(screen, step.without) {
			t.Fatalf("after %q, %q and not %q is wanted:\n%s", step.key, step.want, step.without, screen)
		}
	}
	tell("newest", "world", 1795198542000)
	if b.Update(pollMsg{}); !strings.Contains(b.View().Content, "title of newest") {
		t.Errorf("what is new is not followed:\n%s", b.View().Content)
	}
	if b.Update(tea.WindowSizeMsg{Width: 90, Height: 5}); strings.Count(b.View().Content, "\n") != 4 {
		t.Errorf("in 5 lines:\n%s", b.View().Content)
	}
	var cancel func()
	b.ctx, cancel = context.WithCancel(t.Context())
	cancel()
	b.Update(tea.KeyPressMsg(tea.Key{Text: "e"}))
	if !strings.Contains(b.View().Content, "title of newest") || b.note == "" {
		t.Errorf("after an error, which is %q:\n%s", b.note, b.View().Content)
	}
	if _, cmd := b.Update(tea.KeyPressMsg(tea.Key{Text: "q"})); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}
