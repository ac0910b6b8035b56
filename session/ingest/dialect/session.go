package dialect

import (
	"cmp"
	"iter"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// SessionKeys are the attribute keys under which agents, frameworks and back ends write the id of a
// session, the most exact first.
var SessionKeys = keyLists["session"]

// Keys looks sessions up. It is safe for concurrent use.
type Keys struct {
	names []string
	rank  map[string]int
}

// NewKeys looks up the names, the first that is set winning; nil means SessionKeys.
func NewKeys(names []string) *Keys {
	if names == nil {
		names = SessionKeys
	}
	k := &Keys{names: names, rank: make(map[string]int, len(names))}
	for i, name := range names {
		if _, twice := k.rank[name]; !twice {
			k.rank[name] = i
		}
	}
	return k
}

// Len is how many names there are: ranks of one place.
func (k *Keys) Len() int { return len(k.names) }

// Find returns the id, the key that gave it and the key's rank: the best on the first of the maps
// that has one. A rank counts places before keys.
func (k *Keys) Find(places ...pcommon.Map) (id, key string, rank int) {
	for i, m := range places {
		best := len(k.names)
		for name, v := range m.All() {
			if r, ok := k.rank[name]; ok && r < best && v.Type() != pcommon.ValueTypeEmpty {
				if text := Text(v.AsString()); text != "" {
					id, best = text, r
				}
			}
		}
		if best < len(k.names) {
			return id, k.names[best], i*len(k.names) + best
		}
	}
	return "", "", 0
}

// Service is the name of the program that emits, where it was given one.
func Service(resource pcommon.Resource) string {
	name := Attrs{resource.Attributes()}.Str("service.name")
	if strings.HasPrefix(name, "unknown_service") {
		return ""
	}
	return name
}

// OpenSpan begins the facts of a span.
func (f *Emitter) OpenSpan(d *Dialect, s *Span, keys *Keys) {
	base := fact.Fact{Dialect: d.Name, Name: Text(s.Name()),
		Start: Nanos(s.StartTimestamp()), End: Nanos(s.EndTimestamp())}
	base.TraceID, base.SpanID, base.ParentID = s.TraceID().String(), s.SpanID().String(), s.ParentSpanID().String()
	if base.Failed = s.Status().Code() == ptrace.StatusCodeError; base.Failed {
		base.Error = Text(s.Status().Message())
		for a := range exceptions(s.Span) {
			base.ErrorType = a.Str("exception.type")
			base.Error = cmp.Or(base.Error, a.Str("exception.message"))
		}
		base.ErrorType = cmp.Or(s.Attrs().Str("error.type"), base.ErrorType)
		base.Error = withoutStack(base.Error)
	}
	f.open(base, s.DroppedAttributesCount(), keys, s.Attributes(), s.Scope, s.Resource)
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

// OpenRecord begins the facts of a log record.
func (f *Emitter) OpenRecord(d *Dialect, r *Record, keys *Keys) {
	base := fact.Fact{Dialect: d.Name, Name: Text(r.Event)}
	if base.Start = Nanos(r.Timestamp()); base.Start == 0 {
		base.Start = Nanos(r.ObservedTimestamp())
	}
	base.End = base.Start
	base.TraceID, base.SpanID = r.TraceID().String(), r.SpanID().String()
	f.open(base, r.DroppedAttributesCount(), keys, r.Attributes(), r.Scope, r.Resource)
}

// stamp takes a record's time from its attribute event.timestamp where it has one: it is when the event was, while the
// record's own time may be unset, or when it was handed to the exporter.
func (f *Emitter) stamp(a Attrs) {
	t, err := time.Parse(time.RFC3339Nano, a.Str("event.timestamp"))
	if err == nil && t.Year() >= 2000 && t.Year() <= 2100 {
		f.base.Start, f.base.End = t.UnixNano(), t.UnixNano()
	}
}

// clientOf names the program that emits, and its version.
func clientOf(resource pcommon.Resource, name, version string) string {
	r := Attrs{resource.Attributes()}
	return strings.TrimSpace(cmp.Or(r.Str("service.name"), name) + " " + cmp.Or(r.Str("service.version"), version))
}

// withoutStack cuts the stack off an error's text, where an instrumentation has added one: it is
// for developers of the agent, and long. "M\n\nError: M" is M.
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

func (f *Emitter) open(base fact.Fact, dropped uint32, keys *Keys, attrs pcommon.Map,
	scope pcommon.InstrumentationScope, resource pcommon.Resource) {
	base.Start = cmp.Or(base.Start, base.End)
	base.End = max(base.Start, base.End)
	base.Session, base.SessionKey, base.SessionRank = keys.Find(attrs, scope.Attributes(), resource.Attributes())
	if f.base = base; dropped > 0 {
		f.Problem("attributes were dropped before export")
	}
}

// Nanos returns a time in Unix nanoseconds, or 0 when it is not credible.
func Nanos(t pcommon.Timestamp) int64 {
	if t > math.MaxInt64 || !session.Credible(int64(t)/1e6) {
		return 0
	}
	return int64(t)
}
