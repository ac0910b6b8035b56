package spool

import (
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// mostRequest is about how many bytes a request has. The SDK's batches are
// bounded by their number of spans, a receiver's requests by their bytes: what
// exceeds those is refused for good.
const mostRequest = 8 << 20

// fitting returns how many of n items fit into a request, at least one.
func fitting(n int, size func(int) int) int {
	sum := 0
	for i := range n {
		if sum += size(i); sum > mostRequest && i > 0 {
			return i
		}
	}
	return n
}

// fixed is about what an item costs beside its text.
const fixed = 256

func spanSize(s sdktrace.ReadOnlySpan) int {
	n := fixed + len(s.Name()) + len(s.Status().Description) + attributesSize(s.Attributes())
	for _, e := range s.Events() {
		n += fixed + len(e.Name) + attributesSize(e.Attributes)
	}
	for _, l := range s.Links() {
		n += fixed + attributesSize(l.Attributes)
	}
	return n
}

func attributesSize(all []attribute.KeyValue) int {
	n := 0
	for _, kv := range all {
		n += len(kv.Key) + 16 + valueSize(kv.Value)
	}
	return n
}

func recordSize(r *sdklog.Record) int {
	n := fixed + len(r.EventName()) + valueSize(r.Body())
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		n += len(kv.Key) + 16 + valueSize(kv.Value)
		return true
	})
	return n
}

func valueSize(v attribute.Value) int {
	n := 0
	switch v.Type() {
	case attribute.STRING:
		return len(v.AsString())
	case attribute.STRINGSLICE:
		for _, s := range v.AsStringSlice() {
			n += len(s) + 8
		}
	case attribute.BYTESLICE:
		return len(v.AsByteSlice())
	case attribute.SLICE:
		for _, e := range v.AsSlice() {
			n += 8 + valueSize(e)
		}
	case attribute.MAP:
		return attributesSize(v.AsMap())
	}
	return n
}
