package document

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
)

// TestEdits holds random scripts to what they promise, against the length of a
// longest common subsequence found the slow way.
func TestEdits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := randomText(rng), randomText(rng)
		var rebuilt []byte
		kept, atA, atB := 0, 0, 0
		for i, e := range edits(a, b) {
			if e.a0 != atA || e.b0 != atB || e.same && string(a[e.a0:e.a1]) != string(b[e.b0:e.b1]) ||
				e.a0 == e.a1 && e.b0 == e.b1 {
				t.Fatalf("edits(%s, %s): edit %d is %+v", a, b, i, e)
			}
			atA, atB = e.a1, e.b1
			rebuilt = append(rebuilt, b[e.b0:e.b1]...)
			if e.same {
				kept += e.a1 - e.a0
			}
		}
		if atA != len(a) || string(rebuilt) != string(b) {
			t.Fatalf("edits(%s, %s) do not cover both", a, b)
		}
		if want := longest(a, b); kept != want {
			t.Fatalf("edits(%s, %s) keep %d, want %d", a, b, kept, want)
		}
	}
}

func randomText(rng *rand.Rand) []byte {
	text := make([]byte, rng.IntN(12))
	for i := range text {
		text[i] = "abc"[rng.IntN(3)]
	}
	return text
}

func longest(a, b []byte) int {
	lengths := make([]int, len(b)+1)
	for i := range a {
		diagonal := 0
		for k := range b {
			above := lengths[k+1]
			if lengths[k+1] = max(above, lengths[k]); a[i] == b[k] {
				lengths[k+1] = diagonal + 1
			}
			diagonal = above
		}
	}
	return lengths[len(b)]
}

// TestEditsBounded: what has nothing in common is not searched forever.
func TestEditsBounded(t *testing.T) {
	a, b := make([]int, 5*maxEdits), make([]int, 5*maxEdits)
	for i := range a {
		a[i], b[i] = i+1, -i-1
	}
	got := edits(a, b)
	want := []edit{{0, len(a), 0, len(b), false}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(edit{})); diff != "" {
		t.Errorf("edits (-want +got):\n%s", diff)
	}
}

// TestLongLinesAreComparedSoon: what a tool printed in one line of megabytes is shown as replaced, at once.
func TestLongLinesAreComparedSoon(t *testing.T) {
	a, b := strings.Repeat("The quick brown fox. ", 1<<18), strings.Repeat("The quick brown cat. ", 1<<18)
	want := []DiffRow{{A: []Piece{{a, true}}, B: []Piece{{b, true}}}}
	if got := DiffTexts(a, b); !reflect.DeepEqual(got, want) {
		t.Errorf("the lines are in %d rows, or in pieces", len(got))
	}
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{a, b, false}, {a + "\ntook 5 ms", a + "\ntook 6 ms", true}, {"at 10:00:01\nx", "at 10:00:02\nx", true},
		{"at 10:00:01\nx", "at 10:00:02\ny", false}, {"x\n", "x", false}, {"", "x", false}, {"", "", true},
	} {
		if got := (CompareOptions{}).same(test.a, test.b); got != test.same {
			t.Errorf("same(%.20q, %.20q) is %v", test.a, test.b, got)
		}
	}
}

func TestWords(t *testing.T) {
	for _, text := range []string{"", "Go on, then.", "a_b  c\n\xff\xfe d", "naïve – 日本語"} {
		if got := strings.Join(word().FindAllString(text, -1), ""); got != text {
			t.Errorf("the words of %q are %q", text, got)
		}
	}
}

// conversation is a timeline with a turn for each pair of a question and an answer, asked one second after the other.
func conversation(id string, at int64, texts ...string) *Document {
	doc := &Document{Session: Session{ID: id, Agent: "a"}}
	for i := 0; i < len(texts); i += 2 {
		at += 1000
		doc.Turns = append(doc.Turns, &Turn{Number: i/2 + 1, Messages: []*Message{
			{Role: session.RoleUser, CreatedAt: at, Parts: []*Part{{Kind: KindText, Text: texts[i]}}},
			{Role: session.RoleAssistant, CreatedAt: at,
				Parts: []*Part{{Kind: KindText, Text: texts[i+1]}}},
		}})
	}
	return doc
}

func pairsOf(d *Diff) (pairs [][2]int) {
	for _, t := range d.Turns {
		pairs = append(pairs, [2]int{t.A, t.B})
	}
	return pairs
}

