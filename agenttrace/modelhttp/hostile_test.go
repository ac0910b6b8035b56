package modelhttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"

	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestMain also sees whether a goroutine stays when an answer has ended, in whatever way.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flush writes and sends what was written.
func flush(w http.ResponseWriter, p []byte) {
	_, _ = w.Write(p)
	w.(http.Flusher).Flush()
}

func cut(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func zipped(p []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(p)
	_ = z.Close()
	return b.Bytes()
}

// hostile are servers that do what servers do on bad days. kind and chunks are those of a
// good answer.
var hostile = map[string]func(w http.ResponseWriter, kind string, chunks [][]byte){
	"as it should be": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		for _, c := range chunks {
			flush(w, c)
		}
	},
	"byte by byte": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		for _, b := range bytes.Join(chunks, nil) {
			flush(w, []byte{b})
		}
	},
	"cut": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		all := bytes.Join(chunks, nil)
		flush(w, all[:len(all)/2])
		cut(w)
	},
	"ended early": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		all := bytes.Join(chunks, nil)
		flush(w, all[:len(all)/2])
	},
	"shorter than announced": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(chunks[0])
	},
	"empty":     func(http.ResponseWriter, string, [][]byte) {},
	"no answer": func(w http.ResponseWriter, _ string, _ [][]byte) { cut(w) },
	"not JSON": func(w http.ResponseWriter, _ string, _ [][]byte) {
		flush(w, []byte("data: <html>\n\ndata: {\n\n\x00\x00\xff"))
	},
	"other JSON": func(w http.ResponseWriter, _ string, _ [][]byte) {
		flush(w, []byte(`{"choices":7,"content":{},"output":"x"}`))
	},
	"of the wrong types": func(w http.ResponseWriter, _ string, _ [][]byte) {
		flush(w, []byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[null]}}],\"candidates\":[null],\"type\":3}\n\n"))
	},
	"an error in a stream": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		flush(w, chunks[0])
		flush(w,
			[]byte(
				"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n"))
	},
	"gzip": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(zipped(bytes.Join(chunks, nil)))
	},
	"gzip that is none": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bytes.Join(chunks, nil))
	},
	"an encoding that we do not know": func(w http.ResponseWriter, _ string, chunks [][]byte) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = w.Write(bytes.Join(chunks, nil))
	},
	"another kind than announced": func(w http.ResponseWriter, kind string, chunks [][]byte) {
		w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream",
			false: "application/vnd.amazon.eventstream"}[kind == "application/json"])
		_, _ = w.Write(bytes.Join(chunks, nil))
	},
	"an error": func(w http.ResponseWriter, _ string, _ [][]byte) {
		http.Error(w, `{"error":{"type":"invalid_request_error","message":"no"}}`, http.StatusBadRequest)
	},
	"an error that is no JSON": func(w http.ResponseWriter, _ string, _ [][]byte) {
		http.Error(w, strings.Repeat("<html>", 100_000), http.StatusBadGateway)
	},
}

// outcome is what a program sees of a request.
type outcome struct {
	status int
	header http.Header
	body   []byte
	err    string
}

func fetch(t *testing.T, rt http.RoundTripper, url string, body []byte) (o outcome) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	testscale.Must(t, err)
	req.Header.Set("Accept-Encoding", "gzip, br") // so that net/http does not decode
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return outcome{err: plain(err)}
	}
	defer resp.Body.Close()
	if resp.Request != req {
		t.Error("the response is that of another request")
	}
	o.status, o.header = resp.StatusCode, resp.Header
	o.body, err = io.ReadAll(resp.Body)
	o.err = plain(err)
	delete(o.header, "Date")
	return o
}

// plain returns the text of an error without the ports in it.
func plain(err error) string {
	if err == nil {
		return ""
	}
	if strings.Contains(err.Error(), "reset") { // or EOF, as the kernel has it
		return io.EOF.Error()
	}
	return err.Error()
}

// TestAnAgentSeesTheSameOfHostileServers compares what a program reads with and without us,
// for each API and server. Nothing stays open.
func TestAnAgentSeesTheSameOfHostileServers(t *testing.T) {
	script := e2e.Weather
	for name, serve := range hostile {
		for _, api := range e2e.APIs {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, streamed %v", name, api.Name, stream), func(t *testing.T) {
					kind, chunks := api.Chunks(&script.Turns[0].Steps[0], "resp_0", stream)
					a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						w.Header().Set("Content-Type", kind)
						serve(w, kind, chunks)
					}, modelhttp.Options{})
					base := &http.Transport{}
					defer base.CloseIdleConnections()
					path, request := api.Request(&script, 0, 0, stream)
					body, err := json.Marshal(request)
					testscale.Must(t, err)
					without := fetch(t, base, a.url+path, body)
					with := fetch(t, a.transport, a.url+path, body)
					if fmt.Sprint(without) != fmt.Sprint(with) {
						t.Errorf("without us %d %q, %d bytes %.200q\nwith us    %d %q, %d bytes %.200q",
							without.status, without.err, len(without.body), without.body, with.status, with.err, len(with.body), with.body)
					}
					_ = a.transport.Close()
					a.check()
					if n := len(a.rec.All().ModelCalls()); n != 1 {
						t.Errorf("have %d calls, want 1", n)
					}
				})
			}
		}
	}
}

