package otlpbatch

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/redact"
)

// shortened is a span with shorter values.
type shortened struct {
	sdktrace.ReadOnlySpan
	attributes []attribute.KeyValue
	events     []sdktrace.Event
}

func (s *shortened) Attributes() []attribute.KeyValue { return s.attributes }
func (s *shortened) Events() []sdktrace.Event         { return s.events }

// shortenSpan returns a span that is shorter by excess bytes, as far as its attributes
// and those of its events allow, and the limit to which they were truncated.
func shortenSpan(s sdktrace.ReadOnlySpan, excess int) (sdktrace.ReadOnlySpan, int) {
	out := &shortened{ReadOnlySpan: s, attributes: s.Attributes(), events: slices.Clone(s.Events())}
	var lengths []int
	lengths = lengthsOf(lengths, out.attributes)
	for _, e := range out.events {
		lengths = lengthsOf(lengths, e.Attributes)
	}
	c := newCutter(redact.Fit(lengths, excess))
	out.attributes = c.attributes(out.attributes)
	for i := range out.events {
		out.events[i].Attributes = c.attributes(out.events[i].Attributes)
	}
	return out, c.limit
}

// shortenRecord is shortenSpan for a log record.
func shortenRecord(r *sdklog.Record, excess int) (sdklog.Record, int) {
	var all []attribute.KeyValue
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		all = append(all, kv)
		return true
	})
	c := newCutter(redact.Fit(lengthsOf(lengthsOfValue(nil, r.Body()), all), excess))
	out := r.Clone()
	out.SetBody(c.value(r.Body()))
	out.SetAttributes(c.attributes(all)...)
	return out, c.limit
}

func lengthsOf(dst []int, all []attribute.KeyValue) []int {
	for _, kv := range all {
		dst = lengthsOfValue(dst, kv.Value)
	}
	return dst
}

func lengthsOfValue(dst []int, v attribute.Value) []int {
	switch v.Type() {
	case attribute.STRING:
		return append(dst, len(v.AsString()))
	case attribute.STRINGSLICE:
		for _, s := range v.AsStringSlice() {
			dst = append(dst, len(s))
		}
	case attribute.BYTESLICE:
		return append(dst, len(v.AsByteSlice()))
	case attribute.SLICE:
		for _, e := range v.AsSlice() {
			dst = lengthsOfValue(dst, e)
		}
	case attribute.MAP:
		return lengthsOf(dst, v.AsMap())
	}
	return dst
}

// cutter truncates texts to a limit. JSON stays JSON: the parts of a message are decoded
// one by one, and a tool's output is a JSON value.
type cutter struct {
	limit int
	r     *redact.Redactor
}

func newCutter(limit int) cutter {
	r, err := redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: limit})
	if err != nil {
		panic("otlpbatch: " + err.Error()) // the limit is at least redact.MinLimit
	}
	return cutter{limit, r}
}

func (c cutter) attributes(all []attribute.KeyValue) []attribute.KeyValue {
	out := slices.Clone(all)
	for i := range out {
		out[i].Value = c.value(out[i].Value)
	}
	return out
}

func (c cutter) value(v attribute.Value) attribute.Value {
	switch v.Type() {
	case attribute.STRING:
		return attribute.StringValue(c.text(v.AsString()))
	case attribute.STRINGSLICE:
		all := slices.Clone(v.AsStringSlice())
		for i := range all {
			all[i] = c.text(all[i])
		}
		return attribute.StringSliceValue(all)
	case attribute.BYTESLICE:
		b := v.AsByteSlice()
		return attribute.ByteSliceValue(b[:min(len(b), c.limit)])
	case attribute.SLICE:
		all := slices.Clone(v.AsSlice())
		for i := range all {
			all[i] = c.value(all[i])
		}
		return attribute.SliceValue(all...)
	case attribute.MAP:
		return attribute.MapValue(c.attributes(v.AsMap())...)
	}
	return v
}

func (c cutter) text(s string) string {
	if len(s) <= c.limit {
		return s
	}
	b, _ := c.r.TruncateJSON([]byte(s))
	return string(b)
}
