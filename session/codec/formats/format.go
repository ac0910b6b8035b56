package formats

import (
	"context"
	"io"
	"iter"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/document"
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

// Writing is how a format is written. Stream or File is set, or both, or Store.
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
