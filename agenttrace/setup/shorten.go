package setup

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
	m := measure(&lengths)
	m.attributes(out.attributes)
	for _, e := range out.events {
		m.attributes(e.Attributes)
	}
	limit := redact.Fit(lengths, excess)
	c := cut(limit)
	out.attributes = c.attributes(out.attributes)
	for i := range out.events {
		out.events[i].Attributes = c.attributes(out.events[i].Attributes)
	}
	return out, limit
}

// shortenRecord is shortenSpan for a log record.
func shortenRecord(r *sdklog.Record, excess int) (sdklog.Record, int) {
	var all []attribute.KeyValue
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		all = append(all, kv)
		return true
	})
	var lengths []int
	m := measure(&lengths)
	m.value(r.Body())
	m.attributes(all)
	limit := redact.Fit(lengths, excess)
	c := cut(limit)
	out := r.Clone()
	out.SetBody(c.value(r.Body()))
	out.SetAttributes(c.attributes(all)...)
	return out, limit
}

// texts replaces the texts and bytes in values.
type texts struct {
	text  func(string) string
	bytes func([]byte) []byte
}

// measure appends the lengths to lengths, and replaces nothing.
func measure(lengths *[]int) texts {
	return texts{
		func(s string) string { *lengths = append(*lengths, len(s)); return s },
		func(b []byte) []byte { *lengths = append(*lengths, len(b)); return b },
	}
}

// cut truncates to a limit. JSON stays JSON: the parts of a message are decoded one by
// one, and a tool's output is a JSON value.
func cut(limit int) texts {
	r, err := redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: limit})
	if err != nil {
		panic("setup: " + err.Error()) // the limit is at least redact.MinLimit
	}
	return texts{
		func(s string) string {
			if len(s) <= limit {
				return s
			}
			b, _ := r.TruncateJSON([]byte(s))
			return string(b)
		},
		func(b []byte) []byte { return b[:min(len(b), limit)] },
	}
}

func (t texts) attributes(all []attribute.KeyValue) []attribute.KeyValue {
	out := slices.Clone(all)
	for i := range out {
		out[i].Value = t.value(out[i].Value)
	}
	return out
}

func (t texts) value(v attribute.Value) attribute.Value {
	switch v.Type() {
	case attribute.STRING:
		return attribute.StringValue(t.text(v.AsString()))
	case attribute.STRINGSLICE:
		all := slices.Clone(v.AsStringSlice())
		for i := range all {
			all[i] = t.text(all[i])
		}
		return attribute.StringSliceValue(all)
	case attribute.BYTESLICE:
		return attribute.ByteSliceValue(t.bytes(v.AsByteSlice()))
	case attribute.SLICE:
		all := slices.Clone(v.AsSlice())
		for i := range all {
			all[i] = t.value(all[i])
		}
		return attribute.SliceValue(all...)
	case attribute.MAP:
		return attribute.MapValue(t.attributes(v.AsMap())...)
	}
	return v
}
