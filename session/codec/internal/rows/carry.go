package rows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// CarrierKey is the field in which a [Carrier] travels.
const CarrierKey = "agenttrace"

// Carrier is what of a session a foreign format has no word for: rows as they
// are, beside the record that says the same in the format's own words.
type Carrier struct {
	// Session and Message are rows, Parts the rows of that message which the record
	// stands for. A part whose data_json is empty has the data that the record
	// itself gives.
	Session   json.RawMessage   `json:"session,omitempty"`
	Message   json.RawMessage   `json:"message,omitempty"`
	Parts     []json.RawMessage `json:"parts,omitempty"`
	Decisions []store.Decision  `json:"decisions,omitempty"`
	Blobs     []store.Blob      `json:"blobs,omitempty"`
	// Derived says that the record repeats what other rows hold, for readers of the
	// format, and gives no row.
	Derived bool `json:"derived,omitempty"`
}

// Empty says that there is nothing to carry.
func (c *Carrier) Empty() bool {
	return c.Session == nil && c.Message == nil && c.Parts == nil && c.Decisions == nil && c.Blobs == nil && !c.Derived
}

// ReadCarrier reads a carrier; nil when raw is none.
func ReadCarrier(raw json.RawMessage) *Carrier {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var c Carrier
	if json.Unmarshal(raw, &c) != nil || c.Empty() {
		return nil
	}
	return &c
}

// CarrySession makes the session's row the one in c, and adds its decisions and
// blobs.
func (s *Session) CarrySession(c *Carrier) error {
	if c.Session == nil {
		return nil
	}
	var row session.Session
	if err := row.DecodeJSON(c.Session); err != nil {
		return fmt.Errorf("decode session: %w", err)
	}
	if row.ID != s.Row.ID {
		return fmt.Errorf("session %q stands in session %q", row.ID, s.Row.ID)
	}
	s.Row, s.carried = row, true
	s.Decisions = append(s.Decisions, c.Decisions...)
	s.Blobs = append(s.Blobs, c.Blobs...)
	return nil
}

// CarryMessage returns the message whose row is in raw, adding it when it is
// new.
func (s *Session) CarryMessage(raw json.RawMessage) (*Message, error) {
	var row session.Message
	if err := row.DecodeJSON(raw); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	if m := s.messageIDs[row.ID]; m != nil {
		return m, nil
	}
	m := &Message{s: s, ordinal: len(s.messages), Row: row, Carried: true}
	s.add(m)
	return m, nil
}

// Adopt adds the message that the row of a part names where no record has brought
// it, for the one that did is damaged. The message is marked incomplete, and has the
// role and the time that the part suggests. CarryPart tells what is wrong with a row
// that names none.
func (s *Session) Adopt(raw json.RawMessage, role string) {
	var row session.Part
	if row.DecodeJSON(raw) != nil || s.messageIDs[row.MessageID] != nil || s.partIDs[row.ID] {
		return
	}
	m := &Message{s: s, ordinal: len(s.messages), Carried: true, Row: session.Message{
		ID: row.MessageID, SessionID: s.Row.ID, Role: role, MetadataJSON: `{"agenttrace":{"incomplete":true}}`, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
	}}
	s.add(m)
}

// CarryPart adds the part whose row is in raw. native is the data that it has
// when the row brings none.
func (s *Session) CarryPart(raw json.RawMessage, native Object) (*Part, error) {
	var row session.Part
	if err := row.DecodeJSON(raw); err != nil {
		return nil, fmt.Errorf("decode part: %w", err)
	}
	m := s.messageIDs[row.MessageID]
	switch {
	case m == nil:
		return nil, fmt.Errorf("part %s belongs to message %q, which is not above it", row.ID, row.MessageID)
	case s.partIDs[row.ID]:
		return nil, fmt.Errorf("part %s is there twice", row.ID)
	case row.DataJSON == "" && native == nil:
		return nil, fmt.Errorf("part %s has no data", row.ID)
	}
	p := &Part{m: m, Row: row, Fixed: row.DataJSON != ""}
	if !p.Fixed {
		p.Row.DataJSON = string(native.JSON())
	}
	s.partIDs[row.ID] = true
	m.parts = append(m.parts, p)
	return p, nil
}

// SessionCarrier returns the carrier of the session's row and of what stands in
// no row of the transcript.
func SessionCarrier(s *codec.Session) *Carrier {
	return &Carrier{Session: s.Session.AppendJSON(nil), Decisions: s.Decisions, Blobs: s.Blobs}
}

// PartRow returns the row to carry of p when the record itself gives native.
func PartRow(p *session.Part, native Object) json.RawMessage {
	row := *p
	if native != nil && string(native.JSON()) == row.DataJSON {
		row.DataJSON = ""
	}
	return row.AppendJSON(nil)
}

// Output is what a tool call put out as the data of its part has it, or a text that says
// so where the source withholds it.
func Output(data Object) json.RawMessage {
	if string(data.Object("toolMetadata").Object("agenttrace").Get("withheld")) == "true" {
		withheld, _ := Marshal(codec.WithheldText) // a string always has JSON
		return withheld
	}
	return data.Get("output")
}

// Sound returns the first breach of a session's rules as an error.
func Sound(s *codec.Session) error {
	if v := session.Check(s.Transcript); len(v) > 0 {
		return errors.New(v[0].String())
	}
	return nil
}

// Equal says whether two sessions have the same rows, in whatever order.
func Equal(a, b *codec.Session) bool {
	var x, y bytes.Buffer
	if jsonl.Encode(&x, a.Transcript) != nil || jsonl.Encode(&y, b.Transcript) != nil {
		return false
	}
	return bytes.Equal(x.Bytes(), y.Bytes()) && reflect.DeepEqual(byID(a.Decisions), byID(b.Decisions)) &&
		maps.Equal(blobSet(a.Blobs), blobSet(b.Blobs))
}

func byID(all []store.Decision) map[string]store.Decision {
	m := make(map[string]store.Decision, len(all))
	for _, d := range all {
		m[d.ID] = d
	}
	return m
}

func blobSet(all []store.Blob) map[store.Blob]bool {
	m := make(map[store.Blob]bool, len(all))
	for _, b := range all {
		m[b] = true
	}
	return m
}
