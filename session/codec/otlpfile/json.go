package otlpfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/nesting"
)

// readJSON reads bodies in JSON. White space, commas and the brackets of an array may be between them.
//
// Where a body breaks off, the next one is looked for at the beginning of a line:
// JSON has no newline within a string, and no body within a body.
func (d *decoder) readJSON(s *source) error {
	line := 1
	for !d.stopped && len(s.peek(1)) > 0 {
		switch c := s.buf[0]; {
		case c == '{':
			if err := d.readObject(s, &line); err != nil {
				return err
			}
		case bytes.IndexByte([]byte(" \t\r\n,[]\x1e"), c) >= 0:
			if c == '\n' {
				line++
			}
			s.skip(1)
		default:
			d.damaged(line, s.offset, errors.New("text that is not a JSON object; it is left out"))
			s.nextLine(&line)
		}
	}
	if d.stopped {
		return nil
	}
	return d.end(s, line)
}

// nextLine goes on to a line that begins with an object.
func (s *source) nextLine(line *int) {
	for len(s.peek(1)) > 0 {
		i := bytes.IndexByte(s.buf, '\n')
		if i < 0 {
			s.skip(int64(len(s.buf)))
			continue
		}
		s.skip(int64(i) + 1)
		*line++
		if next := s.peek(1); len(next) > 0 && next[0] == '{' {
			return
		}
	}
}

// scanner finds where a JSON value ends.
type scanner struct {
	depth             int
	inString, escaped bool
}

// take reads up to the end of the value or of the line, and states how many bytes that is.
func (v *scanner) take(chunk []byte) (n int, end, newline bool) {
	for n < len(chunk) && !end && !newline {
		c := chunk[n]
		n++
		switch {
		case c == '\n':
			newline = true
		case v.escaped:
			v.escaped = false
		case v.inString:
			v.escaped, v.inString = c == '\\', c != '"'
		case c == '"':
			v.inString = true
		case c == '{' || c == '[':
			v.depth++
		case c == '}' || c == ']':
			v.depth--
			end = v.depth == 0
		}
	}
	return n, end, newline
}

// readObject reads one object and gives what it holds.
func (d *decoder) readObject(s *source, line *int) error {
	begin, at := *line, s.offset
	var scan scanner
	size := 0 // of the object, as far as it is in the buffer
	for end, newline := false, false; !end; {
		if len(s.peek(size+1)) == size {
			if !errors.Is(s.err, io.EOF) {
				return d.end(s, begin)
			}
			d.damaged(begin, at, errCutBody)
			s.skip(int64(size))
			return nil
		}
		var n int
		n, end, newline = scan.take(s.buf[size:])
		size += n
		if newline {
			*line++
			if scan.inString || bodyBegins(s.peek(size + 32)[size:]) {
				d.damaged(begin, at, errCutBody)
				s.skip(int64(size))
				return nil
			}
		}
		if s.offset+int64(size)-at > int64(d.maximum) { // it is only counted from here on
			s.skip(int64(size))
			size = 0
		}
	}
	body := s.buf[:size]
	s.skip(int64(size)) // body stays until the next read
	if total := s.offset - at; total > int64(d.maximum) {
		d.damaged(begin, at, fmt.Errorf("%w; it is left out", d.tooLarge(total)))
		return nil
	}
	if _, err := nesting.JSON(body, 0); err != nil { // the decoder recurses
		d.damaged(begin, at, fmt.Errorf("%w; it is left out", err))
		return nil
	}
	return d.decodeJSON(body, begin, at)
}

var errCutBody = errors.New("the body is cut off; it is left out")

// bodyBegins reports whether the line that begins so is the beginning of a body.
func bodyBegins(line []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(line, " \t"), []byte(`{"`))
	key, _, ended := bytes.Cut(rest, []byte(`"`))
	return ok && ended && signals[string(key)] != ""
}

// signals names what the keys of a body hold.
var signals = map[string]string{
	"resourceSpans": "traces", "resource_spans": "traces", "resourceLogs": "logs", "resource_logs": "logs",
	"resourceMetrics": "metrics", "resource_metrics": "metrics",
	"resourceProfiles": "profiles", "resource_profiles": "profiles",
}

func (d *decoder) decodeJSON(raw []byte, line int, at int64) error {
	keys := FirstObject(raw)
	if keys["result"] == "{" || keys["trace"] == "{" {
		var answer struct{ Result, Trace json.RawMessage }
		_ = json.Unmarshal(raw, &answer) // what is not JSON is no answer
		raw = []byte(cmp.Or(string(answer.Result), string(answer.Trace)))
		keys = FirstObject(raw)
	}
	b := Body{Traces: ptrace.NewTraces(), Logs: plog.NewLogs(), Line: line, Offset: at}
	known := len(keys) == 0
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		var err error
		switch signal := signals[key]; signal {
		case "traces":
			known = true
			b.Traces, err = tryDecode((&ptrace.JSONUnmarshaler{}).UnmarshalTraces, raw)
		case "logs":
			known = true
			b.Logs, err = tryDecode((&plog.JSONUnmarshaler{}).UnmarshalLogs, raw)
		case "":
			known = known || key == "partialSuccess" || key == "partial_success"
		default:
			known = true
			b.Skipped = signal
		}
		if err != nil {
			d.recognized = true
			d.damaged(line, at, fmt.Errorf("%w; the body is left out", err))
			return nil
		}
	}
	switch {
	case known:
		d.give(b)
	case d.recognized || d.inFrame:
		d.damaged(line, at, errors.New("an object without resourceSpans and resourceLogs; it is left out"))
	default:
		return fmt.Errorf("%w: %s", ErrFormat, otherJSON)
	}
	return nil
}

// tryDecode decodes a body. A decoder that panics has met damage that it does not know.
func tryDecode[T any](decode func([]byte) (T, error), raw []byte) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decode the body: %v", p)
		}
	}()
	v, err = decode(raw)
	if err != nil {
		// The decoder quotes what is around, twice, which is anybody's text.
		what, _, _ := strings.Cut(err.Error(), ", error found in #")
		err = fmt.Errorf("decode the body: %s", strings.ToValidUTF8(what[:min(len(what), 200)], ""))
	}
	return v, err
}

// otherJSON states what a JSON file is that is not OTLP, such as one of Jaeger's UI, and what to do.
const otherJSON = "it is JSON of another kind; of Jaeger (/api/v3/traces/TRACE_ID) and Tempo (as protobuf) take OTLP"

// FirstObject returns the keys of the first JSON object in head, which may be cut off, with their values where they are
// strings, and else what they begin with: {, [ or nothing.
func FirstObject(head []byte) map[string]string {
	keys := make(map[string]string)
	d := jsontext.NewDecoder(bytes.NewBuffer(head), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() == '[' {
		_, _ = d.ReadToken()
	}
	if d.PeekKind() != '{' {
		return keys
	}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() == '"' {
		var key jsontext.Token
		if key, err = d.ReadToken(); err != nil {
			break
		}
		name, kind := key.String(), d.PeekKind()
		isList := kind == '{' || kind == '['
		if isList {
			keys[name] = kind.String() // it may be cut off
		}
		var value jsontext.Value
		if value, err = d.ReadValue(); err == nil && !isList {
			text, _ := jsontext.AppendUnquote(nil, value) // nothing of what is no string
			keys[name] = string(text)
		}
	}
	return keys
}
