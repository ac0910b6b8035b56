package redactionprocessor

import (
	"context"
	"strconv"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/nesting"
	"github.com/agenttrace/agenttrace/processor/redactionprocessor/internal/metadata"
	"github.com/agenttrace/agenttrace/redact"
)

// redaction takes secrets out of telemetry in place.
type redaction struct {
	redactor  *redact.Redactor
	telemetry *metadata.TelemetryBuilder
}

func (p *redaction) traces(ctx context.Context, td ptrace.Traces) (ptrace.Traces, error) {
	nesting.Traces(td) // the cleaner recurses
	c := cleaner{r: p.redactor}
	for _, rs := range td.ResourceSpans().All() {
		c.attributes(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			c.attributes(ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				c.span(s)
			}
		}
	}
	p.count(ctx, &c)
	return td, nil
}

func (p *redaction) logs(ctx context.Context, ld plog.Logs) (plog.Logs, error) {
	nesting.Logs(ld)
	c := cleaner{r: p.redactor}
	for _, rl := range ld.ResourceLogs().All() {
		c.attributes(rl.Resource().Attributes())
		for _, sl := range rl.ScopeLogs().All() {
			c.attributes(sl.Scope().Attributes())
			for _, r := range sl.LogRecords().All() {
				c.value("", r.Body())
				c.attributes(r.Attributes())
			}
		}
	}
	p.count(ctx, &c)
	return ld, nil
}

func (p *redaction) count(ctx context.Context, c *cleaner) {
	if c.redacted > 0 {
		p.telemetry.ProcessorAgentRedactionValuesRedacted.Add(ctx, c.redacted)
	}
	if c.truncated > 0 {
		p.telemetry.ProcessorAgentRedactionValuesTruncated.Add(ctx, c.truncated)
	}
}

// cleaner redacts the values of one request, and counts.
type cleaner struct {
	r                   *redact.Redactor
	redacted, truncated int64
}

func (c *cleaner) span(s ptrace.Span) {
	c.text("", s.Name(), s.SetName)
	c.text("", s.Status().Message(), s.Status().SetMessage)
	c.attributes(s.Attributes())
	for _, e := range s.Events().All() {
		c.text("", e.Name(), e.SetName)
		c.attributes(e.Attributes())
	}
	for _, l := range s.Links().All() {
		c.attributes(l.Attributes())
	}
}

func (c *cleaner) attributes(m pcommon.Map) {
	for key, v := range m.All() {
		c.value(key, v)
	}
}

// text redacts s, which stands under key, and calls set if that changed it.
func (c *cleaner) text(key, s string, set func(string)) {
	out, res := c.r.Apply(redact.Other, key, s)
	if res.Redacted {
		c.redacted++
	}
	if res.Truncated {
		c.truncated++
	}
	if out != s {
		set(out)
	}
}

// value redacts a value that stands under key. What is in a list stands under the
// key of the list.
func (c *cleaner) value(key string, v pcommon.Value) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		c.text(key, v.Str(), v.SetStr)
	case pcommon.ValueTypeBytes:
		if b := v.Bytes().AsRaw(); utf8.Valid(b) {
			c.text(key, string(b), func(s string) { v.Bytes().FromRaw([]byte(s)) })
		} else if c.secret(key) {
			c.whole(v)
		}
	case pcommon.ValueTypeInt:
		if c.secret(key) && c.goes(key, strconv.AppendInt(nil, v.Int(), 10)) {
			c.whole(v)
		}
	case pcommon.ValueTypeDouble:
		if c.secret(key) && c.goes(key, []byte(v.AsString())) {
			c.whole(v)
		}
	case pcommon.ValueTypeMap:
		if c.secret(key) && c.goes(key, []byte(v.AsString())) {
			c.whole(v)
			return
		}
		c.attributes(v.Map())
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			c.value(key, e)
		}
	}
}

// secret reports whether key names a secret.
func (c *cleaner) secret(key string) bool { return c.r.Value(key, "x") == redact.Marker }

// goes reports whether a value in JSON is taken out whole for its key, as a count of
// tokens is not.
func (c *cleaner) goes(key string, raw []byte) bool {
	out, _ := c.r.ApplyJSON(redact.Other, key, raw)
	return string(out) == `"`+redact.Marker+`"`
}

func (c *cleaner) whole(v pcommon.Value) {
	v.SetStr(redact.Marker)
	c.redacted++
}
