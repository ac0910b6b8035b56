package dialect

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

func textPart(s string) fact.Part { return fact.Part{Kind: fact.PartText, Text: s} }

func message(role string, parts ...fact.Part) fact.Message {
	return fact.Message{Role: role, Parts: parts}
}

var update = flag.Bool("update", false, "write the results in testdata and docs/dialects.md")

// TestValues reads the values of testdata/messages.txtar, each by what its name begins with.
func TestValues(t *testing.T) {
	const file = "testdata/messages.txtar"
	archive, err := txtar.ParseFile(file)
	testscale.Must(t, err)
	for i, section := range archive.Files {
		value, _, _ := strings.Cut(string(section.Data), "\n=>")
		raw := json.RawMessage(value)
		var got any
		switch how, _, _ := strings.Cut(section.Name, "/"); how {
		case "messages", "none":
			messages, ok := Messages(raw)
			if got = messages; ok != (how == "messages") {
				t.Errorf("%s: read whole: %v", section.Name, ok)
			}
		case "output":
			parts, finish, _ := Output(raw)
			got = map[string]any{"parts": parts, "finish": finish}
		case "instructions":
			got = SystemInstructions(raw)
		case "catalog":
			got = Catalog(raw)
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		testscale.Must(t, e.Encode(got))
		archive.Files[i].Data = fmt.Appendf(nil, "%s\n=> %s", value, b.String())
	}
	codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
}

// A cut conversation gives what is before the cut and is never more than the whole had.
func TestMessagesCut(t *testing.T) {
	const whole = `[{"role":"user","parts":[{"type":"text","content":"Zürich \u00e9 \ud83d\ude00?"}]},` +
		`{"role":"assistant","parts":[{"type":"tool_call","id":"call_1","name":"get","arguments":{"city":"Paris"}}]},` +
		`{"role":"user","content":"ok"}]`
	all, _ := Messages(json.RawMessage(whole))
	for i := range len(whole) {
		for _, tail := range []string{"", "...", "… [truncated]"} {
			got, ok := Messages(json.RawMessage(whole[:i] + tail))
			if ok {
				t.Fatalf("cut at %d: ok", i)
			}
			for n, m := range got {
				for k, p := range m.Parts {
					want := all[n].Parts[k]
					if p.Kind == fact.PartText {
						// a character that was cut before the tail
						kept, _, _ := strings.Cut(strings.TrimSuffix(p.Text, tail), "\uFFFD")
						if !strings.HasPrefix(want.Text, kept) || tail == "" && kept != p.Text {
							t.Errorf("cut at %d: text %q", i, p.Text)
						}
					} else if p.CallID != "" && p.CallID != want.CallID || p.Name != "" && p.Name != want.Name ||
						p.Input != nil && string(p.Input) != string(want.Input) {
						t.Errorf("cut at %d: %+v", i, p)
					}
				}
			}
		}
	}
	got, _ := Messages(json.RawMessage(whole[:strings.Index(whole, `,{"role":"user","content"`)]))
	if diff := cmp.Diff(all[:2], got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// The cut is also found where the JSON is in a string.
	encoded, _ := json.Marshal(whole[:len(whole)-3])
	got, ok := Messages(encoded)
	if ok || len(got) != 3 {
		t.Errorf("encoded: %v, %v", got, ok)
	}
}

func TestRecent(t *testing.T) {
	roles := func(messages []fact.Message) string {
		var s strings.Builder
		for _, m := range messages {
			s.WriteString(m.Role[:1])
		}
		return s.String()
	}
	for all, want := range map[string]struct {
		recent  string
		history int
	}{
		"":         {"", 0},
		"su":       {"u", 0},
		"suau":     {"u", 2},
		"suausu":   {"uu", 2},
		"uatatuat": {"uat", 5},
		"atat":     {"atat", 0},
		"uuatata":  {"uuatata", 0},
	} {
		var messages []fact.Message
		for _, c := range all {
			messages = append(messages,
				message(map[rune]string{'s': "system", 'u': "user", 'a': "assistant", 't': "tool"}[c],
					textPart("x")))
		}
		recent, history := Recent(messages)
		if got := roles(recent); got != want.recent || history != want.history {
			t.Errorf("Recent(%s) = %s, %d, want %s, %d", all, got, history, want.recent, want.history)
		}
	}

	// What follows the user is bounded, but neither the user's own nor the end.
	big := strings.Repeat("x", 20<<10)
	long := []fact.Message{
		message("user", textPart("earlier")), message("assistant", textPart("ok")),
		message("user", textPart(strings.Repeat(big, 3))),
		message("assistant", textPart(big)), message("tool", textPart(big)),
		message("assistant", textPart("small")), message("tool", textPart("small")),
		message("assistant", textPart("last")), message("tool", textPart(big)),
	}
	recent, history := Recent(long)
	if diff := cmp.Diff(append([]fact.Message{long[2]}, long[5:]...), recent); diff != "" || history != 4 {
		t.Errorf("history %d, -want +got:\n%s", history, diff)
	}
	var f fact.Fact
	ReadInput(&f, append([]fact.Message{message("system", textPart("Be brief."))}, long...))
	if f.SystemPrompt != "Be brief." || f.History != 4 || len(f.Input) != 5 {
		t.Errorf("ReadInput: %q, %d, %d", f.SystemPrompt, f.History, len(f.Input))
	}
}

// TestUsage: counts are input, output, cache read, cache write, reasoning and total, of which -1 is
// none; wanted are the tokens in the same order without the total.
func TestUsage(t *testing.T) {
	const none = -1
	inclusive := func(c Counts) *fact.Usage { return c.Usage(0) }
	thoughts := func(c Counts) *fact.Usage { return c.WithThoughts().Usage(0) }
	assumed := func(c Counts) *fact.Usage { return c.Assumed("who") }
	for _, tt := range []struct {
		name   string
		counts [6]int64
		read   func(Counts) *fact.Usage
		want   string
	}{
		{"nothing", [6]int64{none, none, none, none, none, none}, inclusive, "<nil>"},
		{"zero", [6]int64{0, none, none, none, none, none}, inclusive, "[0 0 0 0 0] inclusive"},
		{"inclusive", [6]int64{180, 41, 128, 10, 12, none}, inclusive, "[42 29 128 10 12] inclusive"},
		{"more of the cache than there is input", [6]int64{4, 41, 128, none, 12, none}, inclusive,
			"[0 29 4 0 12] inclusive capped"},
		{"more reasoning than there is output", [6]int64{4, 1, none, none, 12, none}, inclusive,
			"[4 0 0 0 1] inclusive capped"},
		{"assumed, and cannot be inclusive", [6]int64{4, 41, 128, none, 12, none}, assumed,
			"[0 29 4 0 12] inclusive capped by who, stated 4 41 128 0 12, proof 1"},
		{"assumed, and may be inclusive", [6]int64{180, 41, 128, none, 12, 221}, assumed,
			"[52 29 128 0 12] inclusive by who, stated 180 41 128 0 12, proof 0"},
		{"assumed, and nothing is stated", [6]int64{none, none, none, none, none, 7}, assumed, "<nil>"},
		{"only the cache", [6]int64{none, none, 128, none, none, none}, inclusive, "[0 0 128 0 0] inclusive"},
		{"thoughts beside the output", [6]int64{100, 50, 60, none, 20, 170}, thoughts, "[40 50 60 0 20] inclusive"},
		{"thoughts in the output", [6]int64{100, 50, 60, none, 20, 150}, thoughts, "[40 30 60 0 20] inclusive"},
		{"thoughts and no total", [6]int64{100, 50, none, none, 20, none}, thoughts, "[100 30 0 0 20] inclusive"},
		{"no output", [6]int64{100, none, none, none, 20, 140}, thoughts, "[100 0 0 0 20] inclusive"},
		{"negative", [6]int64{-4, 1, none, none, none, none},
			func(c Counts) *fact.Usage { return c.Usage(fact.CacheApart | fact.ReasoningApart) },
			"[0 1 0 0 0] exclusive"},
		{"mixed", [6]int64{4, 20, 128, 8, 5, none},
			func(c Counts) *fact.Usage { return c.Usage(fact.CacheApart) }, "[4 15 128 8 5] mixed"},
	} {
		count := func(i int) *int64 {
			if tt.counts[i] == none {
				return nil
			}
			return &tt.counts[i]
		}
		u := tt.read(Counts{Input: count(0), Output: count(1), CacheRead: count(2), CacheWrite: count(3),
			Reasoning: count(4), Total: count(5)})
		got := "<nil>"
		if u != nil {
			n := u.Tokens
			got = fmt.Sprint([]int64{n.Input, n.Output, n.CacheRead, n.CacheWrite, n.Reasoning}, " ", u.Basis)
			if u.Capped {
				got += " capped"
			}
			if s := u.Stated; s != nil {
				got += fmt.Sprintf(" by %s, stated %d %d %d %d %d, proof %d", u.Counter, *s.Input, *s.Output, s.CacheRead,
					s.CacheWrite, s.Reasoning, u.Proof)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`"Hi"`, `[]`, `[{"role":"user","parts":[{"type":"text","content":"a"}]}`, `{"system":"s","prompt":"p"}`,
		`[{"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"n","arguments":"{\"a\":1}"}}]}]`,
		`[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"}],` +
			`"is_error":true}]}]`,
		`[{"candidates":[{"content":{"parts":[{"functionCall":{"name":"n","args":{}}}]}}]}]`,
		`[{"lc":1,"id":["HumanMessage"],"kwargs":{"content":"x"}}]`, `"\"[{\\\"role\\\":1}]\""`,
		`{"data":{"content":[{"inlineData":{}}]}}`,
		`[{"type":"tool-x","toolCallId":"1","state":"output-denied"}]`, `[{"type":"image","image":{"0":1}}]`,
		"[{\"role\":\"user\",\"content\":\"\xff\\ud83d",
	} {
		f.Add([]byte(seed))
	}
	kinds := map[string]bool{fact.PartText: true, fact.PartReasoning: true, fact.PartCall: true, fact.PartResult: true,
		fact.PartFile:   true,
		fact.PartSource: true, fact.PartCompaction: true, fact.PartOther: true}
	f.Fuzz(func(t *testing.T, raw []byte) {
		messages, _ := Messages(raw)
		for _, m := range messages {
			if m.Role != "user" && m.Role != "assistant" && m.Role != "system" && m.Role != "tool" {
				t.Errorf("role %q", m.Role)
			}
			for _, p := range m.Parts {
				switch {
				case !kinds[p.Kind]:
					t.Errorf("kind %q", p.Kind)
				case (p.Kind == fact.PartText || p.Kind == fact.PartReasoning) && p.Text == "":
					t.Error("empty text")
				case p.Kind == fact.PartResult && m.Role == "user":
					t.Error("a result of the user's")
				case p.Kind == fact.PartFile && p.URL == "" && p.Name == "" && p.MediaType == "":
					t.Error("empty file")
				}
				for _, s := range []string{p.Text, p.CallID, p.Name, p.Error, p.URL, p.MediaType} {
					if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
						t.Errorf("text %q", s)
					}
				}
				for _, raw := range []json.RawMessage{p.Input, p.Output, p.Data} {
					if raw != nil && (!json.Valid(raw) || !utf8.Valid(raw)) {
						t.Errorf("JSON %q", raw)
					}
				}
			}
		}
		recent, history := Recent(messages)
		if len(recent)+history > len(messages) {
			t.Errorf("%d recent and %d before of %d", len(recent), history, len(messages))
		}
		Output(raw)
		SystemInstructions(raw)
		Catalog(raw)
	})
}
