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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
//	       | "kind=client" .
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
	client  bool
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
			f.client = true
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
	if f.client {
		s.SetKind(ptrace.SpanKindClient)
	}
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

func TestParseText(t *testing.T) {
	requests, err := parseText(`
# a run and its call
span session.run trace=7 id=5 at=1s for=20ms
	session.id = "s1"
span "chat m" parent=5 status=error "it broke" kind=client
	n = 1
	f = 1.5
	e = null
	event exception at=5ms
		exception.message = "no"
	list = ["a", "b"]
	map = {"at": @2, "text": "@2"}
	raw = bytes "\x00a"
	json := { "at": @3 }
	parts += {"id": "p1"}
	parts += {"id": "p2"}
scope "other" "1.2"
resource
	service.name = "app"
span x at=unset
record said id=5 at=2ms
	body = {"text": "hi"}
	n = 2
`, "first")
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != 4 {
		t.Fatalf("%d spans and records", len(requests))
	}
	span := func(i int) ptrace.Span {
		return requests[i].traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	}
	run, chat := span(0), span(1)
	if got := run.EndTimestamp() - run.StartTimestamp(); time.Duration(got) != 20*time.Millisecond ||
		int64(run.StartTimestamp()) != (epoch+1000)*1e6 {
		t.Errorf("times %d, %d", run.StartTimestamp(), run.EndTimestamp())
	}
	if run.TraceID().String() != "00000000000000000000000000000007" || run.SpanID() != chat.ParentSpanID() ||
		chat.SpanID().String() != "0000000000000006" {
		t.Errorf("ids %v %v %v", run.TraceID(), run.SpanID(), chat.SpanID())
	}
	if chat.Name() != "chat m" || chat.Status().Code() != ptrace.StatusCodeError ||
		chat.Status().Message() != "it broke" || chat.Kind() != ptrace.SpanKindClient {
		t.Errorf("chat: %q %v %v", chat.Name(), chat.Status(), chat.Kind())
	}
	want := map[string]any{
		"n": int64(1), "f": 1.5, "e": nil, "list": []any{"a", "b"},
		"map": map[string]any{"at": int64(epoch + 2), "text": "@2"},
		"raw": []byte("\x00a"), "json": `{"at":1795219200003}`, "parts": []any{`{"id":"p1"}`, `{"id":"p2"}`},
	}
	if d := cmp.Diff(want, chat.Attributes().AsRaw()); d != "" {
		t.Error(d)
	}
	if e := chat.Events().At(0); e.Name() != "exception" || int64(e.Timestamp()) != (epoch+5)*1e6 ||
		cmp.Diff(map[string]any{"exception.message": "no"}, e.Attributes().AsRaw()) != "" {
		t.Errorf("event %q at %d: %v", e.Name(), e.Timestamp(), e.Attributes().AsRaw())
	}
	rs := requests[2].traces.ResourceSpans().At(0)
	if scope := rs.ScopeSpans().At(0).Scope(); span(2).StartTimestamp() != 0 || scope.Name() != "other" ||
		scope.Version() != "1.2" || rs.Resource().Attributes().Len() != 1 {
		t.Error("unset time, scope or resource")
	}
	r := requests[3].logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	if r.EventName() != "said" || r.SpanID() != run.SpanID() || !r.TraceID().IsEmpty() ||
		cmp.Diff(map[string]any{"text": "hi"}, r.Body().AsRaw()) != "" || r.Attributes().Len() != 1 {
		t.Errorf("record %q of %v: %v", r.EventName(), r.SpanID(), r.Body().AsRaw())
	}
	for _, bad := range []string{" a = 1", "spin x", "span x at=soon", "span x y", "span x\n  a", "span x\n  a = {",
		"span x\n  a != 1", "span x\n  a := {", "scope"} {
		if _, err := parseText(bad, ""); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