// TestOtherRequestsPassUntouched has requests that are for no model, and bodies that are no
// conversation.
func TestOtherRequestsPassUntouched(t *testing.T) {
	a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, bodyOf(r))
	}, modelhttp.Options{})
	for _, test := range []struct{ method, path, body string }{
		{"GET", "/v1/responses/resp_1", ""},
		{"POST", "/v1/messages/count_tokens", question},
		{"POST", "/v1/messages/batches", `{}`},
		{"POST", "/v1/responses/resp_1/cancel", `{}`},
		{"POST", "/v1/embeddings", `{"input":"hi"}`},
		{"POST", "/v1beta/models/m:countTokens", `{"contents":[]}`},
		{"POST", "/model/m/count-tokens", `{}`},
		{"POST", "/v1/messages", `not JSON`},
		{"POST", "/v1/messages", `{"messages":"none"}`},
		{"POST", "/api/responses", `{"answer":42}`},
		{"POST", "/v1/chat/completions", `[]`},
		{"PUT", "/v1/messages", question},
	} {
		req, err := http.NewRequestWithContext(t.Context(), test.method, a.url+test.path, strings.NewReader(test.body))
		testscale.Must(t, err)
		resp, err := a.client.Do(req)
		testscale.Must(t, err)
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := test.method + " " + test.path + " " + test.body; err != nil || string(got) != want {
			t.Errorf("the server got %q, want %q: %v", got, want, err)
		}
		if n := len(a.rec.All()); n != 0 {
			t.Fatalf("%v: have %d spans, want none", test, n)
		}
	}
}

// stalling is an agent that has read the beginning of an answer which goes on until end is called.
func stalling(ctx context.Context, t *testing.T) (a *agent, resp *http.Response, end func()) {
	t.Helper()
	stalled := make(chan struct{})
	a = newAgent(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flush(w, []byte(`data: {"id":"c","choices":[{"index":0,"delta":{"content":"Let me "}}]}`+"\n\n"))
		<-stalled
	}, modelhttp.Options{})
	resp = a.ask(ctx, "/v1/chat/completions", strings.NewReader(`{"stream":true,`+question[1:]))
	// What has arrived is there at once, though the answer goes on.
	if n, err := resp.Body.Read(make([]byte, 4096)); n == 0 || err != nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	return a, resp, func() { close(stalled) }
}

// TestAStreamThatIsClosedEarlyIsAborted closes an answer that stalls, and cancels one.
func TestAStreamThatIsClosedEarlyIsAborted(t *testing.T) {
	for _, cancels := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		a, resp, end := stalling(ctx, t)
		if cancels {
			cancel()
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
				t.Errorf("read: %v, want that of the context", err)
			}
		}
		resp.Body.Close()
		a.check()
		turn := a.rec.All().Turns()[0]
		if turn.EndReason != "abort" || len(turn.Assistant.Parts) != 1 ||
			!strings.Contains(string(turn.Assistant.Parts[0].Data), "Let me ") {
			t.Errorf("the turn ended with %s and %v", turn.EndReason, turn.Assistant.Parts)
		}
		cancel()
		end()
	}
}

// TestAnAnswerThatIsStillReadWhenTheProgramEndsIsAborted closes the transport before an answer that stalls.
func TestAnAnswerThatIsStillReadWhenTheProgramEndsIsAborted(t *testing.T) {
	a, resp, end := stalling(t.Context(), t)
	defer end()
	a.transport.Close()
	a.check()
	if turns := a.rec.All().Turns(); len(turns) != 1 || turns[0].EndReason != "abort" {
		t.Errorf("have %+v, want a turn that was aborted", turns)
	}
	resp.Body.Close()
}

// TestAConnectionThatTheServerClosesIsNamed has a server that ends before it answers: EOF tells a reader nothing.
func TestAConnectionThatTheServerClosesIsNamed(t *testing.T) {
	a := newAgent(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, modelhttp.Options{})
	if o := fetch(t, a.transport, a.url+"/v1/chat/completions", []byte(question)); o.err != "EOF" {
		t.Errorf("the agent reads %q, want EOF as without us", o.err)
	}
	_ = a.transport.Close()
	a.check()
	if e := a.rec.All().Turns()[0].Error; e != "the server closed the connection without a response" {
		t.Errorf("the turn's error is %q", e)
	}
}

