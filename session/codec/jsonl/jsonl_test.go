package jsonl_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

const referenceFile = "../../testdata/reference.jsonl"

func readReference(tb testing.TB) []byte {
	tb.Helper()
	data := testscale.ReadFile(tb, referenceFile)
	return data
}

// collect decodes until the end or the first error.
func collect(r io.Reader) (all []*session.Transcript, err error) {
	for t, err := range jsonl.Decode(r, nil) {
		if err != nil {
			return all, err
		}
		all = append(all, t)
	}
	return all, nil
}

func encodeAll(tb testing.TB, all []*session.Transcript) []byte {
	tb.Helper()
	var b bytes.Buffer
	for _, t := range all {
		testscale.Must(tb, jsonl.Encode(&b, t))
	}
	return b.Bytes()
}

// The file was made from the reference program's database by other means than
// this package, so equal bytes say more than that the two halves agree.
func TestRoundTripReference(t *testing.T) {
	want := readReference(t)
	all, err := collect(bytes.NewReader(want))
	testscale.Must(t, err)
	if len(all) != 3 {
		t.Fatalf("%d sessions, want 3", len(all))
	}
	if diff := cmp.Diff(string(want), string(encodeAll(t, all))); diff != "" {
		t.Errorf("bytes changed (-want +got):\n%s", diff)
	}
	if again, err := collect(iotest.OneByteReader(bytes.NewReader(want))); err != nil {
		t.Error(err)
	} else if diff := cmp.Diff(all, again); diff != "" {
		t.Errorf("read byte by byte, rows differ:\n%s", diff)
	}
}

const (
	sessionLine = `{"type":"session","data":{"id":"s"}}`
	messageLine = `{"type":"message","data":{"id":"m","session_id":"s","created_at":1}}`
	partLine    = `{"type":"part","data":{"id":"p","message_id":"m","session_id":"s","index":0,"type":"text",` +
		`"data_json":"{}"}}`
)

