package acplog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/redact"
)

const (
	// maxQueue bounds the records that wait for a client which does not read.
	maxQueue = 256
	// moment is how long a logger waits for its record to be sent. After a wait that was not quick, no logger waits
	// for a second.
	moment = 50 * time.Millisecond
	quick  = 5 * time.Millisecond
	// sendTimeout is how long the context of a notification lasts.
	sendTimeout = 5 * time.Second
)

// channel is how the client gets records.
type channel int

const (
	silent channel = iota
	byLog
	byNotice
)

// client is the queue of one client, and its rate.
type client struct {
	Options
	cutter *redact.Redactor // cuts what the client gets, and redacts nothing

	mu      sync.Mutex
	channel channel
	left    float64 // how many records the rate allows at once, when filled
	filled  time.Time
	dropped int // since the last record that reported so

	queue   []outgoing
	idle    chan struct{} // closed when the queue is empty, and nil then
	failed  int64
	hurried time.Time // no logger waits until then
}

// outgoing is a record that waits.
type outgoing struct {
	ctx   context.Context
	entry entry
}

// listen sets how the client gets records.
func (c *client) listen(ch channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.channel = ch
}

// wants reports whether a record may be sent to the client, and takes it from the rate. One that may not is counted.
func (c *client) wants(level slog.Level) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Notify == nil || c.channel == silent {
		return false
	}
	burst := float64(c.Burst)
	if now := c.Now(); now.After(c.filled) {
		c.left = min(burst, c.left+now.Sub(c.filled).Seconds()*float64(c.PerSecond))
		c.filled = now
	}
	if c.left < max(1, severityOf(level).reserve*burst) {
		c.dropped++
		return false
	}
	c.left--
	return true
}

// send queues a record, and returns when the queue is empty or that takes more than a moment: so a client has what
// was logged before the agent's next message.
func (c *client) send(ctx context.Context, e entry) {
	c.mu.Lock()
	if c.channel == byLog || c.channel == byNotice && e.SessionID != "" {
		c.enqueue(outgoing{ctx, e})
	}
	start, idle := time.Now(), c.idle
	hurried := start.Before(c.hurried)
	c.mu.Unlock()
	if idle == nil || hurried {
		return
	}
	select {
	case <-idle:
	case <-time.After(moment):
	}
	if time.Since(start) > quick {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hurried = time.Now().Add(time.Second)
	}
}

// enqueue adds a record to the queue. A full queue drops the oldest of the least severe
// ones, or the record itself if there is none below it. c.mu is held.
func (c *client) enqueue(o outgoing) {
	if len(c.queue) >= maxQueue {
		c.dropped++
		least := 0
		for i := range c.queue {
			if c.queue[i].entry.level < c.queue[least].entry.level {
				least = i
			}
		}
		if c.queue[least].entry.level >= o.entry.level {
			return
		}
		c.queue = slices.Delete(c.queue, least, least+1)
	}
	c.queue = append(c.queue, o)
	if c.idle == nil {
		c.idle = make(chan struct{})
		c.next()
	}
}

// next begins to send the first record of the queue. c.mu is held.
func (c *client) next() {
	if len(c.queue) == 0 {
		close(c.idle)
		c.idle = nil
		return
	}
	o, by := c.queue[0], c.channel
	c.queue = slices.Delete(c.queue, 0, 1)
	if c.dropped > 0 && by != silent {
		members := make(map[string]json.RawMessage)
		_ = json.Unmarshal(o.entry.Data, &members) // it is an object, or nothing
		members["agenttrace.dropped"] = encode(c.dropped)
		o.entry.Data, c.dropped = encode(members), 0
	}
	go c.deliver(o, by)
}

// deliver calls the agent's function, which may panic or end its goroutine, and goes on with the next record.
func (c *client) deliver(o outgoing, by channel) {
	ctx, cancel := context.WithTimeout(o.ctx, sendTimeout)
	failed := true
	defer func() {
		_ = recover()
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		if failed {
			c.failed++
		}
		c.next()
	}()
	var err error
	switch {
	case by == byLog:
		err = c.Notify(ctx, "log", o.entry)
	case by == byNotice && o.entry.SessionID != "":
		err = c.Notify(ctx, "session/update", o.entry.notice())
	}
	failed = err != nil
}

// flush waits until the queue is empty. What was dropped since the last record is in one of its own, but not as a
// notice: that needs a session, and what was dropped may be of any.
func (c *client) flush(ctx context.Context) error {
	c.mu.Lock()
	if c.dropped > 0 && c.channel == byLog {
		c.enqueue(outgoing{context.Background(), entry{
			level: slog.LevelWarn, Level: severityOf(slog.LevelWarn).name,
			Message: fmt.Sprintf("%d log records were dropped, as there were too many for the client", c.dropped),
			Logger:  "acplog", Timestamp: c.Now().UTC().Format(time.RFC3339Nano),
		}})
	}
	idle := c.idle
	c.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush the client's log: %w", ctx.Err())
	}
}

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
