package formats

import (
	"context"
	_ "embed" // the losses
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// Format is a format of sessions: how its files are recognized, what reads and writes them, and what they do not hold.
type Format struct {
	Name string
	// Exported and Imported describe the format in a line of help. The one is empty for
	// a format that is not written, the other for one that is not read.
	Exported, Imported string

	Writing
	codec.Reading
}

// Writing is how a format is written. Stream or File is set, or both, or Store, or Dir alone.
type Writing struct {
	// Ext is the extension of a file that holds one session.
	Ext string
	// Many reports that several sessions may follow one another in one file.
	Many bool
	// Complete reports that the format holds all that a store has of a session, which is more than what is shown of it.
	Complete bool
	// Rows reports that the format has only what the rows of messages and parts say.
	Rows bool
	// Text reports that the format is for people: it can be cut, and bundled with files.
	Text bool
	// JSON reports that the format is JSON, Binary that a terminal cannot show it.
	JSON, Binary bool

	// Stream returns the function that writes sessions to w, one after the other.
	Stream func(w io.Writer) func(*Source) error
	// File writes a session to a path that does not exist. It is used instead of Stream
	// for the paths that WritesFile accepts.
	File       func(path string, s *Source) error
	WritesFile func(path string) bool
	// Store writes sessions, the oldest first, to a path that does not exist. It calls left for each session that it
	// leaves out, or where left is nil ends with the first: see [sqliteEncodeFile].
	Store func(
		ctx context.Context, path string, sessions iter.Seq2[*codec.Session, error],
		left func(sessionID string, err error),
	) error
	// Dir writes a session into a directory in the layout of the format's program. Without replace, a session that is
	// there already gives an error that is [os.ErrExist]. Where it is nil each session is a file in the directory.
	Dir func(path string, s *Source, replace bool) error
	// SubAgents reports that the sessions of sub-agents are in the file of the one that started them.
	SubAgents bool
	// Explain lists what the format does not hold of a session.
	Explain func(s *Source) []codec.Loss
}

// InFile reports whether the format is written into a file. One that is not is a directory.
func (f *Format) InFile() bool { return f.Stream != nil || f.File != nil || f.Store != nil }

// Reads reports whether the format is an import format.
func (f *Format) Reads() bool { return f.Imported != "" }

// Written reports whether the format is an export format.
func (f *Format) Written() bool { return f.Exported != "" }

// Source is a session to be written, and what a store knows beside its rows.
type Source struct {
	*codec.Session
	// Input is what a transcript for people is built from.
	Input document.Input
	// Full cuts nothing of a transcript. Files are the paths of the files that come with
	// it, by the paths that the session has for them.
	Full  bool
	Files map[string]string
	// SubAgents are the sessions below this one, for formats that have them in its file.
	SubAgents []*codec.Session
	// Observed counts the spans and log records that the session was built from and that no rows hold.
	Observed int
}

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

// written makes a stream of what a format makes of the rows of a session.
func written(text func(*codec.Session) []byte) func(io.Writer) func(*Source) error {
	return writtenSource(func(s *Source) []byte { return text(s.Session) })
}

// writtenSource makes a stream of what a format makes of a session, whose rows must be a tree.
func writtenSource(text func(*Source) []byte) func(io.Writer) func(*Source) error {
	return each(func(w io.Writer, s *Source) (err error) {
		defer wrapWriting(s.Session, &err)
		if err = s.CheckTree(); err == nil {
			_, err = w.Write(text(s))
		}
		return err
	})
}

// wrapWriting has an error name the session that could not be written.
func wrapWriting(s *codec.Session, err *error) {
	if *err != nil {
		*err = fmt.Errorf("write session %s: %w", s.Session.ID, *err)
	}
}

//go:embed losses.txt
var allLosses string

// lossesOf lists what a format of another program does not hold of a session. The conformance suite checks the list.
func lossesOf(name string) (noted codec.Losses) {
	_, section, _ := strings.Cut(allLosses, "\n["+name+"]\n")
	section, _, _ = strings.Cut(section, "\n\n")
	for line := range strings.SplitSeq(strings.TrimSuffix(section, "\n"), "\n") {
		aspect, note, _ := strings.Cut(line, ": ")
		what, kept, _ := strings.Cut(aspect, " kept ")
		noted = append(noted, codec.Loss{What: what, Note: note, Kept: kept})
	}
	return codec.ForeignLosses(noted)
}

// explainLosses counts the losses of a format in a session.
func explainLosses(name string) func(*Source) []codec.Loss { return explained(lossesOf(name).Of) }

// isoTime reads a time in ISO 8601, in Unix milliseconds. One without a zone is in UTC, as Python writes it.
func isoTime(text string) (milli int64, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04:05.999999999", strings.Replace(text, " ", "T", 1))
	}
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return 0, false
	}
	return t.UnixMilli(), true
}

// joinedTexts is the content of a result as one text, where it consists of texts. One alone keeps its spelling:
// JavaScript writes halves of characters.
func joinedTexts(content json.RawMessage) json.RawMessage {
	list := rows.Elements(content)
	var all strings.Builder
	for _, raw := range list {
		text, ok := rows.Text(rows.Read(string(raw)).Get("text"))
		if !ok {
			return content // such as an image
		}
		all.WriteString(text)
	}
	switch {
	case list == nil:
		return content
	case len(list) == 1:
		return rows.Read(string(list[0])).Get("text")
	}
	return rows.Raw(all.String())
}

// dataOf are the data of the parts of a message.
func dataOf(m *session.MessageAndParts) []rows.Object {
	all := make([]rows.Object, len(m.Parts))
	for i := range m.Parts {
		all[i] = rows.Data(&m.Parts[i])
	}
	return all
}
