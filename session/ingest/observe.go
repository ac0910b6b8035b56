package ingest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/session/ingest/assemble"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// observeSpan reads a span that is not the SDK's, and reports whether it has anything of a session.
func (b *builder) observeSpan(s *dialect.Span) (name string, ok bool) {
	d := dialect.OfSpan(s)
	if d == nil {
		b.noteKey(s)
		return "", false
	}
	var facts dialect.Emitter
	facts.OpenSpan(d, s, b.keys)
	d.ReadSpan(s, &facts)
	return d.Name, b.takeFacts(d, facts.All, s.Resource, func(first *fact.Fact) string {
		if first.SpanID == "" {
			b.problem("span id is empty")
			return digest(first.Name, strconv.FormatInt(first.Start, 10), strconv.FormatInt(first.End, 10))[:16]
		}
		return first.SpanID
	})
}

// observeRecord reads a log record, and reports whether it reported anything of a session.
func (b *builder) observeRecord(r *dialect.Record) (name string, ok bool) {
	d := dialect.OfRecord(r)
	if d == nil {
		return "", false
	}
	before, omitted := b.redaction.redacted, b.redaction.omitted
	var facts dialect.Emitter
	facts.OpenRecord(d, r, b.keys)
	d.ReadRecord(r, &facts)
	return d.Name, b.takeFacts(d, facts.All, r.Resource, func(*fact.Fact) string {
		// A digest of all that a record reports would confirm a guess of a secret in it, or of what is omitted: then sizes
		// and what is left count.
		clean, value, left := func(s string) string { return s }, pcommon.Value.AsString, []byte(nil)
		if b.redaction.redacted != before {
			clean = b.redaction.Text
		}
		if b.redaction.omitted != omitted {
			left, _ = json.Marshal(facts.All)
			value = func(v pcommon.Value) string {
				if v.Type() == pcommon.ValueTypeInt {
					return v.AsString()
				}
				return strconv.Itoa(len(v.AsString()))
			}
		}
		id := recordDigest(r, clean, value, string(left))
		if dialect.HasMessage(r) && !r.SpanID().IsEmpty() {
			// A user may write the same text twice in one conversation, whose messages are records of one instant.
			// The count is the same however else the delivery is put together.
			n := b.seen[id]
			if b.seen[id]++; n > 0 {
				id += "." + strconv.Itoa(n)
			}
		}
		return fact.RecordPrefix + id
	})
}

// observeEvaluations reads the scores that are events of a span, and reports whether there are any.
func (b *builder) observeEvaluations(it *item) bool {
	if it.span.Events().Len() == 0 {
		return false
	}
	facts := dialect.Evaluations(&dialect.Span{Span: it.span, Scope: it.scope, Resource: it.resource}, b.keys)
	ofSpan := b.problems
	for i := range facts {
		b.problems = nil
		b.takeFacts(nil, facts[i:i+1:i+1], it.resource, func(f *fact.Fact) string {
			return fact.RecordPrefix + digest(string(encode(f)))[:32]
		})
		ofSpan = append(ofSpan, b.problems...)
	}
	b.problems = ofSpan
	return len(facts) > 0
}

// noted is a session that a span names which reports nothing else.
type noted struct {
	trace   pcommon.TraceID
	key, id string
}

// noteKey remembers the session that a span names which reports nothing else, for the trace where no other names one:
// to those its attributes are a place beyond their resource. It is remembered once, without a time: a program may put
// the key on every span there is. The observation has no data, so it is never counted as pending.
func (b *builder) noteKey(s *dialect.Span) {
	id, key, rank := b.keys.Find(s.Attributes())
	if id == "" {
		return
	}
	id = b.redaction.identifier(id)
	n := noted{s.TraceID(), key, id}
	if n.trace.IsEmpty() || b.noted[n] {
		return
	}
	b.noted[n] = true
	b.batch.Observations = append(b.batch.Observations, store.Observation{
		TraceID: n.trace.String(), Source: "noted-" + digest(key, id)[:16], Dialect: "key",
		Session: id, Rank: placesOfSpan*b.keys.Len() + rank, Own: spans.TraceSession(n.trace.String()),
	})
}

// placesOfSpan is where a span's session is looked up: on itself, its scope, and its resource.
const placesOfSpan = 3

