package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// Recover yields the session in r, or what is good of it, and reports the rest by its
// lines; report may be nil. A session without damage is the same as Decode gives. A row
// that cannot be read, or that does not belong where it stands, is left out as
// [jsonl.Recover] does it.
//
// In a file as [Encode] lays it out, a line that is not JSON ends nothing but itself. In
// any other layout nothing shows where the next row begins: what follows is left out.
//
// An error is yielded once, with a nil session: when reading r fails, and when there is
// no row of a session.
func Recover(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("read session: %w", err)
		}
		whole, others, err := decode(data)
		if err == nil && rowsOf(whole.Transcript)+others >= rowsIn(data) {
			yield(whole)
			return nil
		}
		s, problems := recoverSession(bytes.TrimPrefix(data, []byte("\uFEFF")), err == nil)
		switch {
		case err == nil && (s == nil || allRows(s) <= allRows(whole)):
			yield(whole) // lines like rows, and they are none
			return nil
		case s == nil:
			return err
		}
		if len(problems) == 0 { // all rows are there, and what is between them is damaged
			reason := "a key between the rows is damaged"
			if err != nil {
				reason = err.Error()
			}
			problems = []codec.Problem{{Reason: reason + "; every row was read all the same"}}
		}
		for _, p := range problems {
			report(p)
		}
		yield(s)
		return nil
	})
}

// rowsIn is how many lines begin as rows do where Encode lays them out. A key that is
// damaged may make all below it unknown, and so ignored.
func rowsIn(data []byte) int {
	n := 0
	for _, begins := range []string{
		"{\"message\":{", "{\"id\":", "{\"trace_id\":", "{\"digest\":", "{\"message_id\":", "{\"session_id\":",
		"\"session_state\":{",
	} {
		n += bytes.Count(data, []byte("\n"+begins))
	}
	return n
}

func rowsOf(t *session.Transcript) int {
	n := len(t.Messages)
	for i := range t.Messages {
		n += len(t.Messages[i].Parts)
	}
	return n
}

// allRows counts the rows of the transcript and those beside it.
func allRows(s *codec.Session) int {
	n := rowsOf(s.Transcript) + len(s.Traces) + len(s.Blobs) + len(s.RequestedIndexes) +
		len(s.Decisions) + len(s.SpanRefs) + len(s.Annotations)
	if s.State != nil {
		n++
	}
	return n
}

// recoverSession reads a file that is damaged; nil when nothing of a session is in it. byLine
// reports that it is laid out as Encode does it, which for a file that is not JSON shows.
func recoverSession(data []byte, byLine bool) (s *codec.Session, problems []codec.Problem) {
	var l lines
	if byLine || !json.Valid(data) && (bytes.Contains(data, []byte("\n\"session\":{")) || rowsIn(data) > 0) {
		l.laidOut(data)
	} else {
		problems = l.nested(data)
	}
	note := func(p codec.Problem) {
		if p.Line > 0 && p.Line <= len(l.origin) {
			p.Line = l.origin[p.Line-1]
		}
		problems = append(problems, p)
	}
	for got, err := range jsonl.Recover(&l.text, note) {
		if err != nil {
			break // of what came before it there is all that can be had
		}
		s = got
	}
	return s, problems
}

// lenient takes all that encoding/json takes.
var lenient = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// lines are the rows of a file as JSON lines. origin is where each is in the file.
type lines struct {
	text   bytes.Buffer
	origin []int
	// session reports that its row is there.
	session bool
}

func (l *lines) add(line int, before string, row []byte, after string) {
	l.text.WriteString(before)
	l.text.Write(row)
	l.text.WriteString(after)
	l.text.WriteByte('\n')
	l.origin = append(l.origin, line)
}

// row adds a row that is JSON of one line or more.
func (l *lines) row(line int, kind string, row jsontext.Value) {
	if bytes.IndexByte(row, '\n') >= 0 {
		row = bytes.Clone(row)
		_ = row.Compact(lenient) // it was read as JSON
	}
	l.add(line, `{"type":"`+kind+`","data":`, row, "}")
}

// kindOf is the type of line for a row that begins so. below is the one by the key that
// was read last: a row of another shape is below a key that is damaged.
func kindOf(row []byte, below string) string {
	begins := func(column string) bool { return bytes.HasPrefix(row, []byte(`{"`+column+`":`)) }
	switch {
	case begins("trace_id"):
		return "session_trace"
	case begins("digest") && below != "tool_catalog":
		return "system_prompt"
	case begins("message_id"):
		return "requested_index"
	case begins("session_id"):
		return "session_span"
	case begins("id") && below != "permission_decision" && below != "annotation":
		return "part"
	}
	return below
}

// laidOut takes a file by its lines, each of which is a row or is between rows.
// Those that are neither are lines that jsonl reports as such.
func (l *lines) laidOut(data []byte) {
	below := "part"
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		line = bytes.TrimSuffix(bytes.Trim(line, " \t\r"), []byte(","))
		switch string(line) {
		case "", "{", "}", "]", "]}", `"messages":[`, `"messages":[]`:
			continue
		}
		if row, ok := bytes.CutPrefix(line, []byte(`"session":`)); ok && !l.session {
			l.session = true
			l.row(n, "session", row)
			continue
		}
		if row, ok := bytes.CutPrefix(line, []byte(`"session_state":`)); ok {
			l.row(n, "session_state", row)
			continue
		}
		if key, ok := bytes.CutSuffix(line, []byte(`":[`)); ok && len(key) > 1 && lineTypes[string(key[1:])] != "" {
			below = lineTypes[string(key[1:])]
			continue
		}
		if row, ok := bytes.CutPrefix(line, []byte(`{"message":`)); ok {
			below = "part"
			if v, err := jsontext.NewDecoder(bytes.NewBuffer(row), lenient).ReadValue(); err == nil {
				l.row(n, "message", v)
				if rest := string(row[len(v):]); rest != `,"parts":[` && rest != `,"parts":[]}` {
					l.add(n, "", []byte(rest), "") // so that it is reported
				}
				continue
			}
		}
		if bytes.HasPrefix(line, []byte("{")) {
			l.row(n, kindOf(line, below), line)
		} else {
			l.add(n, "", line, "")
		}
	}
}

