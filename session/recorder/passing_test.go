package recorder_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/net/websocket"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// TestAWebSocketIsRecorded: requests and events of the Responses API over one connection become the session that they
// are over HTTP, and reach both sides unchanged.
func TestAWebSocketIsRecorded(t *testing.T) {
	api := modelserver.Named("responses")
	script := &modelserver.Script{Turns: []modelserver.Turn{
		{User: "one?", Steps: []modelserver.Step{{Text: "One.", Input: 40, Output: 2}}},
		{User: "two?", Steps: []modelserver.Step{{Text: "Two.", Input: 50, Output: 3}}},
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
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(rec.SpanExporter()))
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: provider})
	transport := modelhttp.New(tracer, modelhttp.Options{Base: recorder.NewTransport()})
	u, _ := url.Parse(server.URL)
	proxy := httptest.NewServer(recorder.Proxy([]recorder.Upstream{{Name: "m", URL: u}},
		recorder.RecordSockets(transport, transport.Middleware())))
	defer proxy.Close()
	conn, err := websocket.Dial("ws"+strings.TrimPrefix(proxy.URL, "http")+"/m/v1/responses", "", "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	history := ""
	for _, turn := range script.Turns {
		history += fmt.Sprintf(`{"role":"user","content":[{"type":"input_text","text":%q}]}`, turn.User)
		request := `{"type":"response.create","model":"m","input":[` + history + `]}`
		if err := websocket.Message.Send(conn, request); err != nil {
			t.Fatal(err)
		}
		for done := false; !done; {
			var event string
			if err := websocket.Message.Receive(conn, &event); err != nil {
				t.Fatal(err)
			}
			done = strings.Contains(event, `"type":"response.completed"`)
		}
		history += fmt.Sprintf(`,{"role":"assistant","content":[{"type":"output_text","text":%q}]},`, turn.Steps[0].Text)
	}
	_ = conn.Close()
	for rec.Stats().Spans < 6 { // a run, a turn and a call of each: the recording waits for nobody, nor anybody for it
		runtime.Gosched()
	}
	docs, err := modelserver.Read(context.Background(), rec.Reader())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range docs {
		got = append(got, modelserver.Lines(d, true)...)
	}
	if d := cmp.Diff(script.Want(api)[1:], got); d != "" {
		t.Errorf("session (-said +stored):\n%s", d)
	}
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
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
// session of their connection, and reach both sides unchanged.
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
	if err != nil {
		t.Fatal(err)
	}
	transport := recorder.NewMCPTransport(recorder.NewTransport(), rec, func() string { return "tools" })
	u, _ := url.Parse(server.URL)
	proxy := httptest.NewServer(recorder.Proxy([]recorder.Upstream{{URL: u}}, transport))
	defer proxy.Close()
	for i, request := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"tester"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"path":"a"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fail","arguments":{}}}`,
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+"/mcp", strings.NewReader(request))
		if i > 0 {
			req.Header.Set("Mcp-Session-Id", "s1")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	transport.Close()
	docs, err := modelserver.Read(t.Context(), rec.Reader())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range docs {
		for _, line := range modelserver.Lines(d, false) {
			if strings.Contains(line, " call ") {
				got = append(got, line)
			}
		}
	}
	want := []string{`assistant call read {"path":"a"} output "read done"`, `assistant call fail {} error fail done`}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("session (-said +stored):\n%s", d)
	}
	if err := rec.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
