package setup

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/redact"
)

// shortened returns an item with its texts cut to a limit, which is halved until the item fits into a request, as far
// as its texts allow, and that limit.
func shortened[T any](size func(T) int, cut func(cutter) T) (item T, limit int) {
	for limit = MaxRequestBytes / 2; ; limit /= 2 {
		r, err := redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: limit})
		if err != nil {
			panic("setup: " + err.Error()) // the limit is at least redact.MinLimit
		}
		if item = cut(cutter{r, limit}); size(item) <= MaxRequestBytes || limit/2 < redact.MinLimit {
			return item, limit
		}
	}
}

// shortSpan is a span with shorter values.
type shortSpan struct {
	sdktrace.ReadOnlySpan
	attributes []attribute.KeyValue
	events     []sdktrace.Event
}

func (s *shortSpan) Attributes() []attribute.KeyValue { return s.attributes }
func (s *shortSpan) Events() []sdktrace.Event         { return s.events }

func shortenSpan(s sdktrace.ReadOnlySpan) (sdktrace.ReadOnlySpan, int) {
	return shortened(spanSize, func(c cutter) sdktrace.ReadOnlySpan {
		out := &shortSpan{ReadOnlySpan: s, attributes: c.attributes(s.Attributes()), events: slices.Clone(s.Events())}
		for i := range out.events {
			out.events[i].Attributes = c.attributes(out.events[i].Attributes)
		}
		return out
	})
}

func shortenRecord(r sdklog.Record) (sdklog.Record, int) {
	var all []attribute.KeyValue
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		all = append(all, kv)
		return true
	})
	return shortened(recordSize, func(c cutter) sdklog.Record {
		out := r.Clone()
		out.SetBody(c.value(r.Body()))
		out.SetAttributes(c.attributes(all)...)
		return out
	})
}

// cutter cuts texts to a limit. JSON stays JSON: the parts of a message are decoded one by
// one, and a tool's output is a JSON value. Other types of values are not that large.
type cutter struct {
	*redact.Redactor
	limit int
}

func (c cutter) text(s string) string {
	if len(s) <= c.limit {
		return s
	}
	b, _ := c.TruncateJSON([]byte(s))
	return string(b)
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
	}
	return v
}