func TestDecodeTolerates(t *testing.T) {
	want, err := collect(strings.NewReader(sessionLine + "\n" + messageLine + "\n" + partLine + "\n"))
	testscale.Must(t, err)
	if got := want[0].Messages[0].Parts[0].DataJSON; got != "{}" {
		t.Fatalf("data_json %q", got)
	}
	for name, in := range map[string]string{
		"no newline at the end": sessionLine + "\n" + messageLine + "\n" + partLine,
		"CRLF and empty lines":  "\r\n" + sessionLine + "\r\n\r\n \t\r\n" + messageLine + "\r\n" + partLine + "\r\n",
		"byte order mark":       "\uFEFF" + sessionLine + "\n" + messageLine + "\n" + partLine,
		"space and unknown keys": `{ "v": 2, "data": {"id":"s","later":[{}]}, "type": "session"}` + "\n" +
			strings.Replace(messageLine, ":{", ": {", 1) + "\n" + strings.Replace(partLine, "{}", "{}", 1) + " \n",
		"data with a key after it": sessionLine + "\n" + messageLine + "\n" + strings.TrimSuffix(partLine, "}") +
			`,"type":"part"}`,
	} {
		got, err := collect(strings.NewReader(in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got, err := collect(strings.NewReader("")); err != nil || got != nil {
		t.Errorf("empty input gives %v, %v", got, err)
	}
}

func TestDecodeSorts(t *testing.T) {
	in := strings.Join([]string{
		sessionLine,
		`{"type":"message","data":{"id":"b","session_id":"s","created_at":2}}`,
		`{"type":"message","data":{"id":"a","session_id":"s","created_at":1}}`,
		`{"type":"part","data":{"id":"p1","message_id":"b","session_id":"s","index":1}}`,
		`{"type":"part","data":{"id":"p2","message_id":"a","session_id":"s","index":0}}`,
		`{"type":"part","data":{"id":"p0","message_id":"b","session_id":"s","index":0}}`,
	}, "\n")
	all, err := collect(strings.NewReader(in))
	testscale.Must(t, err)
	var ids []string
	for _, m := range all[0].Messages {
		ids = append(ids, m.Message.ID)
		for _, p := range m.Parts {
			ids = append(ids, p.ID)
		}
	}
	if diff := cmp.Diff([]string{"a", "p2", "b", "p0", "p1"}, ids); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestDecodeErrors(t *testing.T) {
	above := sessionLine + "\n" + messageLine + "\n"
	for _, tt := range []struct {
		name, in, want string
		whole          int // sessions before the error
	}{
		{"part of nothing", sessionLine + "\n" + messageLine + "\n" + strings.Replace(partLine, `"m"`, `"y"`, 1),
			"line 3: part p belongs to message y, which is not above it", 0},
		{"part of an earlier session", above + `{"type":"session","data":{"id":"s2"}}` + "\n" + partLine,
			"line 4: part p belongs to message m, which is not above it", 1},
		{"message of nothing", messageLine, "line 1: message m belongs to session s, which is not above it", 0},
		{"message of another session", sessionLine + "\n\n" + strings.Replace(messageLine, `"s"`, `"r"`, 1),
			"line 3: message m belongs to session r, which is not above it", 0},
		{"message twice", above + messageLine, "line 3: message m is there twice", 0},
		{"no id", `{"type":"session","data":{}}`, "line 1: decode session: id is missing", 0},
		{"null row", `{"type":"session","data":null}`, "line 1: decode session: id is missing", 0},
		{"wrong kind", above + strings.Replace(partLine, `"index":0`, `"index":"0"`, 1),
			"line 3: decode part: index is string, want int64", 0},
		{"unknown type", `{"type":"trace","data":{}}`, `line 1: type "trace" is unknown`, 0},
		{"no type", `{"data":{}}`, `line 1: "type" is missing`, 0},
		{"no data", `{"type":"part"}`, `line 1: "data" is missing`, 0},
		{"prefix only", `{"type":"part","data":`, "line 1: not JSON: unexpected end of JSON input", 0},
		{"an array", `[]`, `line 1: not an object with a "type" and "data"`, 0},
		{"cut short", above + partLine[:40], "line 3: not JSON: unexpected end of JSON input", 0},
		{"not text", "\x00\x01", `line 1: not JSON: invalid character '\x00' looking for beginning of value`, 0},
		{"two values", sessionLine + sessionLine, `line 1: not JSON: invalid character '{' after top-level value`, 0},
	} {
		all, err := collect(strings.NewReader(tt.in))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
		if len(all) != tt.whole {
			t.Errorf("%s: %d sessions before the error, want %d", tt.name, len(all), tt.whole)
		}
	}
}

func TestDecodeReadError(t *testing.T) {
	broken := errors.New("broken pipe")
	all, err := collect(io.MultiReader(strings.NewReader(sessionLine+"\n"+sessionLine+"\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "line 3: ") {
		t.Errorf("error %v, want line 3: %v", err, broken)
	}
	if len(all) != 1 {
		t.Errorf("%d sessions, want only the one that had ended", len(all))
	}
}

func TestDecodeStopsWhenTold(t *testing.T) {
	n := 0
	for range jsonl.Decode(bytes.NewReader(readReference(t)), nil) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("yielded %d times", n)
	}
}

func TestLongLines(t *testing.T) {
	tr := &session.Transcript{Session: session.Session{ID: "s", PermissionsJSON: "[]", MetadataJSON: "{}"}}
	tr.Messages = []session.MessageAndParts{{Message: session.Message{ID: "m", SessionID: "s", MetadataJSON: "{}"}}}
	// Lengths about that of the reader's buffer, and one far above it.
	for i, n := range []int{60 << 10, 65_000, 65_300, 65_400, 65_536, 70_000, 130_000, 8 << 20} {
		tr.Messages[0].Parts = append(tr.Messages[0].Parts,
			session.Part{ID: fmt.Sprint("p", i), MessageID: "m", SessionID: "s",
				Index: int64(i), Type: "text", DataJSON: `{"type":"text","text":"` + strings.Repeat("a", n) + `"}`})
	}
	var b bytes.Buffer
	testscale.Must(t, jsonl.Encode(&b, tr))
	all, err := collect(&b)
	testscale.Must(t, err)
	if !reflect.DeepEqual(all, []*session.Transcript{tr}) {
		t.Error("long rows changed")
	}
}

func TestEncodeRefuses(t *testing.T) {
	tr := &session.Transcript{Session: session.Session{ID: "s"}}
	tr.Messages = []session.MessageAndParts{{Message: session.Message{ID: "m", SessionID: "s"},
		Parts: []session.Part{{ID: "p", MessageID: "n", SessionID: "s"}}}}
	var b bytes.Buffer
	err := jsonl.Encode(&b, tr)
	if want := `encode session s: messages[0].parts[0]: part p belongs to message "n" and is below m`; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if b.Len() > 0 {
		t.Errorf("wrote %q", &b)
	}
}

// FuzzDecode: what is accepted re-encodes to canonical lines, and canonical lines
// re-encode to themselves.
func FuzzDecode(f *testing.F) {
	codectest.Fuzz(f, lines, string(readReference(f)), sessionLine+"\n"+messageLine+"\n"+partLine,
		`{"data":{"id":"s\u0000\ud800","cost_usd":1e-9},"type":"session"}`+"\n"+sessionLine)
}
