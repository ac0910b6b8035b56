package store

import "slices"

// What a batch needs is known before it is merged, except for what follows from the rows. It is read twice: by the keys
// that the batch names, and then what belongs to the rows that were found. Merging asks for the rest, such as what a
// rewind hides, when it comes to it.

// wanted are the keys of rows to be read, by fixed queries. One without keys costs nothing.
type wanted struct {
	sessions          SessionsByID
	messages          MessagesByID
	decisions         DecisionsByID
	annotated         AnnotationsByKey
	spans             SpanRefsByKey
	parts             PartsByKey
	prompts, catalogs BlobsByDigest
}

// queries are those for the rows, and some more.
func (q *wanted) queries(more ...Query) []Query {
	q.prompts.Kind, q.catalogs.Kind = BlobSystemPrompt, BlobToolCatalog
	return append(more, &q.sessions, &q.messages, &q.decisions, &q.annotated, &q.spans, &q.parts, &q.prompts, &q.catalogs)
}

func (q *wanted) blobs(blobs []Blob) {
	for i := range blobs {
		if b := &blobs[i]; b.Kind == BlobSystemPrompt {
			q.prompts.Digests = append(q.prompts.Digests, b.Digest)
		} else if b.Kind == BlobToolCatalog {
			q.catalogs.Digests = append(q.catalogs.Digests, b.Digest)
		}
	}
}

// firstSpans wants the first span of each trace. If it is stored, the others most likely are, too: see redelivered.
func (q *wanted) firstSpans(links []*SpanRef) {
	trace := ""
	for _, l := range links {
		if l.TraceID != trace {
			trace = l.TraceID
			q.spans.Keys = append(q.spans.Keys, keyOfSpan(l))
		}
	}
}

// refused wants the rows that the engine refused before: they may be another's.
func (q *wanted) refused(r *rows) {
	for key := range r.spanRefs.refused {
		q.spans.Keys = append(q.spans.Keys, key)
	}
	for id := range r.parts.refused {
		q.parts.Keys = append(q.parts.Keys, PartIndex{ID: id})
	}
}

// prefetch reads the rows that the batch names.
func (a *applier) prefetch(b *Batch) {
	var want wanted
	for _, w := range a.order {
		want.sessions.IDs = append(want.sessions.IDs, w.id)
		for _, m := range w.order {
			want.messages.IDs = append(want.messages.IDs, m.id)
		}
		for _, d := range w.decided {
			want.decisions.IDs = append(want.decisions.IDs, d.ID)
		}
		for _, n := range w.noted {
			want.annotated.Keys = append(want.annotated.Keys, keyOfAnnotation(n))
		}
		want.firstSpans(w.links)
	}
	want.blobs(b.Blobs)
	want.refused(a.rows)
	queries := want.queries()
	if b.Adopt != nil {
		queries = append(queries, a.transcriptQuery(namedBy(b.Observations, make(map[string]bool)))...)
	}
	if b.Assemble != nil {
		queries = append(queries, a.observationQueries(b, b.Observations)...)
	}
	a.rows.ask(queries...)
	a.learnObservations(queries)
}

// observationQueries are queries for what is stored of observations, and for where those of their traces are kept.
func (a *applier) observationQueries(b *Batch, observations []Observation) (queries []Query) {
	stored, owners := &ObservationsByKey{}, &TraceOwners{}
	traces, threads := make(map[string]bool), make(map[thread]bool)
	name := func(trace string) {
		if trace != "" && !traces[trace] {
			traces[trace] = true
			owners.TraceIDs = append(owners.TraceIDs, trace)
		}
	}
	for i := range observations {
		n := &observations[i]
		stored.Keys = append(stored.Keys, keyOf(n))
		name(n.TraceID)
		t := thread{n.Session, n.Dialect}
		if n.TraceID == "" && n.Session != "" && b.Threads != nil && b.Threads(n.Dialect) && !threads[t] {
			threads[t] = true
			queries = append(queries, &Thread{SessionID: t.session, Dialect: t.dialect})
		}
	}
	for i := range b.SpanRefs {
		if b.SpanRefs[i].Dialect == DialectSDK {
			name(b.SpanRefs[i].TraceID)
		}
	}
	if len(stored.Keys) > 0 {
		queries = append(queries, stored)
	}
	if len(owners.TraceIDs) > 0 {
		queries = append(queries, owners)
	}
	return queries
}

// learnObservations takes over what observationQueries found.
func (a *applier) learnObservations(queries []Query) {
	for _, q := range queries {
		switch q := q.(type) {
		case *TraceOwners:
			for _, t := range q.Rows {
				a.stored[t.TraceID] = t
			}
		case *Thread:
			a.recordThreads[thread{q.SessionID, q.Dialect}] = q
		}
	}
}

