package modelhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
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
