package ingest_test

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
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// epoch is the instant after which everything happens, Unix milliseconds.
const epoch = 1_795_219_200_000

// parseText reads spans and log records from a text that people can write and review, in the order
// of the text. scope is the instrumentation scope until the text sets another. Each is a request of
// its own, so that they can be delivered in any order.
//
// The text has one span or record after the other. A line that begins with "span" or "record"
// starts one; indented lines below are its attributes; "scope" and "resource" set those of what
// follows; empty lines and lines that begin with # mean nothing.
//
//	text   = { line "\n" } .
//	line   = "scope" string [ version ] | "resource" | "span" name { field } [ string ]
//	       | "record" name { field } | indent attr | indent "event" name { field } | "#" … .
//	name   = word | string .            // a string where the name has spaces
//	field  = "trace=" n                 // number of the trace; 1, of a record none
//	       | "id=" n                    // number of the span; one more than the last, of a record none
//	       | "parent=" n                // number of the parent span; none
//	       | "at=" time                 // when it started, after epoch; 0ms
//	       | "for=" time                // how long it took; 0ms
//	       | "status=" ( "ok" | "error" )
//	       | "kind=" ( "client" | "server" ) .
//	time   = duration | "unset" .       // as in Go, such as +20ms or 1m30s
//	attr   = key "=" value              // a value; that of body is the body of a record
//	       | key ":=" json              // a string that holds JSON
//	       | key "+=" json .            // one more string that holds JSON, in a list
//	value  = json | "bytes" string .
//
// The string at the end of a span is the message of its status. Attributes below an event, indented
// further, are the event's. In values, a JSON number without fraction is an integer, another a
// double; null is an attribute without a value; an array is a list and an object a map. Outside of
// strings @n stands for the instant n milliseconds after epoch, in Unix milliseconds.
func parseText(text, scope string) ([]request, error) {
	p := textParser{scope: pcommon.NewInstrumentationScope(), resource: pcommon.NewResource()}
	p.scope.SetName(scope)
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		if err := p.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return p.requests, lines.Err()
}

type textParser struct {
	scope    pcommon.InstrumentationScope
	resource pcommon.Resource
	requests []request
	span     ptrace.Span
	id       uint64
	// attrs are those that indented lines set, body that of a record; of is what they are of before
	// an event, whose lines are indented by more than indent.
	attrs, of pcommon.Map
	body      pcommon.Value
	indent    int
	set       bool
}

// word is a quoted string, or what has no space in it.
var word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`)

func (p *textParser) line(line string) error {
	text := strings.TrimSpace(line)
	if text == "" || strings.HasPrefix(text, "#") {
		return nil
	}
	words := word.FindAllString(text, -1)
	if indent := len(line) - len(strings.TrimLeft(line, " \t")); indent > 0 {
		if !p.set {
			return fmt.Errorf("attribute %q before the first span", text)
		}
		if p.indent == 0 || indent <= p.indent {
			p.attrs, p.indent = p.of, indent
		}
		if words[0] == "event" && len(words) > 1 && !strings.HasSuffix(words[1], "=") {
			return p.event(unquoted(words[1]), words[2:])
		}
		return p.attribute(text)
	}
	switch p.indent = 0; {
	case words[0] == "scope" && (len(words) == 2 || len(words) == 3):
		p.scope = pcommon.NewInstrumentationScope()
		p.scope.SetName(unquoted(words[1]))
		if len(words) == 3 {
			p.scope.SetVersion(unquoted(words[2]))
		}
		return nil
	case text == "resource":
		p.resource = pcommon.NewResource()
		p.take(p.resource.Attributes(), pcommon.NewValueEmpty())
		return nil
	case words[0] == "span" && len(words) > 1:
		return p.start(unquoted(words[1]), words[2:])
	case words[0] == "record" && len(words) > 1:
		return p.record(unquoted(words[1]), words[2:])
	}
	return fmt.Errorf("neither a span nor an attribute: %q", text)
}

// take makes the lines that follow set attributes, and a body.
func (p *textParser) take(attrs pcommon.Map, body pcommon.Value) {
	p.attrs, p.of, p.body, p.set = attrs, attrs, body, true
}

func unquoted(word string) string {
	if s, err := strconv.Unquote(word); err == nil {
		return s
	}
	return word
}

// statuses are the codes of a span's status.
var statuses = map[string]ptrace.StatusCode{"ok": ptrace.StatusCodeOk, "error": ptrace.StatusCodeError}

// fields are what the words behind a name state.
type fields struct {
	ids     map[string]uint64 // 16 bytes for a trace, 8 for a span
	times   map[string]time.Duration
	status  ptrace.StatusCode
	kind    ptrace.SpanKind
	message string
}

func parseFields(words []string, trace, id uint64) (fields, error) {
	f := fields{ids: map[string]uint64{"trace": trace, "id": id, "parent": 0},
		times: map[string]time.Duration{"at": 0, "for": 0}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		_, isID := f.ids[key]
		_, isTime := f.times[key]
		code, isStatus := statuses[value]
		var err error
		switch {
		case strings.HasPrefix(word, `"`):
			f.message = unquoted(word)
		case isID:
			f.ids[key], err = strconv.ParseUint(value, 10, 64)
		case isTime && value == "unset":
			delete(f.times, key)
		case isTime:
			f.times[key], err = time.ParseDuration(value)
		case key == "status" && isStatus:
			f.status = code
		case word == "kind=client":
			f.kind = ptrace.SpanKindClient
		case word == "kind=server":
			f.kind = ptrace.SpanKindServer
		default:
			return f, fmt.Errorf("unknown field %q", word)
		}
		if err != nil {
			return f, fmt.Errorf("field %q: %w", word, err)
		}
	}
	return f, nil
}

