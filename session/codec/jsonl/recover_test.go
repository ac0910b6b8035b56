package jsonl_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/google/go-cmp/cmp"
)

func recoverSessions(r io.Reader) (all []*session.Transcript, problems []string, err error) {
	for s, err := range jsonl.Recover(r, func(p codec.Problem) { problems = append(problems, p.String()) }) {
		if err != nil {
			return all, problems, err
		}
		all = append(all, s.Transcript)
	}
	return all, problems, nil
}

// shape lists the ids of the rows.
func shape(all []*session.Transcript) string {
	var ids []string
	for _, t := range all {
		ids = append(ids, t.Session.ID)
		for _, m := range t.Messages {
			ids = append(ids, m.Message.ID)
			for _, p := range m.Parts {
				ids = append(ids, p.ID)
			}
		}
	}
	return strings.Join(ids, " ")
}

// TestRecoverWhole: what has no damage is as Decode reads it.
func TestRecoverWhole(t *testing.T) {
	want, err := collect(bytes.NewReader(readReference(t)))
	testscale.Must(t, err)
	got, problems, err := recoverSessions(bytes.NewReader(readReference(t)))
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-decoded +recovered):\n%s", diff)
	}
	if got, problems, err := recoverSessions(strings.NewReader(" \r\n")); err != nil || len(got)+len(problems) > 0 {
		t.Errorf("of an empty file %v, %v, %v", got, problems, err)
	}
}

func TestRecover(t *testing.T) {
	part := func(id string, index int) string {
		return fmt.Sprintf(
			`{"type":"part","data":{"id":"%s","message_id":"m","session_id":"s","index":%d,"type":"text",`+
				`"data_json":"{\"type\":\"text\",\"text\":\"\"}"}}`, id, index)
	}
	const (
		other    = `{"type":"session","data":{"id":"o"}}`
		otherRow = `{"type":"message","data":{"id":"n","session_id":"o","created_at":1}}`
	)
	for _, tt := range []struct {
		name, want string
		problems   []string
		lines      []string
	}{
		{"a line within", "s m p0 p2 o n", []string{"line 4: not JSON: unexpected end of JSON input; it is left out"},
			[]string{sessionLine, messageLine, part("p0", 0), part("p1", 1)[:50], part("p2", 2), other, otherRow}},
		{"the last line", "s m p0", []string{"line 4: not JSON: unexpected end of JSON input; it is left out"},
			[]string{sessionLine, messageLine, part("p0", 0), part("p1", 1)[:50]}},
		{"a message", "s", []string{`line 2: not an object with a "type" and "data"; it is left out`,
			"line 3: part p0 belongs to message m, which is not above it; it is left out"},
			[]string{sessionLine, `[]`, part("p0", 0)}},
		{"Latin-1", "s m p0", []string{"line 3: bytes that are not UTF-8 were replaced by U+FFFD"},
			[]string{sessionLine, messageLine, strings.Replace(part("p0", 0), `:\"\"`, ":\\\"\xe9\\\"", 1)}},
		{"a line of a newer program", "s", []string{`line 1: type "y" is unknown; it is left out`},
			[]string{`{"type":"y","data":{}}`, sessionLine}},
	} {
		all, problems, err := recoverSessions(strings.NewReader(strings.Join(tt.lines, "\n")))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := shape(all); got != tt.want {
			t.Errorf("%s: rows %s, want %s", tt.name, got, tt.want)
		}
		if diff := cmp.Diff(tt.problems, problems); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", tt.name, diff)
		}
	}
	for name, in := range map[string]string{"one line": "x", "a row of no session": messageLine,
		"many lines": strings.Repeat("x\n", 100_000)} {
		all, problems, err := recoverSessions(strings.NewReader(in))
		if err == nil || !strings.HasPrefix(err.Error(), "line 1: ") || len(all)+len(problems) > 0 {
			t.Errorf("%s: %v, %d problems, %v", name, all, len(problems), err)
		}
	}
}

// FuzzRecover: what is left of any input can be written, and read again whole.
func FuzzRecover(f *testing.F) {
	f.Add(readReference(f))
	f.Add([]byte(sessionLine + "\n" + messageLine[:30] + "\n" + partLine))
	f.Add([]byte(sessionLine + "\n" + messageLine + "\n" + strings.Replace(partLine, `"index":0`, `"index":7`, 1) +
		"\n}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		all, _, _ := recoverSessions(bytes.NewReader(in))
		canonical := encodeAll(t, all)
		again, problems, err := recoverSessions(bytes.NewReader(canonical))
		if err != nil || len(problems) > 0 {
			t.Fatalf("cannot read what was written: %v, %v\n%s", problems, err, canonical)
		}
		if got := encodeAll(t, again); !bytes.Equal(got, canonical) {
			t.Fatalf("lines changed:\n%s\n%s", canonical, got)
		}
	})
}
