package formats

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// TestPiADamagedLineHidesNothing: Pi would lose all that is before a line that is gone.
func TestPiADamagedLineHidesNothing(t *testing.T) {
	text := readFile(t, "testdata/pi/session.jsonl")
	s, lines := one(t, piDecode, text), strings.SplitAfter(text, "\n")
	lines[2] = "rubbish\n"
	damaged, problems := readText(t, piDecode, strings.Join(lines, ""))
	if len(problems) != 1 {
		t.Fatal(problems)
	}
	for i, m := range s.Messages {
		if hidden := damaged[0].Messages[i].Message.HiddenAt != nil; hidden != (m.Message.HiddenAt != nil) {
			t.Errorf("message %d is hidden: %v, want %v", i, hidden, !hidden)
		}
	}
}

// TestPiRewoundMessagesAreABranch: the way from the last entry to the first leads past what a rewind hid.
func TestPiRewoundMessagesAreABranch(t *testing.T) {
	for _, corpus := range codectest.Corpus() {
		if !strings.Contains(corpus.Name, "rewind") {
			continue
		}
		text := string(piEncode(corpus.Session))
		parents := make(map[string]string)
		var last string
		for line := range strings.Lines(text) {
			if o := rows.Read(line); o.Text("type") != "session" {
				last = o.Text("id")
				parents[last] = o.Text("parentId")
			}
		}
		seen := 0
		for ; last != ""; last = parents[last] {
			seen++
		}
		hidden := func(s *codec.Session) (texts []string) {
			for _, m := range s.Sorted().Messages {
				for _, p := range m.Parts {
					if p.Type == "text" {
						texts = append(texts, fmt.Sprint(p.DataJSON, m.Message.HiddenAt != nil))
					}
				}
			}
			return texts
		}
		if d := cmp.Diff(hidden(corpus.Session), hidden(one(t, piDecode, text))); d != "" {
			t.Errorf("%s: texts, and whether a rewind hid them (-want +got):\n%s", corpus.Name, d)
		}
		if seen == len(parents) {
			t.Errorf("%s: all %d entries are on the way", corpus.Name, seen)
		}
	}
}
