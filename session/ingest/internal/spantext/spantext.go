// Package spantext reads spans from a text that people can write and review. It
// is for tests.
//
// The text has one span after the other. A line that begins with "span" starts
// one; indented lines below are its attributes; "scope" sets the instrumentation
// scope of the spans that follow; empty lines and lines that begin with # mean
// nothing.
//
//	text   = { line "\n" } .
//	line   = "scope" string | "span" name { field } [ string ] | indent attr | "#" … .
//	name   = word | string .            // a string where the name has spaces
//	field  = "trace=" n                 // number of the trace; 1
//	       | "id=" n                    // number of the span; one more than the last
//	       | "parent=" n                // number of the parent span; none
//	       | "at=" time                 // when it started, after Epoch; 0ms
//	       | "for=" time                // how long it took; 0ms
//	       | "status=" ( "ok" | "error" ) .
//	time   = duration | "unset" .       // as in Go, such as +20ms or 1m30s
//	attr   = key "=" value              // a value
//	       | key ":=" json              // a string that holds JSON
//	       | key "+=" json .            // one more string that holds JSON, in a list
//	value  = json | "bytes" string .
//
// The string at the end of a span is the message of its status. In values, a JSON
// number without fraction is an integer, another a double; null is an attribute
// without a value; an array is a list and an object a map. Outside of strings @n
// stands for the instant n milliseconds after Epoch, in Unix milliseconds.
package spantext

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Epoch is the instant after which everything happens, Unix milliseconds.
const Epoch = 1_795_219_200_000

// Parse reads spans, in the order of the text. scope is the instrumentation
// scope until the text sets another. Each span is a request of its own, so that
// they can be delivered in any order.
func Parse(text, scope string) ([]ptrace.Traces, error) {
	p := parser{scope: scope}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		if err := p.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return p.requests, lines.Err()
}

// Join makes one request of many.
func Join(requests ...ptrace.Traces) ptrace.Traces {
	all := ptrace.NewTraces()
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			rs.CopyTo(all.ResourceSpans().AppendEmpty())
		}
	}
	return all
}

type parser struct {
	scope    string
	requests []ptrace.Traces
	span     ptrace.Span
	id       uint64
}

// word is a quoted string, or what has no space in it.
var word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`)

func (p *parser) line(line string) error {
	text := strings.TrimSpace(line)
	switch {
	case text == "" || strings.HasPrefix(text, "#"):
		return nil
	case line[0] == ' ' || line[0] == '\t':
		if len(p.requests) == 0 {
			return fmt.Errorf("attribute %q before the first span", text)
		}
		return p.attribute(text)
	}
	words := word.FindAllString(text, -1)
	switch {
	case words[0] == "scope" && len(words) == 2:
		p.scope = unquoted(words[1])
		return nil
	case words[0] == "span" && len(words) > 1:
		return p.start(unquoted(words[1]), words[2:])
	}
	return fmt.Errorf("neither a span nor an attribute: %q", text)
}

func unquoted(word string) string {
	if s, err := strconv.Unquote(word); err == nil {
		return s
	}
	return word
}

// statuses are the codes of a span's status.
var statuses = map[string]ptrace.StatusCode{"ok": ptrace.StatusCodeOk, "error": ptrace.StatusCodeError}

func (p *parser) start(name string, fields []string) error {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName(p.scope)
	s := ss.Spans().AppendEmpty()
	s.SetName(name)
	// ids are 16 bytes for a trace, 8 for a span.
	ids := map[string]uint64{"trace": 1, "id": p.id + 1, "parent": 0}
	times := map[string]time.Duration{"at": 0, "for": 0}
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		_, isID := ids[key]
		_, isTime := times[key]
		code, isStatus := statuses[value]
		var err error
		switch {
		case strings.HasPrefix(f, `"`):
			s.Status().SetMessage(unquoted(f))
		case isID:
			ids[key], err = strconv.ParseUint(value, 10, 64)
		case isTime && value == "unset":
			delete(times, key)
		case isTime:
			times[key], err = time.ParseDuration(value)
		case key == "status" && isStatus:
			s.Status().SetCode(code)
		default:
			return fmt.Errorf("unknown field %q", f)
		}
		if err != nil {
			return fmt.Errorf("field %q: %w", f, err)
		}
	}
	var id [16]byte
	spanID := func(n uint64) pcommon.SpanID {
		binary.BigEndian.PutUint64(id[8:], n)
		return pcommon.SpanID(id[8:])
	}
	p.id = ids["id"]
	s.SetSpanID(spanID(p.id))
	s.SetParentSpanID(spanID(ids["parent"]))
	spanID(ids["trace"])
	s.SetTraceID(id)
	at, started := times["at"]
	took, ended := times["for"]
	if from := time.UnixMilli(Epoch).Add(at); started {
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(from))
		if ended {
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(from.Add(took)))
		}
	}
	p.requests, p.span = append(p.requests, td), s
	return nil
}

func (p *parser) attribute(text string) error {
	key, value, ok := strings.Cut(text, " ")
	operator, literal, _ := strings.Cut(strings.TrimSpace(value), " ")
	if !ok || literal == "" {
		return fmt.Errorf("attribute %q has no value", text)
	}
	attrs := p.span.Attributes()
	if operator == "=" {
		v, err := parseValue(literal)
		if err == nil {
			v.CopyTo(attrs.PutEmpty(key))
		}
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(instants(literal))); err != nil {
		return fmt.Errorf("attribute %s: %w", key, err)
	}
	switch operator {
	case ":=":
		attrs.PutStr(key, compact.String())
	case "+=":
		list, has := attrs.GetOrPutEmpty(key)
		if !has || list.Type() != pcommon.ValueTypeSlice {
			list.SetEmptySlice()
		}
		list.Slice().AppendEmpty().SetStr(compact.String())
	default:
		return fmt.Errorf("attribute %s: unknown operator %q", key, operator)
	}
	return nil
}

func parseValue(literal string) (pcommon.Value, error) {
	v := pcommon.NewValueEmpty()
	if quoted, ok := strings.CutPrefix(literal, "bytes "); ok {
		v.SetEmptyBytes().FromRaw([]byte(unquoted(quoted)))
		return v, nil
	}
	d := json.NewDecoder(strings.NewReader(instants(literal)))
	d.UseNumber()
	var raw any
	if err := d.Decode(&raw); err != nil {
		return v, fmt.Errorf("value %s: %w", literal, err)
	}
	return v, v.FromRaw(numbers(raw))
}

// numbers gives JSON numbers their types.
func numbers(raw any) any {
	switch x := raw.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		f, _ := x.Float64()
		return f
	case []any:
		for i := range x {
			x[i] = numbers(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = numbers(x[k])
		}
	}
	return raw
}

// instant is a quoted string, or an instant outside of one.
var instant = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|@\d+`)

// instants replaces @n outside of strings.
func instants(literal string) string {
	return instant.ReplaceAllStringFunc(literal, func(s string) string {
		n, err := strconv.ParseInt(strings.TrimPrefix(s, "@"), 10, 64)
		if err != nil {
			return s
		}
		return strconv.FormatInt(Epoch+n, 10)
	})
}
