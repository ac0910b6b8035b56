package jsonl_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

func prompted(id string, blobs ...store.Blob) *codec.Session {
	return &codec.Session{
		Transcript: &session.Transcript{Session: session.Session{ID: id, Title: "T", Agent: "a", PermissionsJSON: "[]",
			MetadataJSON: "{}"}},
		Blobs: blobs,
	}
}

func whole(t *testing.T, text string) (all []*codec.Session, problems []string) {
	t.Helper()
	for s, err := range jsonl.Recover(strings.NewReader(text),
		func(p codec.Problem) { problems = append(problems, p.String()) }) {
		testscale.Must(t, err)
		all = append(all, s)
	}
	return all, problems
}

// TestPromptIsInTheFileOnce: many sessions share the text of a prompt, and each has it
// when it is read; also when files follow one another.
func TestPromptIsInTheFileOnce(t *testing.T) {
	prompt := store.Blob{Kind: store.BlobSystemPrompt, Digest: "d1", Body: "You are careful.", Exact: true}
	catalog := store.Blob{Kind: store.BlobToolCatalog, Digest: "d1", Body: `[{"name":"bash"}]`}
	var want []*codec.Session
	var b bytes.Buffer
	for range 2 {
		e := jsonl.NewEncoder(&b)
		for range 3 {
			s := prompted(fmt.Sprint("s", len(want)), catalog, prompt)
			want = append(want, s)
			testscale.Must(t, e.Encode(s))
		}
	}
	if n := strings.Count(b.String(), "You are careful."); n != 2 {
		t.Errorf("the text is there %d times in two files", n)
	}
	got, problems := whole(t, b.String())
	if len(got) != len(want) || problems != nil {
		t.Fatalf("%d sessions, %v", len(got), problems)
	}
	for i := range want {
		if d := codectest.Diff(want[i], got[i]); d != "" {
			t.Errorf("session %d %s", i, d)
		}
	}

	// Part of a file that names a prompt which is not there says so.
	lines := strings.SplitAfter(b.String(), "\n")
	got, problems = whole(t, strings.Join(lines[3:], ""))
	if len(got) != 5 || len(got[0].Blobs) != 0 || len(got[2].Blobs) != 2 {
		t.Errorf("of the rest of the file %d sessions", len(got))
	}
	if d := cmp.Diff([]string{
		"line 2: system_prompt d1 has no body, and there is none above it; it is left out",
		"line 3: tool_catalog d1 has no body, and there is none above it; it is left out",
	}, problems[:2]); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

// TestLinesOfANewerProgram are reported, and the rest is read.
func TestLinesOfANewerProgram(t *testing.T) {
	gap := strings.Replace(partLine, `"index":0`, `"index":3`, 1)
	got, problems := whole(t, strings.Join([]string{sessionLine, `{"type":"session_mood","data":{"session_id":"s"}}`,
		messageLine, gap}, "\n"))
	if len(got) != 1 || len(got[0].Messages) != 1 || len(got[0].Messages[0].Parts) != 1 ||
		got[0].Messages[0].Message.MetadataJSON != "{}" {
		t.Errorf("read %+v", got[0])
	}
	if d := cmp.Diff([]string{`line 2: type "session_mood" is unknown; it is left out`}, problems); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

// TestRowsOfAnotherSessionAreRefused, with their lines.
func TestRowsOfAnotherSessionAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"permission_decision","data":{"id":"p","session_id":"o"}}`:                      "decision p belongs to session o, which is not above it",
		`{"type":"session_span","data":{"session_id":"o","trace_id":"t","span_id":"p"}}`:         "span p belongs to session o, which is not above it",
		`{"type":"session_trace","data":{"session_id":"o","trace_id":"t"}}`:                      "trace t belongs to session o, which is not above it",
		`{"type":"session_state","data":{"session_id":"o","state_json":"{}"}}`:                   "a state belongs to session o, which is not above it",
		`{"type":"requested_index","data":{"message_id":"o","part_id":"p","requested_index":1}}`: "the requested index of part p belongs to message o, which is not above it",
		`{"type":"session_state","data":{"session_id":"s","state_json":"{"}}`:                    "state_json of session s",
		`{"type":"session_span","data":{"session_id":"s","trace_id":"t","span_id":""}}`:          "span_id is missing",
		`{"type":"requested_index","data":{"message_id":"m","part_id":"p"}}`:                     "requested_index is missing",
		`{"type":"system_prompt","data":{"body":"b"}}`:                                           "digest is missing",
		`{"type":"permission_decision","data":{"id":"p","session_id":"s","waited_ms":"no"}}`:     "decode permission_decision",
	} {
		got, problems := whole(t, sessionLine+"\n"+line+"\n"+messageLine)
		if len(got) != 1 || len(got[0].Messages) != 1 || len(problems) != 1 || !strings.Contains(problems[0], want) ||
			!strings.HasPrefix(problems[0], "line 2: ") {
			t.Errorf("%s: problems %q, want %q", line, problems, want)
		}
	}
}
