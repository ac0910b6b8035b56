package render

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

func items() []document.Item {
	model := `{"provider_id":"openai","model_id":"gpt-5-mini","variant":"high"}`
	parent := "ses_1fa2bdc08000YO9dOSXjsMd9kP"
	archived := int64(epoch)
	rows := []session.Session{
		{ID: "ses_1fa2bdc08000YO9dOSXjsMd9kP", Title: "Find out why the tests of this project fail and fix them",
			Agent: "codeagent", ModelJSON: &model,
			MetadataJSON: `{"agenttrace":{"outcome":"finish"}}`, PromptTokens: 8037, CostUSD: 0.0123, UpdatedAt: epoch},
		{ID: "ses_1fa2bdc57000q3WDAeVveBG0kP", Title: "Review", Agent: "reviewer", ParentID: &parent,
			MetadataJSON: `{"agenttrace":{"outcome":"error"}}`, PromptTokens: 700, CostUSD: 0.5,
			UpdatedAt: epoch - 86_400_000},
		{ID: "ses_1fa2bdc5a00133WEcCxYmStWLC", Title: "New Chat\nsecond line", Agent: "grida", MetadataJSON: `{}`,
			UpdatedAt: epoch - 400*86_400_000, ArchivedAt: &archived},
	}
	rows[0].WorkspaceRoot = new("/home/ann/runes")
	spent := []store.Spent{{Tokens: session.Tokens{Used: &session.Usage{Input: 14834}}, Turns: 12, Errors: 3,
		DurationMS: new(int64(242_000))},
		{Tokens: session.Tokens{Used: &session.Usage{Input: 763}}}, {}}
	var list []document.Item
	for i := range rows {
		list = append(list, document.NewItem(&rows[i], nil, &spent[i], time.Time{}, 0))
	}
	document.Abbreviate(list, func(short, id string) bool {
		return !slices.ContainsFunc(rows, func(s session.Session) bool {
			return s.ID != id && strings.HasPrefix(s.ID, "ses_"+short)
		})
	})
	return list
}

func TestRenderSessions(t *testing.T) {
	var all strings.Builder
	for _, width := range []int{140, 120, 80, 40} {
		var b strings.Builder
		o := Options{Width: width, Now: time.UnixMilli(epoch + 3_600_000)}
		testscale.Must(t, Sessions(&b, items(), o))
		checkLines(t, "list", b.String(), o)
		fmt.Fprintf(&all, "%d columns\n%s\n", width, b.String())
	}
	golden(t, "sessions.txt", all.String())
}

// TestReferenceStore reads sessions that the reference program wrote.
func TestReferenceStore(t *testing.T) {
	f, err := os.Open("../testdata/reference.jsonl")
	testscale.Must(t, err)
	defer f.Close()
	for s, err := range jsonl.Decode(f, nil) {
		testscale.Must(t, err)
		for _, width := range []int{40, 80, 120} {
			views(t, document.Input{Transcript: s},
				Options{Width: width, Full: true, Now: time.UnixMilli(epoch)})
		}
		doc := document.Build(document.Input{Transcript: s})
		if s.Session.Title != "golden" {
			continue
		}
		// The user rewound to the first message: what followed is hidden, a compaction among it, and one message waits.
		got := []any{len(doc.Turns), doc.Totals.Hidden, doc.Totals.ToolCalls, doc.Totals.Failed, doc.Totals.Compactions,
			len(doc.Queued), len(doc.Session.Rules)}
		if diff := cmp.Diff([]any{2, 1, 3, 1, 1, 1, 1}, got); diff != "" {
			t.Errorf("turns, hidden, calls, failed, compactions, queued, rules (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(&session.Usage{Input: 107, Output: 21, Reasoning: 5, CacheRead: 40, CacheWrite: 10},
			doc.Totals.Usage); diff != "" {
			t.Errorf("usage of all turns (-want +got):\n%s", diff)
		}
		if doc.Session.State != document.StateUnknown {
			t.Errorf("state is %q, and the reference program does not report it", doc.Session.State)
		}
	}
}

// TestBetween takes one turn out of a timeline.
func TestBetween(t *testing.T) {
	f, err := os.Open("../testdata/reference.jsonl")
	testscale.Must(t, err)
	defer f.Close()
	for s, err := range jsonl.Decode(f, nil) {
		testscale.Must(t, err)
		doc := document.Build(document.Input{Transcript: s})
		one := doc.Between(2, 2)
		if len(doc.Turns) < 2 {
			continue
		}
		if len(one.Turns) != 1 || one.Turns[0].Number != 2 || one.Turn(2) == nil || one.Turn(1) != nil {
			t.Errorf("Between(2, 2) has turns %v", one.Turns)
		}
		if one.Totals != doc.Totals {
			t.Errorf("Between(2, 2) changes the totals")
		}
	}
}

// TestWholeIDs: a wide list has whole ids only where no column goes for them.
func TestWholeIDs(t *testing.T) {
	long := items()
	long[0].ID = "01a1fa2f-1e4a-7b31-a55d-4564d5182253-01a1fa2f"
	for _, test := range []struct {
		items []document.Item
		width int
		want  bool
	}{{items(), 119, false}, {items(), 160, true}, {long, 160, false}, {long, 180, true}} {
		var b strings.Builder
		testscale.Must(t, Sessions(&b, test.items,
			Options{Width: test.width, Now: time.UnixMilli(epoch)}))
		if got := strings.Contains(b.String(), test.items[0].ID); got != test.want ||
			!strings.Contains(b.String(), "MODEL") {
			t.Errorf("at %d columns whole ids %v, want %v, and a MODEL:\n%s", test.width, got, test.want, b.String())
		}
	}
}

// TestAPipedListKeepsItsColumnsBesideALongTitle: the columns of every row are below their titles, and nothing is cut.
func TestAPipedListKeepsItsColumnsBesideALongTitle(t *testing.T) {
	long := strings.Repeat("a title ", 20) + "to its end"
	items := []document.Item{{ID: "a", Title: long, Agent: "an agent with a long name", Total: 123456},
		{ID: "b", Title: "short", Agent: "codex", Total: 7}}
	for _, columns := range []int{40, 100, 200} {
		var out strings.Builder
		testscale.Must(t, Sessions(&out, items, Options{Whole: true, Width: columns}))
		lines := strings.Split(out.String(), "\n")
		for i, agent := range []string{"AGENT", "an agent with a long name", "codex"} {
			if at := strings.Index(lines[0], "AGENT"); !strings.HasPrefix(lines[i][at:], agent) {
				t.Errorf("at %d columns, %q is not at %d:\n%s", columns, agent, at, &out)
			}
		}
		if !strings.Contains(lines[1], long) || !strings.Contains(lines[1], "123,456") ||
			utf8.RuneCountInString(lines[0]) != utf8.RuneCountInString(lines[1]) || utf8.RuneCountInString(lines[1]) != utf8.RuneCountInString(lines[2]) {
			t.Errorf("at %d columns, a row is cut or its columns are moved:\n%s", columns, &out)
		}
	}
}
