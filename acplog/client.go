package acplog

import (
	"context"
	"encoding/json"
	"fmt"
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
