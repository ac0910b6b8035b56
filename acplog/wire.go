package acplog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Wire is the agent's end of a connection whose messages are lines: what the agent reads from and writes to. A
// library that has the connection, but no way to send the notification log, is given the wire in the place of the
// streams, and [Wire.Notify] sends beside it. Lines of the two never mix.
//
// Its methods may be called concurrently, except for Read.
type Wire struct {
	r io.Reader
	w io.Writer

	// writing has one token, which a writer takes. Unlike a mutex it can be waited for within a context.
	writing chan struct{}
	partial []byte // of a line, with the token

	mu         sync.Mutex
	initialize func(json.RawMessage) error
	line       []byte // that is being read, guarded by the reader
	skip       bool   // the rest of a line that is too long to be an initialize request
}

// NewWire returns the wire over the streams to read from and to write to, such as os.Stdin and os.Stdout.
func NewWire(r io.Reader, w io.Writer) *Wire {
	return &Wire{r: r, w: w, writing: make(chan struct{}, 1)}
}

// OnInitialize has f called with the parameters of each initialize request that is
// read, before the reader gets it. f is [Handler.Initialize]: a library that decodes
// the request may not know the capabilities that the handler looks for.
func (w *Wire) OnInitialize(f func(params json.RawMessage) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.initialize = f
}

// maxInitialize is how long an initialize request may be, in bytes.
const maxInitialize = 1 << 20

// Read implements [io.Reader].
func (w *Wire) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.watch(p[:n])
	return n, err
}

// watch looks for initialize requests in what is read.
func (w *Wire) watch(p []byte) {
	w.mu.Lock()
	f := w.initialize
	w.mu.Unlock()
	for len(p) > 0 {
		head, rest, ended := bytes.Cut(p, []byte("\n"))
		p = rest
		if !w.skip && len(w.line)+len(head) <= maxInitialize {
			w.line = append(w.line, head...)
		} else {
			w.skip, w.line = true, nil
		}
		if !ended {
			return
		}
		if f != nil && bytes.Contains(w.line, []byte(`initialize`)) {
			var request struct {
				Method string          `json:"method"`
				Params json.RawMessage `json:"params"`
			}
			if json.Unmarshal(w.line, &request) == nil && request.Method == "initialize" {
				_ = f(request.Params) // then nothing is declared; the library answers the request
			}
		}
		w.skip, w.line = false, w.line[:0]
		if cap(w.line) > 64<<10 {
			w.line = nil
		}
	}
}

// Write implements [io.Writer]. Whole lines are passed on by one write; the beginning of a line waits for its end.
func (w *Wire) Write(p []byte) (int, error) {
	w.writing <- struct{}{}
	defer func() { <-w.writing }()
	end := bytes.LastIndexByte(p, '\n') + 1
	if end == 0 {
		w.partial = append(w.partial, p...)
		return len(p), nil
	}
	lines := p[:end]
	if len(w.partial) > 0 {
		lines = append(w.partial, lines...)
	}
	n, err := w.w.Write(lines)
	n = max(0, n-len(w.partial))
	w.partial = nil
	if err != nil {
		return n, err
	}
	w.partial = append(w.partial, p[end:]...)
	return len(p), nil
}

// Notify sends a notification: it is [Options.Notify]. It waits for other writes as long as ctx does; a write that
// has begun is finished, as half a line would break the connection.
func (w *Wire) Notify(ctx context.Context, method string, params any) error {
	line, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", method, params})
	if err != nil {
		return fmt.Errorf("encode notification %s: %w", method, err)
	}
	select {
	case w.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("send notification %s: %w", method, ctx.Err())
	}
	defer func() { <-w.writing }()
	// A line that the library has begun is not on the wire yet, so that this one may go before it.
	_, err = w.w.Write(append(line, '\n'))
	return err
}
