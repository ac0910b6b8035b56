package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// AppendJSON appends the row as a JSON object: see [Columns.AppendJSON].
func (s *Session) AppendJSON(dst []byte) []byte { return SessionColumns.AppendJSON(dst, s) }

// AppendJSON appends the row as a JSON object: see [Columns.AppendJSON].
func (m *Message) AppendJSON(dst []byte) []byte { return MessageColumns.AppendJSON(dst, m) }

// AppendJSON appends the row as a JSON object: see [Columns.AppendJSON].
func (p *Part) AppendJSON(dst []byte) []byte { return PartColumns.AppendJSON(dst, p) }

// DecodeJSON sets s to a row in canonical JSON, from AppendJSON or another writer. It
// does not retain data.
//
// Edge cases: a column that is absent, or null although it must not be, gets the default
// of the table, so output of a writer that knows only the guide's columns is accepted.
// Unknown keys are ignored. A row without an id, a value of the wrong type, or anything
// other than one JSON object is an error, and leaves s undefined.
func (s *Session) DecodeJSON(data []byte) error {
	*s = Session{Title: Untitled, PermissionsJSON: "[]", MetadataJSON: "{}"}
	return SessionColumns.DecodeJSON(data, s, "id")
}

// DecodeJSON sets m to the row in data, like [Session.DecodeJSON]. The row needs an id
// and a session_id.
func (m *Message) DecodeJSON(data []byte) error {
	*m = Message{MetadataJSON: "{}"}
	return MessageColumns.DecodeJSON(data, m, "id", "session_id")
}

// DecodeJSON sets p to the row in data, like [Session.DecodeJSON]. The row needs an id, a
// message_id and a session_id.
func (p *Part) DecodeJSON(data []byte) error {
	*p = Part{}
	return PartColumns.DecodeJSON(data, p, "id", "message_id", "session_id")
}

// Sorted returns a copy of t with its messages in order of (created_at, id) and the parts
// of each in order of (index, id): the order in which every canonical format writes them.
// The copy shares the strings of the rows.
func (t *Transcript) Sorted() *Transcript {
	c := &Transcript{Session: t.Session, Messages: slices.Clone(t.Messages)}
	slices.SortStableFunc(c.Messages, func(a, b MessageAndParts) int { return a.Message.Compare(&b.Message) })
	for i := range c.Messages {
		m := &c.Messages[i]
		m.Parts = slices.Clone(m.Parts)
		slices.SortStableFunc(m.Parts, comparePart)
	}
	return c
}

// CheckTree reports the first row that has no id, that is below a row other than the one
// it names, or that has the id of another message. No canonical format can represent
// these. The error names the place, such as messages[3].parts[0]. [Check] reports
// everything else.
func (t *Transcript) CheckTree() error {
	if t.Session.ID == "" {
		return errors.New("session has no id")
	}
	seen := make(map[string]struct{}, len(t.Messages))
	for i := range t.Messages {
		m := &t.Messages[i].Message
		switch _, twice := seen[m.ID]; {
		case m.ID == "":
			return fmt.Errorf("messages[%d] has no id", i)
		case m.SessionID != t.Session.ID:
			return fmt.Errorf("messages[%d]: message %s belongs to session %q and is below %s", i, m.ID, m.SessionID,
				t.Session.ID)
		case twice:
			return fmt.Errorf("messages[%d]: message %s is there twice", i, m.ID)
		}
		seen[m.ID] = struct{}{}
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			switch {
			case p.ID == "":
				return fmt.Errorf("messages[%d].parts[%d] has no id", i, j)
			case p.MessageID != m.ID:
				return fmt.Errorf("messages[%d].parts[%d]: part %s belongs to message %q and is below %s",
					i, j, p.ID, p.MessageID, m.ID)
			case p.SessionID == "":
				return fmt.Errorf("messages[%d].parts[%d]: part %s has no session_id", i, j, p.ID)
			}
		}
	}
	return nil
}

func comparePart(a, b Part) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
}

// appendFloat writes f as ECMAScript's Number.toString does, as encoding/json too.
func appendFloat(dst []byte, f float64) []byte {
	text, err := json.Marshal(f)
	if err != nil || f == 0 { // not a number that JSON has, or -0
		return append(dst, '0')
	}
	return append(dst, text...)
}
