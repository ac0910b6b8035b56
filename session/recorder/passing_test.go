package recorder_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/websocket"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// slow is a server that takes a second for each event of its answer, and two for what is before them.
type slow struct {
	now    time.Time
	events [][]byte
}

func (s *slow) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: s}
	if req.Body == nil {
		resp.StatusCode, resp.Header = http.StatusSwitchingProtocols, http.Header{"Upgrade": {"websocket"}}
		return resp, nil
	}
	_, err := io.Copy(io.Discard, req.Body)
	s.now = s.now.Add(2 * time.Second)
	return resp, err
}

func (s *slow) Read(p []byte) (n int, err error) {
	if len(s.events) == 0 {
		return 0, io.EOF
	}
	s.now = s.now.Add(time.Second)
	n, s.events = copy(p, s.events[0]), s.events[1:]
	return n, nil
}

func (s *slow) Write(p []byte) (int, error) { return len(p), nil }
func (s *slow) Close() error                { return nil }

// TestTimesAreThoseOfWhatPassed: however late a request and its answer are recorded, the call begins, answers and ends
// when the bytes passed, by HTTP and in a WebSocket.
func TestTimesAreThoseOfWhatPassed(t *testing.T) {
	frame := func(text []byte) []byte {
		return append([]byte{0x81, 126, byte(len(text) >> 8), byte(len(text))}, text...)
	}
	const request = `{"type":"response.create","model":"m","input":[{"role":"user","content":"one?"}]}`
	_, chunks := e2e.Named("responses").Chunks(&e2e.Step{Text: "One.", Input: 40, Output: 2}, "resp_1", true)
	for _, upgrade := range []bool{false, true} {
		begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		server := &slow{now: begun, events: slices.Clone(chunks)}
		body := strings.NewReader(request)
		head := 2 * time.Second
		if upgrade {
			for i, c := range chunks {
				server.events[i] = frame(bytes.TrimSpace(c[bytes.IndexByte(c, '{'):]))
			}
			head = 0
		}
		spans := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		calls := new(recorder.Calls)
		calls.Begin = modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: provider, Now: calls.Now}),
			modelhttp.Options{Now: calls.Now}).Begin
		from, to, err := os.Pipe()
		testscale.Must(t, err)
		tee := recorder.NewTee(server, to)
		recorder.SetClock(tee, func() time.Time { return server.now })
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://m/v1/responses", body)
		if upgrade {
			req.Body = nil
		}
		resp, err := tee.RoundTrip(req)
		testscale.Must(t, err)
		if upgrade {
			_, _ = resp.Body.(io.Writer).Write(frame([]byte(request)))
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		testscale.Must(t, errors.Join(tee.Close(), calls.Read(from), from.Close()))
		var got []string
		for _, s := range spans.GetSpans() {
			got = append(got, fmt.Sprint(s.Name, " ", s.StartTime.Sub(begun), " ", s.EndTime.Sub(begun)))
			for _, a := range s.Attributes {
				if a.Key == semconv.GenAIResponseFirstChunkKey {
					got = append(got, fmt.Sprint("first chunk ", a.Value.AsFloat64()))
				}
			}
		}
		end := head + time.Duration(len(chunks))*time.Second
		want := []string{fmt.Sprint("chat m 0s ", end), fmt.Sprint("first chunk ", (head + 3*time.Second).Seconds()),
			fmt.Sprint("session.turn 0s ", end), fmt.Sprint("session.run 0s ", end)}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("upgrade %v: spans (-passed +recorded):\n%s", upgrade, d)
		}
	}
}