// prefetchRows reads what belongs to the rows that were found, and the rows that observations come to.
func (a *applier) prefetchRows() {
	want, forks := wanted{sessions: SessionsByID{Forks: true}}, &SessionsByID{Forks: true}
	var queries []Query
	for _, w := range a.order {
		row := a.rows.sessions.entries[w.id]
		switch {
		case row == nil:
			want.sessions.IDs = append(want.sessions.IDs, w.id)
		case row.row == nil:
			forks.IDs = append(forks.IDs, w.id)
		default:
			for _, m := range w.order {
				queries = append(queries, a.queriesOf(w, m)...)
			}
			for _, r := range row.row.State.Rewinds {
				if a.rows.messages.entries[r.To] == nil && len(w.order)+len(w.observed.messages) > 0 {
					want.messages.IDs = append(want.messages.IDs, r.To)
				}
			}
			want.spans.Keys = append(want.spans.Keys, a.rows.redelivered(w.links)...)
			if slices.ContainsFunc(w.changes, func(c *SessionChange) bool { return len(c.Rewinds) > 0 }) {
				queries = append(queries, &MessagesFrom{SessionID: w.id})
			}
		}
		for _, d := range w.observed.decisions {
			want.decisions.IDs = append(want.decisions.IDs, d.ID)
		}
		want.messages.IDs = append(want.messages.IDs, w.observed.stale...)
		for _, m := range w.observed.messages {
			want.messages.IDs = append(want.messages.IDs, m.ID)
			if w.observed.known[m.ID] {
				queries = append(queries, &PartsFrom{MessageID: m.ID})
			}
		}
	}
	if len(forks.IDs) > 0 {
		queries = append(queries, forks)
	}
	a.rows.ask(want.queries(queries...)...)
}

// queriesOf are queries for what the merge of a message needs besides its row.
func (a *applier) queriesOf(w *sessionWork, m *messageWork) (queries []Query) {
	stored := a.rows.messages.entries[m.id].row
	switch {
	case stored == nil && len(m.links) > 0 && !m.contiguous():
		return []Query{&StatsOf{SessionID: w.id, MessageID: m.id}}
	case stored == nil || stored.SessionID != w.id:
		return nil
	}
	if len(m.parts) > 0 {
		parts := &PartsByKey{MessageID: m.id, Keys: make([]PartIndex, len(m.parts))}
		for i, p := range m.parts {
			parts.Keys[i] = PartIndex{p.ID, p.place()}
		}
		queries = append(queries, parts)
	}
	declared := slices.ContainsFunc(m.changes, func(c *MessageChange) bool { return c.Rank != RankStub })
	if !declared && len(m.links) == 0 && stored.MetadataJSON == incompleteMetadata {
		return queries
	}
	if declared || len(m.links) > 0 {
		queries = append(queries, &StatsOf{SessionID: w.id, MessageID: m.id})
	}
	return append(queries, &Extent{MessageID: m.id})
}

// redelivered are the spans of the traces of which the first one is stored: most likely they are too.
func (r *rows) redelivered(links []*SpanRef) (keys []SpanKey) {
	trace, known := "", false
	for _, l := range links {
		if l.TraceID != trace {
			e := r.spanRefs.entries[keyOfSpan(l)]
			trace, known = l.TraceID, e != nil && e.row != nil
		} else if known {
			keys = append(keys, keyOfSpan(l))
		}
	}
	return keys
}

// prefetch reads the rows that the import names, and what is stored of the session.
func (i *importer) prefetch(in *Imported) {
	want := wanted{sessions: SessionsByID{IDs: in.family(), Forks: true}}
	for k := range in.Messages {
		want.messages.IDs = append(want.messages.IDs, in.Messages[k].Message.ID)
	}
	for k := range in.Decisions {
		want.decisions.IDs = append(want.decisions.IDs, in.Decisions[k].ID)
	}
	for k := range in.Annotations {
		want.annotated.Keys = append(want.annotated.Keys, keyOfAnnotation(&in.Annotations[k]))
	}
	want.blobs(in.Blobs)
	links := make([]*SpanRef, len(in.SpanRefs))
	for k := range in.SpanRefs {
		links[k] = &in.SpanRefs[k]
	}
	want.firstSpans(links)
	want.refused(i.rows)
	if i.rows.ask(want.queries()...); i.rows.sessions.isNew(i.work.id) {
		return
	}
	queries := []Query{&MessagesFrom{SessionID: i.work.id}}
	for k := range in.Messages {
		m := &in.Messages[k]
		if stored := i.rows.messages.entries[m.Message.ID].row; stored == nil || stored.SessionID != i.work.id {
			continue
		}
		parts := &PartsByKey{MessageID: m.Message.ID, Keys: make([]PartIndex, len(m.Parts))}
		for n := range m.Parts {
			parts.Keys[n] = PartIndex{m.Parts[n].ID, m.Parts[n].Index}
		}
		queries = append(queries, parts)
	}
	again := wanted{spans: SpanRefsByKey{Keys: i.rows.redelivered(links)}}
	i.rows.ask(again.queries(queries...)...)
}
