package nesting

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// inMap counts the values of a map that are nested too deep, and replaces what is too deep in them by the [Marker] if
// it is to cut.
func inMap(m pcommon.Map, cut bool) (deep int) {
	for _, v := range m.All() {
		if bound(v, MaxDepth, cut) {
			deep++
		}
	}
	return deep
}

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

// Traces counts the values that are too deep in the attributes of spans, their events and
// links, scopes and resources, and replaces what is too deep if it is to cut.
func Traces(td ptrace.Traces, cut bool) (deep int) {
	for _, rs := range td.ResourceSpans().All() {
		deep += inMap(rs.Resource().Attributes(), cut)
		for _, ss := range rs.ScopeSpans().All() {
			deep += inMap(ss.Scope().Attributes(), cut)
			for _, s := range ss.Spans().All() {
				deep += inMap(s.Attributes(), cut)
				for _, e := range s.Events().All() {
					deep += inMap(e.Attributes(), cut)
				}
				for _, l := range s.Links().All() {
					deep += inMap(l.Attributes(), cut)
				}
			}
		}
	}
	return deep
}

// Logs does the same with the bodies and attributes of log records, their scopes and resources.
func Logs(ld plog.Logs, cut bool) (deep int) {
	for _, rl := range ld.ResourceLogs().All() {
		deep += inMap(rl.Resource().Attributes(), cut)
		for _, sl := range rl.ScopeLogs().All() {
			deep += inMap(sl.Scope().Attributes(), cut)
			for _, r := range sl.LogRecords().All() {
				deep += inMap(r.Attributes(), cut)
				if bound(r.Body(), MaxDepth, cut) {
					deep++
				}
			}
		}
	}
	return deep
}
