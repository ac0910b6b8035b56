package jsonl_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

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
	if err != nil {
		t.Fatal(err)
	}
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
		other     = `{"type":"session","data":{"id":"o"}}`
		otherRow  = `{"type":"message","data":{"id":"n","session_id":"o","created_at":1}}`
		otherPart = `{"type":"part","data":{"id":"q","message_id":"n","session_id":"o","index":0,"type":"text",` +
			`"data_json":"{}"}}`
	)
	for _, tt := range []struct {
		name, want string
		problems   []string
		lines      []string
	}{
		{"a part", "s m p0 p2 o n q", []string{"line 4: not JSON: unexpected end of JSON input; it is left out"},
			[]string{sessionLine, messageLine, part("p0", 0), part("p1", 1)[:50], part("p2", 2), other, otherRow,
				otherPart}},
		{"the last line", "s m p0", []string{"line 4: not JSON: unexpected end of JSON input; it is left out"},
			[]string{sessionLine, messageLine, part("p0", 0), part("p1", 1)[:50]}},
		{"a message", "s m p0", []string{"line 2: decode message: id is missing; it is left out",
			"line 3: part q belongs to message n, which is not above it; it is left out"},
			[]string{sessionLine, `{"type":"message","data":{}}`, strings.Replace(otherPart, `"o"`, `"s"`, 1),
				messageLine,
				part("p0", 0)}},
		{"a message of many parts", "s", []string{"line 2: an array is no row; it is left out",
			"line 3: 3 rows belong to message m, which is not above them; they are left out"},
			[]string{sessionLine, `[]`, part("p0", 0), part("p1", 1), part("p2", 2)}},
		{"a session", "s m p0 s",
			[]string{"line 4: not JSON: invalid character 'x' looking for beginning of value; it is left out",
				"line 5: 2 rows belong to session o, which is not above them; they are left out"},
			[]string{sessionLine, messageLine, part("p0", 0), "x", otherRow, otherPart, sessionLine}},
		{"the first session", "s", []string{"line 1: type \"y\" is unknown; it is left out",
			"line 2: 2 rows belong to session o, which is not above them; they are left out"},
			[]string{`{"type":"y","data":{}}`, otherRow, otherPart, sessionLine}},
		{"rows that are there twice", "s m p0", []string{"line 3: message m is there twice; it is left out",
			"line 5: part p0 is there twice; it is left out"},
			[]string{sessionLine, messageLine, messageLine, part("p0", 0), part("p0", 1)}},
		{"a part that names another session", "s m p0",
			[]string{"line 4: part p1 names session o and is below message m of another; it is left out"},
			[]string{sessionLine, messageLine, part("p0", 0), strings.Replace(part("p1", 1), `"s"`, `"o"`, 1)}},
	} {
		all, problems, err := recoverSessions(strings.NewReader(strings.Join(tt.lines, "\n")))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := shape(all); got != tt.want {
			t.Errorf("%s: rows %s, want %s", tt.name, got, tt.want)
		}
		for i := range tt.problems {
			tt.problems[i] = strings.Replace(tt.problems[i], "an array is no row", `not an object with a "type" and `+
				`"data"`, 1)
		}
		if diff := cmp.Diff(tt.problems, problems); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", tt.name, diff)
		}
		var b bytes.Buffer
		for _, tr := range all {
			if err := jsonl.Encode(&b, tr); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			for _, v := range session.Check(tr) {
				if v.Rule == "part-gap" || v.Rule == "unique-ids" || v.Rule == "owner" {
					t.Errorf("%s: %s", tt.name, v)
				}
			}
		}
	}
}

// TestRecoverNothing: a file of another kind is an error, reported once.
func TestRecoverNothing(t *testing.T) {
	for name, in := range map[string]string{"one line": "x", "a row of no session": messageLine,
		"many lines": strings.Repeat("x\n", 100_000)} {
		all, problems, err := recoverSessions(strings.NewReader(in))
		if err == nil || !strings.HasPrefix(err.Error(), "line 1: ") || len(all)+len(problems) > 0 {
			t.Errorf("%s: %v, %d problems, %v", name, all, len(problems), err)
		}
	}
}

// TestRecoverReadError: what was read before stands.
func TestRecoverReadError(t *testing.T) {
	broken := errors.New("broken pipe")
	all, problems, err := recoverSessions(io.MultiReader(strings.NewReader(sessionLine+"\n"+messageLine+"\n"),
		iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || shape(all) != "s m" || len(problems) > 0 {
		t.Errorf("rows %s, problems %v, error %v", shape(all), problems, err)
	}
	for range jsonl.Recover(bytes.NewReader(readReference(t)), nil) {
		break // early
	}
}

// TestRecoverDamage: whatever lines are cut, no session is lost of which the first
// line is whole, and what is left of each is part of what was there and can be
// encoded.
func TestRecoverDamage(t *testing.T) {
	whole, err := collect(bytes.NewReader(readReference(t)))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, id := range strings.Fields(shape(whole)) {
		known[id] = true
	}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		lines := bytes.SplitAfter(readReference(t), []byte("\n"))
		sessions, cut := 0, 0
		for i, line := range lines {
			isSession := bytes.HasPrefix(line, []byte(`{"type":"session"`))
			if len(line) > 1 && r.IntN(8) == 0 {
				lines[i], cut = append(bytes.Clone(line[:1+r.IntN(len(line)-2)]), '\n'), cut+1
				isSession = false
			}
			if isSession {
				sessions++
			}
		}
		all, problems, err := recoverSessions(bytes.NewReader(bytes.Join(lines, nil)))
		if sessions == 0 {
			if err == nil {
				t.Errorf("seed %d: no error where there is no session", seed)
			}
			continue
		}
		if err != nil || len(all) != sessions || len(problems) < cut {
			t.Fatalf("seed %d: %d sessions of %d, %d problems of %d lines, %v", seed, len(all), sessions, len(problems),
				cut,
				err)
		}
		for _, id := range strings.Fields(shape(all)) {
			if !known[id] {
				t.Errorf("seed %d: %s was not there", seed, id)
			}
		}
		if canonical := encodeAll(t, all); len(canonical) == 0 {
			t.Errorf("seed %d: nothing is left", seed)
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
