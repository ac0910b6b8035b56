package formats

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

var update = flag.Bool("update", false, "write the golden files")

// TestStories reads what programs write, or what is left of it. In a file of stories each is followed by its golden:
// the sessions, and the problems of reading them. What is written of a session has all that the format promises to keep.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*/stories.txtar")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files of stories, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		c := streamOf(name)
		archive, err := txtar.ParseFile(file)
		testscale.Must(t, err)
		for i := 0; i+1 < len(archive.Files); i += 2 {
			story, golden := &archive.Files[i], &archive.Files[i+1]
			t.Run(name+" "+story.Name, func(t *testing.T) {
				sessions, problems := readText(t, c.Decode, string(story.Data))
				golden.Data = []byte(codectest.Golden(t, problems, sessions...))
				for _, s := range sessions {
					again, later := readText(t, c.Decode, writtenText(t, c.Encode, s))
					if len(again) != 1 || problems == nil && later != nil {
						t.Fatalf("what is written is read as %d sessions, with the problems %q", len(again), later)
					}
					listed := c.Losses.Of(s)
					for _, l := range codec.Lost(s, again[0]) {
						if !slices.ContainsFunc(listed, func(of codec.Loss) bool { return of.What == l.What }) {
							t.Errorf("%d %s are lost", l.Count, l.What)
						}
					}
				}
			})
		}
		codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
	}
}

// TestSamples reads files of other programs: X.golden is what comes of one, and X.again what is written of that.
func TestSamples(t *testing.T) {
	goldens, err := filepath.Glob("testdata/*/*.golden")
	if err != nil || len(goldens) < 14 {
		t.Fatalf("%d goldens, %v", len(goldens), err)
	}
	for _, golden := range goldens {
		base := strings.TrimSuffix(golden, ".golden")
		c := streamOf(filepath.Base(filepath.Dir(golden)))
		of, _ := filepath.Glob(base + ".[jn]*") // the pattern is one
		if len(of) != 1 {
			t.Fatalf("%s is of %q", golden, of)
		}
		all, problems := readText(t, c.Decode, readFile(t, of[0]))
		codectest.CheckGolden(t, golden, codectest.Golden(t, problems, all...), *update)
		if again, _ := filepath.Glob(base + ".again*"); again != nil {
			codectest.CheckGolden(t, again[0], writtenText(t, c.Encode, all[0]), *update)
		}
	}
}

// streamOf is the format of a name that is a stream.
func streamOf(name string) codectest.Codec {
	all := suites()
	return all[slices.IndexFunc(all, func(c codectest.Codec) bool {
		first, _, _ := strings.Cut(c.Name, " ")
		return first == name && c.Decode != nil
	})]
}

type decoder = func(io.Reader, func(codec.Problem)) iter.Seq2[*codec.Session, error]

// readText reads the sessions of a text, which are sound. An error is the last of the problems.
func readText(tb testing.TB, decode decoder, text string) (all []*codec.Session, problems []string) {
	tb.Helper()
	for s, err := range decode(strings.NewReader(text),
		func(p codec.Problem) { problems = append(problems, p.String()) }) {
		if err != nil {
			return all, append(problems, "error: "+err.Error())
		}
		for _, v := range session.Check(s.Transcript) {
			tb.Errorf("invalid: %v", v)
		}
		all = append(all, s)
	}
	return all, problems
}

// writtenText is what a format makes of a session.
func writtenText(tb testing.TB, encode func(io.Writer, *codec.Session) error, s *codec.Session) string {
	tb.Helper()
	var b bytes.Buffer
	testscale.Must(tb, encode(&b, s))
	return b.String()
}

// one reads a text of one session without problems.
func one(tb testing.TB, decode decoder, text string) *codec.Session {
	tb.Helper()
	all, problems := readText(tb, decode, text)
	if len(all) != 1 || problems != nil {
		tb.Fatalf("%d sessions, want 1; problems %q", len(all), problems)
	}
	return all[0]
}

// reports are problems as they are reported.
type reports []string

func (r *reports) add(p codec.Problem) { *r = append(*r, p.String()) }

// collected takes sessions, which are sound.
func collected(tb testing.TB, sessions iter.Seq2[*codec.Session, error]) (all []*codec.Session) {
	tb.Helper()
	for s, err := range sessions {
		if err != nil {
			tb.Fatal(err)
		}
		for _, v := range session.Check(s.Transcript) {
			tb.Error(v)
		}
		all = append(all, s)
	}
	return all
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	data := testscale.ReadFile(tb, path)
	return string(data)
}