// takeFacts turns the facts of the span or record at hand into observations. source
// names the first of them, which is redacted then.
func (b *builder) takeFacts(d *dialect.Dialect, all []fact.Fact, resource pcommon.Resource,
	source func(*fact.Fact) string) bool {
	if len(all) == 0 {
		return false
	}
	service := dialect.Service(resource)
	// What was wrong with the span before it was read is kept with its first fact.
	all[0].Problems = append(slices.Clone(b.problems), all[0].Problems...)
	b.problems = b.problems[:0]
	for i := range all {
		f := &all[i]
		f.Service = service
		f.SplitWords()
		if f.Evaluation != nil {
			takeRow(f.Evaluation)
		}
		boundFact(f)
		if b.redaction.Redactor != nil {
			b.redaction.fact(f)
		}
	}
	id := source(&all[0])
	for i := range all {
		f := &all[i]
		if f.Source = id; i > 0 {
			f.Source += "#" + strconv.Itoa(i)
		}
		for _, p := range f.Problems {
			b.problem(p)
		}
		const most = 2000 // bytes of a system prompt that is not an agent's
		if f.Kind == fact.ModelCall && len(f.SystemPrompt) <= most &&
			strings.Contains(strings.ToLower(modelapi.Aside().FindString(f.SystemPrompt)), "title") {
			f.Aside = "title"
		}
		f.SystemPromptDigest = cmp.Or(b.blob(store.BlobSystemPrompt, "", f.SystemPrompt), f.SystemPromptDigest)
		f.ToolCatalogDigest = cmp.Or(b.blob(store.BlobToolCatalog, "", f.ToolCatalog), f.ToolCatalogDigest)
		o := observation(f, d)
		o.Received = b.received
		b.batch.Observations = append(b.batch.Observations, o)
		if f.Kind == fact.ModelCall && f.ParentID != "" && f.Source == f.SpanID && assemble.PilesUp(f) {
			b.batch.Observations = append(b.batch.Observations, reachBack(f, b.received))
		}
	}
	return true
}

// repeatLife is for how long a client is expected to repeat the prompt of a turn that failed.
const repeatLife = time.Hour

// reachBack is an observation without data that lasts from some time before a call until that begins. What it reaches
// across is assembled together with the call: of the turns before, one may have failed and left the prompt that the
// call repeats.
func reachBack(call *fact.Fact, received int64) store.Observation {
	return store.Observation{TraceID: call.TraceID, ParentSpanID: call.SpanID, Source: call.Source + "#before",
		Dialect: call.Dialect, Start: call.Start - int64(repeatLife), End: call.Start, Received: received,
		Own: spans.TraceSession(call.TraceID)}
}

// observation is a fact as the store keeps it.
func observation(f *fact.Fact, d *dialect.Dialect) store.Observation {
	o := store.Observation{
		TraceID: f.TraceID, Source: f.Source, Dialect: f.Dialect, SpanID: f.SpanID, ParentSpanID: f.ParentID,
		Start: f.Start, End: f.End, Error: f.Failed, Session: f.Session, Rank: f.SessionRank,
		Data: encode(f),
	}
	if assemble.Opens(f, d != nil && d.Prompts) && !(d != nil && d.PromptFirst && f.Kind == fact.Turn) {
		o.Opens = store.Opens
	}
	if f.Kind == fact.Evaluation {
		// Where it was reported does not decide on the session of the trace.
		o.Session, o.Rank, o.Error = "", 0, false
		o.Evaluates(f.ResponseID, f.TraceID, f.SpanID, f.Work())
	}
	if f.SubagentID != "" {
		o.Subagent = f.Work()
	}
	if f.TraceID != "" { // otherwise it is not attributed until something names its session
		o.Own = spans.TraceSession(f.TraceID)
	}
	if f.Kind == fact.ModelCall && f.ResponseID != "" {
		o.Calls = append(o.Calls, store.ResponsePrefix+f.ResponseID)
	}
	for i := range f.Output {
		if p := &f.Output[i]; p.Kind == fact.PartCall && p.CallID != "" && !slices.Contains(o.Calls, p.CallID) {
			o.Calls = append(o.Calls, p.CallID)
		}
	}
	switch {
	case f.Kind == fact.ToolCall && f.ParentID == "" && f.CallID != "" && f.Session == "":
		o.Call = f.CallID
	case f.Kind == fact.ModelCall && f.Source == f.SpanID && f.Model != nil && f.Model.ModelID != "":
		// By its program and model a span of a call may be found beside another instrumentation's of the same call. A span
		// that reports nothing but that there was a call, in a trace of its own, is the library's of the provider: a
		// framework lost the context on the way to it. Both run in one program: agents that call the same model at the
		// same time do not share their calls.
		if call := store.ModelCallPrefix + f.Service + "/" + f.Model.ModelID; assemble.IsOrphan(f) {
			o.Call = call
		} else {
			o.Calls = append(o.Calls, call)
		}
	}
	return o
}

// reading numbers how the dialects read, from 0 to 30. Raise it when one of them reads more of what it read before:
// where the telemetry is read again, what is stored gives way to the later reading.
const reading = 4

// An encoded fact begins with a byte that states how it was read and how it is written: store.DataVersion, the number
// of the reading and whether a client's own dialect read it, and in the lowest bit whether it is compressed.
const (
	compressed   = 1
	ofDialect    = 2 // not by the generic reading
	readingShift = 2
)

var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderCRC(false))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
)

