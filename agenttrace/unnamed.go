package agenttrace

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
)

// inferredID returns the id of the call that a layer begins without knowing its id: the first of
// that name and input that another layer inferred from an answer and that nobody has begun. It is
// "" if there is none.
func (t *Turn) inferredID(o ToolOptions) string {
	if o.Inferred || t.off || o.Input == nil && o.RawInput == nil {
		return ""
	}
	// The input is encoded only if need be.
	name := validUTF8(o.Name)
	if t.inferredCallOf(name, func(*ToolCall) bool { return true }) == "" {
		return ""
	}
	return t.claim(name, o.describes())
}

// describes returns whether a call is the one of the options: by their id, or else by their input, which is encoded
// here, as that is for the caller's code, without a lock.
func (o *ToolOptions) describes() func(c *ToolCall) bool {
	callID, input := validUTF8(o.ID), string(o.RawInput)
	if o.RawInput == nil {
		input = encodeInput(o.Input)
	}
	input = canonical(input)
	return func(c *ToolCall) bool {
		return callID == c.callID || callID == "" && canonical(c.input) == input
	}
}

// claim is inferredCallOf for the layer that begins the call now.
func (t *Turn) claim(name string, is func(c *ToolCall) bool) string {
	return t.inferredCallOf(name, func(c *ToolCall) bool {
		c.claimed = is(c)
		return c.claimed
	})
}

// inferredCallOf returns the id of the first inferred call of a tool that nobody has begun and that
// is is true of. It is called with mu held.
func (t *Turn) inferredCallOf(name string, is func(c *ToolCall) bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.tools() {
		if c.name != name {
			continue
		}
		c.mu.Lock()
		found := c.inferred && !c.ended && !c.claimed && is(c)
		c.mu.Unlock()
		if found {
			return c.callID
		}
	}
	return ""
}

// observed has the open turns whose caller observes requests: those of package modelhttp, in whose agents no context
// has a turn.
var observed struct {
	mu    sync.Mutex
	turns map[*Turn]struct{}
}

func (t *Turn) observe() {
	observed.mu.Lock()
	defer observed.mu.Unlock()
	if observed.turns == nil {
		observed.turns = make(map[*Turn]struct{})
	}
	observed.turns[t] = struct{}{}
}

func (t *Turn) unobserve() {
	observed.mu.Lock()
	delete(observed.turns, t)
	observed.mu.Unlock()
}

// observedCall returns the turn that waits for the tool call of those options, and its id. With several alike it
// returns nil: they may be those of different users.
func observedCall(o ToolOptions) (found *Turn, id string) {
	if o.Inferred || o.ID == "" && o.Input == nil && o.RawInput == nil {
		return nil, ""
	}
	name, is := validUTF8(o.Name), o.describes()
	observed.mu.Lock()
	turns := slices.Collect(maps.Keys(observed.turns))
	observed.mu.Unlock()
	for _, t := range turns {
		call := t.inferredCallOf(name, is)
		if call != "" && found != nil {
			return nil, ""
		} else if call != "" {
			found = t
		}
	}
	if found == nil {
		return nil, ""
	}
	id = found.claim(name, is)
	if id == "" {
		return nil, "" // somebody else has begun it
	}
	return found, id
}

// canonical returns JSON in the one form that equal values have, and other text as it is.
func canonical(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	data, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(data)
}
