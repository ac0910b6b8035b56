// Package redactionprocessor is an OpenTelemetry Collector processor that takes secrets out of spans and log records
// before they go on, by the same rules as the session exporter and the SDK: those of package redact. See the README for
// its options.
package redactionprocessor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	"go.opentelemetry.io/otel/metric"

	"github.com/agenttrace/agenttrace/redact"
)

// redaction takes secrets out of telemetry in place.
type redaction struct {
	redactor     *redact.Redactor
	maxSpanBytes int // 0 is no limit
	// The collector's metrics of values in which secrets were redacted, and that were truncated.
	redacted, truncated metric.Int64Counter
}

func (p *redaction) traces(ctx context.Context, td ptrace.Traces) (ptrace.Traces, error) {
	c := cleaner{r: p.redactor}
	for _, rs := range td.ResourceSpans().All() {
		c.resource(rs.Resource())
		c.identifier(rs.SchemaUrl(), rs.SetSchemaUrl)
		for _, ss := range rs.ScopeSpans().All() {
			c.scope(ss.Scope())
			c.identifier(ss.SchemaUrl(), ss.SetSchemaUrl)
			for _, s := range ss.Spans().All() {
				c.span(s)
				if p.maxSpanBytes > 0 {
					c.fit(s, p.maxSpanBytes)
				}
			}
		}
	}
	p.count(ctx, &c)
	return td, nil
}