// rowsOf is a session whose rows are in a file.
func rowsOf(tb testing.TB, path string) *codec.Session {
	tb.Helper()
	return one(tb, jsonl.Recover, readFile(tb, path))
}

// schemaOf validates values by a JSON Schema of testdata.
func schemaOf(path string) func(value any) error {
	resolved := sync.OnceValue(func() *jsonschema.Resolved {
		text, err := os.ReadFile(path)
		var s jsonschema.Schema
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		resolved, failed := s.Resolve(nil)
		if err = errors.Join(err, failed); err != nil {
			panic(err)
		}
		return resolved
	})
	return func(value any) error { return resolved().Validate(value) }
}

// chat is a session of messages, each its role and the data of its parts.
func chat(messages ...[]string) *codec.Session {
	t := &session.Transcript{Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", PermissionsJSON: "[]",
		MetadataJSON: "{}", CreatedAt: 5, UpdatedAt: 99}}
	for i, m := range messages {
		at := int64(10 * (i + 1))
		row := session.MessageAndParts{Message: session.Message{ID: fmt.Sprintf("msg_%d", i), SessionID: "ses_1",
			Role:         m[0],
			MetadataJSON: "{}", CreatedAt: at, UpdatedAt: at + 5}}
		for k, data := range m[1:] {
			p := session.Part{ID: fmt.Sprintf("prt_%d_%d", i, k), MessageID: row.Message.ID, SessionID: "ses_1",
				Index:    int64(k),
				DataJSON: data, CreatedAt: at, UpdatedAt: at + 1}
			p.Type = strings.Split(data, `"`)[3]
			if _, id, ok := strings.Cut(data, `"toolCallId":"`); ok {
				id, _, _ = strings.Cut(id, `"`)
				_, state, _ := strings.Cut(data, `"state":"`)
				state, _, _ = strings.Cut(state, `"`)
				p.ToolCallID, p.ToolState = &id, &state
			}
			row.Parts = append(row.Parts, p)
		}
		t.Messages = append(t.Messages, row)
	}
	return &codec.Session{Transcript: t}
}

// TestWhatIsReadIsHeldOnce bounds what is held in memory when a session is yielded: files may have hundreds of
// megabytes.
func TestWhatIsReadIsHeldOnce(t *testing.T) {
	const run = `"run_id":"f0ca8552-c91a-473d-a112-286a75226e66"`
	trace, events := acpOpening, []string(nil)
	for i := range 300 {
		trace += acpChunk(fmt.Sprint(i, strings.Repeat(" word", 2000))) + "\n" + `{"jsonrpc":"2.0","method":"session/update",` +
			`"params":{"sessionId":"s","update":{"sessionUpdate":"plan","entries":[]}}}` + "\n"
		events = append(events, fmt.Sprintf(`{"spec_version":"0.1","event_id":"bef57a0d-bd0e-45b8-bbc1-%012x",%s,`+
			`"parent_id":null,"event_type":"TOOL_CALL","ts":"2026-11-20T10:00:00.000Z","duration_ms":null,"name":"bash",`+
			`"payload":{"tool_name":"bash","args":{},"result":"%s","status":"ok","error":null},"meta":{}}`, i, run,
			strings.Repeat("word ", 2000)))
	}
	held := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for name, c := range map[string]struct {
		decode decoder
		text   string
		parts  int
	}{
		"trace of ACP": {acpDecode, trace, 600},
		"events":       {agentdbgDecode, strings.Join(events, "\n") + "\n", 300},
		"AgentDbg export": {agentdbgDecode, `{"spec_version":"0.1","run":{` + run + `,"status":"running"},"events":[` +
			strings.Join(events, ",\n") + "]}", 300},
	} {
		before := held()
		for s, err := range c.decode(strings.NewReader(c.text), nil) {
			testscale.Must(t, err)
			if times := (held() - before) / float64(len(c.text)); times > 1.6 {
				t.Errorf("%s: %.2f times its size is held, want that of the session", name, times)
			}
			if n := len(s.Messages[len(s.Messages)-1].Parts); n != c.parts {
				t.Errorf("%s: %d parts, want %d", name, n, c.parts)
			}
		}
		runtime.KeepAlive(c.text)
	}
}
