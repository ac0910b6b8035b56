package setup

import (
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/redact"
)

// shortened returns an item with its texts in valid UTF-8, and cut to a limit, which is halved until the item fits into
// a request, as far as its texts allow, and that limit.
func shortened[T any](size func(T) int, cut func(cutter) T) (item T, limit int) {
	for limit = MaxRequestBytes; ; limit /= 2 {
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
	links      []sdktrace.Link
}

func (s *shortSpan) Name() string { return valid(s.ReadOnlySpan.Name()) }
func (s *shortSpan) Status() sdktrace.Status {
	status := s.ReadOnlySpan.Status()
	status.Description = valid(status.Description)
	return status
}
func (s *shortSpan) Links() []sdktrace.Link           { return s.links }
func (s *shortSpan) Attributes() []attribute.KeyValue { return s.attributes }
func (s *shortSpan) Events() []sdktrace.Event         { return s.events }

func shortenSpan(s sdktrace.ReadOnlySpan) (sdktrace.ReadOnlySpan, int) {
	return shortened(spanSize, func(c cutter) sdktrace.ReadOnlySpan {
		out := &shortSpan{s, c.attributes(s.Attributes()), slices.Clone(s.Events()), slices.Clone(s.Links())}
		for i := range out.events {
			e := &out.events[i]
			e.Name, e.Attributes = valid(e.Name), c.attributes(e.Attributes)
		}
		for i := range out.links {
			out.links[i].Attributes = c.attributes(out.links[i].Attributes)
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
		out.SetEventName(valid(r.EventName()))
		out.SetSeverityText(valid(r.SeverityText()))
		out.SetBody(c.value(r.Body()))
		out.SetAttributes(c.attributes(all)...)
		return out
	})
}

// cutter cuts texts to a limit. JSON stays JSON: the parts of a message are decoded one by
// one, and a tool's output is a JSON value.
type cutter struct {
	*redact.Redactor
	limit int
}

func (c cutter) text(s string) string {
	if s = valid(s); len(s) <= c.limit {
		return s
	}
	b, _ := c.TruncateJSON([]byte(s))
	return string(b)
}

func (c cutter) attributes(all []attribute.KeyValue) []attribute.KeyValue {
	out := slices.Clone(all)
	for i := range out {
		out[i].Key, out[i].Value = attribute.Key(valid(string(out[i].Key))), c.value(out[i].Value)
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

// valid returns s in UTF-8, without which a request cannot be encoded.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
