package store

import "slices"

// What a batch needs is known before it is merged, except for what follows from the rows. It is read twice: by the keys
// that the batch names, and then what belongs to the rows that were found. Merging asks for the rest, such as what a
// rewind hides, when it comes to it.

// prefetch reads the rows that the batch names.
func (a *applier) prefetch(b *Batch) {
	var sessions, messages, decisions []string
	var annotations []AnnotationKey
	var links []*SpanRef
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
		links = append(links, w.links...)
	}
	r := a.rows
	queries := append(r.blobQueries(b.Blobs), r.sessions.read(sessions...), r.messages.read(messages...),
		r.decisions.read(decisions...), r.annotations.read(annotations...), r.spanRefs.read(firstSpans(links)...))
	if b.Adopt != nil {
		queries = append(queries, a.transcriptQueries(namedBy(b.Observations, make(map[string]bool)))...)
	}
	if a.observer != nil {
		queries = append(queries, a.observer.queries(b.Observations)...)
	}
	r.ask(queries...)
}

// firstSpans are the first spans of traces. If one is stored, the others most likely are, too: see redelivered.
func firstSpans(links []*SpanRef) (keys []SpanKey) {
	trace := ""
	for _, l := range links {
		if l.TraceID != trace {
			trace = l.TraceID
			keys = append(keys, keyOfSpan(l))
		}
	}
	return keys
}

// redelivered are the spans of the traces of which the first one is stored.
func (r *rows) redelivered(links []*SpanRef) (keys []SpanKey) {
	trace, known := "", false
	for _, l := range links {
		if l.TraceID != trace {
			trace, known = l.TraceID, r.spanRefs.row(keyOfSpan(l)) != nil
		} else if known {
			keys = append(keys, keyOfSpan(l))
		}
	}
	return keys
}

func (r *rows) blobQueries(blobs []Blob) (queries []query) {
	digests := make(map[BlobKind][]string)
	for i := range blobs {
		digests[blobs[i].Kind] = append(digests[blobs[i].Kind], blobs[i].Digest)
	}
	for kind, stored := range r.blobs {
		queries = append(queries, stored.read(digests[kind]...))
	}
	return queries
}

// prefetchRows reads what belongs to the rows that were found, and the rows that observations come to.
func (a *applier) prefetchRows() {
	r := a.rows
	var sessions, forks, messages, decisions []string
	var spans []SpanKey
	var queries []query
	for _, w := range a.order {
		e := r.sessions.entries[w.id]
		if e == nil {
			sessions = append(sessions, w.id)
		}
		if e == nil || e.row == nil {
			forks = append(forks, w.id)
		} else {
			for _, m := range w.order {
				queries = append(queries, r.queriesOf(w, m)...)
			}
			for _, rw := range e.row.State.Rewinds {
				if len(w.order)+len(w.observed.messages) > 0 {
					messages = append(messages, rw.To)
				}
			}
			spans = append(spans, r.redelivered(w.links)...)
			if slices.ContainsFunc(w.changes, func(c *SessionChange) bool { return len(c.Rewinds) > 0 }) {
				queries = append(queries, r.readMessages(w.id, Position{}))
			}
		}
		for _, d := range w.observed.decisions {
			decisions = append(decisions, d.ID)
		}
		messages = append(messages, w.observed.stale...)
		for _, m := range w.observed.messages {
			messages = append(messages, m.ID)
			queries = append(queries, r.readParts(m.ID))
		}
	}
	r.ask(append(queries, r.sessions.read(sessions...), r.readForks(forks...), r.decisions.read(decisions...),
		r.messages.read(r.messages.unknown(messages...)...), r.spanRefs.read(spans...))...)
}

// queriesOf are queries for what the merge of a message needs besides its row.
func (r *rows) queriesOf(w *sessionWork, m *messageWork) []query {
	if stored := r.messages.row(m.id); stored == nil || stored.SessionID != w.id {
		return nil
	}
	ids := make([]string, len(m.parts))
	for i, p := range m.parts {
		ids[i] = p.ID
	}
	queries := []query{r.readIndexes(m.id), r.parts.read(ids...)}
	if len(m.changes)+len(m.links) > 0 {
		queries = append(queries, r.readStats(w.id, m.id))
	}
	return queries
}

// prefetch reads the rows that the import names, and what is stored of the session.
func (i *importer) prefetch(in *Imported) {
	r := i.rows
	var messages, decisions []string
	for k := range in.Messages {
		messages = append(messages, in.Messages[k].Message.ID)
	}
	for k := range in.Decisions {
		decisions = append(decisions, in.Decisions[k].ID)
	}
	var annotations []AnnotationKey
	for k := range in.Annotations {
		annotations = append(annotations, keyOfAnnotation(&in.Annotations[k]))
	}
	links := make([]*SpanRef, len(in.SpanRefs))
	for k := range in.SpanRefs {
		links[k] = &in.SpanRefs[k]
	}
	r.ask(append(r.blobQueries(in.Blobs), r.sessions.read(in.family()...), r.readForks(in.family()...),
		r.messages.read(messages...), r.decisions.read(decisions...), r.annotations.read(annotations...),
		r.spanRefs.read(firstSpans(links)...))...)
	if r.sessions.isNew(i.work.id) {
		return
	}
	queries := []query{r.readMessages(i.work.id, Position{}), r.spanRefs.read(r.redelivered(links)...)}
	for k := range in.Messages {
		m := &in.Messages[k]
		if stored := r.messages.row(m.Message.ID); stored == nil || stored.SessionID != i.work.id {
			continue
		}
		ids := make([]string, len(m.Parts))
		for n := range m.Parts {
			ids[n] = m.Parts[n].ID
		}
		queries = append(queries, r.readIndexes(m.Message.ID), r.parts.read(ids...))
	}
	r.ask(queries...)
}
