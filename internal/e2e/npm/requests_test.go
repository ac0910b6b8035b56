//go:build e2e

package npm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/replay"
)

// refused has the requests that the SDK refuses, with its errors. They belong to sessions
// that are incomplete or that the SDK cannot have made.
var refused = map[string]string{
	"no-step-marks openai-chat":      "MissingToolResults",
	"no-step-marks openai-responses": "MissingToolResults",
	"no-step-marks anthropic":        "MissingToolResults",
	"files openai-chat":              "Unsupported",
	"files openai-responses":         "Unsupported",
	"files anthropic":                "Unsupported",
}

// TestRequests compares the golden requests of session/replay with those that the SDK sends for the same bundles.
func TestRequests(t *testing.T) {
	files, err := filepath.Glob(filepath.FromSlash("../../../session/replay/testdata/*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var names []string
	var ours []map[string][]byte
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		testscale.Must(t, err)
		written := make(map[string][]byte)
		for _, f := range a.Files {
			written[f.Name] = f.Data
		}
		names, ours = append(names, strings.TrimSuffix(filepath.Base(file), ".txtar")), append(ours, written)
	}
	if compared := compare(t, names, ours); compared < 18 {
		t.Errorf("only %d requests were compared", compared)
	}
}

// TestGenerated does so for generated sessions, as the SDK would store them.
func TestGenerated(t *testing.T) {
	var names []string
	var ours []map[string][]byte
	for seed := range uint64(150) {
		in := generate(rand.New(rand.NewPCG(seed, 11)))
		turns := document.Build(in).Turns
		b, err := replay.New(document.Build(in), in.Transcript, len(turns))
		testscale.Must(t, err)
		b.Model.ModelID, b.SystemPrompt = []string{"gpt-4.1", "gpt-5", "claude-sonnet-4-5"}[seed%3], "You are a coder."
		b.Tools = []replay.Tool{{Name: "bash", Description: "Run a command.",
			InputSchema: json.RawMessage(`{"type":"object"}`)}}
		var bundle bytes.Buffer
		testscale.Must(t, b.Encode(&bundle, replay.BundleName))
		written := map[string][]byte{"bundle": bundle.Bytes()}
		for format := range normals {
			var request bytes.Buffer
			testscale.Must(t, b.Encode(&request, format))
			written[format] = request.Bytes()
		}
		names, ours = append(names, fmt.Sprintf("seed %d", seed)), append(ours, written)
	}
	if compared := compare(t, names, ours); compared != 450 {
		t.Errorf("only %d requests were compared", compared)
	}
}

// compare compares the requests of bundles with those of the SDK, and returns the number
// of requests that the SDK sends.
func compare(t *testing.T, names []string, ours []map[string][]byte) (compared int) {
	t.Helper()
	var bundles [][]byte
	for _, o := range ours {
		bundles = append(bundles, o["bundle"])
	}
	theirs, err := requests(t.Context(), project(t, "replay"), bundles...)
	testscale.Must(t, err)
	for i, name := range names {
		for format, normal := range normals {
			var no struct {
				Error string `json:"error"`
			}
			if err := json.Unmarshal(theirs[i][format], &no); err != nil {
				t.Fatalf("%s %s: %v", name, format, err)
			}
			if want := refused[name+" "+format]; want != "" || no.Error != "" {
				if want == "" || !strings.Contains(no.Error, want) {
					t.Errorf("%s %s: the SDK returns %q, want %q", name, format, no.Error, want)
				}
				continue
			}
			compared++
			if diff := cmp.Diff(normal(decode(t, theirs[i][format])), normal(decode(t, ours[i][format]))); diff != "" {
				t.Errorf("%s %s (-the SDK +ours):\n%s", name, format, diff)
			}
		}
	}
	return compared
}

func decode(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
	return v
}

// TestStreams runs our client with routes of the SDK.
func TestStreams(t *testing.T) {
	url, stop, err := serve(t.Context(), project(t, "replay"))
	testscale.Must(t, err)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	look := `{"type":"text","text":"Let me look."}`
	think := `{"type":"reasoning","text":"I should look."}`
	step := `{"type":"step-start"}`
	for _, test := range []struct {
		path       string
		parts      []string
		want       replay.Answer
		err, broke string
	}{
		{path: "tool", parts: []string{
			step, think, look,
			`{"type":"tool-list","toolCallId":"c1","state":"output-available","input":{"dir":"."},` +
				`"output":{"files":["a.txt","b.txt"]}}`,
			`{"type":"tool-fail","toolCallId":"c2","state":"output-error","input":{},"errorText":"no such file"}`,
			step, `{"type":"text","text":"Two files."}`,
		}, want: replay.Answer{ModelCalls: 2, StopReason: "stop",
			Usage: &session.Usage{Input: 90, Output: 25, Reasoning: 5, CacheRead: 160}}},
		{path: "client", parts: []string{
			step, `{"type":"text","text":"Where?"}`,
			`{"type":"tool-locate","toolCallId":"c1","state":"output-available","input":{"exact":true},` +
				`"output":{"city":"Paris"}}`,
			step, `{"type":"text","text":"In Paris."}`,
		}, want: replay.Answer{ModelCalls: 2, Reused: 1, StopReason: "stop",
			Usage: &session.Usage{Input: 20, Output: 5, CacheRead: 10}}},
		{path: "error", parts: []string{step, think, look}, want: replay.Answer{ModelCalls: 1, StopReason: "error"},
			broke: "overloaded"},
		{path: "broken", err: "overloaded"},
		{path: "invalid", parts: nil, want: replay.Answer{ModelCalls: 2, StopReason: "stop",
			Usage: &session.Usage{Input: 20, Output: 5, CacheRead: 10}}},
		{path: "nowhere", err: "Cannot read properties"},
	} {
		t.Run(test.path, func(t *testing.T) {
			b, err := replay.New(document.Build(located()), located().Transcript, 1)
			testscale.Must(t, err)
			c := &replay.Client{Format: replay.FormatOf("ai-sdk"), Endpoint: url + "/" + test.path}
			a, err := b.Run(t.Context(), c)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("Run = %+v, %v, want an error with %q", a, err, test.err)
				}
				return
			}
			testscale.Must(t, err)
			if (a.Err != nil) != (test.broke != "") || a.Err != nil && !strings.Contains(a.Err.Error(), test.broke) {
				t.Errorf("it ended with %v, want %q", a.Err, test.broke)
			}
			got := replay.Answer{ModelCalls: a.ModelCalls, Reused: a.Reused, Open: a.Open, StopReason: a.StopReason,
				Usage: a.Usage}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(replay.Answer{})); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			batch, err := a.Changes(b, c, "ses_2")
			testscale.Must(t, err)
			var parts []string
			for _, p := range batch.Parts {
				parts = append(parts, string(p.Data))
			}
			if diff := cmp.Diff(test.parts, parts); test.parts != nil && diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}
