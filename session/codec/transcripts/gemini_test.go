package transcripts_test

import (
	"bytes"
	"context"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	geminiChats = "testdata/gemini/tmp/parser/chats/"
	geminiMain  = geminiChats + "session-2026-01-02T03-04-0f4c2f6e.jsonl"
	geminiOld   = geminiChats + "session-2025-08-20T10-00-77aa0b1c.json"
	geminiChild = geminiChats + "0f4c2f6e-55d1-4f0e-9a36-1c0c9a3b7d11/5b0f6a0c-aaaa-4c1b-8f5e-2f3f6b1d9c22.jsonl"
)

// sound collects sessions, each of which must keep the rules, and problems.
func valid(t *testing.T, decode func(report func(codec.Problem)) iter.Seq2[*codec.Session, error]) (
	all []*codec.Session, problems []string, err error) {
	t.Helper()
	for s, e := range decode(func(p codec.Problem) { problems = append(problems, p.String()) }) {
		if e != nil {
			err = e
			continue
		}
		if e := s.CheckTree(); e != nil {
			t.Error(e)
		}
		for _, v := range session.Check(s.Transcript) {
			t.Error(v)
		}
		all = append(all, s)
	}
	return all, problems, err
}

// text is the rows of the sessions, all of them.
func text(t *testing.T, all []*codec.Session) string {
	t.Helper()
	var b bytes.Buffer
	for _, s := range all {
		if err := jsonl.Encode(&b, s.Transcript); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

func geminiFile(path string) func(func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return transcripts.Gemini.DecodeFile(context.Background(), path, nil, report)
	}
}

func geminiText(text string) func(func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return transcripts.Gemini.Decode(strings.NewReader(text), report)
	}
}

func TestGemini(t *testing.T) {
	for path, name := range map[string]string{geminiMain: "main", geminiOld: "old", geminiChild: "child"} {
		all, problems, err := valid(t, geminiFile(path))
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %q", path, err, problems)
		}
		golden(t, "testdata/gemini/"+name+".golden.jsonl", text(t, all))
	}
}

// A sub-agent's chat that stands beside its parent's has its id.
func TestGeminiSubagentBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chats", "session-2026-01-02T03-04-0f4c2f6e.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	const chat = `{"sessionId":"s","projectHash":"h","startTime":"2026-01-02T03:04:05.000Z","kind":"subagent",` +
		`"messages":[{"id":"1","timestamp":"2026-01-02T03:04:06.000Z","type":"user","content":"x"}]}`
	if err := os.WriteFile(path, []byte(chat), 0o600); err != nil {
		t.Fatal(err)
	}
	all, _, err := valid(t, geminiFile(path))
	if err != nil || len(all) != 1 || all[0].Session.ID != "s-2026-01-02T03:04:05.000Z" ||
		*all[0].Session.ParentID != "s" {
		t.Errorf("%v, %+v", err, all)
	}
}

func TestGeminiDamaged(t *testing.T) {
	lines, err := os.ReadFile(geminiMain)
	if err != nil {
		t.Fatal(err)
	}
	object, err := os.ReadFile(geminiOld)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(lines), "\n")
	for name, tt := range map[string]struct {
		text     string
		messages int
		problems []string
		err      string
	}{
		"nothing": {"", 0, []string{"line 1: the file is damaged from here on: the rest is left out: EOF"},
			"no record in it names a session"},
		"no head": {rest, 0, nil, "no record in it names a session"},
		"line cut": {head + "\n" + `{"id":"u","type":"user","content":"x"}` + "\n" + `{"id":"u1","type":"us`, 1,
			[]string{"line 3: is not a record: left out: unexpected EOF"}, ""},
		"not ours": {head + "\n" + `{"id":"u","type":"user","content":"x"}` + "\n{\"a\":1}\n", 1,
			[]string{"line 3: is not a record of a chat: left out"}, ""},
		"unknown type": {head + "\n" + `{"id":"u","type":"dream","content":"x"}`, 0,
			[]string{"line 2: message u has no known type: left out"}, ""},
		"rewind": {head + "\n" + `{"id":"u","type":"user","content":"x"}` + "\n" + `{"$rewindTo":"gone"}`, 1,
			[]string{"line 3: rewinds to message gone, which is not there: all before is hidden"}, ""},
		"not UTF-8": {head + "\n" + `{"id":"u","type":"user","content":"` + "\xff" + `"}`, 1,
			[]string{"line 2: bytes that are not UTF-8 were replaced by U+FFFD"}, ""},
		"object not UTF-8": {"{\n" + `"sessionId":"s","projectHash":"` + "\xff\xff\xff" + `","messages":[]}`, 0,
			[]string{"bytes that are not UTF-8 were replaced by U+FFFD"}, ""},
		"object cut": {string(object[:900]), 1,
			[]string{"line 13: the file is damaged from here on: the rest is left out: unexpected EOF"}, ""},
		"odd in a list": {`{"sessionId":"s","projectHash":"h","messages":[7,{"id":"u","type":"user","content":"x"}]}`,
			1,
			[]string{"line 1: lists something that is not a message with an id: left out"}, ""},
		"odd message": {`{"sessionId":"s","projectHash":"h","messages":[` + "\n7,\n" +
			`{"id":"u","type":"user","content":["x",{"y":1}]}]}`, 1,
			[]string{"line 2: is not a message: left out: not an object"},
			""},
	} {
		all, problems, err := valid(t, geminiText(tt.text))
		if err == nil && tt.err != "" || err != nil && (tt.err == "" || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(tt.problems, problems); d != "" {
			t.Errorf("%s: problems (-want +got):\n%s", name, d)
		}
		messages := 0
		for _, s := range all {
			messages += len(s.Messages)
		}
		if messages != tt.messages {
			t.Errorf("%s: %d messages, want %d:\n%s", name, messages, tt.messages, text(t, all))
		}
	}
}

// What was reported before a file grew has the same ids after it, but for what was
// rewound in the midst of a turn.
func TestGeminiGrowing(t *testing.T) {
	data, err := os.ReadFile(geminiMain)
	if err != nil {
		t.Fatal(err)
	}
	before := make(map[string]bool)
	lines := strings.SplitAfter(string(data), "\n")
	for n := 1; n <= len(lines); n++ {
		all, _, err := valid(t, geminiText(strings.Join(lines[:n], "")))
		if err != nil {
			t.Fatal(err)
		}
		now := make(map[string]bool)
		for _, m := range all[0].Messages {
			now[m.Message.ID] = true
			for _, p := range m.Parts {
				now[p.ID] = true
			}
		}
		for id := range before {
			if !now[id] {
				t.Errorf("%d lines: %s is gone", n, id)
			}
		}
		before = now
	}
}

func FuzzDecodeGemini(f *testing.F) {
	for _, path := range []string{geminiMain, geminiOld, geminiChild} {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
		f.Add(string(data[:len(data)*2/3]))
	}
	f.Fuzz(func(t *testing.T, in string) {
		first, _, _ := valid(t, geminiText(in))
		again, _, _ := valid(t, geminiText(in))
		if a, b := text(t, first), text(t, again); a != b {
			t.Errorf("%s\nthe second time\n%s", a, b)
		}
	})
}
