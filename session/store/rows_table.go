package store

import (
	"github.com/agenttrace/agenttrace/session"
)

// entry is what is known of the row with a key.
type entry[Key comparable, Row any] struct {
	key Key
	// row is the row as it shall be, old as the engine has it; nil if there is none.
	row, old *Row
	// deleted reports that the engine's row has to be deleted before the row is put, dirty that the entry is on the
	// list of those to be written.
	deleted, dirty bool
}

// table is what is known of the rows of a table. Of a key without an entry nothing is.
type table[Key comparable, Row any] struct {
	entries map[Key]*entry[Key, Row]
	dirty   []*entry[Key, Row]
	// refused are the rows that the engine could not hold when it was tried, by what was tried.
	refused map[Key]Op
	puts    []Put[Row]
}

func (t *table[Key, Row]) reset() {
	t.entries, t.dirty = make(map[Key]*entry[Key, Row]), nil
}

// loaded takes over what the engine has under some keys. What the working set knows already is newer.
func (t *table[Key, Row]) loaded(keys []Key, rows []Row, key func(*Row) Key) {
	for i := range rows {
		if k := key(&rows[i]); t.entries[k] == nil {
			t.entries[k] = &entry[Key, Row]{key: k, row: &rows[i], old: &rows[i]}
		}
	}
	for _, k := range keys {
		if t.entries[k] == nil {
			t.entries[k] = &entry[Key, Row]{key: k}
		}
	}
}

// row is the row with a key, nil if there is none or nothing is known of it.
func (t *table[Key, Row]) row(key Key) *Row {
	if e := t.entries[key]; e != nil {
		return e.row
	}
	return nil
}

// put sets the row with a key, unless the engine refused that before.
func (t *table[Key, Row]) put(key Key, row *Row) error {
	e := t.entries[key]
	if e == nil {
		e = &entry[Key, Row]{key: key}
		t.entries[key] = e
	}
	if op, tried := t.refused[key]; tried && (op == Insert) == (e.old == nil || e.deleted) {
		return ErrRefused
	}
	e.row = row
	t.write(e)
	return nil
}

func (t *table[Key, Row]) write(e *entry[Key, Row]) {
	if !e.dirty {
		e.dirty = true
		t.dirty = append(t.dirty, e)
	}
}

// delete deletes the row with a key, which the engine deletes by itself with another if it follows.
func (t *table[Key, Row]) delete(key Key, follows bool) {
	e := t.entries[key]
	if e == nil {
		e = &entry[Key, Row]{key: key}
		t.entries[key] = e
	}
	e.row = nil
	if follows {
		e.old, e.deleted = nil, false
	} else if e.old != nil {
		e.deleted = true
		t.write(e)
	}
}

// follow notes that the engine deletes rows by itself, because it deletes one that they refer to.
func (t *table[Key, Row]) follow(deleted func(*Row) bool) {
	for key, e := range t.entries {
		if e.row != nil && deleted(e.row) {
			t.delete(key, true)
		}
	}
}

// isNew reports whether it is known that the engine has no row of the key, or none when the next row is put.
func (t *table[Key, Row]) isNew(key Key) bool {
	e := t.entries[key]
	return e != nil && (e.old == nil || e.deleted)
}

// collect returns what has to be written.
func (t *table[Key, Row]) collect() []Put[Row] {
	t.puts = t.puts[:0]
	for _, e := range t.dirty {
		if e.deleted {
			t.puts = append(t.puts, Put[Row]{Op: Delete, Row: e.old})
		}
		switch {
		case e.row == nil:
		case e.old == nil || e.deleted:
			t.puts = append(t.puts, Put[Row]{Op: Insert, Row: e.row})
		default:
			t.puts = append(t.puts, Put[Row]{Op: Update, Row: e.row, Old: e.old})
		}
	}
	return t.puts
}

// written notes that what was collected is written, and reports whether nothing of it was refused.
func (t *table[Key, Row]) written(puts []Put[Row], key func(*Row) Key) (ok bool) {
	ok = true
	for i := range puts {
		if puts[i].Refused != nil {
			set(&t.refused, key(puts[i].Row), puts[i].Op)
			ok = false
		}
	}
	for _, e := range t.dirty {
		e.old, e.deleted, e.dirty = e.row, false, false
	}
	t.dirty = t.dirty[:0]
	return ok
}

// set sets the value of a key in a map that may be nil.
func set[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

// Keys of rows.
func keyOfSession(s *SessionRow) string      { return s.ID }
func keyOfMessage(m *session.Message) string { return m.ID }
func keyOfPart(p *session.Part) string       { return p.ID }
func keyOfSpan(l *SpanRef) SpanKey           { return SpanKey{l.SessionID, l.TraceID, l.SpanID} }
func keyOfDecision(d *Decision) string       { return d.ID }
func keyOfBlob(b *Blob) blobKey              { return blobKey{b.Kind, b.Digest} }
func keyOf(o *Observation) ObservationKey    { return ObservationKey{o.TraceID, o.Source} }
func keyOfObservation(o *ObservationRow) ObservationKey {
	return keyOf(&o.Observation)
}
