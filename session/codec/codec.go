// Package codec holds what the formats of sessions share. A [Reading] is all that is known of reading a
// format; package formats has them, with what writes them and what they lose.
//
// A decoder reads damaged input as far as it is good and reports the rest. It returns an error only where there is
// nothing to read or reading itself fails. The same input gives the same rows, ids included, always.
package codec

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Session is a session as a format reads and writes it. Only a format that is
// complete has SpanRefs, Traces, State and RequestedIndexes.
type Session = store.Imported

// Wanted reports whether a session is to be read of which a file has a version: two versions differ where the session
// does. A nil Wanted wants all. It is called for the sessions of a database, in their order.
type Wanted func(id, version string) bool

// Problem is a piece of the input that could not be read, or only in part. The rest of the input was.
type Problem struct {
	// File is the path within the input, empty when the input is one file. Line counts from 1; 0 is unknown. Record
	// names a record that has no line, such as a row.
	File   string
	Line   int
	Record string
	// Reason states what is wrong and what was done about it.
	Reason string
}

func (p Problem) String() string {
	place := p.File
	if p.Line > 0 && place != "" {
		place += ":" + strconv.Itoa(p.Line)
	} else if p.Line > 0 {
		place = "line " + strconv.Itoa(p.Line)
	}
	all := []string{place, p.Record, p.Reason}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), ": ")
}

// AtLine adds to the error of a text that is not JSON the line that it is in.
func AtLine(text []byte, err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:min(e.Offset, int64(len(text)))], []byte("\n")), e)
	}
	return err
}

// Loss is something of sessions that a format does not hold, or not in every case.
type Loss struct {
	// What names it: an aspect of a session, or what only this format loses.
	What string
	// Note describes which part of it is lost, or what is written instead. It is empty if all of it is lost.
	Note string
	// Kept is where in the format it is kept anyway, empty if it is lost.
	Kept string
	// Count is the number of its entries in a session. In a list of losses it is 0.
	Count int
}

// Losses is the list of all aspects that a format does not hold. Each format of another program has one, which the
// conformance suite checks: what is not listed survives a round trip, and what is listed is lost in some session.
type Losses []Loss

// foreign are the aspects for which hardly any format of another program has a field.
var foreign = []string{"columns of the session", "tags, notes and scores", "other metadata"}

// ForeignLosses returns the list of a format of another program: the losses with a note,
// the aspects that it does not hold at all, and those that hardly any such format holds.
func ForeignLosses(noted Losses, whole ...string) Losses {
	for _, name := range slices.Concat(whole, foreign) {
		if !slices.ContainsFunc(noted, func(l Loss) bool { return l.What == name }) {
			noted = append(noted, Loss{What: name})
		}
	}
	return noted
}

// AddLoss counts n of what to the losses, beside those of the same name that are there. Zero adds nothing.
func AddLoss(losses []Loss, what, kept string, n int) []Loss {
	if n == 0 {
		return losses
	}
	for i := range losses {
		if losses[i].What == what {
			losses[i].Count += n
			return losses
		}
	}
	return append(losses, Loss{What: what, Count: n, Kept: kept})
}

// WithheldText is where a format of another program has a value that took place and
// that no source reports: an empty value would report something else.
const WithheldText = "[withheld: the source does not report it]"

// Withheld reports whether the input and the output of a tool call that has ended are
// unknown. A part that is no such call has nothing withheld.
func Withheld(p *session.Part) (input, output bool) {
	if p.ToolCallID == nil || p.ToolState == nil ||
		*p.ToolState != session.StateOutputAvailable && *p.ToolState != session.StateOutputError &&
			*p.ToolState != session.StateOutputDenied {
		return false, false
	}
	data, err := session.ParseUIPart(p.DataJSON)
	if err != nil {
		return false, false
	}
	trace := data.Trace()
	input = len(data.Input) == 0 || trace.InputWithheld
	return input, trace.Withheld && *p.ToolState == session.StateOutputAvailable
}

// FileDecoder reads the sessions of a file or a directory.
type FileDecoder = func(ctx context.Context, path string, wanted Wanted,
	report func(Problem)) iter.Seq2[*Session, error]

