package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
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
	return decodeRequired(data, s, "session", requiredID{"id", &s.ID})
}

// DecodeJSON sets m to the row in data, like [Session.DecodeJSON]. The row needs an id
// and a session_id.
func (m *Message) DecodeJSON(data []byte) error {
	*m = Message{MetadataJSON: "{}"}
	return decodeRequired(data, m, "message", requiredID{"id", &m.ID}, requiredID{"session_id", &m.SessionID})
}

// DecodeJSON sets p to the row in data, like [Session.DecodeJSON]. The row needs an id, a
// message_id and a session_id.
func (p *Part) DecodeJSON(data []byte) error {
	*p = Part{}
	return decodeRequired(data, p, "part", requiredID{"id", &p.ID}, requiredID{"message_id", &p.MessageID},
		requiredID{"session_id", &p.SessionID})
}

type requiredID struct {
	column string
	value  *string
}

// decodeRequired is decodeRow of a row that needs ids, of which the first is its own.
func decodeRequired(data []byte, row any, kind string, ids ...requiredID) error {
	if err := decodeRow(data, row); err != nil {
		return err
	}
	for i, id := range ids {
		switch {
		case *id.value == "" && i == 0:
			return errors.New("id is missing")
		case *id.value == "":
			return fmt.Errorf("%s of %s %s is missing", id.column, kind, *ids[0].value)
		}
	}
	return nil
}

// decodeRow is json.Unmarshal with errors that name columns.
func decodeRow(data []byte, row any) error {
	err := json.Unmarshal(data, row)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return fmt.Errorf("row is %s, want an object", article(e.Value))
		}
		return fmt.Errorf("%s is %s, want %s", e.Field, article(e.Value), kindOf(e))
	}
	return err
}

// kindOf returns the name of the column's type for an error.
func kindOf(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int64:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

func article(kind string) string {
	if kind == "object" || kind == "array" {
		return "an " + kind
	}
	return "a " + kind
}

// Sorted returns t with its messages in order of (created_at, id) and the parts of each
// in order of (index, id): the order in which every canonical format writes them. It
// returns t itself if it is in order, and otherwise a copy that shares the strings of the
// rows. It does not change t.
func (t *Transcript) Sorted() *Transcript {
	byPlace := func(a, b MessageAndParts) int { return a.Message.Compare(&b.Message) }
	ordered := slices.IsSortedFunc(t.Messages, byPlace)
	for i := range t.Messages {
		if !ordered {
			break
		}
		ordered = slices.IsSortedFunc(t.Messages[i].Parts, comparePart)
	}
	if ordered {
		return t
	}
	c := &Transcript{Session: t.Session, Messages: slices.Clone(t.Messages)}
	slices.SortStableFunc(c.Messages, byPlace)
	for i := range c.Messages {
		m := &c.Messages[i]
		if !slices.IsSortedFunc(m.Parts, comparePart) {
			m.Parts = slices.Clone(m.Parts)
			slices.SortStableFunc(m.Parts, comparePart)
		}
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

// appendFloat writes f as ECMAScript's Number.toString and encoding/json do: with the
// fewest digits that read back as f.
func appendFloat(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	if abs == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, '0')
	}
	if abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// strconv pads the exponent to two digits: e-09 is e-9 here.
	if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
