// OTLP: these files write sessions as the spans that the SDK emits, of which ingest makes the same rows, byte for byte,
// except for what [otlpExplain] lists. docs/formats.md lists what becomes what. What the attributes of a span cannot
// say exactly, such as a message of the system, is in the attribute agenttrace.replay; see [ingest.EmbeddedRows].
//
// Rows keep their ids. Each of the session's SpanRefs is written once, with its ids, parent, times and status. What
// came from no span has one with ids derived from the session's, so that writing a session again gives the same spans.
// Those without a known trace are of the trace of session.run.

package formats

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// otlpWriteJSON writes the session's spans as one line of OTLP JSON, as the collector's file exporter does. Sessions may
// follow one another.
func otlpWriteJSON(w io.Writer, s *codec.Session) error {
	return otlpWrite(w, s, func(td ptrace.Traces) ([]byte, error) {
		b, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		return append(b, '\n'), err
	})
}

// otlpWriteProto writes the session's spans as an ExportTraceServiceRequest in protobuf. What follows another is one
// request too, that of all their sessions.
func otlpWriteProto(w io.Writer, s *codec.Session) error {
	return otlpWrite(w, s, (&ptrace.ProtoMarshaler{}).MarshalTraces)
}

func otlpWrite(w io.Writer, s *codec.Session, marshal func(ptrace.Traces) ([]byte, error)) (err error) {
	td, err := TurnSpans(s, nil)
	if err != nil {
		return err
	}
	defer wrapWriting(s, &err)
	b, err := marshal(td)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// otlpExplain lists what of the rows a store would have otherwise after it ingested what Encode wrote. Nothing is listed
// of a session that comes out as it went in.
//
// Nothing of the content is lost but what breaks the rules of [session.Check]; the rest is
// sums, which a store makes itself.
func otlpExplain(s *codec.Session) (losses []codec.Loss) {
	t := s.Sorted()
	violations := session.Check(t)
	broken := len(violations)
	count := func(is bool) {
		if is {
			broken++
		}
	}
	nested := func(text string) { count(ingest.TooDeep([]byte(text))) }
	nested(t.Session.MetadataJSON)
	nested(t.Session.PermissionsJSON)
	nested(session.Deref(t.Session.ModelJSON))
	for i := range t.Messages {
		nested(t.Messages[i].Message.MetadataJSON)
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			nested(p.DataJSON)
			count(otlpIsTool(p) && session.Deref(p.ToolCallID) == "" || !otlpIsTool(p) && p.ToolCallID != nil)
		}
	}
	for i := range s.Blobs {
		count(s.Blobs[i].Body == "")
	}
	archived := t.Session.ArchivedAt
	count(archived != nil && *archived > otlpLastMilli)
	count(store.AddCost(t.Session.CostUSD, 0) != t.Session.CostUSD)
	losses = codec.AddLoss(losses, "what breaks a rule of sessions, is nested too deep, or is empty or too large for a span",
		"as data-damaged parts, as text, or rounded, where it has a place", broken)
	for _, v := range violations {
		if v.Rule == "rollup" {
			losses = codec.AddLoss(losses, "tokens of the session, which are not the sum of its messages", "the sum", 1)
		}
	}
	return losses
}

// otlpPlace is what identifies a span, and when it was. Times are Unix nanoseconds. ref is what the session knows of
// the span, nil if it is a derived one.
type otlpPlace struct {
	trace        pcommon.TraceID
	span, parent pcommon.SpanID
	start, end   int64
	ref          *store.SpanRef
}

// otlpSpanKey is a trace and a span id.
type otlpSpanKey struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// otlpIds gives spans their places: those that the session's SpanRefs have, and derived ones.
type otlpIds struct {
	session string
	run     otlpPlace
	// refs are the spans that are known, in order of their starts; the maps have the same by their ids, by
	// the row that they are of, and the first one of each message.
	refs  []otlpPlace
	known map[otlpSpanKey]*otlpPlace
	rows  map[otlpRefKey][]*otlpPlace
	first map[string]*otlpPlace
	// reports are the spans that measured something of a message.
	reports map[string][]*store.SpanRef
	taken   map[otlpSpanKey]bool
}

// otlpRefKey is the row that a span is of: the part of a call, the message of anything else.
type otlpRefKey struct{ kind, row string }

func otlpNewIDs(s *codec.Session) *otlpIds {
	i := &otlpIds{session: s.Session.ID, known: make(map[otlpSpanKey]*otlpPlace), taken: make(map[otlpSpanKey]bool),
		rows: make(map[otlpRefKey][]*otlpPlace), first: make(map[string]*otlpPlace),
		reports: make(map[string][]*store.SpanRef)}
	for n := range s.SpanRefs {
		if p, ok := otlpPlaceOf(&s.SpanRefs[n]); ok {
			i.refs = append(i.refs, p)
		}
	}
	i.refs = session.SortedRows(i.refs, func(x, y *otlpPlace) int {
		return cmp.Or(cmp.Compare(x.start, y.start), strings.Compare(x.ref.TraceID, y.ref.TraceID),
			strings.Compare(x.ref.SpanID, y.ref.SpanID))
	})
	for n := range i.refs {
		r := &i.refs[n]
		key := otlpRefKey{r.ref.Kind, r.ref.MessageID}
		if r.ref.Kind == semconv.SpanToolCall {
			key.row = r.ref.PartID
		}
		i.known[otlpSpanKey{r.trace, r.span}], i.rows[key] = r, append(i.rows[key], r)
		if id := r.ref.MessageID; i.first[id] == nil {
			i.first[id] = r
		}
		if id := r.ref.MessageID; id != "" && r.ref.TurnStats != nil {
			i.reports[id] = append(i.reports[id], r.ref)
		}
	}
	p := otlpPlace{start: otlpNano(s.Session.CreatedAt), end: otlpNano(s.Session.UpdatedAt)}
	if sum := sha256.Sum256([]byte("trace\x00" + i.session)); len(i.refs) > 0 {
		p.trace = i.refs[0].trace
	} else {
		copy(p.trace[:], sum[:])
	}
	// The session's row is what it was at the end of the last run. A change of a session takes no time.
	runs := i.rows[otlpRefKey{semconv.SpanSessionRun, ""}]
	slices.SortStableFunc(runs, func(x, y *otlpPlace) int {
		return cmp.Or(-cmp.Compare(min(1, x.end-x.start), min(1, y.end-y.start)), -cmp.Compare(x.end, y.end))
	})
	i.run = i.place(semconv.SpanSessionRun, "", p)
	return i
}

