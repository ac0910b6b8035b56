package inspect

import (
	"math/rand/v2"
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
			if e.a0 != atA || e.b0 != atB || e.same && string(a[e.a0:e.a1]) != string(b[e.b0:e.b1]) || e.a0 == e.a1 && e.b0 == e.b1 {
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

func TestWords(t *testing.T) {
	for _, text := range []string{"", "Go on, then.", "a_b  c\n\xff\xfe d", "naïve – 日本語"} {
		if got := strings.Join(words(text), ""); got != text {
			t.Errorf("words(%q) are %q", text, got)
		}
	}
}

// conversation is a timeline with a turn for each pair of a question and an
// answer, asked one second after the other.
func conversation(id string, at int64, said ...string) *Timeline {
	tl := &Timeline{Session: Session{ID: id, Agent: "a"}}
	for i := 0; i < len(said); i += 2 {
		at += 1000
		tl.Turns = append(tl.Turns, Turn{Number: i/2 + 1, Messages: []Message{
			{Role: session.RoleUser, CreatedAt: at, Parts: []Part{{Kind: KindText, Text: said[i]}}},
			{Role: session.RoleAssistant, CreatedAt: at, Parts: []Part{{Kind: KindText, Text: said[i+1]}}},
		}})
	}
	return tl
}

func pairsOf(d *Diff) (pairs [][2]int) {
	for _, t := range d.Turns {
		pairs = append(pairs, [2]int{t.A, t.B})
	}
	return pairs
}

// TestAlign: a turn that one session has more does not shift those after it, what
// stands between equal turns is paired, and the copied turns of a fork are found
// though the same was said again.
func TestAlign(t *testing.T) {
	a := conversation("a", 0, "one", "1", "two", "2", "four", "4")
	for _, test := range []struct {
		name string
		b    *Timeline
		want [][2]int
	}{
		{"one more", conversation("b", 1e6, "one", "1", "more", "x", "two", "2", "four", "4"), [][2]int{{1, 1}, {0, 2}, {2, 3}, {3, 4}}},
		{"replaced", conversation("b", 1e6, "one", "1", "other", "2", "four", "4"), [][2]int{{1, 1}, {2, 2}, {3, 3}}},
		{"nothing", conversation("b", 1e6), [][2]int{{1, 0}, {2, 0}, {3, 0}}},
	} {
		d := Compare(a, test.b, DiffOptions{})
		if diff := cmp.Diff(test.want, pairsOf(d)); diff != "" || d.Equal || d.First == nil {
			t.Errorf("%s: pairs (-want +got):\n%s, equal %v, first %v", test.name, diff, d.Equal, d.First)
		}
	}
	parent := conversation("p", 0, "go on", "1", "go on", "2", "go on", "3")
	fork := conversation("f", 1000, "go on", "2", "go on", "new") // its first is the parent's second
	d := Compare(parent, fork, DiffOptions{})
	if diff := cmp.Diff([][2]int{{1, 0}, {2, 1}, {3, 2}}, pairsOf(d)); diff != "" {
		t.Errorf("fork: pairs (-want +got):\n%s", diff)
	}
	if !d.Turns[1].Copied {
		t.Error("the copied turn does not count as copied")
	}
}

// TestFirstDivergence: what was said goes before tokens of earlier turns, and the
// keys of inputs have no order.
func TestFirstDivergence(t *testing.T) {
	a, b := conversation("a", 0, "one", "1", "two", "2"), conversation("b", 5, "one", "1", "two", "3")
	a.Turns[0].Usage, b.Turns[0].Usage = &session.Usage{Input: 10}, &session.Usage{Input: 11}
	call := func(input string) Part {
		return Part{Kind: KindTool, Tool: &ToolCall{Name: "bash", Input: []byte(input), State: session.StateOutputAvailable}}
	}
	answer := func(tl *Timeline) *Message { return &tl.Turns[0].Messages[1] }
	answer(a).Parts = append(answer(a).Parts, call(`{"a":1,"b":2}`))
	answer(b).Parts = append(answer(b).Parts, call(`{ "b": 2, "a": 1 }`))
	d := Compare(a, b, DiffOptions{})
	if f := d.First; f == nil || f.Aspect != AspectAssistant || f.A != 2 {
		t.Errorf("first divergence %+v", f)
	}
	b.Turns[1] = a.Turns[1]
	if f := Compare(a, b, DiffOptions{}).First; f == nil || f.Aspect != AspectUsage || f.A != 1 {
		t.Errorf("first divergence %+v, want the tokens", f)
	}
	if d := Compare(a, b, DiffOptions{IgnoreUsage: true}); !d.Equal || d.First != nil {
		t.Errorf("they differ in %+v", d.First)
	}
	answer(b).Parts[1] = call(`{"a":1,"b":3}`)
	if f := Compare(a, b, DiffOptions{}).First; f == nil || f.Aspect != AspectInput || f.CallA != 1 {
		t.Errorf("first divergence %+v, want the input", f)
	}
}

// TestDiffWidth: no line is wider than asked for, and nothing that a terminal
// obeys is printed, whatever the texts are.
func TestDiffWidth(t *testing.T) {
	long := strings.Repeat("word 日本語 \x1b[31m\t", 60)
	a, b := conversation("a", 0, long, long+"\nx", "q", "y"), conversation("b", 5, long+"!", "x\n"+long, "q", "z")
	for _, w := range []int{40, 80, 100, 120, 133} {
		for _, unified := range []bool{false, true} {
			var out strings.Builder
			if err := Compare(a, b, DiffOptions{}).Render(&out, Options{Width: w}, unified); err != nil {
				t.Fatal(err)
			}
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
		{[]string{"one t", "w", "o three"}, 6, []string{"one ", "two ", "three"}},
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
		n := 1 + rng.IntN(12)
		var all strings.Builder
		for _, l := range fold(line, n) {
			if width(text(l)) > n {
				t.Fatalf("fold(%q, %d) has the line %q", text(line), n, text(l))
			}
			all.WriteString(text(l))
		}
		if squeezed := func(s string) string { return strings.ReplaceAll(s, " ", "") }; squeezed(all.String()) != squeezed(text(line)) {
			t.Fatalf("fold(%q, %d) is %q", text(line), n, all.String())
		}
	}
}

// TestDiffUsage: of tokens those counts are told that differ.
func TestDiffUsage(t *testing.T) {
	a, b := conversation("a", 0, "one", "1"), conversation("b", 5, "one", "1")
	a.Turns[0].Usage = &session.Usage{Input: 1061, Output: 104, CacheRead: 768}
	b.Turns[0].Usage = &session.Usage{Input: 60, Output: 104, CacheRead: 40}
	var out strings.Builder
	if err := Compare(a, b, DiffOptions{}).Render(&out, Options{Width: 80}, false); err != nil {
		t.Fatal(err)
	}
	if want := "\n  tokens: input 1,061 → 60 · cache read 768 → 40\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, out.String())
	}
	out.Reset()
	if err := Compare(a, b, DiffOptions{}).Render(&out, Options{Width: 40}, false); err != nil {
		t.Fatal(err)
	}
	if want := "\n  tokens: input 1,061 → 60\n          cache read 768 → 40\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, out.String())
	}
}
