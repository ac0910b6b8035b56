package acplog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// maxQueue bounds the records that wait for a client which does not read.
	maxQueue = 256
	// moment is how long a logger waits for its record to be sent, and how much of a
	// second all loggers wait for a client that is slow with every record.
	moment = 50 * time.Millisecond
	// quick is a wait that does not count.
	quick = 5 * time.Millisecond
	// sendTimeout is how long the context of a notification lasts.
	sendTimeout = 5 * time.Second
	// summaryAfter is how long after a record was dropped the client gets a summary, if no
	// other record reports so before.
	summaryAfter = time.Second
)

// Keys in the data of a record that state how many were dropped before it.
const (
	droppedKey        = "agenttrace.dropped"
	droppedByLevelKey = "agenttrace.dropped_by_level"
)

// client is the queue of one client, and its rate.
type client struct {
	notify func(ctx context.Context, method string, params any) error
	now    func() time.Time
	burst  float64
	rate   float64 // tokens a second

	mu      sync.Mutex
	channel channel
	// tokens are what is left of the common rate, reserved of each class's own.
	tokens   float64
	reserved [classes]float64
	filled   time.Time
	dropped  map[string]int64 // by level, since the last record that reported so
	summary  bool             // a timer for the summary runs

	queue   []*outgoing
	sending bool // a goroutine sends what is in queue
	stuck   bool // no logger waits until the current notification has ended
	idle    chan struct{}
	failed  int64
	// patience is how long loggers may still wait, as of counted.
	patience time.Duration
	counted  time.Time
}

// outgoing is a record that waits.
type outgoing struct {
	ctx   context.Context
	level slog.Level
	entry entry
	sent  chan struct{} // closed when it was sent or dropped
}

// Classes of severity, each with a share of its own beside the common one.
const (
	classDebug = iota
	classInfo
	classNotice
	classWarning
	classError
	classWorse
	classes
)

// shares are what a class has besides the common rate.
var shares = [classes]float64{classNotice: 0.25, classWarning: 0.25, classError: 1, classWorse: 1}

func (c *client) init(o Options) {
	c.notify, c.now = o.Notify, o.Now
	c.burst, c.rate = float64(o.Burst), float64(o.PerSecond)
	c.tokens, c.filled = c.burst, o.Now()
	c.patience, c.counted = moment, time.Now()
	for i, share := range shares {
		c.reserved[i] = c.shareOf(share)
	}
	c.dropped = make(map[string]int64)
}

// shareOf is the size of a share: one record at least.
func (c *client) shareOf(share float64) float64 {
	if share == 0 {
		return 0
	}
	return max(1, share*c.burst)
}

// listen sets how the client gets records.
func (c *client) listen(ch channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.channel = ch
}

// wants reports whether a record may be sent to the client, and takes its share of the
// rate. One that may not is counted.
func (c *client) wants(level slog.Level) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channel == silent {
		return false
	}
	if now := c.now(); now.After(c.filled) {
		passed := now.Sub(c.filled).Seconds() * c.rate
		c.tokens, c.filled = min(c.burst, c.tokens+passed), now
		for i, share := range shares {
			c.reserved[i] = min(c.shareOf(share), c.reserved[i]+passed*share)
		}
	}
	class, least := classOf(level), 1.0
	if class == classDebug {
		least += c.burst / 2
	}
	switch {
	case c.tokens >= least:
		c.tokens--
	case c.reserved[class] >= 1:
		c.reserved[class]--
	default:
		c.drop(level)
		return false
	}
	return true
}

// drop counts a record that the client does not get, and arranges a summary. c.mu is held.
func (c *client) drop(level slog.Level) {
	c.dropped[severity(level)]++
	if !c.summary {
		c.summary = true
		time.AfterFunc(summaryAfter, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.summary = false
			c.summarize()
		})
	}
}

// summarize puts a record into the queue that states what was dropped. c.mu is held.
func (c *client) summarize() {
	if len(c.dropped) == 0 || c.channel != byLog {
		return // a notice needs a session, and what was dropped may be of any
	}
	var all int64
	for _, n := range c.dropped {
		all += n
	}
	e := entry{
		Level:   severity(slog.LevelWarn),
		Message: strconv.FormatInt(all, 10) + " log records were dropped, as there were too many for the client",
		Logger:  "acplog", Timestamp: c.now().UTC().Format(time.RFC3339Nano),
	}
	c.enqueue(&outgoing{ctx: context.Background(), level: slog.LevelWarn, entry: e, sent: make(chan struct{})})
}

