package formats

import (
	"context"
	"io"
	"iter"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/document"
)

// Format is a format of sessions: how its files are recognized, what reads and writes
// them, and what they do not hold.
type Format struct {
	Name string
	// Exported and Imported describe the format in a line of help. The one is empty for
	// a format that is not written, the other for one that is not read.
	Exported, Imported string

	Writing
	Reading
}

// Writing is how a format is written. Stream or File is set, or both, or Store.
type Writing struct {
	// Ext is the extension of a file that holds one session.
	Ext string
	// Many reports that several sessions may follow one another in one file.
	Many bool
	// Complete reports that the format holds all that a store has of a session, which is
	// more than what is shown of it.
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
	// Store writes sessions, the oldest first, to a path that does not exist.
	// It calls left for each session that it leaves out, or where left is nil ends with the
	// first: see [sqlitefile.EncodeFile].
	Store func(
		ctx context.Context, path string, sessions iter.Seq2[*codec.Session, error],
		left func(sessionID string, err error),
	) error
	// Dir writes a session into a directory in the layout of the format's program. Without
	// replace, a session that is there already gives an error that is [os.ErrExist]. Where
	// it is nil each session is a file in the directory.
	Dir func(path string, s *Source, replace bool) error
	// SubAgents reports that the sessions of sub-agents are in the file of the one that started them.
	SubAgents bool
	// Explain lists what the format does not hold of a session.
	Explain func(s *Source) []codec.Loss
}

// Reading is how the files of a format are recognized and read. Decode or DecodeFile is
// set, or both, or Telemetry.
type Reading struct {
	// Extensions are those of the files that are read when a directory is imported.
	Extensions []string
	// SniffText reports whether a file that begins with text is of the format; SniffKeys
	// whether a file with a JSON object of these keys is. Their values are those of strings,
	// and otherwise "{" or "[", or nothing.
	SniffText func(text []byte) bool
	SniffKeys func(keys map[string]string) bool
	// Tables are those that a database of the format has.
	Tables []string
	// Layout has patterns of files by which a directory of the format is known.
	Layout []string

	// Decode reads sessions from a stream, DecodeFile from a file or a directory.
	Decode     func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error]
	DecodeFile func(ctx context.Context, path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error]
	// DecodeWanted is DecodeFile of a file with many sessions, of which it reads those that are wanted.
	DecodeWanted func(ctx context.Context, path string, wanted codec.Wanted, report func(codec.Problem)) iter.Seq2[
		*codec.Session, error]
	// Beside lists what DecodeFile reads of an input besides the file at path, or in place of the
	// directory: files, and directories with all that is below. Where it is nil, nobody knows.
	Beside func(path string) []string
	// Grow reads a file at path to which the program appends, from a checkpoint on, of which text
	// is the content. known is how much of the text was read before; see [codec.Growth]. It does not retain text.
	Grow func(path string, text []byte, from codec.Checkpoint, known int,
		report func(codec.Problem)) (*codec.Growth, error)
	// GrowBeside reports that Grow notices what changed beside the file. Otherwise a change has the whole be read.
	GrowBeside bool
	// Transcript reports that the format is a program's own record of its sessions. The
	// program's telemetry reports the same sessions, with other message ids.
	Transcript bool
	// Telemetry reports that the files hold spans and log records, which package ingest makes
	// sessions of.
	Telemetry bool
}

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
	// Observed counts the spans and log records that the session was built from and that
	// no rows hold.
	Observed int
}
