package agenttrace

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
)

// inferredID returns the id of the call that a layer begins without knowing its id: the first of that name and
// input that another layer inferred from an answer and that nobody has begun. It is "" if there is none.
func (t *Turn) inferredID(o ToolOptions) string {
	if o.Inferred || t.off || o.Input == nil && o.RawInput == nil {
		return ""
	}
	return t.unclaimed(&o, o.canonicalInput(), true).ID()
}

// canonicalInput returns what encodes the input, once and only if need be.
func (o *ToolOptions) canonicalInput() func() string {
	return sync.OnceValue(func() string {
		if o.RawInput != nil {
			return canonical(string(o.RawInput))
		}
		return canonical(encodeInput(o.Input))
	})
}

// unclaimed returns the first inferred call of a tool that nobody has begun and that has the id of the options or, if
// they have none, the input. The layer that begins it now claims it.
func (t *Turn) unclaimed(o *ToolOptions, input func() string, claim bool) *ToolCall {
	may := func(c *ToolCall) bool {
		return c.inferred && !c.ended && !c.claimed && c.p.Name == validUTF8(o.Name) &&
			(o.ID == "" || c.p.CallID == validUTF8(o.ID))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := slices.DeleteFunc(t.tools(), func(c *ToolCall) bool { return !may(c) })
	want := ""
	if o.ID == "" && len(calls) > 0 {
		t.mu.Unlock()
		want = input() // the caller's code, which runs without a lock
		t.mu.Lock()
	}
	for _, c := range calls {
		if may(c) && (o.ID != "" || canonical(c.input) == want) {
			c.claimed = claim
			return c
		}
	}
	return nil
}

// observed has the open turns whose caller observes requests: those of package modelhttp, in whose agents no context
// has a turn.
var observed = struct {
	mu    sync.Mutex
	turns map[*Turn]struct{}
}{turns: make(map[*Turn]struct{})}

func (t *Turn) observe() {
	observed.mu.Lock()
	defer observed.mu.Unlock()
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
	input := o.canonicalInput()
	observed.mu.Lock()
	turns := slices.Collect(maps.Keys(observed.turns))
	observed.mu.Unlock()
	for _, t := range turns {
		switch c := t.unclaimed(&o, input, false); {
		case c == nil:
		case found != nil:
			return nil, ""
		default:
			found = t
		}
	}
	if found != nil {
		if id = found.unclaimed(&o, input, true).ID(); id == "" { // somebody else has begun it
			found = nil
		}
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
