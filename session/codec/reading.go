package codec

import (
	"context"
	"io"
	"iter"
)

// FileDecoder reads the sessions of a file or a directory.
type FileDecoder = func(ctx context.Context, path string, wanted Wanted,
	report func(Problem)) iter.Seq2[*Session, error]

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
	Decode     func(r io.Reader, report func(Problem)) iter.Seq2[*Session, error]
	DecodeFile FileDecoder
	// Selects reports that DecodeFile reads only those sessions that are wanted. Otherwise it reads all.
	Selects bool
	// Beside lists what DecodeFile reads of an input besides the file at path, or in place of the
	// directory: files, and directories with all that is below. Where it is nil, nobody knows.
	Beside func(path string) []string
	// DecodeText reads a file at path to which the program appends, of which text is the content. It does not retain
	// text.
	DecodeText func(path string, text []byte, report func(Problem)) ([]*Session, error)
	// Transcript reports that the format is a program's own record of its sessions. The
	// program's telemetry reports the same sessions, with other message ids.
	Transcript bool
	// Telemetry reports that the files hold spans and log records, which package ingest makes
	// sessions of.
	Telemetry bool
}
