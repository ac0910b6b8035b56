package store

// What a batch or an import needs is known before it is merged, except for what follows from the rows. It is read
// twice: by the keys that are named, and then what belongs to the rows that were found. Merging asks for the rest, such
// as what a rewind hides, when it comes to it.

// prefetch reads the rows that are named.
func (a *applier) prefetch(b *Batch) {
	r := a.rows
	var sessions, messages, decisions []string
	var annotations []AnnotationKey
	var spans []SpanKey
	for _, w := range a.order {
		sessions = append(sessions, w.id)
		for _, m := range w.order {
			messages = append(messages, m.id)
		}
		for _, d := range w.decided {
			decisions = append(decisions, d.ID)
		}
		for _, n := range w.noted {
			annotations = append(annotations, keyOfAnnotation(n))
		}
		for _, l := range w.links {
			spans = append(spans, keyOfSpan(l))
		}
	}
	digests := make(map[BlobKind][]string)
	for i := range b.Blobs {
		digests[b.Blobs[i].Kind] = append(digests[b.Blobs[i].Kind], b.Blobs[i].Digest)
	}
	queries := []query{r.readEvaluated, r.sessions.read(sessions...), r.messages.read(messages...),
		r.decisions.read(decisions...), r.annotations.read(annotations...), r.spanRefs.read(spans...)}
	for kind, stored := range r.blobs {
		queries = append(queries, stored.read(digests[kind]...))
	}
	if b.Adopt != nil {
		queries = append(queries, a.transcriptQueries(namedBy(b.Observations, make(map[string]bool)))...)
	}
	if a.observer != nil {
		queries = append(queries, a.observer.queries(b.Observations)...)
	}
	r.ask(queries...)
}

// prefetchRows reads what belongs to the rows that were found, and the rows that observations come to.
func (a *applier) prefetchRows() {
	r := a.rows
	var sessions, messages, whole, decisions, measured, measuredIn []string
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
					messages = append(messages, rw.To)
				}
			}
		}
		for _, d := range w.observed.decisions {
			decisions = append(decisions, d.ID)
		}
		messages = append(messages, w.observed.stale...)
		for _, m := range w.observed.messages {
			messages, whole = append(messages, m.ID), append(whole, m.ID)
		}
	}
	r.ask(r.sessions.read(r.sessions.unknown(sessions)...), r.readForks(sessions...), r.decisions.read(decisions...),
		r.messages.read(r.messages.unknown(messages)...), r.readParts(whole...), r.readStats(measuredIn, measured))
}

// prefetch reads the rows that the import names, and what is stored of the session.
func (i *importer) prefetch(in *Imported) {
	named := &applier{rows: i.rows, sessions: make(map[string]*sessionWork)}
	w := named.session(in.Session.ID)
	for k := range in.Messages {
		w.message(in.Messages[k].Message.ID)
	}
	named.group(&Batch{Decisions: in.Decisions, Annotations: in.Annotations, SpanRefs: in.SpanRefs})
	named.prefetch(&Batch{Blobs: in.Blobs})
	named.prefetchRows()
}
