package codec

import (
	"context"
	"io"
	"iter"
	"slices"
	"strings"
)

// FileDecoder reads the sessions of a file or a directory.
type FileDecoder = func(ctx context.Context, path string, wanted Wanted,
	report func(Problem)) iter.Seq2[*Session, error]

// Reading is how the files of a format are recognized and read. Decode or DecodeFile is set, or both, or Telemetry.
type Reading struct {
	// Extensions are those of the files that are read when a directory is imported: how their names end.
	Extensions []string
	// SniffText reports whether a file that begins with text is of the format. Keys are conditions on a JSON object in
	// it, of which one suffices; see [HasKeys].
	SniffText func(text []byte) bool
	Keys      []string
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
	// Telemetry reports that the files hold spans and log records, which package ingest makes sessions of.
	Telemetry bool
}

// HasExtension reports whether the name of a file ends as those of the format do.
func (f *Reading) HasExtension(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(f.Extensions, func(ext string) bool { return strings.HasSuffix(name, ext) })
}

// HasKeys reports whether a JSON object fulfils one of the conditions. Its keys have the values of strings, and
// otherwise "{" or "[", or nothing. Each word of a condition is a key that the object has, one that it does not have
// after "!", or a key with its value: "type=user|assistant" is either, and a "*" in a value is any text, but not none.
func HasKeys(keys map[string]string, conditions ...string) bool {
	fulfils := func(word string) bool {
		key, values, valued := strings.Cut(strings.TrimPrefix(word, "!"), "=")
		value, ok := keys[key]
		if !valued {
			return ok != strings.HasPrefix(word, "!")
		}
		return slices.ContainsFunc(strings.Split(values, "|"), func(want string) bool {
			begin, end, open := strings.Cut(want, "*")
			return value == want || open && len(value) > len(begin)+len(end) &&
				strings.HasPrefix(value, begin) && strings.HasSuffix(value, end)
		})
	}
	return slices.ContainsFunc(conditions, func(condition string) bool {
		return !slices.ContainsFunc(strings.Fields(condition), func(word string) bool { return !fulfils(word) })
	})
}
