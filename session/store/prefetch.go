package store

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
