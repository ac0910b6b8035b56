package setup

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
)

// SessionSampler returns a sampler that keeps a fraction of the sessions, from 0 to 1, each with all of its runs,
// sub-agents and forks, or nothing of it. Every process that uses the same fraction decides alike, because the
// decision depends on the id of the session, or of the one at the top of its parents, alone.
//
// A session.run span is decided by its session, whatever its parent is; all other spans go
// by their parent. A span without a parent that is none of a session, such as that of a
// request, is kept with the same probability, by its trace.
func SessionSampler(fraction float64) sdktrace.Sampler {
	fraction = min(max(fraction, 0), 1)
	return sessionSampler{fraction, sdktrace.ParentBased(sdktrace.TraceIDRatioBased(fraction))}
}

type sessionSampler struct {
	fraction float64
	others   sdktrace.Sampler
}

// ShouldSample implements [sdktrace.Sampler].
func (s sessionSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	id := ""
	if p.Name == semconv.SpanSessionRun {
		for _, kv := range p.Attributes {
			switch kv.Key {
			case semconv.SessionRootIDKey:
				id = kv.Value.AsString()
			case semconv.SessionIDKey:
				if id == "" {
					id = kv.Value.AsString()
				}
			}
		}
	}
	if id == "" {
		return s.others.ShouldSample(p)
	}
	result := sdktrace.SamplingResult{Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
	if s.keeps(id) {
		result.Decision = sdktrace.RecordAndSample
	}
	return result
}

// keeps compares 53 bits of the id's checksum, which a float64 holds exactly, with the fraction.
func (s sessionSampler) keeps(id string) bool {
	sum := sha256.Sum256([]byte(id))
	return float64(binary.BigEndian.Uint64(sum[:])>>11)/(1<<53) < s.fraction
}

// Description implements [sdktrace.Sampler].
func (s sessionSampler) Description() string { return fmt.Sprintf("SessionSampler{%g}", s.fraction) }
