package agentdbg

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// carrier is what the meta of an event holds under [rows.CarrierKey].
type carrier struct {
	rows.Carrier
	// Prompt is the messages that the event's prompt says.
	Prompt []rows.Carrier `json:"prompt,omitempty"`
	// UsageOf is "turn" where the usage of an LLM_CALL is that of all calls of its turn,
	// for what each used is not known.
	UsageOf string `json:"usage_of,omitempty"`
}

func readCarrier(meta rows.Object) *carrier {
	v := meta.Get(rows.CarrierKey)
	if v == nil {
		return nil
	}
	c := new(carrier)
	if json.Unmarshal(v, c) != nil || c.Empty() && c.Prompt == nil {
		return nil
	}
	return c
}

// carries says whether the run brings the rows of a session.
func carries(r *run) bool {
	if len(r.events) == 0 {
		return false
	}
	c := readCarrier(r.events[0].meta)
	return c != nil && c.Session != nil
}

// carried returns the session whose rows the events bring.
func carried(r *run) (*codec.Session, error) {
	first := readCarrier(r.events[0].meta)
	o, err := rows.Parse(first.Session)
	if err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	s := rows.New(o.Text("id"), agentName)
	if err := s.CarrySession(&first.Carrier); err != nil {
		return nil, err
	}
	for i := range r.events {
		e := &r.events[i]
		c := readCarrier(e.meta)
		if c == nil {
			return nil, fmt.Errorf("event %s of type %s brings none", e.id, e.typ)
		}
		if err := carryEvent(s, e, c); err != nil {
			return nil, fmt.Errorf("event %s: %w", e.id, err)
		}
	}
	done := s.Finish()
	if err := rows.Sound(done); err != nil {
		return nil, err
	}
	return done, nil
}

func carryEvent(s *rows.Session, e *event, c *carrier) error {
	said := nativePrompt(e, len(c.Prompt))
	for i := range c.Prompt {
		p := &c.Prompt[i]
		if _, err := s.CarryMessage(p.Message); err != nil {
			return err
		}
		for k, row := range p.Parts {
			var native rows.Object
			if i < len(said) && k < len(said[i]) {
				native = said[i][k]
			}
			if _, err := s.CarryPart(row, native); err != nil {
				return err
			}
		}
	}
	if c.Message != nil {
		if _, err := s.CarryMessage(c.Message); err != nil {
			return err
		}
	}
	content := nativeContent(e.payload.Get("response"))
	for _, row := range c.Parts {
		o, err := rows.Parse(row)
		if err != nil {
			return fmt.Errorf("decode part: %w", err)
		}
		var native rows.Object
		switch partType := o.Text("type"); {
		case e.typ == llmCall && isContent(partType):
			if len(content) > 0 {
				native, content = content[0], content[1:]
			}
		default:
			native = nativePart(e.typ, e.payload, partType, o.Text("tool_call_id"), o.Text("tool_state"))
		}
		if _, err := s.CarryPart(row, native); err != nil {
			return err
		}
	}
	return nil
}

// isContent says whether parts of the type are what a model says, and so stand in
// a call's response.
func isContent(partType string) bool {
	return partType == "text" || partType == "reasoning" || partType == "file" || strings.HasPrefix(partType, "source-")
}

// nativePart is the data of a part as its event gives it, content apart; nil when
// the event does not.
func nativePart(typ string, payload rows.Object, partType, callID, state string) rows.Object {
	switch {
	case partType == "step-start":
		return rows.Object{{Key: "type", Value: raw("step-start")}}
	case typ == toolCall && (partType == "dynamic-tool" || strings.HasPrefix(partType, "tool-")):
		data := toolPart(partType, payload.Text("tool_name"), callID, state)
		data.Set("input", orNull(payload.Get("args")))
		switch state {
		case session.StateOutputAvailable:
			data.Set("output", orNull(payload.Get("result")))
		case session.StateOutputError:
			data.Set("errorText", payload.Object("error").Text("message"))
		}
		return data
	case typ == stateUpdate:
		return payload.Object("state")
	case typ == errorEvent:
		return dataPart(partType, payload.JSON())
	}
	return nil
}

// nativeContent is the data of the parts that a response gives.
func nativeContent(response json.RawMessage) []rows.Object {
	if _, ok := rows.Text(response); ok {
		return []rows.Object{spelled(response)}
	}
	o, err := rows.Parse(response)
	if err != nil {
		return nil
	}
	return objects(o.Get("content"))
}

// spelled is a text part with the string as it is spelled: it may have half of a
// surrogate pair, which no Go string has.
func spelled(text json.RawMessage) rows.Object {
	return rows.Object{{Key: "type", Value: raw("text")}, {Key: "text", Value: text}}
}

func objects(list json.RawMessage) []rows.Object {
	elements := rows.Elements(list)
	all := make([]rows.Object, len(elements))
	for i, v := range elements {
		all[i], _ = rows.Parse(v) // what is no object gives no data
	}
	return all
}

// nativePrompt is the data of the parts of the messages that a prompt says.
func nativePrompt(e *event, messages int) [][]rows.Object {
	prompt := e.payload.Get("prompt")
	if e.typ == stateUpdate {
		prompt = e.payload.Get("state")
	}
	if _, ok := rows.Text(prompt); ok {
		return [][]rows.Object{{spelled(prompt)}}
	}
	o, err := rows.Parse(prompt)
	if err != nil {
		return nil
	}
	all := make([][]rows.Object, 0, messages)
	for _, m := range objects(o.Get("messages")) {
		all = append(all, objects(m.Get("content")))
	}
	return all
}