// otlpPlaceOf is the place of a known span. It is not ok if its ids are none.
func otlpPlaceOf(r *store.SpanRef) (p otlpPlace, ok bool) {
	ok = otlpUnhex(p.trace[:], r.TraceID) && otlpUnhex(p.span[:], r.SpanID) && !p.trace.IsEmpty() && !p.span.IsEmpty()
	otlpUnhex(p.parent[:], r.ParentSpanID) // none is none
	p.start, p.end, p.ref = r.StartNano, max(r.StartNano, r.EndNano), r
	return p, ok
}

// place is that of the first known span of the row that was not written yet, or else p with an id made of what it
// stands for.
func (i *otlpIds) place(kind, row string, p otlpPlace) otlpPlace {
	for _, r := range i.rows[otlpRefKey{kind, row}] {
		if i.claim(r.trace, r.span) {
			return *r
		}
	}
	return i.derive(kind, row, p)
}

// derive gives p a span id made of what it stands for. Where the session was read from what was written with
// derived ids, that is a known span.
func (i *otlpIds) derive(kind, row string, p otlpPlace) otlpPlace {
	p.end = max(p.start, p.end)
	for n := 0; ; n++ {
		sum := sha256.Sum256([]byte(i.session + "\x00" + kind + "\x00" + row + "\x00" + strconv.Itoa(n)))
		copy(p.span[:], sum[:])
		r := i.known[otlpSpanKey{p.trace, p.span}]
		switch {
		case r != nil && r.ref.Kind != kind || !i.claim(p.trace, p.span):
		case r != nil:
			return *r
		default:
			return p
		}
	}
}

// claim reports whether no other span has the ids, and gives them to one.
func (i *otlpIds) claim(trace pcommon.TraceID, span pcommon.SpanID) bool {
	key := otlpSpanKey{trace, span}
	if i.taken[key] || trace.IsEmpty() || span.IsEmpty() {
		return false
	}
	i.taken[key] = true
	return true
}

func otlpUnhex(dst []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(dst)) {
		return false
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}

// message is the place of the span of a message. A derived one is beside the first known span that is of the message.
func (i *otlpIds) message(kind string, m *session.MessageAndParts, start int64) otlpPlace {
	p := otlpPlace{trace: i.run.trace, parent: i.run.span, start: otlpNano(start), end: otlpNano(m.Message.UpdatedAt)}
	if r := i.first[m.Message.ID]; r != nil {
		p.trace, p.parent = r.trace, r.parent
		// A log record names the span in which it was written, and no parent.
		if i.run.trace == p.trace && strings.HasPrefix(r.ref.Kind, "log.") {
			p.parent = i.run.span
		}
	}
	return i.place(kind, m.Message.ID, p)
}

func (i *otlpIds) part(turn otlpPlace, part *session.Part) otlpPlace {
	p := otlpPlace{trace: turn.trace, parent: turn.span, start: otlpNano(part.CreatedAt), end: otlpNano(part.UpdatedAt)}
	return i.place(semconv.SpanToolCall, part.ID, p)
}

// decision is the place of a decision's span. A span that the decision names may be of something else in which
// it was reported.
func (i *otlpIds) decision(turn otlpPlace, d *store.Decision) otlpPlace {
	p := otlpPlace{trace: turn.trace, parent: turn.span, start: otlpNano(d.DecidedAt), end: otlpNano(d.DecidedAt)}
	if d.WaitedMS != nil && *d.WaitedMS > 0 {
		p.start -= min(otlpNano(*d.WaitedMS), p.start)
	}
	own := otlpPlace{start: p.start, end: p.end}
	if !otlpUnhex(own.trace[:], d.TraceID) || !otlpUnhex(own.span[:], d.SpanID) {
		return i.derive(semconv.SpanPermissionEvaluate, d.ID, p)
	}
	r := i.known[otlpSpanKey{own.trace, own.span}]
	switch {
	case r != nil && r.ref.Kind != semconv.SpanPermissionEvaluate || !i.claim(own.trace, own.span):
		return i.derive(semconv.SpanPermissionEvaluate, d.ID, p)
	case r != nil:
		return *r
	}
	if own.trace == turn.trace {
		own.parent = turn.span
	}
	return own
}

// otlpLastMilli is the last time that spans have, in the year 2262, in Unix milliseconds.
const otlpLastMilli = math.MaxInt64 / 1_000_000

// otlpNano is a time, or a while, in nanoseconds, which end in the year 2262.
func otlpNano(milli int64) int64 { return min(max(milli, -otlpLastMilli), otlpLastMilli) * 1e6 }
