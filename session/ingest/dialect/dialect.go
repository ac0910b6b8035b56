// Package dialect reads the telemetry of agents that were not instrumented with the SDK: each file reads what one
// client or convention emits and gives facts in the terms of package fact. Table names them all.
//
// A dialect looks at one span or record at a time, because what belongs to it may come an hour
// later, or never. Package assemble puts the facts together.
package dialect

import (
	"cmp"
	"encoding/json"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Dialect is a row of [Table].
type Dialect struct {
	// Name is stored with everything that was read by the dialect.
	Name string

	// Spans reports whether a span is of the dialect, Records whether a log record is. They must be
	// cheap: they see everything that passes, noise included. Nil recognizes nothing.
	Spans   func(*Span) bool
	Records func(*Record) bool

	// ReadSpan and ReadRecord give the facts. Giving none reports that the span or record has no fact of a session.
	ReadSpan   func(*Span, *Emitter)
	ReadRecord func(*Record, *Emitter)

	// Prompts reports that the user's messages are facts of their own.
	Prompts bool

	// PromptFirst reports that the fact of a prompt comes before the span of its turn, which therefore begins nothing.
	PromptFirst bool

	// Threads reports that a sub-agent has a session of its own name in the trace of the session
	// that started it. Its records outside of any trace belong there too.
	Threads bool
}

// Table names every dialect. The first that recognizes a span or record reads it, so clients come before the
// conventions that they build on.
var Table = []Dialect{claudeCode, codex, geminiCLI, qwenCode, openCode, mastra, voltAgent, adk, openInference,
	langSmith, openLLMetry, aiSDK, genkit, genAI, langfuse, generic}

// HasThreads reports whether the sub-agents of the dialect have sessions of their own names.
func HasThreads(name string) bool {
	return slices.ContainsFunc(Table, func(d Dialect) bool { return d.Name == name && d.Threads })
}

// OfSpan returns the dialect of a span, or nil.
func OfSpan(s *Span) *Dialect {
	for i := range Table {
		if d := &Table[i]; d.Spans != nil && d.Spans(s) {
			return d
		}
	}
	return nil
}

// OfRecord returns the dialect of a log record, or nil.
func OfRecord(r *Record) *Dialect {
	if r.Event == semconv.EventEvaluation {
		return &genAI // of any client
	}
	for i := range Table {
		if d := &Table[i]; d.Records != nil && d.Records(r) {
			return d
		}
	}
	return nil
}

// Span is a span with its scope and resource. It is read, never changed.
type Span struct {
	ptrace.Span
	Scope    pcommon.InstrumentationScope
	Resource pcommon.Resource
	families uint32 // bits of those of its attributes
}

// NewSpan looks at the span's attributes once for all dialects.
func NewSpan(s ptrace.Span, scope pcommon.InstrumentationScope, resource pcommon.Resource) Span {
	var families uint32
	for key := range s.Attributes().All() {
		families |= familyBit(family(key))
	}
	return Span{Span: s, Scope: scope, Resource: resource, families: families}
}

// conventions are the families of attributes that dialects look for: the first words of their keys.
var conventions = listOf("words", "conventions")

// otherFamily is the bit of the families that no dialect looks for and that programs other than agents do not have.
const otherFamily = 1

func familyBit(family string) uint32 {
	if ordinary()[family] {
		return 0
	}
	return otherFamily << (slices.Index(conventions(), family) + 1)
}

// family returns the first word of a key, or "" when neither a dot nor a colon parts it from a rest.
func family(key string) string { return key[:max(0, strings.IndexAny(key, ".:"))] }

// Attrs are the span's attributes.
func (s *Span) Attrs() Attrs { return Attrs{s.Attributes()} }

// Has reports whether the span has attributes of any of the families.
func (s *Span) Has(families ...string) bool {
	return slices.ContainsFunc(families, func(f string) bool { return s.families&familyBit(f) != 0 })
}

// HasOther reports whether the span has attributes of which nothing is known.
func (s *Span) HasOther() bool { return s.families&otherFamily != 0 }

// Record is a log record with its scope and resource. It is read, never changed.
type Record struct {
	plog.LogRecord
	Scope    pcommon.InstrumentationScope
	Resource pcommon.Resource
	// Event is the record's event name: the one of the record, or of the attribute event.name, which wins.
	Event string
}

// NewRecord finds the record's name.
func NewRecord(r plog.LogRecord, scope pcommon.InstrumentationScope, resource pcommon.Resource) Record {
	event := cmp.Or(Attrs{r.Attributes()}.Str("event.name"), r.EventName())
	return Record{LogRecord: r, Scope: scope, Resource: resource, Event: event}
}

// Attrs are the record's attributes.
func (r *Record) Attrs() Attrs { return Attrs{r.Attributes()} }

// Emitter collects what a span or record reports.
type Emitter struct {
	All []fact.Fact
	// base is what every fact of the span or record at hand shares.
	base fact.Fact
}

// Add returns a new fact, to be filled in. It has the identity, times, status and session of the span or record at
// hand. It is valid until the next call.
func (f *Emitter) Add(kind fact.Kind) *fact.Fact {
	f.All = append(f.All, f.base)
	added := &f.All[len(f.All)-1]
	added.Kind = kind
	return added
}

// Problem notes what is wrong with the span or record at hand, on every fact that is added after it.
func (f *Emitter) Problem(problems ...string) {
	f.base.Problems = slices.Concat(f.base.Problems, problems)
}

// OpenSpan begins the facts of a span.
func (f *Emitter) OpenSpan(d *Dialect, s *Span, keys *Keys) {
	base := fact.Fact{Dialect: d.Name, Name: Text(s.Name()), TraceID: s.TraceID().String(),
		SpanID: s.SpanID().String(), ParentID: s.ParentSpanID().String(), Start: Nanos(s.StartTimestamp()),
		End: Nanos(s.EndTimestamp()), Failed: s.Status().Code() == ptrace.StatusCodeError}
	if base.Failed {
		base.Error = Text(s.Status().Message())
		for a := range exceptions(s.Span) {
			base.ErrorType = a.Str("exception.type")
			base.Error = cmp.Or(base.Error, a.Str("exception.message"))
		}
		base.ErrorType = cmp.Or(s.Attrs().Str("error.type"), base.ErrorType)
		base.Error = withoutStack(base.Error)
	}
	base.Event, base.EventOf = eventOf(s)
	f.open(base, s.DroppedAttributesCount(), keys, s.Attributes(), s.Scope, s.Resource)
}

// spanEvents are the last words of the names of spans that are events.
var spanEvents = meanings[string]("events")

// eventOf returns which event a span reports, and of what: a program may have a span for the start of a call and others
// for how it ended, each with the path of the event as its name, mostly with a number, and with the event in an
// attribute. Without the attribute it is a span of something that has the name of an event.
func eventOf(s *Span) (event, of string) {
	name := strings.TrimRight(s.Name(), "0123456789")
	name = cmp.Or(strings.TrimSuffix(name, "-"), name)
	if strings.ContainsRune(name, ' ') {
		return "", ""
	}
	at := strings.LastIndexAny(name, ".:") + 1
	for i := at; i < len(name); i++ { // "toolStart" is the start of a "tool"
		if i > at && (name[i] < 'A' || name[i] > 'Z') {
			continue
		}
		if event = spanEvents()[strings.ToLower(name[i:])]; event == "" {
			continue
		}
		a := s.Attrs()
		for _, key := range []string{"name", "event", "event.name", "event.type", "phase", "target"} {
			if v := a.Str(key); strings.EqualFold(v, name[at:]) || v == name {
				return event, strings.TrimRight(name[:i], ".:") + "/" + a.Str("run_id", "run.id", "runId", "traceId")
			}
		}
		return "", ""
	}
	return "", ""
}

// OpenRecord begins the facts of a log record.
func (f *Emitter) OpenRecord(d *Dialect, r *Record, keys *Keys) {
	at := cmp.Or(Nanos(r.Timestamp()), Nanos(r.ObservedTimestamp()))
	base := fact.Fact{Dialect: d.Name, Name: Text(r.Event), TraceID: r.TraceID().String(), SpanID: r.SpanID().String(),
		Start: at, End: at}
	if seq := r.Attrs().IntPtr("event.sequence"); seq != nil {
		base.Seq = *seq
	} else if observed := Nanos(r.ObservedTimestamp()); at != 0 && !r.TraceID().IsEmpty() {
		base.Seq = max(0, observed-at)
	}
	f.open(base, r.DroppedAttributesCount(), keys, r.Attributes(), r.Scope, r.Resource)
}

func (f *Emitter) open(base fact.Fact, dropped uint32, keys *Keys, attrs pcommon.Map,
	scope pcommon.InstrumentationScope, resource pcommon.Resource) {
	base.Start = cmp.Or(base.Start, base.End)
	base.End = max(base.Start, base.End)
	base.Session, base.SessionKey, base.SessionRank = keys.Find(attrs, scope.Attributes(), resource.Attributes())
	if f.base = base; dropped > 0 {
		f.Problem("attributes were dropped before export")
	}
}

// stamp takes a record's time from its attribute event.timestamp where it has one: it is when the event was, while the
// record's own time may be unset, or when it was handed to the exporter.
func (f *Emitter) stamp(a Attrs) {
	t, err := time.Parse(time.RFC3339Nano, a.Str("event.timestamp"))
	if err == nil && t.Year() >= 2000 && t.Year() <= 2100 {
		f.base.Start, f.base.End = t.UnixNano(), t.UnixNano()
	}
}

// exceptions are the attributes of a span's exceptions.
func exceptions(s ptrace.Span) iter.Seq[Attrs] {
	return func(yield func(Attrs) bool) {
		for _, e := range s.Events().All() {
			if e.Name() == "exception" && !yield(Attrs{e.Attributes()}) {
				return
			}
		}
	}
}

// withoutStack cuts the stack off an error's text, where an instrumentation has added one: it is for developers of the
// agent, and long. "M\n\nError: M" is M.
func withoutStack(text string) string {
	message := text
	for _, mark := range []string{"\n    at ", "Traceback (most recent call last):"} {
		if before, _, found := strings.Cut(message, mark); found {
			message = strings.TrimSpace(before)
		}
	}
	before, again, twice := strings.Cut(message, "\n\n")
	if twice && message != text && before != "" && strings.HasSuffix(again, before) {
		message = before
	}
	return cmp.Or(message, text)
}

// Nanos returns a time in Unix nanoseconds, or 0 when it is not credible.
func Nanos(t pcommon.Timestamp) int64 {
	if t > math.MaxInt64 || !session.Credible(int64(t)/1e6) {
		return 0
	}
	return int64(t)
}

// Service is the name of the program that emits, where it was given one.
func Service(resource pcommon.Resource) string {
	name := Attrs{resource.Attributes()}.Str("service.name")
	if strings.HasPrefix(name, "unknown_service") {
		return ""
	}
	return name
}

// clientOf names the program that emits, and its version.
func clientOf(resource pcommon.Resource, name, version string) string {
	r := Attrs{resource.Attributes()}
	return strings.TrimSpace(cmp.Or(r.Str("service.name"), name) + " " + cmp.Or(r.Str("service.version"), version))
}

// aboutOf returns the session attributes of a fact, which are added if it has none.
func aboutOf(f *fact.Fact) *fact.SessionAttrs {
	f.SessionAttrs = cmp.Or(f.SessionAttrs, new(fact.SessionAttrs))
	return f.SessionAttrs
}

// setUser stores whose session a fact is of, unless the id is "".
func setUser(f *fact.Fact, id string) {
	if id != "" {
		aboutOf(f).UserID = id
	}
}

// unremarkable are values of attributes that are not worth keeping.
var unremarkable = map[string]string{"attempt": "1", "speed": `"normal"`}

// addExtra adds attributes to a fact's Extra under their own keys. Empty values are left out.
func addExtra(f *fact.Fact, a Attrs, keys ...string) {
	for _, key := range keys {
		switch raw := a.JSON(key); string(raw) {
		case "", "null", `""`, "{}", "[]", unremarkable[key]:
		default:
			setExtra(f, Text(key), raw)
		}
	}
}

func setExtra(f *fact.Fact, key string, value json.RawMessage) {
	o, ok := objectOf(f.Extra)
	if !ok {
		o = object{}
	}
	o[key] = value
	f.Extra = encode(o)
}

// problemIfCut notes a value that begins as JSON and does not end as such.
func problemIfCut(out *Emitter, what string, raw json.RawMessage) bool {
	s := text(raw)
	if len(s) < 2 || !hasPrefix(s, "{", "[", `"`) || json.Valid([]byte(s)) {
		return false
	}
	if last := s[len(s)-1]; s[0] == '{' && last == '}' || s[0] == '[' && last == ']' {
		return false // a text in brackets
	}
	out.Problem(what + " is no JSON: it may have been cut before export")
	return true
}
