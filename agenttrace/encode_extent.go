package agenttrace

import (
	"fmt"
	"reflect"
)

// Limits of a value that is encoded. A panic can be recovered from, but not a stack
// that overflows, nor a value whose parts are shared so that it has no end.
const (
	// maxLevels is how deep a value may nest: about twice of what maxDepth is in JSON.
	maxLevels = 2 * maxDepth
	// maxValues is how many values a value may hold.
	maxValues = 1 << 22
)

// extent follows a value and gives up where it is too deep, as one that holds itself
// is, or too large.
type extent struct {
	values int
	// hidden reports that fields which are not exported count: package fmt prints them, and
	// encoding/json does not.
	hidden bool
}

func (e *extent) fits(v reflect.Value, level int) bool {
	if e.values++; e.values > maxValues || level > maxLevels {
		return false
	}
	if !v.IsValid() || !e.hidden && encodes(v.Type()) {
		return true // what it holds is its own business
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || e.fits(v.Elem(), level+1)
	case reflect.Map:
		if !composite(v.Type().Elem()) {
			return true
		}
		for i := v.MapRange(); i.Next(); {
			if !e.fits(i.Value(), level+1) {
				return false
			}
		}
	case reflect.Slice, reflect.Array:
		for i := 0; composite(v.Type().Elem()) && i < v.Len(); i++ {
			if !e.fits(v.Index(i), level+1) {
				return false
			}
		}
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			f := t.Field(i)
			if !composite(f.Type) || !e.hidden && (!f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-") {
				continue
			}
			if !e.fits(v.Field(i), level+1) {
				return false
			}
		}
	}
	return true
}

// printed is what package fmt prints of a value that somebody panicked with, unless
// that panics in turn or has no end.
func printed(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T that cannot be printed", v)
		}
	}()
	switch v.(type) {
	case error, fmt.Stringer:
	default:
		if !(&extent{hidden: true}).fits(reflect.ValueOf(v), 0) {
			return fmt.Sprintf("a %T", v)
		}
	}
	return fmt.Sprint(v)
}
