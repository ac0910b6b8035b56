package session_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// reference returns sessions that the guide's reference program wrote: one with every
// part type that it stores and a rewind, its fork, and an archived one.
func reference(tb testing.TB) []*session.Transcript {
	tb.Helper()
	data := testscale.ReadFile(tb, "testdata/reference.jsonl")
	var all []*session.Transcript
	for t, err := range jsonl.Decode(bytes.NewReader(data), nil) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, t)
	}
	if len(all) != 3 {
		tb.Fatalf("testdata/reference.jsonl has %d sessions, want 3", len(all))
	}
	return all
}

func TestCheckAcceptsReference(t *testing.T) {
	for _, tr := range reference(t) {
		for _, v := range session.Check(tr) {
			t.Errorf("%v", v)
		}
	}
}

// checkCases reads testdata/check.txt: the text of a valid session, and what each case makes of it.
func checkCases(tb testing.TB) (valid string, cases []string) {
	tb.Helper()
	blocks := strings.Split(string(testscale.ReadFile(tb, "testdata/check.txt")), "\n\n")
	return blocks[1], blocks[2:]
}

// parse reads the text of a session: each row has its columns, and below it those that are JSON.
func parse(tb testing.TB, text string) *session.Transcript {
	tb.Helper()
	t := new(session.Transcript)
	for row := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(text), "\n\t", "\t"), "\n") {
		lines := strings.Split(row, "\t")
		kind, columns, _ := strings.Cut(lines[0], " ")
		for _, line := range lines[1:] {
			name, raw, _ := strings.Cut(line, " ")
			quoted, _ := json.Marshal(raw)
			columns = strings.TrimSuffix(columns, "}") + `,"` + name + `":` + string(quoted) + "}"
		}
		var into any = &t.Session
		switch last := len(t.Messages) - 1; kind {
		case "message":
			t.Messages = append(t.Messages, session.MessageAndParts{})
			into = &t.Messages[last+1].Message
		case "part":
			t.Messages[last].Parts = append(t.Messages[last].Parts, session.Part{})
			into = &t.Messages[last].Parts[len(t.Messages[last].Parts)-1]
		}
		if err := json.Unmarshal([]byte(columns), into); err != nil {
			tb.Fatalf("%v: %s", err, row)
		}
	}
	return t
}

// check returns the violations of a session, a line for each.
func check(t *session.Transcript) string {
	var b strings.Builder
	for _, v := range session.Check(t) {
		b.WriteString(v.String() + "\n")
	}
	return b.String()
}

// TestCheck breaks the rules one after the other, and looks that all of them are broken.
func TestCheck(t *testing.T) {
	valid, cases := checkCases(t)
	if got := check(parse(t, valid)); got != "" {
		t.Errorf("a valid session: %s", got)
	}
	broken := make(map[string]bool)
	compare := func(of, want, got string) {
		t.Helper()
		if got != want {
			t.Errorf("%s\n(-want +got):\n%s", of, cmp.Diff(want, got))
		}
		_, rule, _ := strings.Cut(strings.TrimSuffix(want, "]\n"), " [")
		broken[rule[strings.LastIndex(rule, "[")+1:]] = true
	}
	for _, c := range cases {
		text, want := valid, ""
		for line := range strings.SplitSeq(strings.Trim(c, "\n"), "\n") {
			change, isChange := strings.CutPrefix(line, "\t")
			from, to, _ := strings.Cut(change, " =>")
			switch {
			case strings.HasPrefix(line, "#"):
			case !isChange:
				want += line + "\n"
			case strings.Count(text, from) != 1:
				t.Fatalf("%q is there %d times", from, strings.Count(text, from))
			default:
				text = strings.Replace(text, from, strings.TrimPrefix(to, " "), 1)
			}
		}
		compare(c, want, check(parse(t, text)))
	}
	for want, change := range map[string]func(*session.Transcript){ // what no JSON has
		"title is not valid UTF-8 [utf8]": func(t *session.Transcript) { t.Session.Title = "\xff" },
		"cost_usd is NaN [cost]":          func(t *session.Transcript) { t.Session.CostUSD = math.NaN() },
		"cost_usd is +Inf [cost]":         func(t *session.Transcript) { t.Session.CostUSD = math.Inf(1) },
	} {
		tr := parse(t, valid)
		change(tr)
		compare(want, "session ses_1: "+want+"\n", check(tr))
	}
	tr := parse(t, valid)
	tr.Messages[3].Parts[0].DataJSON = "{\"type\":\"text\",\"text\":\"\xff\"}"
	compare("a part", "part prt_first: data_json is not valid UTF-8 [utf8]\n", check(tr))
	for _, r := range session.Rules() {
		if !strings.HasSuffix(r.Doc, ".") || r.Rule == "" {
			t.Errorf("rule %q is documented as %q, want a sentence", r.Rule, r.Doc)
		}
		if !broken[r.Rule] {
			t.Errorf("no case breaks rule %s", r.Rule)
		}
	}
}

func TestCheckEmpty(t *testing.T) {
	want := []session.Violation{
		{Rule: "ids", Where: "session", Detail: "id is empty"},
		{Rule: "json", Where: "session", Detail: "permissions_json is not a JSON array"},
		{Rule: "json", Where: "session", Detail: "metadata_json is not a JSON object"},
	}
	if diff := cmp.Diff(want, session.Check(nil)); diff != "" {
		t.Errorf("Check(nil) (-want +got):\n%s", diff)
	}
	if got, want := want[0].String(), "session: id is empty [ids]"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

// FuzzCheck checks transcripts that no codec would accept.
func FuzzCheck(f *testing.F) {
	valid, _ := checkCases(f)
	for _, t := range append(reference(f), parse(f, valid), new(session.Transcript)) {
		data, err := json.Marshal(t)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	rules := make(map[string]bool)
	for _, r := range session.Rules() {
		rules[r.Rule] = true
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tr session.Transcript
		if json.Unmarshal(data, &tr) != nil {
			return
		}
		before, _ := json.Marshal(&tr)
		for _, v := range session.Check(&tr) {
			if !rules[v.Rule] || v.Where == "" || v.Detail == "" {
				t.Errorf("violation %+v", v)
			}
		}
		if after, _ := json.Marshal(&tr); !bytes.Equal(before, after) {
			t.Error("Check changed the transcript")
		}
	})
}
