package formats

import (
	"context"
	"errors"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// LoadOptions configure [Format.Load].
type LoadOptions struct {
	// Full cuts nothing of a transcript for people.
	Full bool
	// Explain reads what [Writing.Explain] needs instead of what is written.
	Explain bool
}

// Load reads from a store what the format holds of a session. The error for a session that is not there wraps
// [store.ErrNotFound].
func (f *Format) Load(ctx context.Context, r store.Reader, id string, o LoadOptions) (s *Source, err error) {
	s = &Source{Full: o.Full}
	if o.Explain {
		if s.Observed, err = r.Observed(ctx, id); err != nil {
			return nil, err
		}
	}
	switch {
	case f.Complete:
		s.Session, err = Read(ctx, r, id)
		return s, err
	case f.Rows && !o.Explain:
		s.Session = new(codec.Session)
		if s.Transcript, err = r.Transcript(ctx, id); err == nil {
			s.Annotations, err = r.Annotations(ctx, id)
		}
		return s, err
	}
	if s.Input, s.Session, err = collect(ctx, r, id); err != nil || !f.SubAgents || o.Explain {
		return s, err
	}
	ids, err := document.Descendants(ctx, r, []string{id})
	if err != nil {
		return nil, err
	}
	for _, below := range ids[1:] {
		_, child, err := collect(ctx, r, below)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted meanwhile
		} else if err != nil {
			return nil, err
		}
		s.SubAgents = append(s.SubAgents, child)
	}
	return s, nil
}

// collect reads what is shown of a session.
func collect(ctx context.Context, r store.Reader, id string) (document.Input, *codec.Session, error) {
	in, err := document.Collect(ctx, r, id)
	return in, &codec.Session{Transcript: in.Transcript, Decisions: in.Decisions, Annotations: in.Annotations,
		Blobs: in.Blobs, SpanRefs: in.SpanRefs}, err
}

// Redact takes secrets out of all that is written of the session. A nil r changes nothing.
func (s *Source) Redact(r *redact.Redactor) {
	if r == nil {
		return
	}
	ingest.RedactRows(r, s.Session) // the rows of Input are the same
	s.Input.Transcript, s.Input.Decisions, s.Input.Annotations = s.Transcript, s.Decisions, s.Annotations
	s.Input.SpanRefs, s.Input.Blobs = s.SpanRefs, s.Blobs
	beside := func(row *session.Session) {
		in := &store.Imported{Transcript: &session.Transcript{Session: *row}}
		ingest.RedactRows(r, in)
		*row = in.Session
	}
	if s.Input.Parent != nil {
		beside(s.Input.Parent)
	}
	for i := range s.Input.Children {
		beside(&s.Input.Children[i])
	}
	inherited := &store.Imported{Transcript: new(session.Transcript), Decisions: s.Input.Inherited}
	ingest.RedactRows(r, inherited)
	for _, child := range s.SubAgents {
		ingest.RedactRows(r, child)
	}
}

// WritesTo reports whether the format writes a file at the path itself: see [Format.WriteFile].
func (f *Format) WritesTo(path string) bool {
	return f.Store != nil || f.File != nil && (f.WritesFile == nil || f.WritesFile(path))
}

// WriteFile writes a session to a path that does not exist, for a format that [Format.WritesTo] it.
func (f *Format) WriteFile(ctx context.Context, path string, s *Source) error {
	if f.Store != nil {
		return f.Store(ctx, path, func(yield func(*codec.Session, error) bool) { yield(s.Session, nil) }, nil)
	}
	return f.File(path, s)
}