func (p *redaction) logs(ctx context.Context, ld plog.Logs) (plog.Logs, error) {
	c := cleaner{r: p.redactor}
	for _, rl := range ld.ResourceLogs().All() {
		c.resource(rl.Resource())
		c.identifier(rl.SchemaUrl(), rl.SetSchemaUrl)
		for _, sl := range rl.ScopeLogs().All() {
			c.scope(sl.Scope())
			c.identifier(sl.SchemaUrl(), sl.SetSchemaUrl)
			for _, r := range sl.LogRecords().All() {
				c.text("", r.SeverityText(), r.SetSeverityText)
				c.text("", r.EventName(), r.SetEventName)
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
		p.redacted.Add(ctx, c.redacted)
	}
	if c.truncated > 0 {
		p.truncated.Add(ctx, c.truncated)
	}
}

// cleaner redacts one request, and counts. Every string of it passes, as an emitter may
// put a secret anywhere; a test puts one into each that the protocol has. Keys and ids
// that differ stay different, those that are equal stay equal: see [redact.Redactor.Identifier].
type cleaner struct {
	r                   *redact.Redactor
	redacted, truncated int64
}

func (c *cleaner) resource(r pcommon.Resource) {
	c.attributes(r.Attributes())
	for _, e := range entity.ResourceEntityRefs(r).All() {
		c.identifier(e.SchemaUrl(), e.SetSchemaUrl)
		c.identifier(e.Type(), e.SetType)
		for _, keys := range [...]pcommon.StringSlice{e.IdKeys(), e.DescriptionKeys()} {
			for i, key := range keys.All() {
				c.identifier(key, func(s string) { keys.SetAt(i, s) })
			}
		}
	}
}

func (c *cleaner) scope(s pcommon.InstrumentationScope) {
	c.identifier(s.Name(), s.SetName)
	c.identifier(s.Version(), s.SetVersion)
	c.attributes(s.Attributes())
}

func (c *cleaner) span(s ptrace.Span) {
	c.text("", s.Name(), s.SetName)
	c.state(s.TraceState())
	c.text("", s.Status().Message(), s.Status().SetMessage)
	c.attributes(s.Attributes())
	for _, e := range s.Events().All() {
		c.text("", e.Name(), e.SetName)
		c.attributes(e.Attributes())
	}
	for _, l := range s.Links().All() {
		c.state(l.TraceState())
		c.attributes(l.Attributes())
	}
}

// state takes out the members of a trace state, each a key and a value, that hold a secret or are secret by their name.
func (c *cleaner) state(t pcommon.TraceState) {
	members := strings.Split(t.AsRaw(), ",")
	kept := slices.DeleteFunc(slices.Clone(members), func(m string) bool {
		key, value, _ := strings.Cut(m, "=")
		key = strings.TrimSpace(key)
		return c.r.Identifier(key) != key || c.r.Identifier(value) != value || c.r.Value(key, value) != value ||
			c.r.Text(m) != m
	})
	if len(kept) < len(members) {
		c.redacted++
		t.FromRaw(strings.Join(kept, ","))
	}
}

// attributes redacts keys and values.
func (c *cleaner) attributes(m pcommon.Map) {
	var keys []string
	for key, v := range m.All() {
		c.value(key, v)
		if c.r.Identifier(key) != key {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		v, _ := m.Get(key)
		moved := pcommon.NewValueEmpty()
		v.CopyTo(moved)
		m.Remove(key)
		moved.CopyTo(m.PutEmpty(c.r.Identifier(key)))
		c.redacted++
	}
}

// identifier redacts an id or a name, and calls set if that changed it.
func (c *cleaner) identifier(s string, set func(string)) {
	if out := c.r.Identifier(s); out != s {
		c.redacted++
		set(out)
	}
}

// identifies reports whether the values of a key are ids or names, as the session store
// has them: what is redacted of them there is the same here.
func identifies(key string) bool {
	for _, end := range [...]string{"id", "Id", "ID", "name", "model", "agent"} {
		if head, ok := strings.CutSuffix(key, end); ok && (head == "" || end == "Id" || end == "ID" ||
			strings.HasSuffix(head, ".") || strings.HasSuffix(head, "_")) {
			return true
		}
	}
	return false
}

// text redacts s, which is under key, and calls set if that changed it.
func (c *cleaner) text(key, s string, set func(string)) {
	if identifies(key) && !c.secret(key) {
		c.identifier(s, func(clean string) { s = clean; set(s) })
	}
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

// value redacts a value that is under key. What is in a list is under the key of the list.
func (c *cleaner) value(key string, v pcommon.Value) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		c.text(key, v.Str(), v.SetStr)
	case pcommon.ValueTypeBytes:
		if b := v.Bytes().AsRaw(); utf8.Valid(b) {
			c.text(key, string(b), func(s string) { v.Bytes().FromRaw([]byte(s)) })
		} else if text := strings.ToValidUTF8(string(b), "\uFFFD"); c.secret(key) || c.r.Text(text) != text {
			c.whole(v)
		}
	case pcommon.ValueTypeInt, pcommon.ValueTypeDouble, pcommon.ValueTypeMap:
		if c.secret(key) && c.goes(key, []byte(v.AsString())) {
			c.whole(v)
		} else if v.Type() == pcommon.ValueTypeMap {
			c.attributes(v.Map())
		}
	case pcommon.ValueTypeSlice:
		c.arguments(v.Slice())
		for _, e := range v.Slice().All() {
			c.value(key, e)
		}
	}
}

// arguments redacts a list of strings as a whole: in process.command_args one element may name what the next one is.
func (c *cleaner) arguments(list pcommon.Slice) {
	words := make([]string, list.Len())
	for i, e := range list.All() {
		words[i] = e.Str() // "" where it is none
	}
	for i, word := range c.r.List(words) {
		if word != words[i] {
			list.At(i).SetStr(word)
			c.redacted++
		}
	}
}

// secret reports whether key names a secret.
func (c *cleaner) secret(key string) bool { return c.r.Value(key, "x") == redact.Marker }

// goes reports whether a value in JSON is taken out whole for its key, as a count of tokens is not.
func (c *cleaner) goes(key string, raw []byte) bool {
	out, _ := c.r.ApplyJSON(redact.Other, key, raw)
	return string(out) == `"`+redact.Marker+`"`
}

func (c *cleaner) whole(v pcommon.Value) {
	v.SetStr(redact.Marker)
	c.redacted++
}

// fit cuts the longest values of a span so that it has at most maxBytes as OTLP: what is larger than a receiver's limit
// is refused for good, or dropped by an exporter that bounds its requests. JSON stays JSON.
func (c *cleaner) fit(s ptrace.Span, maxBytes int) {
	size := (&ptrace.ProtoMarshaler{}).SpanSize(s)
	if size <= maxBytes {
		return
	}
	var texts []pcommon.Value
	var lengths []int
	collect := func(m pcommon.Map) {
		for _, v := range m.All() {
			eachText(v, func(v pcommon.Value) {
				texts, lengths = append(texts, v), append(lengths, len(textOf(v)))
			})
		}
	}
	collect(s.Attributes())
	for _, e := range s.Events().All() {
		collect(e.Attributes())
	}
	for _, l := range s.Links().All() {
		collect(l.Attributes())
	}
	limit := redact.Fit(lengths, size-maxBytes)
	cutter, err := redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: limit})
	if err != nil {
		return // not with a limit of redact.Fit
	}
	for i, v := range texts {
		if lengths[i] > limit {
			b, _ := cutter.TruncateJSON([]byte(textOf(v)))
			v.SetStr(string(b))
			c.truncated++
		}
	}
}

