package store

import "github.com/agenttrace/agenttrace/session"

// entry is what is known of the row with a key.
type entry[R any] struct {
	// row is the row as it shall be, old as the engine has it; nil if there is none.
	row, old *R
	// deleted reports that the engine's row has to be deleted before the row is put, dirty that the entry is on the
	// list of those to be written.
	deleted, dirty bool
}

// working is what is known of the rows of a table. Of a key without an entry nothing is.
type working[Key comparable, R any] struct {
	*refusals
	// name is how statements name the first column of a key, 0 if they need not.
	name NameKind
	// byKey selects the rows with keys of which columns has the columns.
	byKey   string
	columns func(Key) []string
	keyOf   func(*R) Key
	scan    func(Row, *R) error
	// put writes a row; old is nil where it is inserted. remove deletes one.
	put    func(s Statements, row, old *R, refused *error)
	remove func(Statements, Key)

	entries map[Key]*entry[R]
	dirty   []*entry[R]
	// wanted are the keys of rows to be read with the next question.
	wanted []Key
}

// rowsOf is the working set of a table. columns has the columns of a key.
func rowsOf[Key comparable, R any](refused *refusals, t *Table[R], keyOf func(*R) Key,
	columns func(Key) []string) working[Key, R] {
	return working[Key, R]{
		refusals: refused, byKey: t.ByKey, columns: columns, keyOf: keyOf, scan: t.Scan,
		put: func(s Statements, row, old *R, refused *error) { t.put(s, row, old == nil, refused) },
		remove: func(s Statements, key Key) {
			var args []any
			for _, value := range columns(key) {
				args = append(args, value)
			}
			s.Exec(t.Delete, args...)
		},
	}
}

// single has the column of a key that is one column.
func single(key string) []string { return []string{key} }

func (t *working[Key, R]) reset() {
	t.entries, t.dirty, t.wanted = make(map[Key]*entry[R]), nil, nil
}

// want has the rows with some keys, of which nothing is known, read with the next question.
func (t *working[Key, R]) want(keys ...Key) {
	for _, key := range keys {
		if t.entries[key] == nil {
			t.wanted = append(t.wanted, key)
		}
	}
}

// read reads the rows that are wanted.
func (t *working[Key, R]) read(s Statements) {
	var values [][]string
	for _, key := range t.wanted {
		if t.entries[key] != nil {
			continue // it is wanted twice, or was put since
		}
		t.entry(key)
		columns := t.columns(key)
		if values == nil {
			values = make([][]string, len(columns))
		}
		for i, value := range columns {
			values[i] = append(values[i], value)
		}
	}
	if t.wanted = nil; values == nil {
		return
	}
	if t.name != 0 {
		s.Name(t.name, values[0]...)
	}
	s.SelectKeys(t.byKey, func(from Row) error { _, err := t.learn(from); return err }, values...)
}

// learn takes over a row that the engine has, and returns it. What the working set knows already is newer.
func (t *working[Key, R]) learn(from Row) (*R, error) {
	row := new(R)
	err := t.scan(from, row)
	if e := t.entry(t.keyOf(row)); e.row == nil && e.old == nil {
		e.row, e.old = row, row
	}
	return row, err
}

// entry is what is known of a key; nothing is until it is read.
func (t *working[Key, R]) entry(key Key) *entry[R] {
	e := t.entries[key]
	if e == nil {
		e = new(entry[R])
		t.entries[key] = e
	}
	return e
}

// row is the row with a key, nil if there is none or nothing is known of it.
func (t *working[Key, R]) row(key Key) *R {
	if e := t.entries[key]; e != nil {
		return e.row
	}
	return nil
}

// find returns the row with a key, which is read if it is not known.
func find[Key comparable, R any](r *rows, t *working[Key, R], key Key) *R {
	if t.entries[key] == nil {
		t.want(key)
		r.ask()
	}
	return t.row(key)
}

// keep sets a row, unless the one that is stored takes precedence or is the same. old is the one that was stored.
func keep[Key comparable, R any](r *rows, t *working[Key, R], row *R, compare func(row, old *R) int) (
	changed bool, old *R, _ error) {
	if old = find(r, t, t.keyOf(row)); old != nil && compare(row, old) <= 0 {
		return false, old, nil
	}
	refused := t.set(row)
	return refused == nil, old, refused
}

// triedRow is what an engine may refuse: the row of a key.
type triedRow[Key comparable, R any] struct{ key Key }

// set sets the row with a key, unless the engine refused that before.
func (t *working[Key, R]) set(row *R) error {
	key := t.keyOf(row)
	if t.known[triedRow[Key, R]{key}] {
		return ErrRefused
	}
	e := t.entry(key)
	e.row = row
	t.write(e)
	return nil
}

