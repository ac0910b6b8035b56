package replay

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// stored puts the story into a store and reads back what it has.
func stored(t *testing.T, text string) (*sqlite.Store, document.Input) {
	t.Helper()
	ctx := t.Context()
	s, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "sessions.db"), sqlite.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	in, _ := readStory(t, text)
	imported := codec.Session{Transcript: in.Transcript, Blobs: in.Blobs}
	if _, err := s.Import(ctx, &imported); err != nil {
		t.Fatal(err)
	}
	in, err = document.Collect(ctx, s.Reader, "ses_1")
	testscale.Must(t, err)
	return s, in
}

// fork stores an answer as the command does, and returns the fork's transcript.
func fork(t *testing.T, s *sqlite.Store, b *Bundle, a *Answer, c *Client) *session.Transcript {
	t.Helper()
	ctx := t.Context()
	id, err := s.Fork(ctx, store.ForkOptions{From: b.SessionID, Message: b.MessageID, Title: "Story (replay)",
		Now: a.Ended})
	testscale.Must(t, err)
	batch, err := a.Changes(b, c, id)
	testscale.Must(t, err)
	if _, err := s.Apply(ctx, batch); err != nil {
		t.Fatal(err)
	}
	transcript := storetest.Transcript(t, s, id)
	for _, v := range session.Check(transcript) {
		t.Errorf("session.Check: %s", v)
	}
	return transcript
}

// TestChanges: for each format, the answer becomes the last message of a sound fork, and no secret of it is stored.
func TestChanges(t *testing.T) {
	const secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	for _, w := range wires {
		t.Run(w.format, func(t *testing.T) {
			db, in := stored(t, asked)
			b, err := New(document.Build(in), in.Transcript, 2)
			testscale.Must(t, err)
			s := serve(t, w.reply("Use "+secret, call{"x1", `{"cmd":"ls","n":1}`}),
				w.reply("", call{"x2", `{"cmd":"curl","token":"` + secret + `"}`}))
			c := s.client(w.format)
			c.Redactor = r
			c.Endpoint = strings.Replace(s.URL, "http://", "http://user:hunter2@", 1) + "/v1?key=topsecret"
			a, err := b.Run(t.Context(), c)
			testscale.Must(t, err)
			got := fork(t, db, b, a, c)
			if n := len(got.Messages); n != 4 {
				t.Fatalf("the fork has %d messages, want the three copied and the answer", n)
			}
			last := &got.Messages[3]
			var kinds []string
			for _, p := range last.Parts {
				kinds = append(kinds, p.Type)
				for _, s := range []string{secret, "hunter2", "topsecret"} {
					if strings.Contains(p.DataJSON, s) {
						t.Errorf("%s is stored in %s", s, p.DataJSON)
					}
				}
			}
			if diff := cmp.Diff([]string{"step-start", "text", "tool-bash", "step-start", "tool-bash"},
				kinds); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			checkMetadata(t, w, c, last.Message.MetadataJSON, s.URL)
			if got.Session.TotalTokens != w.usage.Total()*2 {
				t.Errorf("the fork counts %d tokens, want %d", got.Session.TotalTokens, w.usage.Total()*2)
			}
			doc := document.Build(document.Input{Transcript: got})
			if len(doc.Turns) != 2 {
				t.Errorf("the fork has %d turns, want 2", len(doc.Turns))
			}
		})
	}
}

// checkMetadata reads what the message reports of the run.
func checkMetadata(t *testing.T, w wire, c *Client, text, url string) {
	t.Helper()
	for _, s := range []string{"hunter2", "topsecret"} {
		if strings.Contains(text, s) {
			t.Errorf("%s is stored in %s", s, text)
		}
	}
	var meta struct {
		session.MessageMetadata
		Replay Origin `json:"replay"`
	}
	testscale.Must(t, json.Unmarshal([]byte(text), &meta))
	endpoint := url + "/v1" + c.Format.path
	want := Origin{SessionID: "ses_1", Turn: 2, MessageID: "msg_3", Format: w.format, Endpoint: endpoint, Reused: 1,
		Open: []string{"bash"}}
	if diff := cmp.Diff(want, meta.Replay); diff != "" {
		t.Errorf("origin (-want +got):\n%s", diff)
	}
	trace := &meta.Trace
	if trace.ModelCalls != 2 || trace.StopReason != "tool-calls" || trace.EndReason != "finish" ||
		*trace.DurationMS != 2000 || trace.TurnIndex == nil || *trace.TurnIndex != 1 {
		t.Errorf("trace is %+v", trace)
	}
	if meta.Model == nil || meta.Model.ModelID != "gpt-5" {
		t.Errorf("model is %v", meta.Model)
	}
	// The route of the AI SDK has prompt and tools of its own.
	if own := w.format == "ai-sdk"; own != (meta.SystemPromptDigest == "") || own != (trace.ToolCatalogDigest == "") {
		t.Errorf("prompt is %q, catalog %q", meta.SystemPromptDigest, trace.ToolCatalogDigest)
	}
}

// TestChangesOfErrors: a run that an error ended reports it, without secrets; a call that failed and reports nothing
// has an error text all the same; and an answer without a word is a message too.
func TestChangesOfErrors(t *testing.T) {
	db, in := stored(t, asked)
	b, err := New(document.Build(in), in.Transcript, 2)
	testscale.Must(t, err)
	s := serve(t,
		"data: {\"type\":\"start\"}\n\ndata: "+
			"{\"type\":\"tool-input-available\",\"toolCallId\":\"c\",\"toolName\":\"\",\"input\":null}\n\n"+
			"data: {\"type\":\"tool-output-error\",\"toolCallId\":\"c\"}\n\ndata: "+
			"{\"type\":\"tool-input-available\",\"toolCallId\":\"d\",\"toolName\":\"bash\"}\n\n"+
			"data: {\"type\":\"tool-output-available\",\"toolCallId\":\"d\"}\n\ndata: "+
			"{\"type\":\"error\",\"errorText\":\"key ghp_16C7e42F292c6912E7710c838347Ae178B4a is wrong\"}\n\n")
	c := s.client("ai-sdk")
	if c.Redactor, err = redact.New(redact.Config{}); err != nil {
		t.Fatal(err)
	}
	a, err := b.Run(t.Context(), c)
	testscale.Must(t, err)
	got := fork(t, db, b, a, c)
	last := got.Messages[3]
	var meta session.MessageMetadata
	testscale.Must(t, json.Unmarshal([]byte(last.Message.MetadataJSON), &meta))
	if meta.Trace.EndReason != "error" || !strings.Contains(meta.Trace.Error, "is wrong") ||
		strings.Contains(meta.Trace.Error, "ghp_") {
		t.Errorf("trace is %+v", meta.Trace)
	}
	want := []string{
		`{"type":"step-start"}`,
		`{"type":"tool-unknown","toolCallId":"c","state":"output-error","input":null,"errorText":"the call failed"}`,
		`{"type":"tool-bash","toolCallId":"d","state":"output-available","input":{},"output":null}`,
	}
	var data []string
	for _, p := range last.Parts {
		data = append(data, p.DataJSON)
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	empty := &Answer{Model: b.Model, ModelCalls: 1, Started: time.UnixMilli(epoch), Ended: time.UnixMilli(epoch + 1)}
	if got := fork(t, db, b, empty, c); len(got.Messages) != 4 || len(got.Messages[3].Parts) != 0 {
		t.Errorf("the fork has %d messages", len(got.Messages))
	}
}
