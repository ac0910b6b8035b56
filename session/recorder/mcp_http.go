package recorder

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// MCPTransport passes requests of clients of the Model Context Protocol on to a server, by streamable HTTP, and records
// the calls of tools in them as [MCP] does. Nothing that passes is changed or waits for the recording.
type MCPTransport struct {
	// Answer, if it is set, returns the answer to a message that the server does not get, or nil.
	Answer func(message []byte) []byte

	base     http.RoundTripper
	recorder *Recorder
	session  func() string

	mu sync.Mutex
	// connections are by the id that the server gave them, "" of a server that gives none.
	connections map[string]*Queue
	all         []mcpConnection
}

// mcpConnection is a connection, with the queue that records it.
type mcpConnection struct {
	*MCP
	queue *Queue
}

// NewMCPTransport returns a transport that sends by base. session makes an id for the session of each connection, to
// which calls belong that name none.
func NewMCPTransport(base http.RoundTripper, r *Recorder, session func() string) *MCPTransport {
	return &MCPTransport{base: base, recorder: r, session: session, connections: make(map[string]*Queue)}
}

// Close returns when all that has passed is recorded.
func (t *MCPTransport) Close() {
	t.mu.Lock()
	all := t.all
	t.all, t.connections = nil, make(map[string]*Queue)
	t.mu.Unlock()
	for _, c := range all {
		c.queue.Close()
		c.End()
	}
}

// connection returns the queue of a connection. A client that introduces itself begins one.
func (t *MCPTransport) connection(id string, begins bool) *Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.connections[id]
	if q == nil || begins {
		m := NewMCP(t.recorder, t.session())
		q = NewQueue(m.Record)
		t.connections[id], t.all = q, append(t.all, mcpConnection{m, q})
	}
	return q
}

const mcpSession = "Mcp-Session-Id"

// RoundTrip implements [http.RoundTripper].
func (t *MCPTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.Method == http.MethodPost && req.Body != nil {
		var err error
		if sent, err = io.ReadAll(io.LimitReader(req.Body, maxSocketMessage)); err != nil {
			return nil, err
		}
		rest := req.Body
		req = req.Clone(req.Context())
		req.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(sent), rest), rest}
	}
	q := t.connection(req.Header.Get(mcpSession), bytes.Contains(sent, []byte(`"initialize"`)))
	putMCP(q, sent, true)
	if t.Answer != nil && len(sent) > 0 {
		if answer := t.Answer(sent); answer != nil {
			putMCP(q, answer, false)
			return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: req,
				Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(answer)),
				Body: io.NopCloser(bytes.NewReader(answer))}, req.Body.Close()
		}
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil || resp.Body == nil {
		return resp, err
	}
	if id := resp.Header.Get(mcpSession); id != "" {
		t.mu.Lock()
		t.connections[id] = q
		t.mu.Unlock()
	}
	kind := resp.Header.Get("Content-Type")
	events := modelapi.StreamOf(kind, maxSocketMessage)
	if events != nil || strings.HasPrefix(kind, "application/json") {
		resp.Body = answered(q, resp.Body, events)
	}
	return resp, nil
}

// putMCP takes a message, or several in an array.
func putMCP(q *Queue, text []byte, fromClient bool) {
	if text = bytes.TrimSpace(text); len(text) > 0 {
		q.put(Message{At: time.Now(), FromClient: fromClient, Line: text})
	}
}

// answered has an answer recorded: a stream of events each of which is a message, or else a document.
func answered(q *Queue, body io.ReadCloser, events modelapi.Stream) *modelapi.Body {
	var text []byte
	return &modelapi.Body{ReadCloser: body, Closed: func() {}, Took: func(p []byte, err error) {
		switch {
		case events != nil:
			events.Feed(p, func(_ string, data []byte) { putMCP(q, bytes.Clone(data), false) })
		case len(text)+len(p) > maxSocketMessage:
			text = nil // what follows is no message
		default:
			text = append(text, p...)
		}
		if err != nil {
			putMCP(q, text, false)
			text = nil
		}
	}}
}
