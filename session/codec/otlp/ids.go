package otlp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// place is where a span stands. Times are Unix nanoseconds. ref is what the session knows of the
// span, nil if it is a derived one.
type place struct {
	trace        pcommon.TraceID
	span, parent pcommon.SpanID
	start, end   int64
	ref          *store.SpanRef
}

// spanKey is a trace and a span id.
type spanKey [24]byte

func keyOf(trace pcommon.TraceID, span pcommon.SpanID) (key spanKey) {
	copy(key[copy(key[:], trace[:]):], span[:])
	return key
}

// ids gives spans their places: those that the session's SpanRefs have, and derived ones.
type ids struct {
	session string
	run     place
	// refs are the spans that are known, in order of their starts; the maps have the same by their ids, by
	// the row that they are of, and the first one of each message.
	refs  []place
	known map[spanKey]*place
	rows  map[refKey][]*place
	first map[string]*place
	// reports are the spans that measured something of a message.
	reports map[string][]*store.SpanRef
	taken   map[spanKey]bool
}

// refKey is the row that a span is of: the part of a call, the message of anything else.
type refKey struct{ kind, row string }

func newIDs(s *codec.Session) *ids {
	i := &ids{session: s.Session.ID, known: make(map[spanKey]*place), taken: make(map[spanKey]bool),
		rows: make(map[refKey][]*place), first: make(map[string]*place), reports: make(map[string][]*store.SpanRef)}
	for n := range s.SpanRefs {
		if p, ok := placeOf(&s.SpanRefs[n]); ok {
			i.refs = append(i.refs, p)
		}
	}
	slices.SortFunc(i.refs, func(x, y place) int {
		return cmp.Or(cmp.Compare(x.start, y.start), strings.Compare(x.ref.TraceID, y.ref.TraceID),
			strings.Compare(x.ref.SpanID, y.ref.SpanID))
	})
	for n := range i.refs {
		r := &i.refs[n]
		key := refKey{r.ref.Kind, r.ref.MessageID}
		if r.ref.Kind == semconv.SpanToolCall {
			key.row = r.ref.PartID
		}
		i.known[keyOf(r.trace, r.span)], i.rows[key] = r, append(i.rows[key], r)
		if id := r.ref.MessageID; i.first[id] == nil {
			i.first[id] = r
		}
		if id := r.ref.MessageID; id != "" && r.ref.TurnStats != nil {
			i.reports[id] = append(i.reports[id], r.ref)
		}
	}
	p := place{start: nano(s.Session.CreatedAt), end: nano(s.Session.UpdatedAt)}
	if sum := sha256.Sum256([]byte("trace\x00" + i.session)); len(i.refs) > 0 {
		p.trace = i.refs[0].trace
	} else {
		copy(p.trace[:], sum[:])
	}
	// The session's row is what it was at the end of the last run. A change of a session takes no time.
	runs := i.rows[refKey{semconv.SpanSessionRun, ""}]
	slices.SortStableFunc(runs, func(x, y *place) int {
		return cmp.Or(-cmp.Compare(min(1, x.end-x.start), min(1, y.end-y.start)), -cmp.Compare(x.end, y.end))
	})
	i.run = i.place(semconv.SpanSessionRun, "", p)
	return i
}

// placeOf is the place of a known span. It is not ok if its ids are none.
func placeOf(r *store.SpanRef) (p place, ok bool) {
	ok = unhex(p.trace[:], r.TraceID) && unhex(p.span[:], r.SpanID) && !p.trace.IsEmpty() && !p.span.IsEmpty()
	unhex(p.parent[:], r.ParentSpanID) // none is none
	p.start, p.end, p.ref = r.StartNano, max(r.StartNano, r.EndNano), r
	return p, ok
}

// place is that of the first known span of the row that was not written yet, or else p with an id made of what it
// stands for.
func (i *ids) place(kind, row string, p place) place {
	for _, r := range i.rows[refKey{kind, row}] {
		if i.claim(r.trace, r.span) {
			return *r
		}
	}
	return i.derive(kind, row, p)
}

// derive gives p a span id made of what it stands for. Where the session was read from what was written with
// derived ids, that is a known span.
func (i *ids) derive(kind, row string, p place) place {
	p.end = max(p.start, p.end)
	for n := 0; ; n++ {
		sum := sha256.Sum256([]byte(i.session + "\x00" + kind + "\x00" + row + "\x00" + strconv.Itoa(n)))
		copy(p.span[:], sum[:])
		r := i.known[keyOf(p.trace, p.span)]
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
func (i *ids) claim(trace pcommon.TraceID, span pcommon.SpanID) bool {
	key := keyOf(trace, span)
	if i.taken[key] || trace.IsEmpty() || span.IsEmpty() {
		return false
	}
	i.taken[key] = true
	return true
}

func unhex(dst []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(dst)) {
		return false
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}

// message is the place of the span of a message. A derived one is beside the first known span that is
// of the message.
func (i *ids) message(kind string, m *session.MessageAndParts, start int64) place {
	p := place{trace: i.run.trace, parent: i.run.span, start: nano(start), end: nano(m.Message.UpdatedAt)}
	if r := i.first[m.Message.ID]; r != nil {
		p.trace, p.parent = r.trace, r.parent
	}
	return i.place(kind, m.Message.ID, p)
}

func (i *ids) part(turn place, part *session.Part) place {
	p := place{trace: turn.trace, parent: turn.span, start: nano(part.CreatedAt), end: nano(part.UpdatedAt)}
	return i.place(semconv.SpanToolCall, part.ID, p)
}

// decision is the place of a decision's span. A span that the decision names may be of something else in which
// it was reported.
func (i *ids) decision(turn place, d *store.Decision) place {
	p := place{trace: turn.trace, parent: turn.span, start: nano(d.DecidedAt), end: nano(d.DecidedAt)}
	if d.WaitedMS != nil && *d.WaitedMS > 0 {
		p.start -= min(nano(*d.WaitedMS), p.start)
	}
	own := place{start: p.start, end: p.end}
	if !unhex(own.trace[:], d.TraceID) || !unhex(own.span[:], d.SpanID) {
		return i.derive(semconv.SpanPermissionEvaluate, d.ID, p)
	}
	r := i.known[keyOf(own.trace, own.span)]
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

// lastMilli is the last time that spans have, in the year 2262, in Unix milliseconds.
const lastMilli = math.MaxInt64 / 1_000_000

// nano is a time, or a while, in nanoseconds, which end in the year 2262.
func nano(milli int64) int64 { return min(max(milli, -lastMilli), lastMilli) * 1e6 }
