package ingest

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/spans"
)

// value converts an attribute. ok is false for one that is empty, which is the
// same as absent. clean is false when text had to be repaired.
func value(v pcommon.Value) (_ spans.Value, ok, clean bool) {
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return spans.Value{}, false, true
	case pcommon.ValueTypeInt:
		return spans.Value{Value: attribute.Int64Value(v.Int())}, true, true
	case pcommon.ValueTypeDouble:
		return spans.Value{Value: attribute.Float64Value(v.Double())}, true, true
	case pcommon.ValueTypeBool:
		return spans.Value{Value: attribute.BoolValue(v.Bool())}, true, true
	case pcommon.ValueTypeStr, pcommon.ValueTypeBytes:
		s, clean := text(v.AsString())
		return spans.Value{Value: attribute.StringValue(s)}, true, clean
	case pcommon.ValueTypeSlice:
		all, clean := make([]string, 0, v.Slice().Len()), true
		for _, e := range v.Slice().All() {
			if e.Type() == pcommon.ValueTypeStr {
				s, ok := text(e.Str())
				all, clean = append(all, s), clean && ok
			}
		}
		if len(all) == v.Slice().Len() {
			return spans.Value{Value: attribute.StringSliceValue(all)}, true, clean
		}
	}
	s, clean := text(v.AsString())
	return spans.JSONValue(s), true, clean
}

// text repairs what no column can hold: invalid UTF-8 and NUL become U+FFFD.
func text(s string) (_ string, clean bool) {
	repaired := dialect.Text(s)
	return repaired, repaired == s
}
