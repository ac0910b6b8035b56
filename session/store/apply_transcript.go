package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// A session that was imported from a program's own transcript is rows, like any
// import. When telemetry of the same program names the session, the two report the
// same turns under other ids, so the rows are turned into observations before those of
// the batch are stored. From then on both are assembled together: it does not matter
// which came first. The other order needs nothing of this, because the transcript of
// a session that telemetry reports is stored as observations from the beginning.

// fromTranscript reports whether the row was imported from a transcript, and no telemetry
// was merged with it.
func fromTranscript(row *session.Session) bool {
	return strings.Contains(row.MetadataJSON, `"transcript"`) && session.TranscriptOf(row.MetadataJSON) != ""
}

// adoptTranscripts adds the observations of the transcripts that were imported of the
// sessions which the batch's observations name, and of their sub-agents. What is the
// store's own stays: when the session was archived, what was rewound, and its forks.
func (a *applier) adoptTranscripts(b *Batch) error {
	if b.Adopt == nil {
		return nil
	}
	var ids []string
	known := make(map[string]bool)
	name := func(id string) {
		if id != "" && !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	for i := range b.Observations {
		name(b.Observations[i].Session)
		name(b.Observations[i].Subagent)
	}
	slices.Sort(ids)
	declared := len(ids)
	for i := 0; i < len(ids); i++ { // sub-agents are appended
		children, err := a.tx.TranscriptChildren(ids[i])
		if err != nil {
			return err
		}
		for _, id := range children {
			name(id)
		}
		row, err := a.tx.Session(ids[i])
		if err != nil {
			return err
		}
		if row == nil || i >= declared && row.State.Fork != nil || !fromTranscript(&row.Session) {
			continue
		}
		if err := a.adoptTranscript(b, row); err != nil {
			return fmt.Errorf("merge the transcript of session %s with its telemetry: %w", ids[i], err)
		}
	}
	return nil
}

func (a *applier) adoptTranscript(b *Batch, row *SessionRow) error {
	t := session.Transcript{Session: row.Session}
	messages, err := a.tx.MessagesFrom(row.ID, Position{})
	if err != nil {
		return err
	}
	for i := range messages {
		parts, err := a.tx.Parts(messages[i].ID, 0)
		if err != nil {
			return err
		}
		t.Messages = append(t.Messages, session.MessageAndParts{Message: messages[i], Parts: parts})
	}
	b.Observations = append(b.Observations, b.Adopt(&Imported{Transcript: &t})...)
	if err := a.wrote(true, a.tx.Delete(TableSessions, row.ID)); err != nil {
		return err
	}
	kept := SessionRow{Session: blankSession(row.ID), State: State{Rewinds: row.State.Rewinds, Fork: row.State.Fork, Forks: row.State.Forks}}
	if row.ArchivedAt == nil && len(kept.State.Rewinds) == 0 && kept.State.Fork == nil && len(kept.State.Forks) == 0 {
		return nil
	}
	kept.ArchivedAt = row.ArchivedAt
	if stamp, ok := row.State.Stamps["archived_at"]; ok {
		kept.State.Stamps = map[string]Stamp{"archived_at": stamp}
	}
	return a.wrote(true, a.tx.PutSession(&kept, true))
}
