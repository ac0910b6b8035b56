package ingest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// RedactBatch takes secrets out of everything that a batch stores, in place. A nil r changes nothing.
func RedactBatch(r *redact.Redactor, b *store.Batch) {
	if r != nil {
		x := redaction{Redactor: r, rows: true}
		x.batch(b)
	}
}

// RedactRows takes secrets out of everything that the store would keep of a session which was read from a file, in
// place, and reports how many values had one. It treats rows as ingestion does those that it makes of telemetry: names
// and ids stay distinct; see [redact.Redactor.Identifier]. A prompt or a catalog that changes is stored under its new
// digest, which the messages then name. Rows of another store that were redacted there do not change. A nil r changes
// nothing.
func RedactRows(r *redact.Redactor, in *store.Imported) (redacted int) {
	if r == nil {
		return 0
	}
	x := redaction{Redactor: r, rows: true, renamed: make(map[string]string)}
	in.State = in.State.Portable()
	x.sessionRow(&in.Session)
	if x.Omits(redact.Prompt) {
		x.roles = make(map[string]string, len(in.Messages))
		for i := range in.Messages {
			x.roles[in.Messages[i].Message.ID] = in.Messages[i].Message.Role
		}
		if x.titled(in) {
			in.Session.Title = session.Untitled
			x.omitted++
		}
	}
	x.state(in.State)
	each(in.Blobs, x.blobRow)
	each(in.Messages, func(m *session.MessageAndParts) {
		x.fields(&m.Message)
		m.Message.MetadataJSON = string(x.messageMetadata(json.RawMessage(m.Message.MetadataJSON)))
		each(m.Parts, x.partRow)
	})
	x.fields(&in.Decisions)
	each(in.Annotations, x.annotation)
	each(in.SpanRefs, x.link)
	x.fields(&in.Traces)
	x.fields(&in.RequestedIndexes)
	if in.Grown != nil {
		RedactRows(r, &store.Imported{Transcript: in.Grown.Before})
	}
	return x.redacted
}

// titled reports whether the title of a session is the user's text: one that is the first message until there is
// another, as in ingestion, or the beginning of a message of the user, or a part of one.
func (x *redaction) titled(in *store.Imported) bool {
	title := strings.TrimSuffix(in.Session.Title, "…")
	if in.State != nil {
		if stamp, ok := in.State.Stamps["title"]; ok && stamp.Rank == store.RankStub {
			return true
		}
	}
	return slices.ContainsFunc(in.Messages, func(m session.MessageAndParts) bool {
		return title != "" && title != session.Untitled && m.Message.Role == session.RoleUser &&
			slices.ContainsFunc(m.Parts, func(p session.Part) bool {
				data, err := session.ParseUIPart(p.DataJSON)
				return err == nil && data.Text != nil && strings.Contains(*data.Text, title)
			})
	})
}

// RedactSource takes secrets out of what the store would keep of a file. A state with one is not kept: all of the file
// is read next time. A nil r changes nothing.
func RedactSource(r *redact.Redactor, s *store.ImportSource) {
	if r == nil {
		return
	}
	x := redaction{Redactor: r, rows: true}
	x.fields(s)
	if len(s.State) > 0 && !x.clean(s.State) {
		s.State = nil
	}
}

// sessionRow redacts the row of a session.
func (x *redaction) sessionRow(s *session.Session) {
	x.fields(s)
	if s.ModelJSON != nil {
		*s.ModelJSON = string(x.ids(json.RawMessage(*s.ModelJSON)))
	}
	if s.PermissionsJSON != "" && s.PermissionsJSON != "[]" {
		s.PermissionsJSON = string(x.rules(json.RawMessage(s.PermissionsJSON)))
	}
	if s.MetadataJSON != "" && s.MetadataJSON != "{}" {
		s.MetadataJSON = string(x.members(json.RawMessage(s.MetadataJSON), x.sessionMember))
	}
}

// state redacts what another store remembers of a session, after its row. The name of a stamp has a key of the
// session's metadata, and a stamp holds a checksum of its value, which would confirm a guess of what was taken out: with
// a secret in any of that no stamp is kept, as if the session had none.
func (x *redaction) state(s *store.State) {
	if s == nil {
		return
	}
	x.fields(&s.Rewinds)
	x.fields(&s.Fork)
	for name := range s.Stamps {
		x.identifier(strings.TrimPrefix(name, "metadata."))
	}
	if x.redacted+x.omitted+x.truncated > 0 {
		s.Stamps = nil
	}
}

// partRow redacts the row of a part. Its type, the id of its call and its state repeat what its data holds.
func (x *redaction) partRow(p *session.Part) {
	c := store.PartChange{ID: p.ID, MessageID: p.MessageID, SessionID: p.SessionID, Type: p.Type,
		Data: json.RawMessage(p.DataJSON)}
	x.id(p.ToolCallID, p.ToolState, p.ContinuationRunID)
	x.part(&c)
	p.ID, p.MessageID, p.SessionID, p.Type, p.DataJSON = c.ID, c.MessageID, c.SessionID, c.Type, string(c.Data)
}

// blobRow redacts a prompt or a catalog. The digest of what one was before would confirm a
// guess of its secret, so a changed one is stored under that of what is left. A text that
// its source cut or redacted before keeps the digest that its source has for it.
func (x *redaction) blobRow(b *store.Blob) {
	before, digest, exact := b.Body, b.Digest, b.Exact
	if x.blob(b); b.Body != before && exact {
		b.Digest, b.Exact = sha256Hex(b.Body), true
		x.renamed[digest] = b.Digest
	}
}