// send sends a record, and returns when that is done or takes more than a moment.
func (c *client) send(ctx context.Context, level slog.Level, e entry) {
	c.mu.Lock()
	if c.channel == silent || c.channel == byNotice && e.SessionID == "" {
		c.mu.Unlock()
		return
	}
	o := &outgoing{ctx: ctx, level: level, entry: e, sent: make(chan struct{})}
	c.enqueue(o)
	start := time.Now()
	c.patience = min(moment, c.patience+start.Sub(c.counted)/(time.Second/moment))
	c.counted = start
	wait := c.patience
	stuck := c.stuck
	c.mu.Unlock()
	if stuck || wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	late := false
	select {
	case <-o.sent:
	case <-timer.C:
		late = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waited := time.Since(start); waited > quick {
		c.patience -= waited
	}
	if late {
		c.stuck = c.sending
	}
}

// enqueue adds a record to the queue. A full queue drops the oldest of the least severe
// ones, or the record itself if there is none below it. c.mu is held.
func (c *client) enqueue(o *outgoing) {
	if len(c.queue) >= maxQueue {
		least := slices.MinFunc(c.queue, func(a, b *outgoing) int {
			return cmp.Compare(classOf(a.level), classOf(b.level))
		})
		if classOf(least.level) >= classOf(o.level) {
			c.drop(o.level)
			close(o.sent)
			return
		}
		i := slices.Index(c.queue, least)
		c.queue = slices.Delete(c.queue, i, i+1)
		c.drop(least.level)
		close(least.sent)
	}
	c.queue = append(c.queue, o)
	if !c.sending {
		c.sending, c.idle = true, make(chan struct{})
		go c.run()
	}
}

// run sends what is in the queue, and ends when that is empty.
func (c *client) run() {
	c.mu.Lock()
	for len(c.queue) > 0 {
		o := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		by := c.channel
		if len(c.dropped) > 0 && by != silent {
			o.entry.Data = withDropped(o.entry.Data, c.dropped)
			clear(c.dropped)
		}
		c.mu.Unlock()
		c.deliver(o, by)
		c.mu.Lock()
	}
	c.sending = false
	close(c.idle)
	c.mu.Unlock()
}

// deliver calls the agent's function, and counts it if it fails.
func (c *client) deliver(o *outgoing, by channel) {
	sent, returned := false, false
	defer func() {
		recovered := recover() != nil
		c.mu.Lock()
		defer c.mu.Unlock()
		if !sent {
			c.failed++
		}
		c.stuck = false
		close(o.sent)
		if !returned && !recovered { // runtime.Goexit: this goroutine is at its end
			go c.run()
		}
	}()
	ctx, cancel := context.WithTimeout(o.ctx, sendTimeout)
	defer cancel()
	var err error
	switch {
	case by == byLog:
		err = c.notify(ctx, "log", o.entry)
	case by == byNotice && o.entry.SessionID != "":
		err = c.notify(ctx, "session/update", o.entry.notice())
	}
	sent, returned = err == nil, true
}

// flush waits until the queue is empty.
func (c *client) flush(ctx context.Context) error {
	c.mu.Lock()
	c.summarize()
	idle, sending := c.idle, c.sending
	c.mu.Unlock()
	if !sending {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush the client's log: %w", ctx.Err())
	}
}

// withDropped adds to the data of a record how many were dropped before it.
func withDropped(data json.RawMessage, dropped map[string]int64) json.RawMessage {
	var all int64
	for _, n := range dropped {
		all += n
	}
	byLevel, _ := json.Marshal(dropped) // names and numbers always encode
	out := []byte("{")
	if len(data) > len("{}") {
		out = append(append(out, data[1:len(data)-1]...), ',')
	}
	out = strconv.AppendInt(append(out, `"`+droppedKey+`":`...), all, 10)
	return append(append(append(out, `,"`+droppedByLevelKey+`":`...), byLevel...), '}')
}