func (t *working[Key, R]) write(e *entry[R]) {
	if !e.dirty {
		e.dirty = true
		t.dirty = append(t.dirty, e)
	}
}

// delete deletes the row with a key.
func (t *working[Key, R]) delete(key Key) {
	e := t.entry(key)
	e.row = nil
	if e.old != nil {
		e.deleted = true
		t.write(e)
	}
}

// isNew reports whether it is known that the engine has no row, or none when the next one is put.
func (e *entry[R]) isNew() bool { return e != nil && (e.old == nil || e.deleted) }

func (t *working[Key, R]) isDirty() bool { return len(t.dirty)+len(t.wanted) > 0 }

// writeDeleted deletes what is to be deleted, writePut puts the rest.
func (t *working[Key, R]) writeDeleted(s Statements) {
	for _, e := range t.dirty {
		if e.deleted {
			t.remove(s, t.keyOf(e.old))
			e.old, e.deleted = nil, false
		}
	}
}

func (t *working[Key, R]) writePut(s Statements) {
	for _, e := range t.dirty {
		if e.row != nil {
			t.put(s, e.row, e.old, t.try(triedRow[Key, R]{t.keyOf(e.row)}))
		}
		e.old, e.dirty = e.row, false
	}
	t.dirty = nil
}

// refusals are the rows that the engine cannot hold. It is known when it was tried to write them.
type refusals struct {
	known map[any]bool
	tried map[any]*error
}

// try returns where it is noted that a row is refused.
func (r *refusals) try(row any) *error {
	refused := new(error)
	set(&r.tried, row, refused)
	return refused
}

// news notes what was refused, and reports whether anything was.
func (r *refusals) news() (refusals bool) {
	for row, refused := range r.tried {
		if *refused != nil {
			refusals = true
			set(&r.known, row, true)
		}
	}
	r.tried = nil
	return refusals
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
func keyOfSpan(l *SpanRef) SpanKey           { return SpanKey{l.SessionID, l.TraceID, l.SpanID} }
func keyOfDecision(d *Decision) string       { return d.ID }
func keyOfBlob(b *Blob) string               { return b.Digest }
func keyOf(o *Observation) ObservationKey    { return ObservationKey{o.TraceID, o.Source} }
func keyOfObservation(o *ObservationRow) ObservationKey {
	return keyOf(&o.Observation)
}

// What a batch or an import needs is known before it is merged, except for what follows from the rows. It is read
// twice: by the keys that are named, and then what belongs to the rows that were found. Merging asks for the rest, such
// as what a rewind hides, when it comes to it.

// prefetch reads the rows that a batch names, which is grouped.
func (a *applier) prefetch(b *Batch) {
	var queries []query
	if b.Adopt != nil {
		queries = a.transcriptQueries(namedBy(b.Observations, make(map[string]bool)))
	}
	if a.observer != nil {
		queries = append(queries, a.observer.queries(b.Observations)...)
	}
	a.rows.ask(queries...)
}

// prefetchRows reads what belongs to the rows that were found, and the rows that observations come to.
func (a *applier) prefetchRows() {
	r := a.rows
	var sessions, whole, measured, measuredIn []string
	for _, w := range a.order {
		sessions = append(sessions, w.id)
		if row := r.sessions.row(w.id); row != nil {
			for _, m := range w.order {
				if stored := r.messages.row(m.id); stored == nil || stored.SessionID != w.id {
					continue
				}
				if whole = append(whole, m.id); len(m.changes)+len(m.links) > 0 {
					measured, measuredIn = append(measured, m.id), append(measuredIn, w.id)
				}
			}
			for _, rw := range row.State.Rewinds {
				if len(w.order)+len(w.observed.messages) > 0 {
					r.messages.want(rw.To)
				}
			}
		}
		for _, d := range w.observed.decisions {
			r.decisions.want(d.ID)
		}
		r.messages.want(w.observed.stale...)
		for _, m := range w.observed.messages {
			r.messages.want(m.ID)
			whole = append(whole, m.ID)
		}
	}
	r.ask(r.readForks(sessions...), r.readParts(whole...), r.readStats(measuredIn, measured))
}

// prefetch reads the rows that the import names, and what is stored of the session.
func (i *importer) prefetch(in *Imported) {
	named := &applier{rows: i.rows, sessions: make(map[string]*sessionWork)}
	w := named.session(in.Session.ID)
	for k := range in.Messages {
		w.message(in.Messages[k].Message.ID)
		i.rows.messages.want(in.Messages[k].Message.ID)
	}
	named.group(&Batch{Decisions: in.Decisions, Annotations: in.Annotations, SpanRefs: in.SpanRefs, Blobs: in.Blobs})
	i.rows.ask()
	named.prefetchRows()
}
