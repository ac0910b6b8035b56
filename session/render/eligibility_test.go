package render

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
)

// TestReplayStories judges the session of each story and prints it in the ways that its file has sections for. A file
// may have several stories, each in a file that ends in .json; the sections of one begin with its name.
func TestReplayStories(t *testing.T) {
	files, err := filepath.Glob("testdata/replay/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			testscale.Must(t, err)
			stories := map[string]*document.Document{}
			for i := range a.Files {
				f := &a.Files[i]
				if name, ok := strings.CutSuffix(f.Name, ".json"); ok {
					stories[name] = document.Build(readStory(t, string(f.Data)))
					continue
				}
				name, section, _ := strings.Cut(f.Name, " ")
				doc := stories[name]
				if doc == nil {
					t.Fatalf("section %q: there is no story %q", f.Name, name)
				}
				f.Data = []byte(renderReplay(t, doc, section))
			}
			codectest.CheckGolden(t, file, string(txtar.Format(a)), *update)
		})
	}
}

// renderReplay prints a verdict as the section wants: a width and options, as JSON, or
// of each turn the ids of what the model was given.
func renderReplay(t *testing.T, doc *document.Document, section string) string {
	t.Helper()
	var o Options
	for word := range strings.FieldsSeq(section) {
		switch word {
		case "full":
			o.Full = true
		case "json":
			b, err := json.MarshalIndent(doc.Eligibility(), "", "  ")
			if err != nil {
				t.Fatalf("encode verdict: %v", err)
			}
			return string(b) + "\n"
		case "given":
			return given(doc)
		default:
			if _, err := fmt.Sscan(word, &o.Width); err != nil {
				t.Fatalf("section %q: %q is neither an option nor a width", section, word)
			}
		}
	}
	var b strings.Builder
	if err := Eligibility(&b, doc.Eligibility(), o); err != nil {
		t.Fatalf("render %q: %v", section, err)
	}
	checkLines(t, section, b.String(), o)
	return b.String()
}

func given(doc *document.Document) string {
	var b strings.Builder
	for i := range doc.Turns {
		number := doc.Turns[i].Number
		fmt.Fprintf(&b, "%d", number)
		if doc.Turns[i].Hidden {
			b.WriteString(" (rewound)")
		}
		b.WriteString(":")
		for _, m := range doc.Context(number) {
			if m.Compaction != nil {
				b.WriteString(" summary")
			}
			b.WriteString(" " + m.ID)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestReplayNoTurn: of a turn that there is not, nothing is printed.
func TestReplayNoTurn(t *testing.T) {
	doc := document.Build(document.Input{Transcript: &session.Transcript{Session: session.Session{ID: "ses_1"}}})
	if got := doc.TurnEligibility(1); got != nil {
		t.Errorf("TurnReplay(1) = %+v, want nil", got)
	}
	if got := doc.Context(1); got != nil {
		t.Errorf("Context(1) = %v, want nil", got)
	}
	if r := doc.Eligibility(); r.Eligible || len(r.Turns) != 0 {
		t.Errorf("Replay() = %+v, want no turns, and not eligible", r)
	}
}

// TestReplayProperties holds the verdict on valid sessions of any content to what it promises.
func TestReplayProperties(t *testing.T) {
	for seed := range uint64(400) {
		s := codectest.Generate(rand.New(rand.NewPCG(seed, 7)), int(seed%24))
		doc := document.Build(document.Input{Transcript: s.Transcript, Decisions: s.Decisions, Blobs: s.Blobs})
		r := doc.Eligibility()
		eligible := len(r.Turns) > 0
		for _, turn := range r.Turns {
			eligible = eligible && (turn.Eligible || turn.Hidden)
			if turn.Eligible != (len(turn.Missing) == 0) {
				t.Errorf("seed %d, turn %d: eligible is %v, and %d things are missing", seed, turn.Turn, turn.Eligible,
					len(turn.Missing))
			}
			context := doc.Context(turn.Turn)
			if len(context) != turn.Context {
				t.Errorf("seed %d, turn %d: %d messages were given, and it reports %d", seed, turn.Turn, len(context),
					turn.Context)
			}
			checkContext(t, fmt.Sprintf("seed %d, turn %d", seed, turn.Turn), doc, turn, context)
		}
		if r.Eligible != eligible {
			t.Errorf("seed %d: the session is eligible: %v, of its turns it is %v", seed, r.Eligible, eligible)
		}
		for _, width := range []int{40, 80, 120} {
			var b strings.Builder
			o := Options{Width: width, Full: true}
			testscale.Must(t, Eligibility(&b, r, o))
			checkLines(t, fmt.Sprintf("seed %d at %d columns", seed, width), b.String(), o)
		}
	}
}

// checkContext: a context has its question, at most one summary, which is first,
// no message twice and none that was hidden before.
func checkContext(t *testing.T, what string, doc *document.Document, turn *document.TurnEligibility,
	context []*document.Message) {
	t.Helper()
	seen := map[string]bool{}
	asked := int64(0)
	for i, m := range context {
		if seen[m.ID] {
			t.Errorf("%s: %s was given twice", what, m.ID)
		}
		seen[m.ID] = true
		if (m.Compaction != nil) != (turn.Compacted && i == 0) {
			t.Errorf("%s: message %d of %d is a summary: %v", what, i+1, len(context), m.Compaction != nil)
		}
		if m.ID == turn.MessageID {
			asked = m.CreatedAt
		}
	}
	if turn.MessageID != "" && !seen[turn.MessageID] {
		t.Errorf("%s: the question was not given", what)
	}
	for _, m := range context {
		if m.HiddenAt != nil && *m.HiddenAt <= asked && m.ID != turn.MessageID {
			t.Errorf("%s: %s was given, which had been hidden", what, m.ID)
		}
	}
	answered := slices.ContainsFunc(doc.Turn(turn.Turn).Messages, func(m *document.Message) bool {
		return m.Role == session.RoleAssistant && m.Compaction == nil && seen[m.ID]
	})
	if answered {
		t.Errorf("%s: the answer itself was given", what)
	}
}
