package spans

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// Extent measures a value before it is encoded or printed. A panic can be recovered from,
// but not a stack that overflows, as that of a value that contains itself, nor a value
// without an end.
type Extent struct {
	// MaxLevels is how deep a value may nest, MaxValues how many values it may contain. 0
	// means 20,000, about twice what encoding/json reads, and 4 million.
	MaxLevels, MaxValues int
	// Unexported measures fields that are not exported too: package fmt prints them, and
	// encoding/json does not.
	Unexported bool
	// Values is the number of values that Fits counted.
	Values int
}

// Fits reports whether the value is within the limits.
func (e *Extent) Fits(v any) bool {
	e.MaxLevels, e.MaxValues = cmp.Or(e.MaxLevels, 20_000), cmp.Or(e.MaxValues, 1<<22)
	return e.fits(reflect.ValueOf(v), 0)
}

func (e *Extent) fits(v reflect.Value, level int) bool {
	if e.Values++; e.Values > e.MaxValues || level > e.MaxLevels {
		return false
	}
	if !v.IsValid() || !e.Unexported && encodesItself(v.Type()) {
		return true // its method decides what is written
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || e.fits(v.Elem(), level+1)
	case reflect.Map:
		for i := v.MapRange(); contains(v.Type().Elem()) && i.Next(); {
			if !e.fits(i.Value(), level+1) {
				return false
			}
		}
	case reflect.Slice, reflect.Array:
		for i := 0; contains(v.Type().Elem()) && i < v.Len(); i++ {
			if !e.fits(v.Index(i), level+1) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !e.Unexported && (!f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-") {
				continue
			}
			if contains(f.Type) && !e.fits(v.Field(i), level+1) {
				return false
			}
		}
	}
	return true
}

// contains reports whether values of the type may contain others.
func contains(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice, reflect.Array, reflect.Struct:
		return true
	}
	return false
}

func encodesItself(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// Printed returns what package fmt prints of the value of a panic, unless that panics in
// turn or has no end.
func Printed(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T that cannot be printed", v)
		}
	}()
	switch v.(type) {
	case error, fmt.Stringer:
	default:
		if e := (Extent{Unexported: true}); !e.Fits(v) {
			return fmt.Sprintf("a %T", v)
		}
	}
	return fmt.Sprint(v)
}
