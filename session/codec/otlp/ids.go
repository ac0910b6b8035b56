package otlp

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// place is where a span stands. Times are Unix nanoseconds.
type place struct {
	trace        pcommon.TraceID
	span, parent pcommon.SpanID
	start, end   int64
}

// ids gives spans their places.
type ids struct {
	session  string
	run      place
	refs     map[refKey]*store.SpanRef
	taken    map[[24]byte]bool
	from, to int64 // of the session, Unix milliseconds
}

// refKey finds the span that a row came from: the part of a call, the message of
// anything else.
type refKey struct{ kind, row string }

func newIDs(s *codec.Session) *ids {
	i := &ids{session: s.Session.ID, refs: make(map[refKey]*store.SpanRef), taken: make(map[[24]byte]bool),
		from: s.Session.CreatedAt, to: s.Session.UpdatedAt}
	for n := range s.SpanRefs {
		r := &s.SpanRefs[n]
		key := refKey{r.Kind, r.MessageID}
		if r.Kind == semconv.SpanToolCall {
			key.row = r.PartID
		}
		if _, known := i.refs[key]; !known {
			i.refs[key] = r
		}
	}
	i.run = i.place(refKey{semconv.SpanSessionRun, ""}, place{trace: i.trace(), start: nano(i.from), end: nano(i.to)},
		i.to)
	// The run that is written stands for the whole session, whichever run had the id.
	i.run.parent, i.run.start, i.run.end = pcommon.SpanID{}, nano(i.from), nano(i.to)
	return i
}

// trace is that of a session none of whose spans is known.
func (i *ids) trace() (id pcommon.TraceID) {
	sum := sha256.Sum256([]byte("trace\x00" + i.session))
	copy(id[:], sum[:])
	return id
}

// place is that of the span that the link of the key knows, or else p with a derived
// id. A span may end at most at the time until, in Unix milliseconds, for a message is
// as new as the last span that reports it.
func (i *ids) place(key refKey, p place, until int64) place {
	if p.end < p.start {
		p.end = p.start
	}
	if l := i.refs[key]; l != nil && i.take(l.TraceID, l.SpanID, &p) {
		if i.from <= l.StartNano/1e6 && l.StartNano <= l.EndNano && l.EndNano/1e6 <= min(until, i.to) &&
			l.StartNano > 0 {
			p.start, p.end = l.StartNano, l.EndNano
		}
		return p
	}
	i.derive(&p, key.kind, key.row)
	return p
}

// take gives p a trace and a span id in hex, if they are such and no other span has
// them.
func (i *ids) take(traceID, spanID string, p *place) bool {
	var trace pcommon.TraceID
	var span pcommon.SpanID
	if !unhex(trace[:], traceID) || !unhex(span[:], spanID) {
		return false
	}
	if !i.claim(trace, span) {
		return false
	}
	if p.trace != trace {
		p.parent = pcommon.SpanID{} // it is of another trace
	}
	p.trace, p.span = trace, span
	return true
}

// derive gives p a span id made of what it stands for.
func (i *ids) derive(p *place, kind, row string) {
	for n := 0; ; n++ {
		sum := sha256.Sum256([]byte(i.session + "\x00" + kind + "\x00" + row + "\x00" + strconv.Itoa(n)))
		copy(p.span[:], sum[:])
		if i.claim(p.trace, p.span) {
			return
		}
	}
}

func (i *ids) claim(trace pcommon.TraceID, span pcommon.SpanID) bool {
	var key [24]byte
	copy(key[copy(key[:], trace[:]):], span[:])
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

func (i *ids) message(kind string, m *session.MessageAndParts, start int64) place {
	p := place{trace: i.run.trace, parent: i.run.span, start: nano(start), end: nano(m.Message.UpdatedAt)}
	return i.place(refKey{kind, m.Message.ID}, p, m.Message.UpdatedAt)
}

// modelCall is the place of the nth call of a turn that failed. Calls are in order of
// their times, and within the millisecond in which the turn began.
func (i *ids) modelCall(turn place, messageID string, n int) place {
	at := turn.start/1e6*1e6 + int64(n)
	p := place{trace: turn.trace, parent: turn.span, start: at, end: at}
	i.derive(&p, "chat", messageID+"\x00"+strconv.Itoa(n))
	return p
}

func (i *ids) part(turn place, part *session.Part) place {
	p := place{trace: turn.trace, parent: turn.span, start: nano(part.CreatedAt), end: nano(part.UpdatedAt)}
	return i.place(refKey{semconv.SpanToolCall, part.ID}, p, part.UpdatedAt)
}

func (i *ids) decision(turn place, d *store.Decision) place {
	p := place{trace: turn.trace, parent: turn.span, start: nano(d.DecidedAt), end: nano(d.DecidedAt)}
	if d.WaitedMS != nil && *d.WaitedMS > 0 {
		p.start = max(p.start-nano(*d.WaitedMS), min(p.start, nano(i.from)))
	}
	if !i.take(d.TraceID, d.SpanID, &p) {
		i.derive(&p, semconv.SpanPermissionEvaluate, d.ID)
	}
	return p
}

// lastMilli is the last time that spans have, in the year 2262, in Unix milliseconds.
const lastMilli = math.MaxInt64 / 1_000_000

// nano is a time, or a while, in nanoseconds, which end in the year 2262.
func nano(milli int64) int64 { return min(max(milli, -lastMilli), lastMilli) * 1e6 }
