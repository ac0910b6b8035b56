package render

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/price"
)

// conversation is a timeline with a turn for each pair of a question and an answer, asked one second after the other.
func talk(id string, at int64, texts ...string) *document.Document {
	doc := &document.Document{Session: document.Session{ID: id, Agent: "a"}}
	for i := 0; i < len(texts); i += 2 {
		at += 1000
		doc.Turns = append(doc.Turns, &document.Turn{Number: i/2 + 1, Messages: []*document.Message{
			{Role: session.RoleUser, CreatedAt: at, Parts: []*document.Part{{Kind: document.KindText, Text: texts[i]}}},
			{Role: session.RoleAssistant, CreatedAt: at,
				Parts: []*document.Part{{Kind: document.KindText, Text: texts[i+1]}}},
		}})
	}
	return doc
}

// TestDiffWidth: no line is wider than asked for, and nothing that a terminal obeys is printed, whatever the texts are.
func TestDiffWidth(t *testing.T) {
	long := strings.Repeat("word 日本語 \x1b[31m\t", 60)
	a, b := talk("a", 0, long, long+"\nx", "q", "y"), talk("b", 5, long+"!", "x\n"+long, "q", "z")
	for _, w := range []int{40, 80, 100, 120, 133} {
		for _, unified := range []bool{false, true} {
			var out strings.Builder
			testscale.Must(t, Diff(&out, document.Compare(a, b, document.CompareOptions{}), Options{Width: w}, unified))
			if strings.Contains(out.String(), "\x1b") {
				t.Errorf("at %d columns an escape gets through", w)
			}
			for line := range strings.Lines(out.String()) {
				if n := width(strings.TrimSuffix(line, "\n")); n > w {
					t.Errorf("at %d columns a line has %d: %q", w, n, line)
				}
			}
		}
	}
}

// TestFold: lines break between words where that leaves them half full at least,
// and nothing but spaces at which they break is lost.
func TestFold(t *testing.T) {
	text := func(line []span) string {
		var b strings.Builder
		for _, s := range line {
			b.WriteString(s.text)
		}
		return b.String()
	}
	for _, test := range []struct {
		line []string // spans
		n    int
		want []string
	}{
		{[]string{"short"}, 10, []string{"short"}},
		{nil, 10, []string{""}},
		{[]string{"one two three"}, 10, []string{"one two ", "three"}},
		{[]string{"one two three"}, 7, []string{"one two", "three"}},
		{[]string{"one t", "w", "o three"}, 6, []string{"one tw", "o thre", "e"}},
		{[]string{"abcdefghijklmno pq"}, 10, []string{"abcdefghij", "klmno pq"}},
		{[]string{"    abcdefghij"}, 10, []string{"    abcdef", "ghij"}},
		{[]string{"a bcdefghijklm"}, 10, []string{"a bcdefghi", "jklm"}},
		{[]string{"日本語"}, 1, []string{"日", "本", "語"}},
	} {
		var line []span
		for _, s := range test.line {
			line = append(line, span{text: s})
		}
		var got []string
		for _, l := range fold(line, test.n) {
			got = append(got, text(l))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("fold(%q, %d) (-want +got):\n%s", test.line, test.n, diff)
		}
	}
	const long = 3 << 20 // which took minutes
	if got := fold([]span{{text: strings.Repeat("A", long)}}, 64); len(got) != long/64 {
		t.Errorf("a line of 3 MiB is folded into %d lines", len(got))
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var line []span
		for range rng.IntN(5) {
			b := make([]byte, rng.IntN(9))
			for i := range b {
				b[i] = "ab  "[rng.IntN(4)]
			}
			line = append(line, span{text: string(b)})
		}
		n := 2 + rng.IntN(11)
		var all strings.Builder
		for _, l := range fold(line, n) {
			if width(text(l)) > n {
				t.Fatalf("fold(%q, %d) has the line %q", text(line), n, text(l))
			}
			all.WriteString(text(l))
		}
		if squeezed := func(s string) string {
			return strings.ReplaceAll(s, " ", "")
		}; squeezed(all.String()) != squeezed(text(line)) {
			t.Fatalf("fold(%q, %d) is %q", text(line), n, all.String())
		}
	}
}