// Reading is how the files of a format are recognized and read. ReadText or ReadStream is set, or ReadPath, or
// Telemetry. A format may have ReadPath besides, for what one text does not hold.
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

	// ReadText reads the sessions of a text, which it does not retain. path is that of its file, empty for a stream.
	ReadText func(path string, text []byte, report func(Problem)) ([]*Session, error)
	// Noun is what an error calls such a text.
	Noun string
	// Appends reports that the program appends to its files.
	Appends bool
	// ReadStream reads sessions from a stream of any length.
	ReadStream func(r io.Reader, report func(Problem)) iter.Seq2[*Session, error]
	// ReadPath reads sessions from a file or a directory.
	ReadPath FileDecoder
	// Selects reports that ReadPath reads only those sessions that are wanted. Otherwise it reads all.
	Selects bool
	// Beside lists what is read of an input besides the file at path, or in place of the directory: files, and
	// directories with all that is below. Where it is nil, nobody knows what ReadPath reads.
	Beside func(path string) []string
	// Transcript reports that the format is a program's own record of its sessions. The
	// program's telemetry reports the same sessions, with other message ids.
	Transcript bool
	// Telemetry reports that the files hold spans and log records, which package ingest makes sessions of.
	Telemetry bool
}

// Streams reports whether a session of the format can be read from a stream.
func (f *Reading) Streams() bool { return f.ReadText != nil || f.ReadStream != nil }

// Decode yields the sessions in r of a format that [Reading.Streams]. report may be nil.
func (f *Reading) Decode(r io.Reader, report func(Problem)) iter.Seq2[*Session, error] {
	return f.DecodeAt("", r, report)
}

// DecodeAt is [Reading.Decode] of the file at path, of which r is the content.
func (f *Reading) DecodeAt(path string, r io.Reader, report func(Problem)) iter.Seq2[*Session, error] {
	if f.ReadStream != nil {
		return f.ReadStream(r, report)
	}
	return Decoded(report, func(report func(Problem), yield func(*Session) bool) error {
		text, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("read %s: %w", f.Noun, err)
		}
		all, err := f.DecodeText(path, text, report)
		for len(all) > 0 && yield(all[0]) {
			all = all[1:]
		}
		return err
	})
}

// DecodeText reads the sessions of a format that has ReadText.
func (f *Reading) DecodeText(path string, text []byte, report func(Problem)) ([]*Session, error) {
	all, err := f.ReadText(path, text, report)
	if err != nil {
		err = fmt.Errorf("read %s: %w", f.Noun, err)
	}
	return all, err
}

// DecodeFile yields the sessions of the file or the directory at path.
func (f *Reading) DecodeFile(ctx context.Context, path string, wanted Wanted,
	report func(Problem)) iter.Seq2[*Session, error] {
	if f.ReadPath != nil {
		return f.ReadPath(ctx, path, wanted, report)
	}
	return func(yield func(*Session, error) bool) {
		file, err := OpenFile(path)
		if err != nil {
			yield(nil, fmt.Errorf("read %s: %w", f.Noun, err))
			return
		}
		defer file.Close()
		f.DecodeAt(path, file, report)(yield)
	}
}

// Decoded is the sequence of the sessions that decode yields, and of the error that it returns unless nobody wants
// more. report may be nil.
func Decoded(report func(Problem),
	decode func(report func(Problem), yield func(*Session) bool) error) iter.Seq2[*Session, error] {
	if report == nil {
		report = func(Problem) {}
	}
	return func(yield func(*Session, error) bool) {
		wanted := true
		err := decode(report, func(s *Session) bool {
			wanted = wanted && yield(s, nil)
			return wanted
		})
		if err != nil && wanted {
			yield(nil, err)
		}
	}
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

// CheckFile returns an error for what is not a regular file, such as a named pipe: it may have no
// end, or have its reader wait for good.
func CheckFile(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	kinds := map[fs.FileMode]string{fs.ModeDir: "directory", fs.ModeNamedPipe: "named pipe", fs.ModeSocket: "socket"}
	return fmt.Errorf("it is a %s, not a file", cmp.Or(kinds[info.Mode().Type()], "device"))
}

// OpenFile opens a regular file for reading, and nothing else.
func OpenFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := CheckFile(info); err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.Open(path)
}

// ReadFile reads a regular file, and nothing else.
func ReadFile(path string) ([]byte, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// plainID matches the ids that are names of files as they are, and notPlain what no name has.
var plainID, notPlain = lazy.Regexp("^[a-z0-9_-]{1,160}$"), lazy.Regexp("[^A-Za-z0-9_-]")

// devices match the names that Windows keeps for devices.
var devices = lazy.Regexp("^(con|prn|aux|nul|com[0-9]|lpt[0-9])$")

// FileName makes of an id, which anyone may have sent, the name of a file without its extension: one name, not a path,
// that every file system takes, of at most 200 bytes. No two ids have one name, also where upper and lower case are the
// same: of an id that is not lower-case letters, digits, "-" and "_", it has what a name can have, "~" and a hash.
func FileName(id string) string {
	if plainID().MatchString(id) && !devices().MatchString(id) {
		return id
	}
	const maximum = 160 // file systems take 255 bytes, with an extension and the suffixes of temporary files
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s~%x", notPlain().ReplaceAllString(id[:min(len(id), maximum)], "_"), sum[:8])
}
