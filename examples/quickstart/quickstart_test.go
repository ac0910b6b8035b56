package quickstart

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestDocumentation checks that docs/instrument.md shows this code.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "instrument.md"))
	testscale.Must(t, err)
	source, err := os.ReadFile("quickstart.go")
	testscale.Must(t, err)
	_, code, _ := strings.Cut(string(source), "\t// begin example\n")
	code, _, found := strings.Cut(code, "\t// end example\n")
	if !found {
		t.Fatal("quickstart.go has no part for the page")
	}
	code = strings.ReplaceAll("\n"+code, "\n\t", "\n")[1:]
	_, shown, _ := strings.Cut(string(page), "```go\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	if diff := cmp.Diff(code, shown); diff != "" {
		t.Errorf("docs/instrument.md shows other code (-quickstart.go +instrument.md):\n%s", diff)
	}
}

// scripted is an agent that makes one allowed and one denied call.
type scripted struct{ asked int }

func (s *scripted) Ask(context.Context, string, []string) (Answer, error) {
	if s.asked++; s.asked > 1 {
		return Answer{Text: "They pass.", FinishReason: "stop", InputTokens: 30, CachedTokens: 10, OutputTokens: 5}, nil
	}
	return Answer{Text: "I run the tests.", FinishReason: "tool_calls", InputTokens: 10, OutputTokens: 5, Calls: []Call{
		{"call_1", "bash", "go test ./..."}, {"call_2", "bash", "rm -rf /"},
	}}, nil
}

func (s *scripted) Execute(context.Context, Call) string { return "ok" }

// broken is an agent whose tool panics.
type broken struct{ scripted }

func (*broken) Execute(context.Context, Call) string { panic("nil map") }

// TestAPanicInTheExamplesAgentIsStoredAsTheError also checks that the panic continues.
func TestAPanicInTheExamplesAgentIsStoredAsTheError(t *testing.T) {
	got := record(t, func() {
		defer func() {
			if p := recover(); p != "nil map" {
				t.Errorf("panic goes on with %v", p)
			}
		}()
		_ = AnswerQuestion(t.Context(), &broken{}, "/w", "Do the tests pass?", "You are careful.", nil, nil)
	})
	st := document.StatusOf(&got.Session, got, nil, time.Time{}, 0)
	if st.State != document.ActivityError || st.Detail != "panic: nil map" {
		t.Errorf("status = %+v", st)
	}
	for _, m := range got.Messages {
		for _, p := range m.Parts {
			if p.ToolState == nil {
				continue
			}
			if *p.ToolState != session.StateOutputError || !strings.Contains(p.DataJSON, "panic: nil map") {
				t.Errorf("the call that panicked is stored as %s: %s", *p.ToolState, p.DataJSON)
			}
		}
	}
}

// TestAnswerQuestion checks the session that the example's code stores.
func TestAnswerQuestion(t *testing.T) {
	got := record(t, func() {
		err := AnswerQuestion(t.Context(), &scripted{}, "/w", "Do the tests pass?", "You are careful.", nil, nil)
		testscale.Must(t, err)
	})
	for _, v := range session.Check(got) {
		t.Error(v)
	}
	var parts []string
	for _, m := range got.Messages {
		for _, p := range m.Parts {
			state := ""
			if p.ToolState != nil {
				state = " " + *p.ToolState
			}
			parts = append(parts, m.Message.Role+" "+p.Type+state)
		}
	}
	want := []string{
		"user text", "assistant text", "assistant tool-bash output-available", "assistant tool-bash output-error",
		"assistant step-start", "assistant text",
	}
	if diff := cmp.Diff(want, parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if got.Session.TotalTokens != 50 || got.Session.CacheRead != 10 {
		t.Errorf("tokens = %+v", got.Session.Usage())
	}
}

// record runs an agent with a collector and returns the session that was stored.
func record(t *testing.T, run func()) *session.Transcript {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sessions.db")
	c, err := collector.Start(t.Context(), collector.Options{Store: path})
	testscale.Must(t, err)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+c.Endpoint())
	run()
	testscale.Must(t, c.Shutdown(context.Background()))
	r, err := sqlite.OpenReader(t.Context(), path)
	testscale.Must(t, err)
	defer r.Close()
	id, err := r.Resolve(t.Context(), "last")
	testscale.Must(t, err)
	got := storetest.Transcript(t, r, id)
	return got
}