// TestEstimate: a stated cost is printed as it is, and what has a mark is an estimate.
// Without a price for one of the models there is no total.
func TestEstimate(t *testing.T) {
	doc := talk("a", 0, "one", "1", "two", "2", "three", "3", "four", "4")
	usage := &session.Usage{Input: 100}
	for i, model := range []string{"known", "known", "other", "known"} {
		m := doc.Turns[i].Messages[1]
		m.Usage, m.Model, m.ModelCalls = usage, &session.Model{ProviderID: "p", ModelID: model, Variant: "high"}, 2
		doc.Turns[i].Usage = usage
	}
	stated := 0.5
	doc.Turns[1].Messages[1].CostUSD, doc.Turns[1].CostUSD, doc.Totals.CostUSD = &stated, &stated, &stated
	doc.Turns[3].Messages[1].Compaction, doc.Turns[3].Messages[1].Marker = &document.Compaction{}, true
	doc.Estimate(func(m session.Model) *price.Rate {
		if m.ModelID != "known" {
			return nil
		}
		return &price.Rate{Base: [5]float64{0.002}}
	})
	want := 0.2
	if d := cmp.Diff([]*float64{&want, nil, nil, nil}, []*float64{doc.Turns[0].EstimatedCostUSD,
		doc.Turns[1].EstimatedCostUSD, doc.Turns[2].EstimatedCostUSD, doc.Turns[3].EstimatedCostUSD}); d != "" {
		t.Errorf("turns (-want +got):\n%s", d)
	}
	if got := doc.Totals.EstimatedCostUSD; got == nil || *got != want || *doc.Totals.CostUSD != stated {
		t.Errorf("total estimated %v, stated %v", got, *doc.Totals.CostUSD)
	}
	if d := cmp.Diff([]string{"p/other"}, doc.UnpricedModels); d != "" {
		t.Errorf("without a price (-want +got):\n%s", d)
	}
	var out strings.Builder
	testscale.Must(t, Tokens(&out, doc, Options{Width: 100}))
	for _, line := range []string{" ~$0.20\n", " $0.50\n", " –\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
	if rows := strings.Split(strings.TrimSpace(out.String()), "\n"); !strings.HasPrefix(rows[len(rows)-1], "total ") ||
		!strings.HasSuffix(rows[len(rows)-1], " –") {
		t.Errorf("the last row is %q, want a total without a cost", rows[len(rows)-1])
	}
	if !doc.Turns[2].Unpriced || doc.Turns[0].Unpriced || !doc.Totals.Unpriced {
		t.Errorf("unpriced: turn 3 %t, turn 1 %t, total %t", doc.Turns[2].Unpriced, doc.Turns[0].Unpriced,
			doc.Totals.Unpriced)
	}
}

// TestOutputText: the text of an output comes before what is reported about it.
func TestOutputText(t *testing.T) {
	for raw, want := range map[string]string{
		`{"title":"ls","metadata":{"exit":0},"output":"a\nb\n"}`: "a\nb\ntitle: ls\nmetadata:\n  exit: 0",
		`{"output":{"rows":2},"title":"q"}`:                      "output:\n  rows: 2\ntitle: q",
		`{"output":" ","exit":1}`:                                "output:  \nexit: 1",
		`"output"`:                                               "output",
		`[1]`:                                                    "[1]",
	} {
		if diff := cmp.Diff(want, outputText([]byte(raw))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

// TestParameters: what a tool takes is read from its schema as far as that goes.
func TestParameters(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"path":{"type":"string"},"from":{"type":["integer","null"]},"any":{}},` +
			`"required":["path"]}`: "path, from?, any?",
		`{"properties":[]}`:                           "",
		`{"properties":{"a":1,"b":{"type":{"x":1}}}}`: "a?, b?",
		`true`: "",
		``:     "",
	} {
		if got := parameters([]byte(schema)); got != want {
			t.Errorf("parameters(%s) is %q, want %q", schema, got, want)
		}
	}
}

// TestHangingTextIsWhole: the lines below the first of a notice are further in, and have no less of the text for it.
func TestHangingTextIsWhole(t *testing.T) {
	p := newPrinter(Options{Width: 40})
	p.notices([]session.Notice{{Detail: strings.Repeat("x", 200)}})
	if n := strings.Count(p.b.String(), "x"); n != 200 {
		t.Errorf("%d of 200 letters in\n%s", n, p.b.String())
	}
}