// TestAlign: a turn that one session has more does not shift those after it, what is between equal turns is paired, and
// the copied turns of a fork are found though the same text came again.
func TestAlign(t *testing.T) {
	a := conversation("a", 0, "one", "1", "two", "2", "four", "4")
	for _, test := range []struct {
		name string
		b    *Document
		want [][2]int
	}{
		{"one more", conversation("b", 1e6, "one", "1", "more", "x", "two", "2", "four", "4"),
			[][2]int{{1, 1}, {0, 2}, {2, 3}, {3, 4}}},
		{"replaced", conversation("b", 1e6, "one", "1", "other", "2", "four", "4"), [][2]int{{1, 1}, {2, 2}, {3, 3}}},
		{"nothing", conversation("b", 1e6), [][2]int{{1, 0}, {2, 0}, {3, 0}}},
	} {
		d := Compare(a, test.b, CompareOptions{})
		if diff := cmp.Diff(test.want, pairsOf(d)); diff != "" || d.Equal || d.First == nil {
			t.Errorf("%s: pairs (-want +got):\n%s, equal %v, first %v", test.name, diff, d.Equal, d.First)
		}
	}
	parent := conversation("p", 0, "go on", "1", "go on", "2", "go on", "3")
	fork := conversation("f", 1000, "go on", "2", "go on", "new") // its first is the parent's second
	d := Compare(parent, fork, CompareOptions{})
	if diff := cmp.Diff([][2]int{{1, 0}, {2, 1}, {3, 2}}, pairsOf(d)); diff != "" {
		t.Errorf("fork: pairs (-want +got):\n%s", diff)
	}
	if !d.Turns[1].Copied {
		t.Error("the copied turn does not count as copied")
	}
}

// TestFirstDivergence: content goes before tokens of earlier turns, and the keys of inputs have no order.
func TestFirstDivergence(t *testing.T) {
	a, b := conversation("a", 0, "one", "1", "two", "2"), conversation("b", 5, "one", "1", "two", "3")
	a.Turns[0].Usage, b.Turns[0].Usage = &session.Usage{Input: 10}, &session.Usage{Input: 11}
	call := func(input string) *Part {
		return &Part{Kind: KindTool, Tool: &ToolCall{Name: "bash", Input: []byte(input),
			State: session.StateOutputAvailable}}
	}
	answer := func(doc *Document) *Message { return doc.Turns[0].Messages[1] }
	answer(a).Parts = append(answer(a).Parts, call(`{"a":1,"b":2}`))
	answer(b).Parts = append(answer(b).Parts, call(`{ "b": 2, "a": 1 }`))
	d := Compare(a, b, CompareOptions{})
	if f := d.First; f == nil || f.Aspect != AspectAssistant || f.A != 2 {
		t.Errorf("first divergence %+v", f)
	}
	b.Turns[1] = a.Turns[1]
	if f := Compare(a, b, CompareOptions{}).First; f == nil || f.Aspect != AspectUsage || f.A != 1 {
		t.Errorf("first divergence %+v, want the tokens", f)
	}
	if d := Compare(a, b, CompareOptions{IgnoreUsage: true}); !d.Equal || d.First != nil {
		t.Errorf("they differ in %+v", d.First)
	}
	answer(b).Parts[1] = call(`{"a":1,"b":3}`)
	if f := Compare(a, b, CompareOptions{}).First; f == nil || f.Aspect != AspectInput || f.CallA != 1 {
		t.Errorf("first divergence %+v, want the input", f)
	}
}

func TestNoiseIsNoDivergenceUnlessItIsCounted(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"ok  wrap 0.012s in /tmp/go-build123/b001\n2026-11-20T10:00:00Z done",
			"ok  wrap 1.5s in /tmp/go-build987/b001\n2026-11-21T23:59:01.5Z done", true},
		{"listening on localhost:8080 at 10:11:12", "listening on localhost:43121 at 23:01:00", true},
		{"id 6f5e4d3c-2b1a-4000-8000-0123456789ab, commit 3f2a9c1, call_abcdefgh1",
			"id 00000000-2b1a-4000-8000-0123456789ab, commit 99ffee2, call_zzzzzzzz9", true},
		{"3 of 14 tests failed", "4 of 14 tests failed", false},
		{"exit status 1", "exit status 2", false},
		{"edit wrap.go:12", "edit wrap.go:13", false},
		{"/tmp/a1/x 5ms", "/home/a1/x 5ms", false},
	} {
		for _, exact := range []bool{false, true} {
			o := CompareOptions{Exact: exact}
			if got := o.same(test.a, test.b); got != (test.same && !exact) {
				t.Errorf("exactly %v: %q and %q are the same: %v", exact, test.a, test.b, got)
			}
			inA, inB := strconv.AppendQuote(nil, test.a), strconv.AppendQuote(nil, test.b)
			if got := o.Value(inA) == o.Value(inB); got != (test.same && !exact) {
				t.Errorf("exactly %v: %s and %s are one value: %v", exact, inA, inB, got)
			}
		}
	}
}
