package otlpfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/nesting"
)

// readJSON reads bodies in JSON. White space, commas and the brackets of an array
// may be between them.
//
// Where a body breaks off, the next one is looked for at the beginning of a line:
// JSON has no newline within a string, and no body within a body.
func (d *decoder) readJSON(s *source) error {
	line := 1
	for !d.stopped && !s.ended {
		chunk, err := s.peek()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return d.cut(s, line, err)
		}
		n := 0
		for n < len(chunk) && bytes.IndexByte([]byte(" \t\r\n,[]\x1e"), chunk[n]) >= 0 {
			if chunk[n] == '\n' {
				line++
			}
			n++
		}
		_ = s.skip(int64(n))
		if n == len(chunk) {
			continue
		}
		if chunk[n] != '{' {
			d.damaged(line, s.offset, errors.New("text that is not a JSON object; it is left out"))
			if err := d.nextLine(s, &line); err != nil {
				return d.cut(s, line, err)
			}
			continue
		}
		if err := d.readObject(s, &line); err != nil {
			return err
		}
	}
	return nil
}

// peek returns what is in the buffer, at least one byte.
func (s *source) peek() ([]byte, error) {
	if _, err := s.Peek(1); err != nil {
		return nil, err
	}
	return s.Peek(s.Buffered())
}

// nextLine goes on to a line that begins with an object.
func (d *decoder) nextLine(s *source, line *int) error {
	for {
		chunk, err := s.peek()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		i := bytes.IndexByte(chunk, '\n')
		if i < 0 {
			_ = s.skip(int64(len(chunk)))
			continue
		}
		_ = s.skip(int64(i) + 1)
		*line++
		if next, _ := s.Peek(1); len(next) == 0 || next[0] == '{' {
			return nil
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
	var (
		begin, at = *line, s.offset
		scan      scanner
		size      int64
	)
	d.buf = d.buf[:0]
	for {
		chunk, err := s.peek()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return d.cut(s, begin, err)
			}
			d.damaged(begin, at, errors.New("the body is cut off; it is left out"))
			return nil
		}
		n, end, newline := scan.take(chunk)
		size += int64(n)
		if size <= int64(d.maximum) {
			d.buf = append(d.buf, chunk[:n]...)
		}
		_ = s.skip(int64(n))
		if newline {
			*line++
			if scan.inString || d.bodyFollows(s) {
				d.damaged(begin, at, errors.New("the body is cut off; it is left out"))
				if next, _ := s.Peek(1); len(next) == 0 || next[0] != '{' && !d.bodyFollows(s) {
					if err := d.nextLine(s, line); err != nil {
						return d.cut(s, *line, err)
					}
				}
				return nil
			}
		}
		if end {
			break
		}
	}
	body := d.buf
	if cap(d.buf) > 16<<20 {
		d.buf = nil // what was large once need not stay
	}
	if size > int64(d.maximum) {
		d.damaged(begin, at, fmt.Errorf("%w; it is left out", d.tooLarge(size)))
		return nil
	}
	body, _, _ = nesting.JSON(body, 0) // the decoder recurses
	return d.decodeJSON(body, begin, at)
}

// bodyFollows reports whether the line that begins here is the beginning of a body.
func (d *decoder) bodyFollows(s *source) bool {
	head, _ := s.Peek(32)
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(head, " \t"), []byte(`{"`))
	if !ok {
		return false
	}
	key, _, ok := bytes.Cut(rest, []byte(`"`))
	return ok && signalOf(string(key)) != ""
}

// signalOf names what a key of a body holds.
func signalOf(key string) string {
	switch key {
	case "resourceSpans", "resource_spans":
		return "traces"
	case "resourceLogs", "resource_logs":
		return "logs"
	case "resourceMetrics", "resource_metrics":
		return "metrics"
	case "resourceProfiles", "resource_profiles":
		return "profiles"
	}
	return ""
}

func (d *decoder) decodeJSON(raw []byte, line int, at int64) error {
	keys := jsonKeys(raw, 32)
	for _, key := range keys {
		if key == "result" || key == "trace" {
			if inner := jsonValue(raw, key); len(inner) > 0 && inner[0] == '{' {
				raw, keys = inner, jsonKeys(inner, 32)
			}
			break
		}
	}
	b := Body{Traces: ptrace.NewTraces(), Logs: plog.NewLogs(), Line: line, Offset: at}
	known := len(keys) == 0
	for _, key := range keys {
		var err error
		switch signal := signalOf(key); signal {
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
		return fmt.Errorf("%w: %s", ErrFormat, jsonKind(raw, keys))
	}
	return nil
}

// tryDecode decodes a body. A decoder that panics has met damage that it does not
// know.
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

// jsonKind states what a JSON file is that is not OTLP, and what to do.
func jsonKind(raw []byte, keys []string) string {
	has := func(want string) bool { return slices.Contains(keys, want) }
	switch {
	case has("data") && bytes.Contains(raw[:min(len(raw), 64<<10)], []byte(`"traceID"`)),
		has("traceID") && has("spans"):
		return "it is JSON of the Jaeger UI; fetch the trace from Jaeger's /api/v3/traces/TRACE_ID, which is OTLP"
	case has("traceId") && has("id"):
		return "it is JSON of Zipkin; write the spans with an OTLP exporter or the collector's file exporter"
	case has("batches"):
		return "it is JSON of Tempo's first API; " +
			"fetch the trace as protobuf, with the header Accept: application/protobuf"
	}
	return "it is JSON without resourceSpans and resourceLogs" + nameAFile
}

// jsonKeys returns the keys of the object that raw begins with, no more than maximum.
// Raw may be cut off.
func jsonKeys(raw []byte, maximum int) (keys []string) {
	members(raw, func(key string, d *jsontext.Decoder) bool {
		keys = append(keys, key)
		return len(keys) < maximum && d.SkipValue() == nil
	})
	return keys
}

// jsonValue returns the value of a key, nil where it is cut off.
func jsonValue(raw []byte, want string) (value jsontext.Value) {
	members(raw, func(key string, d *jsontext.Decoder) bool {
		if key == want {
			value, _ = d.ReadValue() // nil with an error
			return false
		}
		return d.SkipValue() == nil
	})
	return value
}

// members calls fn with the keys of an object, until it returns false. It reads the value.
func members(raw []byte, fn func(key string, d *jsontext.Decoder) bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '{' {
		return
	}
	_, _ = d.ReadToken() // the brace
	for d.PeekKind() == '"' {
		if key, err := d.ReadToken(); err != nil || !fn(key.String(), d) {
			return
		}
	}
}
