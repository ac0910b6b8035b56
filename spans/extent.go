package spans

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// Fits reports whether a value nests at most so many levels deep and contains at most so many values, as encoding/json
// counts them, and how many it counted. It is asked before a value is encoded: a panic can be recovered from, but not a stack that overflows, as
// that of a value that contains itself, nor a value without an end.
func Fits(v any, maxLevels, maxValues int) (ok bool, values int) {
	var fits func(v reflect.Value, level int) bool
	fits = func(v reflect.Value, level int) bool {
		if values++; values > maxValues || level > maxLevels {
			return false
		}
		if !v.IsValid() || encodesItself(v.Type()) {
			return true // its method decides what is written
		}
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			return v.IsNil() || fits(v.Elem(), level+1)
		case reflect.Map:
			for i := v.MapRange(); contains(v.Type().Elem()) && i.Next(); {
				if !fits(i.Value(), level+1) {
					return false
				}
			}
		case reflect.Slice, reflect.Array:
			for i := 0; contains(v.Type().Elem()) && i < v.Len(); i++ {
				if !fits(v.Index(i), level+1) {
					return false
				}
			}
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Type().Field(i)
				encoded := (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-"
				if encoded && contains(f.Type) && !fits(v.Field(i), level+1) {
					return false
				}
			}
		}
		return true
	}
	ok = fits(reflect.ValueOf(v), 0)
	return ok, values
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
// turn. Of a value that contains others it is the type.
func Printed(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T that cannot be printed", v)
		}
	}()
	switch v.(type) {
	case error, fmt.Stringer:
	default:
		if v != nil && contains(reflect.TypeOf(v)) {
			return fmt.Sprintf("a %T", v)
		}
	}
	return fmt.Sprint(v)
}