// TestADecoderThatDoesNotReadToTheEndHasAnAnswer reads one JSON value and closes.
func TestADecoderThatDoesNotReadToTheEndHasAnAnswer(t *testing.T) {
	a := newAgent(t, says("Hello!"), modelhttp.Options{})
	resp := a.ask(t.Context(), "/v1/chat/completions", strings.NewReader(question))
	var v any
	testscale.Must(t, json.NewDecoder(resp.Body).Decode(&v))
	resp.Body.Close()
	a.check()
	if turn := a.rec.All().Turns()[0]; turn.EndReason != "finish" || turn.StopReason != "stop" {
		t.Errorf("the turn ended with %s, %s", turn.EndReason, turn.StopReason)
	}
}

// TestAHugeAnswerIsNotHeld reads 100 MB, as a document, an event and many events.
func TestAHugeAnswerIsNotHeld(t *testing.T) {
	const size = 100 << 20
	block := bytes.Repeat([]byte("x"), 1<<20)
	for name, test := range map[string]struct{ kind, before, each, after string }{
		"document":    {"application/json", `{"choices":[{"message":{"content":"`, "", `"}}]}`},
		"event":       {"text/event-stream", `data: {"choices":[{"delta":{"content":"`, "", `"}}]}` + "\n\n"},
		"many events": {"text/event-stream", "", `data: {"choices":[{"delta":{"content":"%s"}}]}` + "\n\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", test.kind)
				_, _ = io.WriteString(w, test.before)
				for range size / len(block) {
					if test.each != "" {
						fmt.Fprintf(w, test.each, block)
					} else {
						_, _ = w.Write(block)
					}
				}
				_, _ = io.WriteString(w, test.after)
			}, modelhttp.Options{MaxBodyBytes: 4 << 20})
			resp := a.ask(t.Context(), "/v1/chat/completions", strings.NewReader(question))
			var before, most uint64
			var n int
			var err error
			buf := make([]byte, 64<<10)
			for k := 0; err == nil; k++ {
				var got int
				got, err = resp.Body.Read(buf)
				n += got
				if k%200 == 0 {
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					if most = max(most, m.HeapAlloc); before == 0 {
						before = m.HeapAlloc
					}
				}
			}
			if err != io.EOF || n < size { //nolint:errorlint // Read returns it as it is
				t.Errorf("read %d bytes, %v", n, err)
			}
			if most > before+48<<20 {
				t.Errorf("the heap grew by %d MB", (most-before)>>20)
			}
			_ = a.transport.Close()
			a.check()
		})
	}
}

// TestAHugeRequestPasses sends one that is larger than what is parsed.
func TestAHugeRequestPasses(t *testing.T) {
	a := newAgent(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(bodyOf(r))) },
		modelhttp.Options{MaxBodyBytes: 1000})
	known := bytes.NewReader(make([]byte, 5000))
	for _, body := range []io.Reader{known, io.MultiReader(bytes.NewReader(make([]byte, 5000)))} {
		if got := a.send(t.Context(), "/v1/chat/completions", body); got != "5000" {
			t.Errorf("the server got %s bytes", got)
		}
	}
	if len(a.rec.All()) != 0 {
		t.Errorf("have %d spans, want none", len(a.rec.All()))
	}
}

// TestABodyThatIsSentPieceByPieceIsRecorded has a request that is not in memory, to which
// nothing happens until the server wants it.
func TestABodyThatIsSentPieceByPieceIsRecorded(t *testing.T) {
	a := newAgent(t, says("Hello!"), modelhttp.Options{})
	a.send(t.Context(), "/v1/chat/completions", io.MultiReader(iotest.OneByteReader(strings.NewReader(question))))
	wantTurns(t, a, []string{"hi"})
}

// counted counts what is written to a connection at a time.
type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// closer is a body that counts how often it is closed.
type closer struct {
	io.Reader
	closed *atomic.Int64
}

func (c closer) Close() error {
	c.closed.Add(1)
	return nil
}

// TestARequestGoesInOnePacket has a body that is in memory, which HTTP/1.1 sends with the headers.
func TestARequestGoesInOnePacket(t *testing.T) {
	var writes, closed atomic.Int64
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return counted{conn, &writes}, err
	}}
	defer base.CloseIdleConnections()
	a := newAgent(t, says("Hello!"), modelhttp.Options{Base: base})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/chat/completions",
		strings.NewReader(question))
	testscale.Must(t, err)
	req.Body = closer{req.Body, &closed}
	resp, err := a.client.Do(req)
	testscale.Must(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if writes.Load() != 1 || closed.Load() != 1 {
		t.Errorf("the request was written in %d pieces, its body closed %d times; want 1 and 1",
			writes.Load(), closed.Load())
	}
	wantTurns(t, a, []string{"hi"})
}