// ask sends the same request by a transport each time, and reads the answer.
func ask(t *testing.T, by http.RoundTripper, url string) (size int64) {
	resp, err := (&http.Client{Transport: by}).Post(url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"well?"}]}`))
	testscale.Must(t, err)
	defer resp.Body.Close()
	if size, err = io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	return size
}

// TestARequestAgainAfterARefusalIsAnAttempt: as in a program that was instrumented, also where its client does not count
// attempts.
func TestARequestAgainAfterARefusalIsAnAttempt(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	model := modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: provider}), modelhttp.Options{})
	tee, end := tee(t, &recorder.Calls{Begin: model.Begin})
	_, _ = ask(t, tee, server.URL), ask(t, tee, server.URL)
	end()
	if err := model.Close(); err != nil {
		t.Error(err)
	}
	isRun := func(s tracetest.SpanStub) bool { return s.Name != "session.run" }
	if runs := slices.DeleteFunc(spans.GetSpans(), isRun); len(runs) != 1 {
		t.Errorf("%d runs are recorded, want 1", len(runs))
	}
}

// TestATransportReachesWhatTheClientsDo: the server of a certificate that only a client's runtime was given, and one that
// only the proxy for all knows.
func TestATransportReachesWhatTheClientsDo(t *testing.T) {
	says := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
	private, proxy := httptest.NewTLSServer(says), httptest.NewServer(says)
	defer private.Close()
	defer proxy.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	testscale.WriteFile(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: private.Certificate().Raw})))
	t.Setenv("NODE_EXTRA_CA_CERTS", file)
	t.Setenv("ALL_PROXY", proxy.URL)
	client := &http.Client{Transport: recorder.NewTransport()}
	defer client.CloseIdleConnections()
	for _, url := range []string{private.URL, "http://models.corp.test"} {
		resp, err := client.Get(url)
		testscale.Must(t, err)
		if got, _ := io.ReadAll(resp.Body); !strings.HasSuffix(url, string(got)) {
			t.Errorf("%s: %s", url, got)
		}
		testscale.Must(t, resp.Body.Close())
	}
}

// TestAnAnswerMadeInTheBackgroundIsRecorded: the request that asks for it has no body, and gets none.
func TestAnAnswerMadeInTheBackgroundIsRecorded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := map[string]string{http.MethodPost: "queued", http.MethodGet: "completed"}[r.Method]
		_, _ = fmt.Fprintf(w, `{"id":"resp_1","status":%q,"output":[]}`, status)
		if r.Method == http.MethodGet && (r.ContentLength != 0 || r.TransferEncoding != nil) {
			t.Errorf("it has a body: %d, %q", r.ContentLength, r.TransferEncoding)
		}
	}))
	defer server.Close()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tee, end := tee(t, &recorder.Calls{Begin: modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: provider}),
		modelhttp.Options{}).Begin})
	for _, req := range []*http.Request{httptest.NewRequest(http.MethodPost, server.URL+"/v1/responses",
		strings.NewReader(`{"model":"m","input":"hi"}`)), httptest.NewRequest(http.MethodGet, server.URL+"/v1/responses/resp_1", nil)} {
		if req.RequestURI = ""; req.Method == http.MethodGet {
			req.Body = nil // as a client has it
		}
		resp, err := tee.RoundTrip(req)
		testscale.Must(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		testscale.Must(t, errors.Join(err, resp.Body.Close()))
	}
	end()
	if all := spans.GetSpans(); len(all) != 3 || all[0].Name != "chat m" {
		t.Errorf("recorded %d spans", len(all))
	}
}

// TestAnAnswerThatCannotBeCopiedPasses: where nobody takes the copies, what passes is whole, and what is recorded of it
// ends with the reason.
func TestAnAnswerThatCannotBeCopiedPasses(t *testing.T) {
	const size = 70 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, size))
	}))
	defer server.Close()
	from, to, err := os.Pipe()
	testscale.Must(t, err)
	tee := recorder.NewTee(recorder.NewTransport(), to)
	if n := ask(t, tee, server.URL); n != size {
		t.Errorf("%d of %d bytes passed", n, size)
	}
	var ended error
	calls := recorder.Calls{Begin: func(r *http.Request) (*http.Request, func(*http.Response, error)) {
		return r, func(resp *http.Response, _ error) { resp.Body = ending{resp.Body, &ended} }
	}}
	go tee.Close()
	err = errors.Join(calls.Read(from), from.Close())
	if err != nil || ended == nil || !strings.Contains(ended.Error(), "faster than it could be recorded") {
		t.Errorf("recorded as ending with %v: %v", ended, err)
	}
}

// ending is a body that keeps the error at its end.
type ending struct {
	io.ReadCloser
	err *error
}

func (e ending) Read(p []byte) (n int, err error) {
	n, err = e.ReadCloser.Read(p)
	*e.err = err
	return n, err
}

// tee returns a transport of which what passes is recorded until end.
func tee(t *testing.T, calls *recorder.Calls) (tee *recorder.Tee, end func()) {
	from, to, err := os.Pipe()
	testscale.Must(t, err)
	tee = recorder.NewTee(recorder.NewTransport(), to)
	read := make(chan error)
	go func() { read <- calls.Read(from) }()
	return tee, func() {
		testscale.Must(t, errors.Join(tee.Close(), <-read, from.Close()))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestARequestCanBeSentAgain: a server closes connections that were idle, and the request that meets one is whole when
// it is sent by another.
func TestARequestCanBeSentAgain(t *testing.T) {
	from, to, err := os.Pipe()
	testscale.Must(t, err)
	defer from.Close()
	tee := recorder.NewTee(roundTripper(func(req *http.Request) (*http.Response, error) {
		for range 2 {
			if body, _ := io.ReadAll(req.Body); string(body) != "{}" {
				t.Errorf("sent %q", body)
			}
			req.Body, _ = req.GetBody()
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}), to)
	go io.Copy(io.Discard, from)
	_, err = tee.RoundTrip(httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader("{}")))
	testscale.Must(t, errors.Join(err, tee.Close()))
}

// TestAWebSocketIsRecorded: requests and events of the Responses API over one connection become the session that they
// are over HTTP, and reach both sides unchanged.
func TestAWebSocketIsRecorded(t *testing.T) {
	api := e2e.Named("responses")
	script := &e2e.Script{Turns: []e2e.Turn{
		{User: "one?", Steps: []e2e.Step{{Text: "One.", Input: 40, Output: 2}}},
		{User: "two?", Steps: []e2e.Step{{Text: "Two.", Input: 50, Output: 3}}},
	}}
	answers := 0
	server := httptest.NewServer(websocket.Handler(func(c *websocket.Conn) {
		var request string
		for websocket.Message.Receive(c, &request) == nil {
			_, chunks := api.Chunks(&script.Turns[answers].Steps[0], fmt.Sprintf("resp_%d", answers), true)
			answers++
			for line := range strings.SplitSeq(string(bytes.Join(chunks, nil)), "\n") {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					_ = websocket.Message.Send(c, data)
				}
			}
		}
	}))
	defer server.Close()
	rec, err := recorder.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), recorder.Options{})
	testscale.Must(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(rec.SpanExporter()))
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: provider})
	tee, end := tee(t, &recorder.Calls{Begin: modelhttp.New(tracer, modelhttp.Options{}).Begin})
	u, _ := url.Parse(server.URL)
	proxy := httptest.NewServer(recorder.Proxy([]recorder.Upstream{{Name: "m", URL: u}}, tee))
	defer proxy.Close()
	conn, err := websocket.Dial("ws"+strings.TrimPrefix(proxy.URL, "http")+"/m/v1/responses", "", "http://localhost")
	testscale.Must(t, err)
	history := ""
	for _, turn := range script.Turns {
		history += fmt.Sprintf(`{"role":"user","content":[{"type":"input_text","text":%q}]}`, turn.User)
		request := `{"type":"response.create","model":"m","input":[` + history + `]}`
		testscale.Must(t, websocket.Message.Send(conn, request))
		for done := false; !done; {
			var event string
			testscale.Must(t, websocket.Message.Receive(conn, &event))
			done = strings.Contains(event, `"type":"response.completed"`)
		}
		history += fmt.Sprintf(`,{"role":"assistant","content":[{"type":"output_text","text":%q}]},`, turn.Steps[0].Text)
	}
	_ = conn.Close()
	end()
	var got []string
	for _, d := range e2e.Read(t, rec.Reader()) {
		got = append(got, e2e.Lines(d, true)...)
	}
	if d := cmp.Diff(script.Want(api)[1:], got); d != "" {
		t.Errorf("session (-said +stored):\n%s", d)
	}
	testscale.Must(t, provider.Shutdown(t.Context()))
	testscale.Must(t, rec.Close(t.Context()))
}

// TestMessagesInFrames: messages are found in frames that are masked, in fragments, compressed with what came before,
// and cut anywhere; what is no frame ends the search.
func TestMessagesInFrames(t *testing.T) {
	var stream bytes.Buffer
	frame := func(head byte, payload []byte, mask bool) {
		stream.WriteByte(head)
		bit := byte(0)
		if mask {
			bit = 0x80
		}
		if len(payload) < 126 {
			stream.WriteByte(bit | byte(len(payload)))
		} else {
			stream.Write([]byte{bit | 126, byte(len(payload) >> 8), byte(len(payload))})
		}
		if mask {
			key := []byte{1, 2, 3, 4}
			stream.Write(key)
			for i, b := range payload {
				stream.WriteByte(b ^ key[i%4])
			}
			return
		}
		stream.Write(payload)
	}
	frame(0x81, []byte("whole"), true)
	frame(0x01, []byte("in "), false)
	frame(0x89, []byte("ping"), true)
	frame(0x80, []byte("pieces"), false)
	long := strings.Repeat("long ", 100)
	frame(0x81, []byte(long), true)
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestCompression)
	for _, text := range []string{"compressed " + long, "compressed again " + long} {
		packed.Reset()
		_, _ = w.Write([]byte(text))
		_ = w.Flush()
		frame(0xc1, bytes.TrimSuffix(packed.Bytes(), []byte("\x00\x00\xff\xff")), false)
	}
	want := []string{"whole", "in pieces", long, "compressed " + long, "compressed again " + long}
	for size := 1; size <= stream.Len(); size += 7 {
		if d := cmp.Diff(want, recorder.Messages(stream.Bytes(), size)); d != "" {
			t.Fatalf("in pieces of %d (-sent +found):\n%s", size, d)
		}
	}
	if got := recorder.Messages([]byte("\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xffHTTP"), 100); len(got) > 0 {
		t.Errorf("found %q in what is no frame", got)
	}
}

// TestCallsOfAServerByHTTPAreRecorded: calls of tools of an MCP server, answered by a document or as an event, are the
// session of their connection, and reach both sides unchanged. In a replay, some are answered with their recorded outputs.
func TestCallsOfAServerByHTTPAreRecorded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     int
			Method string
			Params struct{ Name string }
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		w.Header().Set("Mcp-Session-Id", "s1")
		result := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s done"}],"isError":%v}}`,
			m.ID, m.Params.Name, m.Params.Name == "fail")
		if m.Params.Name == "fail" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: message\ndata: %s\n\n", result)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, result)
	}))
	defer server.Close()
	rec, err := recorder.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), recorder.Options{})
	testscale.Must(t, err)
	transport := recorder.NewMCPTransport(recorder.NewTransport(), rec, func() string { return "tools" })
	replay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); !bytes.Contains(body, []byte("played")) {
			w.WriteHeader(http.StatusNoContent)
		}
		_, _ = io.WriteString(w, `{"content":[{"type":"text","text":"as recorded"}]}`)
	}))
	defer replay.Close()
	transport.Answer = recorder.ReplayTools(replay.URL)
	u, _ := url.Parse(server.URL)
	proxy := httptest.NewServer(recorder.Proxy([]recorder.Upstream{{URL: u}}, transport))
	defer proxy.Close()
	for i, request := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"tester"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"path":"a"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fail","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":"3","method":"tools/call","params":{"name":"played","arguments":{}}}`,
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+"/mcp", strings.NewReader(request))
		if i > 0 {
			req.Header.Set("Mcp-Session-Id", "s1")
		}
		resp, err := http.DefaultClient.Do(req)
		testscale.Must(t, err)
		if text, err := io.ReadAll(resp.Body); err != nil || bytes.Contains(text, []byte("as recorded")) != (i == 3) {
			t.Fatalf("request %d: %s, %v", i, text, err)
		}
		_ = resp.Body.Close()
	}
	transport.Close()
	var got []string
	for _, d := range e2e.Read(t, rec.Reader()) {
		for _, line := range e2e.Lines(d, false) {
			if strings.Contains(line, " call ") {
				got = append(got, line)
			}
		}
	}
	want := []string{`assistant call read {"path":"a"} output "read done"`, `assistant call fail {} error fail done`,
		`assistant call played {} output "as recorded"`}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("session (-said +stored):\n%s", d)
	}
	testscale.Must(t, rec.Close(t.Context()))
}

