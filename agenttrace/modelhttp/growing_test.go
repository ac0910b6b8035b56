package modelhttp_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
)

// TestTheTextOfAnAnswerThatPausesIsReported has an answer that stalls after some text. Live views have all of it soon,
// as does the turn that Close ends.
func TestTheTextOfAnAnswerThatPausesIsReported(t *testing.T) {
	const chunks = 20
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed ", closed), func(t *testing.T) {
			stalled := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range chunks {
					flush(w, fmt.Appendf(nil, `data: {"id":"c","choices":[{"index":0,"delta":{"content":"word%d "}}]}`+"\n\n", i))
				}
				<-stalled
			}))
			defer server.Close()
			defer close(stalled)
			rec := agenttracetest.NewRecorder()
			tr := modelhttp.New(agenttrace.New(agenttrace.Options{
				TracerProvider: rec, LoggerProvider: rec, DisableRedaction: true, // which holds the last word back
				Live: agenttrace.LiveOptions{MinInterval: -1, MinBytes: -1},
			}), modelhttp.Options{})
			resp, err := (&http.Client{Transport: tr}).Post(server.URL+"/v1/chat/completions", "application/json",
				strings.NewReader(`{"stream":true,"model":"gpt-x","messages":[{"role":"user","content":"hi"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var got strings.Builder
			for last := fmt.Sprintf("word%d ", chunks-1); !strings.Contains(got.String(), last); {
				if _, err := io.CopyN(&got, resp.Body, 1); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.CopyN(&got, resp.Body, int64(len(`"}}]}`+"\n\n"))); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("word%d ", chunks-1)
			if closed {
				_ = tr.Close()
				turns := rec.All().Turns()
				if len(turns) != 1 || !strings.Contains(string(turns[0].Assistant.Parts[0].Data), want) {
					t.Errorf("the turn that ended has not all of the text: %+v", turns)
				}
				return
			}
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				for _, m := range rec.Events().Messages() {
					for _, p := range m.Parts {
						if strings.Contains(string(p.Data), want) {
							return
						}
					}
				}
				if time.Now().After(deadline) {
					t.Fatal("the text that has arrived is not reported")
				}
			}
		})
	}
}

// TestAStreamOfAWSThatPausesWithinAMessageIsRecorded has a stream pause twice within a message. What was read of that
// moves to the beginning of the buffer, the second time to where it already is. The race detector reports if the reader
// uses it meanwhile.
func TestAStreamOfAWSThatPausesWithinAMessageIsRecorded(t *testing.T) {
	const words, size = 100, 11
	step := &modelserver.Step{Text: strings.Repeat("word ", words)}
	_, chunks := modelserver.Named("bedrock converse").Chunks(step, "r", true)
	half := len(chunks) / 2
	data, before := bytes.Join(chunks, nil), len(bytes.Join(chunks[:half], nil))
	record := func(at int) {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			go func() {
				for _, part := range [][]byte{data[:at], data[at : at+size], data[at+size:]} {
					for piece := range slices.Chunk(part, size) {
						_, _ = w.Write(piece)
					}
					time.Sleep(400 * time.Millisecond) // text that is kept is reported after 250
				}
				_ = w.Close()
			}()
			header := http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}}
			return &http.Response{StatusCode: 200, Header: header, Body: body, ContentLength: -1, Request: r}, nil
		})
		rec := agenttracetest.NewRecorder()
		tr := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: rec, LoggerProvider: rec}),
			modelhttp.Options{Base: base})
		resp, err := (&http.Client{Transport: tr}).Post("https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/"+
			"converse-stream", "application/json",
			strings.NewReader(`{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`))
		if err != nil {
			t.Error(err)
			return
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("pause at %d: read %d bytes, %v", at, len(got), err)
		}
		_, _ = resp.Body.Close(), tr.Close()
		turns := rec.All().Turns()
		if len(turns) != 1 || len(turns[0].Assistant.Parts) != 1 ||
			strings.Count(string(turns[0].Assistant.Parts[0].Data), "word ") != words {
			t.Errorf("pause at %d: recorded %+v", at, turns)
		}
	}
	var all sync.WaitGroup
	for begun := range len(chunks[half]) {
		all.Go(func() { record(before + begun) })
	}
	all.Wait()
}
