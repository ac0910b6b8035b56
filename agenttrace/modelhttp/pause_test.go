package modelhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
)

// pausing is a body that is read in pieces, and pauses before two of them.
type pausing struct {
	data []byte
	at   int // where the first pause is
	size int // of a piece
}

func (p *pausing) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	if p.at <= 0 && p.at > -2*p.size {
		time.Sleep(400 * time.Millisecond) // until when text that is kept has been reported
	}
	n := min(p.size, len(b), len(p.data))
	if p.at > 0 {
		n = min(n, p.at)
	}
	copy(b, p.data[:n])
	p.data, p.at = p.data[n:], p.at-n
	return n, nil
}

func (p *pausing) Close() error { return nil }

type answering func(*http.Request) *http.Response

func (f answering) RoundTrip(req *http.Request) (*http.Response, error) { return f(req), nil }

// TestAStreamOfAWSThatPausesWithinAMessageIsRecorded has what was read of a message moved while the client waits for
// the rest: first away from what was whole before it, then to where it is. The race detector tells whether both see the
// same.
func TestAStreamOfAWSThatPausesWithinAMessageIsRecorded(t *testing.T) {
	const words = 100
	step := &modelserver.Step{Text: strings.Repeat("word ", words)}
	_, chunks := modelserver.Named("bedrock converse").Chunks(step, "r", true)
	half := len(chunks) / 2
	data, before := bytes.Join(chunks, nil), len(bytes.Join(chunks[:half], nil))
	record := func(at int) {
		base := answering(func(req *http.Request) *http.Response {
			header := http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}}
			body := &pausing{data: data, at: at, size: 11}
			return &http.Response{StatusCode: 200, Header: header, Body: body, ContentLength: -1, Request: req}
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