// eachText calls fn with the texts of a value, and with its bytes, which may be one.
func eachText(v pcommon.Value, fn func(pcommon.Value)) {
	switch v.Type() {
	case pcommon.ValueTypeStr, pcommon.ValueTypeBytes:
		fn(v)
	case pcommon.ValueTypeMap:
		for _, e := range v.Map().All() {
			eachText(e, fn)
		}
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			eachText(e, fn)
		}
	}
}

func textOf(v pcommon.Value) string {
	if v.Type() == pcommon.ValueTypeBytes {
		return string(v.Bytes().AsRaw())
	}
	return v.Str()
}

// Config configures the processor. Its zero value redacts by the default keys and by every pattern, and cuts nothing.
type Config struct {
	// Redaction holds the processor's keys. Its Omit must be empty.
	Redaction redact.Config `mapstructure:",squash"`

	// MaxSpanBytes bounds a span as a whole, by its size in OTLP: its longest values are cut so that it is no larger. 0
	// means no bound, otherwise it is 64 KiB or more.
	MaxSpanBytes int `mapstructure:"max_span_bytes"`
}

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

// minSpanBytes is more than what is in a span besides texts.
const minSpanBytes = 64 << 10

func createDefaultConfig() component.Config { return &Config{} }

// Validate implements [confmap.Validator].
func (c *Config) Validate() error {
	var errs []error
	if (c.Redaction.Omit != redact.Omit{}) {
		errs = append(errs, errors.New("omit is set: what kind of content an attribute holds is not known here; "+
			"omit it in the SDK or in the session exporter"))
	}
	if c.MaxSpanBytes != 0 && c.MaxSpanBytes < minSpanBytes {
		errs = append(errs, fmt.Errorf("max_span_bytes is %d: use 0 for no limit, or %d or more", c.MaxSpanBytes,
			minSpanBytes))
	}
	if _, err := redact.New(c.Redaction); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

var componentType = component.MustNewType("agent_redaction")

// mutates has what other pipelines share copied before it comes here.
var mutates = processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true})

// NewFactory returns the factory of the processor.
func NewFactory() processor.Factory {
	return processor.NewFactory(
		componentType,
		createDefaultConfig,
		processor.WithTraces(createTraces, component.StabilityLevelAlpha),
		processor.WithLogs(createLogs, component.StabilityLevelAlpha),
	)
}

func createTraces(ctx context.Context, set processor.Settings, cfg component.Config,
	next consumer.Traces) (processor.Traces, error) {
	p, err := newRedaction(set, cfg)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewTraces(ctx, set, cfg, next, p.traces, mutates)
}

func createLogs(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Logs) (processor.Logs,
	error) {
	p, err := newRedaction(set, cfg)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewLogs(ctx, set, cfg, next, p.logs, mutates)
}

func newRedaction(set processor.Settings, cfg component.Config) (*redaction, error) {
	config := cfg.(*Config)
	r, err := redact.New(config.Redaction)
	if err != nil {
		return nil, err
	}
	meter := set.MeterProvider.Meter("github.com/agenttrace/agenttrace/processor/redactionprocessor")
	redacted, err := meter.Int64Counter("otelcol_processor_agent_redaction_values_redacted", metric.WithUnit("{value}"),
		metric.WithDescription("Number of values in which secrets were redacted."))
	truncated, err2 := meter.Int64Counter("otelcol_processor_agent_redaction_values_truncated",
		metric.WithUnit("{value}"), metric.WithDescription("Number of values that were truncated."))
	return &redaction{redactor: r, maxSpanBytes: config.MaxSpanBytes, redacted: redacted, truncated: truncated},
		errors.Join(err, err2)
}
