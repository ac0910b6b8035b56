package spans

import (
	"fmt"
	"reflect"
)

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
		switch reflect.ValueOf(v).Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array, reflect.Struct:
			return fmt.Sprintf("a %T", v)
		}
	}
	return fmt.Sprint(v)
}
