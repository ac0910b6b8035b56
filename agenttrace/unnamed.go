package agenttrace

import (
	"encoding/json"
	"sync"
)

// inferredID returns the id of the call that a layer begins without knowing its id: the first of that name and
// input that another layer inferred from an answer and that nobody has begun, or else the first of that name, because
// a framework may hand the input over in another form. It is "" if there is none.
func (t *Turn) inferredID(o ToolOptions) string {
	if o.Inferred || t.off || o.Input == nil && o.RawInput == nil {
		return ""
	}
	if t.unclaimed(&o, "", false) == nil {
		return ""
	}
	c := t.unclaimed(&o, o.canonicalInput(), true)
	if c == nil {
		c = t.unclaimed(&o, "", true)
	}
	return c.ID()
}

func (o *ToolOptions) canonicalInput() string {
	if o.RawInput != nil {
		return canonical(encodeRaw(o.RawInput))
	}
	return canonical(encodeInput(o.Input))
}

// unclaimed returns the first inferred call of a tool that nobody has begun and that has the id of the options, if
// they have one, and the canonical input, if it is not "". The layer that begins it now claims it.
func (t *Turn) unclaimed(o *ToolOptions, input string, claim bool) *ToolCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.tools() {
		if c.inferred && !c.ended && !c.claimed && c.p.Name == validUTF8(o.Name) &&
			(o.ID == "" || c.p.CallID == validUTF8(o.ID)) && (input == "" || canonical(c.input) == input) {
			c.claimed = claim
			return c
		}
	}
	return nil
}

// observed has the open turns whose caller observes requests: those of package modelhttp, in whose agents no context
// has a turn.
var observed sync.Map // keys are of type *Turn

// observedCall returns the turn that waits for the tool call of those options, and its id. With several alike it
// returns nil: they may be those of different users.
func observedCall(o ToolOptions) (found *Turn, id string) {
	if o.Inferred || o.ID == "" && o.Input == nil && o.RawInput == nil {
		return nil, ""
	}
	input := ""
	for key := range observed.Range {
		if o.ID == "" && input == "" {
			input = o.canonicalInput()
		}
		if t := key.(*Turn); t.unclaimed(&o, input, false) == nil {
			continue
		} else if found != nil {
			return nil, ""
		} else {
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
