package store

import (
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// A session that was imported from a program's own transcript is rows, like any import. When telemetry of the same
// program names the session, the two report the same turns under other ids, so the rows are turned into observations
// before those of the batch are stored. From then on both are assembled together: it does not matter which came first.
// The other order needs nothing of this, because the transcript of a session that telemetry reports is stored as
// observations from the beginning.

// fromTranscript reports whether the row was imported from a transcript, and no telemetry was merged with it.
func fromTranscript(row *session.Session) bool {
	return strings.Contains(row.MetadataJSON, `"transcript"`) && session.TranscriptOf(row.MetadataJSON) != ""
}

// isFork reports whether the session is a fork of its parent, and not a sub-agent.
func isFork(row *SessionRow) bool {
	return row.State.Fork != nil || session.TranscriptTraceOf(row.MetadataJSON).Forked
}

// adoptTranscripts adds the observations of the transcripts that were imported of the
// sessions which the batch's observations name, and of their sub-agents. What is the
// store's own stays: when the session was archived, what was rewound, its annotations and its forks.
func (a *applier) adoptTranscripts(b *Batch) {
	if b.Adopt == nil {
		return
	}
	known := make(map[string]bool)
	level := namedBy(b.Observations, known)
	stored := len(b.Observations)
	for declared := true; len(level) > 0; declared = false { // then sub-agents
		a.rows.ask(a.transcriptQueries(level)...)
		var below []string
		for _, id := range level {
			for _, child := range a.rows.transcripts[id] {
				if !known[child] {
					known[child] = true
					below = append(below, child)
				}
			}
			row := a.rows.session(id)
			if row == nil || !declared && isFork(row) || !fromTranscript(&row.Session) {
				continue
			}
			a.rows.within("merge with its telemetry the transcript of session", id, func() { a.adoptTranscript(b, row) })
		}
		level = below
	}
	if len(b.Observations) > stored {
		a.rows.ask(a.observer.queries(b.Observations[stored:])...)
	}
}

// namedBy are the sessions that observations name, and their sub-agents, in order. They are noted in known.
func namedBy(observations []Observation, known map[string]bool) []string {
	for i := range observations {
		for _, id := range []string{observations[i].Session, observations[i].Subagent} {
			if id != "" {
				known[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// transcriptQueries read sessions and the transcripts below them, those that are not read yet.
func (a *applier) transcriptQueries(ids []string) []query {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, read := a.rows.transcripts[id]; return read })
	a.rows.sessions.want(ids...)
	return []query{a.rows.readTranscripts(ids...)}
}

func (a *applier) adoptTranscript(b *Batch, row *SessionRow) {
	t := session.Transcript{Session: row.Session}
	messages := a.rows.messagesFrom(row.ID, Position{})
	ids := make([]string, len(messages))
	for i := range messages {
		ids[i] = messages[i].ID
	}
	a.rows.loadWhole(ids...)
	annotations := selectRows(a.rows, AnnotationTable, annotationsQuery, NameSession, row.ID)
	for _, m := range messages {
		t.Messages = append(t.Messages, session.MessageAndParts{Message: m, Parts: a.rows.known(m.ID).parts})
	}
	b.Observations = append(b.Observations, b.Adopt(&Imported{Transcript: &t})...)
	a.rows.deleteSession(row.ID)
	w := a.session(row.ID)
	for i := range annotations {
		w.noted = append(w.noted, &annotations[i])
	}
	a.result.Rows++
	kept := SessionRow{Session: blankSession(row.ID),
		State: State{Rewinds: row.State.Rewinds, Fork: row.State.Fork}}
	if row.ArchivedAt == nil && len(kept.State.Rewinds) == 0 && kept.State.Fork == nil {
		return
	}
	kept.ArchivedAt = row.ArchivedAt
	if stamp, ok := row.State.Stamps["archived_at"]; ok {
		kept.State.Stamps = map[string]Stamp{"archived_at": stamp}
	}
	a.wrote(true, a.rows.putSession(&kept))
}