// nested takes the rows of a file by their place in it, as far as it is JSON.
func (l *lines) nested(data []byte) []codec.Problem {
	all, problems, err := nestedRows(data)
	for _, row := range all {
		if row.value != nil {
			l.row(row.line, row.kind, row.value)
		}
	}
	if err != nil {
		problems = append(problems, codec.Problem{Line: err.Line, Reason: err.Reason + "; what follows is left out"})
	}
	return problems
}

// nestedRows returns the rows of a file, each below what it belongs to, and reports what is in their places and is no
// row. What cannot be read ends it, with an error.
func nestedRows(data []byte) (all []nestedRow, problems []codec.Problem, failed *codec.Problem) {
	w := walker{Decoder: jsontext.NewDecoder(bytes.NewBuffer(data), lenient), data: data}
	take := func(row nestedRow) error {
		err := w.row(&row)
		if err == nil && (row.kind != "session_state" || row.value.Kind() != 'n') {
			all = append(all, row)
		}
		return err
	}
	message := func(i int) error {
		place := fmt.Sprintf("messages[%d]", i)
		known := false
		err := w.object("a message", func(key string) error {
			switch key {
			case "message":
				known = true
				return take(nestedRow{kind: key, place: place})
			case "parts":
				return w.members('[', `"parts"`, func(k int) error {
					return take(nestedRow{kind: "part", place: fmt.Sprintf("%s.parts[%d]", place, k), message: i})
				})
			}
			return w.SkipValue()
		})
		if !known {
			all = append(all, nestedRow{kind: "message", place: place})
		}
		return err
	}
	err := w.object("the file", func(key string) error {
		switch kind := lineTypes[key]; {
		case key == "session" || key == "session_state":
			return take(nestedRow{kind: key, place: key})
		case key == "messages":
			return w.members('[', `"messages"`, message)
		case kind != "":
			return w.members('[', `"`+key+`"`, func(i int) error {
				return take(nestedRow{kind: kind, place: fmt.Sprintf("%s[%d]", key, i)})
			})
		}
		return w.SkipValue()
	})
	// Whatever the order of the keys was, a row is below what it belongs to.
	order := func(row nestedRow) int {
		return slices.IndexFunc(nestedOrder, func(kinds string) bool { return strings.Contains(kinds, row.kind) })
	}
	slices.SortStableFunc(all, func(a, b nestedRow) int { return order(a) - order(b) })
	if err == nil {
		if _, more := w.ReadToken(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the session")
		}
	}
	if err != nil {
		failed = &codec.Problem{Line: w.lineOf(w.InputOffset()), Reason: err.Error()}
	}
	return all, w.problems, failed
}

// nestedOrder is the order of the types of lines.
var nestedOrder = []string{
	"session", "session_state session_trace system_prompt tool_catalog", "message", "part",
	"requested_index permission_decision session_span annotation",
}

// nestedRow is a row and its place in a file. A message that lacks its row has no value.
type nestedRow struct {
	kind, place string // kind is the type of its line in JSONL
	message     int    // of a part: the place of its message
	line        int    // that it begins in
	value       jsontext.Value
}

// walker reads JSON by its structure.
type walker struct {
	*jsontext.Decoder
	data     []byte
	problems []codec.Problem
	// at is an offset in data, and line how many newlines come before it.
	at   int64
	line int
}

func (w *walker) lineOf(offset int64) int {
	w.line += bytes.Count(w.data[w.at:offset], []byte("\n"))
	w.at = offset
	return 1 + w.line
}

func (w *walker) problem(reason string) {
	w.problems = append(w.problems, codec.Problem{Line: w.lineOf(w.InputOffset()), Reason: reason})
}

// members calls fn with 0, 1 and so on until the object or array that begins here ends. Null has no
// members; anything else is passed over and reported as what.
func (w *walker) members(begins jsontext.Kind, what string, fn func(i int) error) error {
	if kind := w.PeekKind(); kind != begins {
		v, err := w.ReadValue()
		if err == nil && v.Kind() != 'n' {
			w.problem(what + " is not an " + map[jsontext.Kind]string{'{': "object", '[': "array"}[begins] +
				"; it is left out")
		}
		return err
	}
	if _, err := w.ReadToken(); err != nil {
		return err
	}
	for i := 0; w.PeekKind() != '}' && w.PeekKind() != ']'; i++ {
		if err := fn(i); err != nil {
			return err
		}
	}
	_, err := w.ReadToken()
	return err
}

// object calls fn with the keys of the object that begins here.
func (w *walker) object(what string, fn func(key string) error) error {
	return w.members('{', what, func(int) error {
		key, err := w.ReadToken()
		if err != nil {
			return err
		}
		return fn(key.String())
	})
}

// row reads the value of a row.
func (w *walker) row(row *nestedRow) error {
	v, err := w.ReadValue()
	if err == nil {
		row.line, row.value = w.lineOf(w.InputOffset()-int64(len(v))), bytes.Clone(v)
	}
	return err
}