func (f *fields) spanID(key string) (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], f.ids[key])
	return id
}

func (f *fields) traceID() (id pcommon.TraceID) {
	binary.BigEndian.PutUint64(id[8:], f.ids["trace"])
	return id
}

// start returns when it started, and end when it ended; 0 is unset.
func (f *fields) start() pcommon.Timestamp {
	at, started := f.times["at"]
	if !started {
		return 0
	}
	return pcommon.NewTimestampFromTime(time.UnixMilli(epoch).Add(at))
}

func (f *fields) end() pcommon.Timestamp {
	took, ended := f.times["for"]
	if !ended || f.start() == 0 {
		return 0
	}
	return f.start() + pcommon.Timestamp(took)
}

func (p *textParser) start(name string, words []string) error {
	f, err := parseFields(words, 1, p.id+1)
	if err != nil {
		return err
	}
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	p.resource.CopyTo(rs.Resource())
	ss := rs.ScopeSpans().AppendEmpty()
	p.scope.CopyTo(ss.Scope())
	s := ss.Spans().AppendEmpty()
	s.SetName(name)
	s.Status().SetCode(f.status)
	s.Status().SetMessage(f.message)
	s.SetKind(f.kind)
	p.id = f.ids["id"]
	s.SetTraceID(f.traceID())
	s.SetSpanID(f.spanID("id"))
	s.SetParentSpanID(f.spanID("parent"))
	s.SetStartTimestamp(f.start())
	s.SetEndTimestamp(f.end())
	p.requests, p.span = append(p.requests, request{traces: td}), s
	p.take(s.Attributes(), pcommon.NewValueEmpty())
	return nil
}

func (p *textParser) record(name string, words []string) error {
	f, err := parseFields(words, 0, 0)
	if err != nil {
		return err
	}
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	p.resource.CopyTo(rl.Resource())
	sl := rl.ScopeLogs().AppendEmpty()
	p.scope.CopyTo(sl.Scope())
	r := sl.LogRecords().AppendEmpty()
	r.SetEventName(name)
	r.SetTraceID(f.traceID())
	r.SetSpanID(f.spanID("id"))
	r.SetTimestamp(f.start())
	p.requests = append(p.requests, request{logs: ld, isLogs: true})
	p.take(r.Attributes(), r.Body())
	return nil
}

func (p *textParser) event(name string, words []string) error {
	f, err := parseFields(words, 0, 0)
	if err != nil {
		return err
	}
	e := p.span.Events().AppendEmpty()
	e.SetName(name)
	e.SetTimestamp(f.start())
	p.attrs = e.Attributes()
	return nil
}

func (p *textParser) attribute(text string) error {
	key, value, ok := strings.Cut(text, " ")
	operator, literal, _ := strings.Cut(strings.TrimSpace(value), " ")
	if !ok || literal == "" {
		return fmt.Errorf("attribute %q has no value", text)
	}
	attrs := p.attrs
	if operator == "=" {
		v, err := parseValue(literal)
		switch {
		case err != nil:
			return err
		case key == "body" && len(p.requests) > 0 && p.requests[len(p.requests)-1].isLogs:
			v.CopyTo(p.body)
		default:
			v.CopyTo(attrs.PutEmpty(key))
		}
		return nil
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
		return strconv.FormatInt(epoch+n, 10)
	})
}
