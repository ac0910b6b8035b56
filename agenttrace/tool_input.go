package agenttrace

import (
	"time"

	"github.com/agenttrace/agenttrace/redact"
)

// InputDelta adds to the input as the model sends it. [ToolCall.SetInput] makes
// it whole; so does anything that needs it whole.
func (c *ToolCall) InputDelta(text string) {
	var wait time.Duration
	c.change("input", func(now time.Time) {
		if c.state != stateInputStreaming {
			return
		}
		c.partial = append(c.partial, text...)
		c.changed = true
		if c.turn.events == nil {
			return
		}
		if wait = c.throttle.wait(c.turn.run.sess.tracer.live, now, len(c.partial)); wait == 0 {
			c.emitPartial(now, c.settled())
		}
	})
	if wait > 0 {
		c.turn.run.sess.hold(c, wait)
	}
}

// settled is as much of the input that streams as cannot change. The caller holds
// mu.
func (c *ToolCall) settled() string { return c.filter().settled(string(c.partial)) }

// emitPartial queues input that still streams. The caller holds mu.
func (c *ToolCall) emitPartial(now time.Time, settled string) {
	c.throttle.sent = len(settled)
	input, _ := c.filter().quoted(redact.ToolInput, settled)
	c.emitInput(now, input)
	c.changed = true // the event may lack the last words
}

// sendHeld sends what no event has had, if it is settled.
func (c *ToolCall) sendHeld(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.throttle.held = false
	if c.ended || c.state != stateInputStreaming {
		return
	}
	if settled := c.settled(); len(settled) > c.throttle.sent {
		c.emitPartial(now, settled)
	}
}

// SetInput gives the call its whole input, which is what [ToolOptions].Input may
// be. With nil, what InputDelta added up to is the whole.
func (c *ToolCall) SetInput(input any) {
	if c == nil {
		return
	}
	var encoded string
	if input != nil {
		encoded = encodeInput(input)
	}
	now := c.turn.run.now()
	c.change("input", func(now time.Time) {
		c.input, c.cleaned, c.changed = encoded, false, true
		if c.state == stateInputStreaming {
			c.started = now // not before its input is whole
		}
		c.complete()
		c.emitState(now)
	})
	c.noteOnce(now)
}

// complete makes the input whole if it still streams. The caller holds mu.
func (c *ToolCall) complete() {
	if c.input == "" && len(c.partial) > 0 {
		c.input, c.cleaned = encodeRaw(c.partial), false
	}
	c.partial = nil
	if c.state == stateInputStreaming {
		c.state, c.changed = stateInputAvailable, true
	}
}

// sentInput is wholeInput as it may be sent. The caller holds mu.
func (c *ToolCall) sentInput() string {
	if c.input == "" {
		if len(c.partial) == 0 {
			return ""
		}
		out, _ := c.filter().quoted(redact.ToolInput, string(c.partial))
		return out
	}
	if !c.cleaned {
		c.clean, _ = c.filter().value(redact.ToolInput, c.input)
		c.cleaned = true
	}
	return c.clean
}

// wholeInput returns the input as JSON, "" when none came. Of input that never
// became whole it is as much as came, as a JSON string. The caller holds mu.
func (c *ToolCall) wholeInput() string {
	if c.input == "" && len(c.partial) > 0 {
		return quote(string(c.partial))
	}
	return c.input
}
