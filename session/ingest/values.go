package ingest

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/spans"
)

// value converts an attribute. ok is false for one that is empty, which is the
// same as absent. clean is false when text had to be repaired.
func value(v pcommon.Value) (_ spans.Value, ok, clean bool) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		s, clean := text(v.Str())
		return spans.StringValue(s), true, clean
	case pcommon.ValueTypeInt:
		return spans.IntValue(v.Int()), true, true
	case pcommon.ValueTypeDouble:
		return spans.DoubleValue(v.Double()), true, true
	case pcommon.ValueTypeBool:
		return spans.BoolValue(v.Bool()), true, true
	case pcommon.ValueTypeSlice:
		slice := v.Slice()
		all := make([]string, 0, slice.Len())
		allClean := true
		for _, e := range slice.All() {
			if e.Type() != pcommon.ValueTypeStr {
				s, clean := text(v.AsString())
				return spans.JSONValue(s), true, clean
			}
			s, clean := text(e.Str())
			all, allClean = append(all, s), allClean && clean
		}
		return spans.StringsValue(all), true, allClean
	case pcommon.ValueTypeMap:
		s, clean := text(v.AsString())
		return spans.JSONValue(s), true, clean
	case pcommon.ValueTypeBytes:
		return spans.StringValue(v.AsString()), true, true
	}
	return spans.Value{}, false, true
}

// text repairs what no column can hold: invalid UTF-8 and NUL become U+FFFD.
func text(s string) (_ string, clean bool) {
	repaired := dialect.Text(s)
	return repaired, repaired == s
}
