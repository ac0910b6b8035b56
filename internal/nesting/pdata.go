package nesting

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Deep reports whether a value of a map is nested too deep.
func Deep(m pcommon.Map) bool {
	for _, v := range m.All() {
		if DeepValue(v) {
			return true
		}
	}
	return false
}

// DeepValue reports whether a value is nested too deep.
func DeepValue(v pcommon.Value) bool { return bound(v, MaxDepth, false) }

// Map replaces what is too deep in a map by the [Marker], and returns the keys of the
// values that were.
func Map(m pcommon.Map) (cut []string) {
	for key, v := range m.All() {
		if Value(v) {
			cut = append(cut, key)
		}
	}
	return cut
}

// Value replaces what is too deep in a value by the [Marker], and reports whether
// anything was.
func Value(v pcommon.Value) bool { return bound(v, MaxDepth, true) }

// bound reports whether a value has more than the levels, and replaces what is below them
// if it is to cut.
func bound(v pcommon.Value, levels int, cut bool) (deep bool) {
	if v.Type() != pcommon.ValueTypeMap && v.Type() != pcommon.ValueTypeSlice {
		return false
	}
	if levels == 0 {
		if cut {
			v.SetStr(Marker)
		}
		return true
	}
	if v.Type() == pcommon.ValueTypeMap {
		for _, e := range v.Map().All() {
			deep = (cut || !deep) && bound(e, levels-1, cut) || deep
		}
		return deep
	}
	for _, e := range v.Slice().All() {
		deep = (cut || !deep) && bound(e, levels-1, cut) || deep
	}
	return deep
}

// Traces replaces what is too deep in the attributes of spans, their events and
// links, scopes and resources, and returns how many values were.
func Traces(td ptrace.Traces) (cut int) {
	for _, rs := range td.ResourceSpans().All() {
		cut += len(Map(rs.Resource().Attributes()))
		for _, ss := range rs.ScopeSpans().All() {
			cut += len(Map(ss.Scope().Attributes()))
			for _, s := range ss.Spans().All() {
				cut += len(Map(s.Attributes()))
				for _, e := range s.Events().All() {
					cut += len(Map(e.Attributes()))
				}
				for _, l := range s.Links().All() {
					cut += len(Map(l.Attributes()))
				}
			}
		}
	}
	return cut
}

// Logs replaces what is too deep in the bodies and attributes of log records, their
// scopes and resources, and returns how many values were.
func Logs(ld plog.Logs) (cut int) {
	for _, rl := range ld.ResourceLogs().All() {
		cut += len(Map(rl.Resource().Attributes()))
		for _, sl := range rl.ScopeLogs().All() {
			cut += len(Map(sl.Scope().Attributes()))
			for _, r := range sl.LogRecords().All() {
				cut += len(Map(r.Attributes()))
				if Value(r.Body()) {
					cut++
				}
			}
		}
	}
	return cut
}
