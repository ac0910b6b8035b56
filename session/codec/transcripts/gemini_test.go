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

	"github.com/agenttrace/agenttrace/internal/testscale"
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
		testscale.Must(t, jsonl.Encode(&b, s.Transcript))
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		testscale.WriteFile(t, name, got)
	}
	want := testscale.ReadFile(t, name)
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
	testscale.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	const chat = `{"sessionId":"s","projectHash":"h","startTime":"2026-01-02T03:04:05.000Z","kind":"subagent",` +
		`"messages":[{"id":"1","timestamp":"2026-01-02T03:04:06.000Z","type":"user","content":"x"}]}`
	testscale.WriteFile(t, path, chat)
	all, _, err := valid(t, geminiFile(path))
	if err != nil || len(all) != 1 || all[0].Session.ID != "s-2026-01-02T03:04:05.000Z" ||
		*all[0].Session.ParentID != "s" {
		t.Errorf("%v, %+v", err, all)
	}
}

// What was reported before a file grew has the same ids after it, except what was rewound in the midst of a turn.
func TestGeminiGrowing(t *testing.T) {
	data := testscale.ReadFile(t, geminiMain)
	before := make(map[string]bool)
	lines := strings.SplitAfter(string(data), "\n")
	for n := 1; n <= len(lines); n++ {
		all, _, err := valid(t, geminiText(strings.Join(lines[:n], "")))
		testscale.Must(t, err)
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
		data := testscale.ReadFile(f, path)
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
