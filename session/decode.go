package session

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// Decode sets the fields of the struct that v points to, which is zero, from a JSON object as [json.Unmarshal] does, in
// a fraction of the time. It returns false for what it leaves to encoding/json: text that is no object, values of the
// wrong type, and members that encoding/json matches regardless of case or merges. By then, fields may have been set.
func Decode(object []byte, v any) bool {
	return decode(object, reflect.ValueOf(v).Elem())
}

// fieldsOf has for each type the indexes of its fields by their names in JSON.
var fieldsOf sync.Map

func fields(t reflect.Type) map[string][]int {
	if known, ok := fieldsOf.Load(t); ok {
		return known.(map[string][]int)
	}
	all := make(map[string][]int)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		all[name] = f.Index
	}
	fieldsOf.Store(t, all)
	return all
}

func decode(object []byte, v reflect.Value) bool {
	names, fine := fields(v.Type()), true
	whole := jsonscan.Object(object, maxScanned, func(key string, value json.RawMessage) {
		index, known := names[key]
		switch {
		case !fine:
		case known:
			fine = decodeValue(value, v.FieldByIndex(index))
		default:
			fine = !foldsTo(names, key)
		}
	})
	return whole && fine
}

// foldsTo reports whether encoding/json may match a key that is spelled otherwise.
func foldsTo(names map[string][]int, key string) bool {
	for i := range len(key) {
		if key[i] >= 0x80 {
			return true // letters beyond ASCII match some of it
		}
		if key[i] >= 'A' && key[i] <= 'Z' {
			for name := range names {
				if strings.EqualFold(name, key) {
					return true
				}
			}
			return false
		}
	}
	for name := range names {
		if len(name) == len(key) && name != strings.ToLower(name) && strings.EqualFold(name, key) {
			return true
		}
	}
	return false
}

// decodeValue sets a field that is zero. One that is not was set by the same key before.
func decodeValue(value json.RawMessage, v reflect.Value) bool {
	if !v.IsZero() {
		return false
	}
	if string(value) == "null" && v.Type() != reflect.TypeFor[json.RawMessage]() {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer:
		to := reflect.New(v.Type().Elem())
		v.Set(to)
		return decodeValue(value, to.Elem())
	case reflect.String:
		text, ok := jsonscan.Unquote(value)
		v.SetString(text)
		return ok
	case reflect.Bool:
		v.SetBool(string(value) == "true")
		return string(value) == "true" || string(value) == "false"
	case reflect.Int64:
		n, err := strconv.ParseInt(string(value), 10, 64)
		v.SetInt(n)
		return err == nil
	case reflect.Float64:
		n, err := strconv.ParseFloat(string(value), 64)
		v.SetFloat(n)
		return err == nil && value[0] != '"'
	case reflect.Struct:
		if _, own := v.Addr().Interface().(json.Unmarshaler); !own {
			return decode(value, v)
		}
	}
	return json.Unmarshal(value, v.Addr().Interface()) == nil
}
