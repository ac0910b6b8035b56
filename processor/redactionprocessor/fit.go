package redactionprocessor

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/redact"
)

// fit cuts the longest values of a span so that it has at most maxBytes as OTLP: what is larger than a receiver's limit
// is refused for good, or dropped by an exporter that bounds its requests. JSON stays JSON.
func (c *cleaner) fit(s ptrace.Span, maxBytes int) {
	size := (&ptrace.ProtoMarshaler{}).SpanSize(s)
	if size <= maxBytes {
		return
	}
	var texts []text
	texts = appendTexts(texts, s.Attributes())
	for _, e := range s.Events().All() {
		texts = appendTexts(texts, e.Attributes())
	}
	for _, l := range s.Links().All() {
		texts = appendTexts(texts, l.Attributes())
	}
	lengths := make([]int, len(texts))
	for i := range texts {
		lengths[i] = len(texts[i].of)
	}
	limit := redact.Fit(lengths, size-maxBytes)
	cutter, err := redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: limit})
	if err != nil {
		return // not with a limit of redact.Fit
	}
	for i := range texts {
		if len(texts[i].of) > limit {
			b, _ := cutter.TruncateJSON([]byte(texts[i].of))
			texts[i].set(string(b))
			c.truncated++
		}
	}
}

// text is a text in an attribute.
type text struct {
	of  string
	set func(string)
}

func appendTexts(dst []text, m pcommon.Map) []text {
	for _, v := range m.All() {
		dst = appendText(dst, v)
	}
	return dst
}

func appendText(dst []text, v pcommon.Value) []text {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		dst = append(dst, text{v.Str(), v.SetStr})
	case pcommon.ValueTypeBytes:
		dst = append(dst, text{string(v.Bytes().AsRaw()), func(s string) { v.Bytes().FromRaw([]byte(s)) }})
	case pcommon.ValueTypeMap:
		dst = appendTexts(dst, v.Map())
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			dst = appendText(dst, e)
		}
	}
	return dst
}
