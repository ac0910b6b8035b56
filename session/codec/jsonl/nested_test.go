package jsonl_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/google/go-cmp/cmp"
)

func nested(tb testing.TB, t *session.Transcript) string {
	tb.Helper()
	var b strings.Builder
	testscale.Must(tb, jsonl.EncodeNested(&b, &codec.Session{Transcript: t}))
	return b.String()
}

func TestNestedRoundTripReference(t *testing.T) {
	for _, s := range codectest.Load(t, "../../testdata/reference.jsonl") {
		want := s.Transcript
		text := nested(t, want)
		got, err := jsonl.DecodeNested(strings.NewReader(text), nil)
		testscale.Must(t, err)
		if diff := cmp.Diff(want, got.Transcript); diff != "" {
			t.Errorf("rows changed (-want +got):\n%s", diff)
		}
		if again := nested(t, got.Transcript); again != text {
			t.Errorf("bytes changed:\n%s", cmp.Diff(text, again))
		}
		// encoding/json reads the same rows from it.
		var std session.Transcript
		testscale.Must(t, json.Unmarshal([]byte(text), &std))
		var indented bytes.Buffer
		testscale.Must(t, json.Indent(&indented, []byte(text), "", "  "))
		if got, err := jsonl.DecodeNested(&indented, nil); err != nil {
			t.Errorf("indented: %v", err)
		} else if diff := cmp.Diff(want, got.Transcript); diff != "" {
			t.Errorf("indented, rows changed (-want +got):\n%s", diff)
		}
	}
}

func TestNestedEncodeShape(t *testing.T) {
	tr := &session.Transcript{Session: session.Session{ID: "s"}}
	const row = `{"id":"s","title":"","agent":"","workspace_id":null,"workspace_root":null,"model_json":null,` +
		`"mode":null,"parent_id":null,` +
		`"parent_message_id":null,"permissions_json":"","metadata_json":"","prompt_tokens":0,"completion_tokens":0,` +
		`"reasoning_tokens":0,` +
		`"cache_read":0,"cache_write":0,"total_tokens":0,"cost_usd":0,"created_at":0,"updated_at":0,"archived_at":null}`
	if diff := cmp.Diff("{\n\"session\":"+row+",\n\"messages\":[]\n}\n", nested(t, tr)); diff != "" {
		t.Errorf("no messages (-want +got):\n%s", diff)
	}
	message := func(id string) session.MessageAndParts {
		return session.MessageAndParts{Message: session.Message{ID: id, SessionID: "s"}}
	}
	part := func(id string, index int64) session.Part {
		return session.Part{ID: id, MessageID: "a", SessionID: "s", Index: index}
	}
	tr.Messages = []session.MessageAndParts{message("b"), message("a")}
	tr.Messages[1].Parts = []session.Part{part("p", 1), part("q", 0)}
	const messageRow = `,"session_id":"s","role":"","metadata_json":"","hidden_at":null,"created_at":0,"updated_at":0}`
	const partRow = `,"type":"","data_json":"","tool_call_id":null,"tool_state":null,"continuation_run_id":null,` +
		`"created_at":0,"updated_at":0}`
	want := "{\n\"session\":" + row + ",\n\"messages\":[\n" +
		`{"message":{"id":"a"` + messageRow + `,"parts":[` + "\n" +
		`{"id":"q","message_id":"a","session_id":"s","index":0` + partRow + ",\n" +
		`{"id":"p","message_id":"a","session_id":"s","index":1` + partRow + "\n" +
		"]},\n" +
		`{"message":{"id":"b"` + messageRow + `,"parts":[]}` + "\n]\n}\n"
	if diff := cmp.Diff(want, nested(t, tr)); diff != "" {
		t.Errorf("two messages (-want +got):\n%s", diff)
	}
}

func TestNestedDecodeTolerates(t *testing.T) {
	want := &session.Transcript{Session: session.Session{ID: "s", Title: "New Chat", PermissionsJSON: "[]",
		MetadataJSON: "{}"}}
	for _, in := range []string{
		`{"session":{"id":"s"}}`,
		`{"messages":null,"later":1,"session":{"id":"s","later":2}}`,
		"\uFEFF" + ` {"messages":[],"session":{"id":"s"}} ` + "\r\n",
	} {
		if got, err := jsonl.DecodeNested(strings.NewReader(in), nil); err != nil {
			t.Errorf("%s: %v", in, err)
		} else if diff := cmp.Diff(want, got.Transcript); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func TestNestedDecodeErrors(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{``, "read session: line 1: unexpected end of JSON input"},
		{"{\n\"session\":{},\n]", "read session: line 3: invalid character ']' looking for beginning of object key " +
			"string"},
		{`{"session":{"id":"s"}}{}`, "read session: line 1: invalid character '{' after top-level value"},
		{`[]`, `read session: not an object with a "session" and "messages"`},
		{`{"messages":{}}`, `read session: not an object with a "session" and "messages"`},
		{`{}`, `read session: "session" is missing`},
		{`{"session":null}`, "decode session: id is missing"},
		{`{"session":{"id":1}}`, "decode session: id is number, want string"},
		{`{"session":{"id":"s"},"messages":[{}]}`, `decode messages[0]: "message" is missing`},
		{`{"session":{"id":"s"},"messages":[{"message":{"id":"m"}}]}`,
			"decode messages[0]: session_id is missing"},
		{`{"session":{"id":"s"},"messages":[{"message":{"id":"m","session_id":"s"},"parts":[null]}]}`,
			"decode messages[0].parts[0]: id is missing"},
		{`{"session":{"id":"s"},"messages":[{"message":{"id":"m","session_id":"r"}}]}`,
			`decode session s: messages[0]: message m belongs to session "r" and is below s`},
		{`{"session":{"id":"s"},"messages":[{"message":{"id":"m","session_id":"s"},"parts":[{"id":"p",` +
			`"message_id":"n","session_id":"s"}]}]}`,
			`decode session s: messages[0].parts[0]: part p belongs to message "n" and is below m`},
	} {
		got, err := jsonl.DecodeNested(strings.NewReader(tt.in), nil)
		if err == nil || err.Error() != tt.want || got != nil {
			t.Errorf("%s: %v, error %v, want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestNestedEncodeErrors(t *testing.T) {
	var b strings.Builder
	err := jsonl.EncodeNested(&b, &codec.Session{Transcript: &session.Transcript{}})
	if want := "encode session : session has no id"; err == nil || err.Error() != want || b.Len() > 0 {
		t.Errorf("error %v, want %s; wrote %q", err, want, b.String())
	}
}

// FuzzNestedDecode: what is accepted re-encodes to a canonical file, and a canonical file
// re-encodes to itself.
func FuzzNestedDecode(f *testing.F) {
	codectest.Fuzz(f, nestedFormat, `{"messages":[{"message":{"id":"m","session_id":"s"},"parts":[]}],"session":{"id":"s"}}`)
}
