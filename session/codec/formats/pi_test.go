package formats

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// piRead decodes a file, and fails the test if its session is invalid.
func piRead(tb testing.TB, text string) (s *codec.Session, problems []string, failed error) {
	tb.Helper()
	report := func(p codec.Problem) { problems = append(problems, p.String()) }
	for got, err := range piDecode(strings.NewReader(text), report) {
		if err != nil {
			return nil, problems, err
		}
		for _, v := range session.Check(got.Transcript) {
			tb.Errorf("invalid: %v", v)
		}
		s = got
	}
	return s, problems, nil
}

func piText(tb testing.TB, s *codec.Session) string {
	tb.Helper()
	var b bytes.Buffer
	if err := piEncode(&b, s); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func piSample(tb testing.TB) string {
	tb.Helper()
	data, err := os.ReadFile("testdata/pi/session.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// TestASessionOfPi reads a file with everything that Pi writes.
func TestASessionOfPi(t *testing.T) {
	s, problems, err := piRead(t, piSample(t))
	if err != nil {
		t.Fatal(err)
	}
	codectest.CheckGolden(t, "testdata/pi/session.golden", codectest.Golden(t, problems, s), *update)
	again, problems, err := piRead(t, piText(t, s))
	if err != nil || problems != nil {
		t.Fatalf("what was written is read with %v, %v", problems, err)
	}
	for _, l := range codec.Lost(s, again) {
		if !slices.Contains([]string{"ids and times", "data parts", "tool inputs and outputs", "other metadata"}, l.What) {
			t.Errorf("%d %s are lost", l.Count, l.What)
		}
	}
}

// TestPiOlderVersions: an entry of version 1 has no id, and follows the one before.
func TestPiOlderVersions(t *testing.T) {
	const v1 = `{"type":"session","id":"s","timestamp":"2026-10-03T14:00:00.000Z","cwd":"/w","provider":"p","modelId":"m"}
{"type":"message","timestamp":"2026-10-03T14:00:01.000Z","message":{"role":"user","content":"go"}}
{"type":"message","timestamp":"2026-10-03T14:00:02.000Z","message":{"role":"hookMessage","customType":"x","content":"note"}}
{"type":"message","timestamp":"2026-10-03T14:00:03.000Z","message":{"role":"assistant","content":[{"type":"text","text":"ok"}]}}
`
	s, problems, err := piRead(t, v1)
	if err != nil || problems != nil {
		t.Fatal(problems, err)
	}
	var got []string
	for _, m := range s.Messages {
		got = append(got, fmt.Sprint(m.Message.Role, " ", m.Message.HiddenAt == nil))
	}
	if d := cmp.Diff([]string{"user true", "system true", "assistant true"}, got); d != "" {
		t.Errorf("messages, and whether they are shown (-want +got):\n%s", d)
	}
}

// TestPiWhatIsWrongIsNamed: a line that cannot be read is named, with what was wanted.
func TestPiWhatIsWrongIsNamed(t *testing.T) {
	const header = `{"type":"session","version":3,"id":"s","timestamp":"2026-10-03T14:00:00.000Z","cwd":"/w"}` + "\n"
	message := func(inner string) string {
		return `{"type":"message","id":"a","parentId":null,"timestamp":"2026-10-03T14:00:01.000Z","message":{` + inner +
			"}}\n"
	}
	for _, tt := range []struct{ text, want string }{
		{"", "it is empty"},
		{message(`"role":"user"`), `line 1: is not a header: want {"type":"session"`},
		{strings.Replace(header, "3", "4", 1), "line 1: version is 4, and is read as version 3"},
		{header + "{\n", "line 2: is not an entry, and is left out"},
		{header + message(`"role":"robot"`), `line 2: message.role is "robot", which is not known`},
		{header + message(`"role":"user","content":[{"type":"video"}]`),
			"line 2: message.content[0] is neither a text nor an image"},
		{header + message(`"role":"assistant","content":[{"type":"toolCall","id":7}]`),
			"line 2: message.content[0] is neither a text, thinking"},
		{header + message(`"role":"toolResult","toolCallId":"c","content":[]`),
			`line 2: message.toolCallId is "c", which no call before has`},
		{header + `{"type":"later","id":"a","parentId":null}` + "\n", `line 2: is of type "later", which is not known`},
	} {
		_, problems, err := piRead(t, tt.text)
		if got := fmt.Sprint(problems, err); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}

// TestPiADamagedLineHidesNothing: Pi would lose all that is before a line that is gone.
func TestPiADamagedLineHidesNothing(t *testing.T) {
	s, _, err := piRead(t, piSample(t))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(piSample(t), "\n")
	lines[2] = "rubbish\n"
	damaged, problems, err := piRead(t, strings.Join(lines, ""))
	if err != nil || len(problems) != 1 {
		t.Fatal(problems, err)
	}
	for i, m := range s.Messages {
		if hidden := damaged.Messages[i].Message.HiddenAt != nil; hidden != (m.Message.HiddenAt != nil) {
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
		text := piText(t, corpus.Session)
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
		got, problems, err := piRead(t, text)
		if err != nil || problems != nil {
			t.Fatal(problems, err)
		}
		if d := cmp.Diff(hidden(corpus.Session), hidden(got)); d != "" {
			t.Errorf("%s: texts, and whether a rewind hid them (-want +got):\n%s", corpus.Name, d)
		}
		if seen == len(parents) {
			t.Errorf("%s: all %d entries are on the way", corpus.Name, seen)
		}
	}
}
