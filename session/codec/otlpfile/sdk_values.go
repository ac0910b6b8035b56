package otlpfile

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
)

// scopeKey identifies the groups of a batch: one per resource and scope.
type scopeKey struct {
	resource attribute.Distinct
	scope    instrumentation.Scope
}

// groups finds what the spans or records of a resource, and of a scope in it, are added to.
type groups[R resourceGroup, S scopeGroup] struct {
	resources map[attribute.Distinct]R
	scopes    map[scopeKey]S
}

type resourceGroup interface {
	SetSchemaUrl(string)
	Resource() pcommon.Resource
}

type scopeGroup interface {
	SetSchemaUrl(string)
	Scope() pcommon.InstrumentationScope
}

// of returns the group of a resource and a scope, which it adds if it is not there.
func (g *groups[R, S]) of(r *resource.Resource, scope instrumentation.Scope, addResource func() R,
	addScope func(R) S) S {
	key := scopeKey{r.Equivalent(), scope}
	if s, ok := g.scopes[key]; ok {
		return s
	}
	if g.scopes == nil {
		g.resources, g.scopes = make(map[attribute.Distinct]R), make(map[scopeKey]S)
	}
	group, ok := g.resources[key.resource]
	if !ok {
		group = addResource()
		group.SetSchemaUrl(r.SchemaURL())
		PutAttributes(group.Resource().Attributes(), r.Attributes())
		g.resources[key.resource] = group
	}
	s := addScope(group)
	s.SetSchemaUrl(scope.SchemaURL)
	s.Scope().SetName(scope.Name)
	s.Scope().SetVersion(scope.Version)
	PutAttributes(s.Scope().Attributes(), scope.Attributes.ToSlice())
	g.scopes[key] = s
	return s
}

// PutAttributes adds attributes to dst.
func PutAttributes(dst pcommon.Map, all []attribute.KeyValue) {
	dst.EnsureCapacity(len(all))
	for _, kv := range all {
		putValue(dst.PutEmpty(string(kv.Key)), kv.Value)
	}
}

// putValue sets an empty dst.
func putValue(dst pcommon.Value, v attribute.Value) {
	switch v.Type() {
	case attribute.BOOL:
		dst.SetBool(v.AsBool())
	case attribute.INT64:
		dst.SetInt(v.AsInt64())
	case attribute.FLOAT64:
		dst.SetDouble(v.AsFloat64())
	case attribute.STRING:
		dst.SetStr(v.AsString())
	case attribute.BYTESLICE:
		dst.SetEmptyBytes().FromRaw(v.AsByteSlice())
	case attribute.BOOLSLICE:
		appendAll(dst, v.AsBoolSlice(), pcommon.Value.SetBool)
	case attribute.INT64SLICE:
		appendAll(dst, v.AsInt64Slice(), pcommon.Value.SetInt)
	case attribute.FLOAT64SLICE:
		appendAll(dst, v.AsFloat64Slice(), pcommon.Value.SetDouble)
	case attribute.STRINGSLICE:
		appendAll(dst, v.AsStringSlice(), pcommon.Value.SetStr)
	case attribute.SLICE:
		appendAll(dst, v.AsSlice(), putValue)
	case attribute.MAP:
		PutAttributes(dst.SetEmptyMap(), v.AsMap())
	case attribute.EMPTY:
	default:
		dst.SetStr("INVALID") // as OTLP exporters do
	}
}

func appendAll[T any](dst pcommon.Value, all []T, set func(pcommon.Value, T)) {
	s := dst.SetEmptySlice()
	s.EnsureCapacity(len(all))
	for _, v := range all {
		set(s.AppendEmpty(), v)
	}
}

// attributes is the inverse of [PutAttributes].
func attributes(m pcommon.Map) []attribute.KeyValue {
	if m.Len() == 0 {
		return nil
	}
	all := make([]attribute.KeyValue, 0, m.Len())
	for key, v := range m.All() {
		all = append(all, attribute.KeyValue{Key: attribute.Key(key), Value: value(v)})
	}
	return all
}

// value is the inverse of putValue, with one exception: OTLP does not distinguish a list of values of one type from a
// list of any values. value returns the former, and a list of strings for an empty list.
func value(v pcommon.Value) attribute.Value {
	switch v.Type() {
	case pcommon.ValueTypeBool:
		return attribute.BoolValue(v.Bool())
	case pcommon.ValueTypeInt:
		return attribute.Int64Value(v.Int())
	case pcommon.ValueTypeDouble:
		return attribute.Float64Value(v.Double())
	case pcommon.ValueTypeStr:
		return attribute.StringValue(v.Str())
	case pcommon.ValueTypeBytes:
		return attribute.ByteSliceValue(v.Bytes().AsRaw())
	case pcommon.ValueTypeMap:
		return attribute.MapValue(attributes(v.Map())...)
	case pcommon.ValueTypeSlice:
		return list(v.Slice())
	}
	return attribute.Value{}
}

func list(s pcommon.Slice) attribute.Value {
	kind := pcommon.ValueTypeStr
	for i, v := range s.All() {
		if i == 0 {
			kind = v.Type()
		} else if v.Type() != kind {
			kind = pcommon.ValueTypeEmpty
		}
	}
	switch kind {
	case pcommon.ValueTypeBool:
		return attribute.BoolSliceValue(each(s, pcommon.Value.Bool))
	case pcommon.ValueTypeInt:
		return attribute.Int64SliceValue(each(s, pcommon.Value.Int))
	case pcommon.ValueTypeDouble:
		return attribute.Float64SliceValue(each(s, pcommon.Value.Double))
	case pcommon.ValueTypeStr:
		return attribute.StringSliceValue(each(s, pcommon.Value.Str))
	}
	return attribute.SliceValue(each(s, value)...)
}

func each[T any](s pcommon.Slice, get func(pcommon.Value) T) []T {
	all := make([]T, 0, s.Len())
	for _, v := range s.All() {
		all = append(all, get(v))
	}
	return all
}

// timestamp returns 0 for the zero time and for a time that OTLP cannot represent.
func timestamp(t time.Time) pcommon.Timestamp {
	return pcommon.Timestamp(max(0, t.UnixNano()))
}

// instant is the inverse of timestamp.
func instant(t pcommon.Timestamp) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return t.AsTime()
}

func count(n int) uint32 { return uint32(min(max(0, int64(n)), math.MaxUint32)) }