// encode writes a fact for the store.
func encode(f *fact.Fact) []byte {
	header := byte(store.DataVersion | reading<<readingShift)
	if f.Dialect != dialect.Generic {
		header |= ofDialect
	}
	raw, _ := json.Marshal(f) // boundFact has seen to it that what should be JSON is
	const worth = 512
	if len(raw) < worth {
		return append([]byte{header}, raw...)
	}
	return encoder.EncodeAll(raw, []byte{header | compressed})
}

func decode(data []byte, f *fact.Fact) error {
	if len(data) == 0 {
		return fmt.Errorf("fact is empty")
	}
	raw, header := data[1:], data[0]
	if header < store.DataVersion {
		return fmt.Errorf("fact is written in an unknown way %q: a newer version wrote it", header)
	}
	if header&compressed != 0 {
		var err error
		if raw, err = decoder.DecodeAll(raw, nil); err != nil {
			return err
		}
	}
	return json.Unmarshal(raw, f)
}

// assembleWindow is the [store.Assembler] of all batches.
func assembleWindow(w *store.Window) (store.Assembly, error) {
	facts := factsOf(w.Observations)
	if len(facts) > 0 && facts[0].Kind == fact.Evaluation {
		return store.Assembly{Annotations: scores(facts)}, nil
	}
	return assemble.Assemble(w.Owner, facts, w.Proofs...), nil
}

// takeRow reads the row that an exported score has beside the attributes of the convention.
func takeRow(e *fact.Evaluated) {
	var rows EmbeddedRows
	if json.Unmarshal([]byte(e.Rows), &rows) != nil || len(rows.Annotations) == 0 {
		return
	}
	n := &rows.Annotations[0]
	e.ID, e.MessageID, e.PartID, e.Author = n.ID, n.MessageID, n.PartID, n.Author
	e.CreatedAt, e.UpdatedAt = n.CreatedAt, n.UpdatedAt
}

// scores are the annotations that evaluations report, without what they are about unless a store wrote that. The id
// depends on what the evaluation names and not on what that comes to, so it stays when that is rebuilt.
func scores(facts []fact.Fact) []store.Annotation {
	all := make([]store.Annotation, len(facts))
	for i := range facts {
		f := &facts[i]
		at, e := f.Start/1e6, f.Evaluation
		if e == nil {
			continue // it cannot be read
		}
		all[i] = store.Annotation{
			ID: e.ID, MessageID: e.MessageID, PartID: e.PartID, Kind: store.AnnotationScore, Name: e.Name, Value: e.Value,
			Label: e.Label, Comment: e.Explanation, Author: e.Author, CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt,
		}
		if e.ID == "" {
			all[i].CreatedAt, all[i].UpdatedAt = at, at
			all[i].SessionID = f.Work()
			if all[i].Identify(); e.MessageID == "" { // otherwise it has the id of a score that a user gives
				all[i].ID = "ann_" + digest(store.AnnotationScore, e.Name, e.Author, f.ResponseID, f.TraceID, f.SpanID,
					f.Session)[:24]
			}
		}
		if c := &all[i].Comment; len(*c) > store.MaxAnnotation {
			*c = strings.ToValidUTF8((*c)[:store.MaxAnnotation-len("…")], "") + "…"
		}
	}
	return all
}

// factsOf reads facts back from the store.
func factsOf(observations []store.Observation) []fact.Fact {
	facts := make([]fact.Fact, len(observations))
	for i := range observations {
		o := &observations[i]
		if err := decode(o.Data, &facts[i]); err != nil {
			// The file was damaged, or a newer version wrote it. The rest of its session is built without it.
			facts[i] = fact.Fact{
				Kind: fact.Step, Dialect: o.Dialect, TraceID: o.TraceID, SpanID: o.SpanID, ParentID: o.ParentSpanID,
				Source: o.Source, Start: o.Start, End: o.End, Session: o.Session, SessionRank: o.Rank,
			}
			if len(o.Data) > 0 { // otherwise it only reaches
				facts[i].Problems = []string{fmt.Sprintf("observation %s cannot be read: %v", o.Source, err)}
			}
		}
		facts[i].TraceRank, facts[i].Received = o.TraceRank, o.Received
	}
	return facts
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// recordDigest identifies a record, which has no id of its own: a record that is delivered again has the same. Every
// text goes through clean, what the record reports through value before; left is what else counts.
func recordDigest(r *dialect.Record, clean func(string) string, value func(pcommon.Value) string, left string) string {
	parts := []string{
		clean(r.Event), clean(r.EventName()), clean(r.SeverityText()),
		r.Timestamp().String(), r.ObservedTimestamp().String(), clean(value(r.Body())),
		r.TraceID().String(), r.SpanID().String(),
	}
	for key, v := range r.Attributes().All() {
		parts = append(parts, clean(key), clean(value(v)))
	}
	for key, v := range r.Resource.Attributes().All() {
		parts = append(parts, clean(key), clean(v.AsString()))
	}
	if left != "" {
		parts = append(parts, left)
	}
	return digest(parts...)[:32]
}