// TestCallsOfAServerJoinTheSessionThatCalls: a call of a tool that names the trace, or the id of the model's call, is
// that of the session that has it; others are of a session for each connection, with the client's name. One that is
// never answered, or canceled, is there, too, also of several in a batch.
func TestCallsOfAServerJoinTheSessionThatCalls(t *testing.T) {
	rec := open(t, recorder.Options{})
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(rec.SpanExporter()))
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: provider})
	connections := make(map[string]*recorder.MCP)
	for _, name := range []string{"one", "two"} {
		connections[name] = recorder.NewMCP(rec, "mcp-"+name)
	}
	say := func(connection string, fromClient bool, line string, values ...any) {
		connections[connection].Record([]recorder.Message{{At: time.Now(), FromClient: fromClient,
			Line: fmt.Appendf(nil, line, values...)}})
	}
	// Both connections number their calls alike, and are open at once.
	for _, name := range []string{"one", "two"} {
		say(name, true, `{"id":0,"method":"initialize","params":{"clientInfo":{"name":"client %s"}}}`, name)
	}
	const call = `{"id":%d,"method":"tools/call","params":{"name":"read","arguments":{"path":%q},"_meta":{%s}}}`
	const result = `{"id":%d,"result":{"content":[{"type":"text","text":%q}]}}`
	for _, name := range []string{"one", "two"} {
		sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{ID: "agent-" + name, Agent: "coder"})
		ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
		ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "read"}, agenttrace.TurnOptions{})
		id := "toolu_0123456789_" + name
		ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: id, Name: "read", Input: map[string]string{"path": "a"}})
		meta := fmt.Sprintf(`"claudecode/toolUseId":%q`, id)
		if name == "two" {
			span := trace.SpanContextFromContext(ctx)
			meta = fmt.Sprintf(`"traceparent":"00-%s-%s-01"`, span.TraceID(), span.SpanID())
		}
		say(name, true, call, 1, "a", meta)
		say(name, false, result, 1, "text of a for "+name)
		tool.End("text of a for " + name)
		turn.End(agenttrace.TurnResult{})
		run.End(nil)
	}
	say("one", true, "["+call+","+call+","+call+"]", 2, "b", "", 3, "canceled", "", 4, "d", "")
	say("two", true, call, 2, "c", "")
	say("two", false, result, 2, "text of c")
	say("one", false, "["+result+", "+result+"]", 4, "text of d", 2, "text of b")
	say("one", true, `{"method":"notifications/cancelled","params":{"requestId":3,"reason":"the user left"}}`)
	say("two", true, call, 4, "never", "")
	for _, c := range connections {
		c.End()
	}
	testscale.Must(t, errors.Join(provider.Shutdown(t.Context()), rec.ForceFlush(t.Context())))
	got := make(map[string][]string)
	for _, d := range e2e.Read(t, rec.Reader()) {
		for _, line := range e2e.Lines(d, false) {
			if strings.Contains(line, " call ") {
				id := d.Session.ID + " of " + d.Session.Agent
				got[id] = append(got[id], line)
			}
		}
	}
	const read = `assistant call read {"path":"`
	want := map[string][]string{
		"agent-one of coder": {read + `a"} output "text of a for one"`},
		"agent-two of coder": {read + `a"} output "text of a for two"`},
		"mcp-one of client one": {read + `b"} output "text of b"`,
			read + `canceled"} error canceled by the client: the user left`, read + `d"} output "text of d"`},
		"mcp-two of client two": {read + `c"} output "text of c"`, read + `never"} error the server has not answered`},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("calls (-made +stored):\n%s", d)
	}
}
