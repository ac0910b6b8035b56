package store

import "github.com/agenttrace/agenttrace/session"

// entry is what is known of the row with a key.
type entry[Key comparable, R any] struct {
	key Key
	// row is the row as it shall be, old as the engine has it; nil if there is none.
	row, old *R
	// deleted reports that the engine's row has to be deleted before the row is put, dirty that the entry is on the
	// list of those to be written, unread that it was asked for and not found.
	deleted, dirty, unread bool
	// refused is set where the engine cannot hold the row.
	refused error
}

// working is what is known of the rows of a table. Of a key without an entry nothing is.
type working[Key comparable, R any] struct {
	// byKey selects the rows with keys of which columns has the columns. name names what a key is of.
	byKey   string
	columns func(Key) []string
	name    func(Statements, Key)
	keyOf   func(*R) Key
	scan    func(Row, *R) error
	// put writes a row; old is nil where it is inserted. remove deletes one.
	put    func(s Statements, row, old *R, refused *error)
	remove func(Statements, *R)

	entries map[Key]*entry[Key, R]
	dirty   []*entry[Key, R]
	// refused are the rows that the engine could not hold when it was tried, and whether they were inserted then.
	refused map[Key]bool
}

// rowsOf is the working set of a table. key has the columns of a key, name names what a key is of, nil for nothing.
func rowsOf[Key comparable, R any](t *Table[R], keyOf func(*R) Key, key func(Key) []string,
	name func(Statements, Key)) working[Key, R] {
	return working[Key, R]{
		byKey: t.ByKey, columns: key, name: name, keyOf: keyOf, scan: t.Scan,
		put: func(s Statements, row, old *R, refused *error) { t.put(s, row, old == nil, refused) },
		remove: func(s Statements, row *R) {
			var args []any
			for _, value := range key(keyOf(row)) {
				args = append(args, value)
			}
			s.Exec(t.Delete, args...)
		},
	}
}

// single has the column of a key that is one column.
func single(key string) []string { return []string{key} }

func (t *working[Key, R]) reset() {
	t.entries, t.dirty = make(map[Key]*entry[Key, R]), nil
}

// read reads the rows with some keys.
func (t *working[Key, R]) read(keys ...Key) query {
	return func(s Statements) {
		var values [][]string
		for _, key := range keys {
			if t.entries[key] == nil {
				t.entries[key] = &entry[Key, R]{key: key, unread: true}
			}
			if t.name != nil {
				t.name(s, key)
			}
			for i, value := range t.columns(key) {
				if len(values) == i {
					values = append(values, nil)
				}
				values[i] = append(values[i], value)
			}
		}
		if len(keys) > 0 {
			s.SelectKeys(t.byKey, t.take, values...)
		}
	}
}

// learn takes over a row that the engine has, and returns it. What the working set knows already is newer.
func (t *working[Key, R]) learn(from Row) (*R, error) {
	row := new(R)
	err := t.scan(from, row)
	t.found(row)
	return row, err
}

// take is learn for a caller that does not need the row.
func (t *working[Key, R]) take(from Row) error {
	_, err := t.learn(from)
	return err
}

// found is learn for a row that was read.
func (t *working[Key, R]) found(row *R) {
	key := t.keyOf(row)
	if e := t.entries[key]; e == nil || e.unread {
		t.entries[key] = &entry[Key, R]{key: key, row: row, old: row}
	}
}

// unknown are those of some keys of which nothing is known, each once.
func (t *working[Key, R]) unknown(keys ...Key) (all []Key) {
	seen := make(map[Key]bool)
	for _, key := range keys {
		if t.entries[key] == nil && !seen[key] {
			seen[key] = true
			all = append(all, key)
		}
	}
	return all
}

// row is the row with a key, nil if there is none or nothing is known of it.
func (t *working[Key, R]) row(key Key) *R {
	if e := t.entries[key]; e != nil {
		return e.row
	}
	return nil
}

// entry is what is known of a key that is to be changed.
func (t *working[Key, R]) entry(key Key) *entry[Key, R] {
	e := t.entries[key]
	if e == nil {
		e = &entry[Key, R]{key: key}
		t.entries[key] = e
	}
	e.unread = false
	return e
}

// set sets the row with a key, unless the engine refused that before.
func (t *working[Key, R]) set(row *R) error {
	key := t.keyOf(row)
	e := t.entry(key)
	if inserted, tried := t.refused[key]; tried && inserted == (e.old == nil || e.deleted) {
		return ErrRefused
	}
	e.row = row
	t.write(e)
	return nil
}

func (t *working[Key, R]) write(e *entry[Key, R]) {
	if !e.dirty {
		e.dirty = true
		t.dirty = append(t.dirty, e)
	}
}

// delete deletes the row with a key, which the engine deletes by itself with another if it follows.
func (t *working[Key, R]) delete(key Key, follows bool) {
	e := t.entry(key)
	e.row = nil
	if follows {
		e.old, e.deleted = nil, false
	} else if e.old != nil {
		e.deleted = true
		t.write(e)
	}
}

// follow notes that the engine deletes rows by itself, because it deletes one that they refer to.
func (t *working[Key, R]) follow(deleted func(*R) bool) {
	for key, e := range t.entries {
		if e.row != nil && deleted(e.row) {
			t.delete(key, true)
		}
	}
}

func (t *working[Key, R]) isDirty() bool { return len(t.dirty) > 0 }

// isNew reports whether it is known that the engine has no row of the key, or none when the next row is put.
func (t *working[Key, R]) isNew(key Key) bool {
	e := t.entries[key]
	return e != nil && (e.old == nil || e.deleted)
}

// writeDeleted deletes what is to be deleted, writePut puts the rest.
func (t *working[Key, R]) writeDeleted(s Statements) {
	for _, e := range t.dirty {
		if e.deleted {
			t.remove(s, e.old)
		}
	}
}

func (t *working[Key, R]) writePut(s Statements) {
	for _, e := range t.dirty {
		old := e.old
		if e.deleted {
			old = nil
		}
		if e.row != nil {
			t.put(s, e.row, old, &e.refused)
		}
	}
}

// written notes that all is written, and reports whether nothing of it was refused.
func (t *working[Key, R]) written() (ok bool) {
	ok = true
	for _, e := range t.dirty {
		if e.refused != nil {
			set(&t.refused, e.key, e.old == nil || e.deleted)
			ok, e.refused = false, nil
		}
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
func keyOfBlob(b *Blob) string               { return b.Digest }
func keyOf(o *Observation) ObservationKey    { return ObservationKey{o.TraceID, o.Source} }
func keyOfObservation(o *ObservationRow) ObservationKey {
	return keyOf(&o.Observation)
}
