package modelhttp

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"sync"
)

// unmarshal is [json.Unmarshal] into a zero value, several times as fast: it reads a document
// once, where that reads it to validate it, once more to decode it, and each [json.RawMessage]
// in it again for both. Requests repeat the whole conversation, so this is most of what an
// exchange costs. What the scanner does not know is left to encoding/json.
func unmarshal(data []byte, into any) error {
	s := scanners.Get().(*scanner)
	defer scanners.Put(s)
	return s.unmarshal(data, into)
}

func (s *scanner) unmarshal(data []byte, into any) error {
	s.reset(data)
	v := reflect.ValueOf(into).Elem()
	s.value(v)
	if s.end() {
		return nil
	}
	v.SetZero()
	s.values = s.values[:0]
	return json.Unmarshal(data, into)
}

// scanners keep their buffers.
var scanners = sync.Pool{New: func() any { return new(scanner) }}

// counts is the JSON of a usage, which replaces that of the event before.
type counts struct{ json.RawMessage }

var rawType, countsType = reflect.TypeFor[json.RawMessage](), reflect.TypeFor[counts]()

// value reads a value into v, which is zero.
func (s *scanner) value(v reflect.Value) {
	c := s.peek()
	if t := v.Type(); t == rawType || t == countsType {
		start := s.at
		s.use = decoded
		if t == countsType {
			v, s.use = v.Field(0), counted
		}
		s.skip()
		s.use = unread
		if !s.bad {
			v.SetBytes(bytes.Clone(s.data[start:s.at]))
		}
		return
	}
	if c == 'n' {
		s.literal("null")
		return
	}
	switch v.Kind() {
	case reflect.String:
		var text []byte
		s.str(&text)
		v.SetString(string(text))
		if !s.noting {
			s.buf = s.buf[:0]
		}
	case reflect.Int, reflect.Int64:
		n := 0
		s.int(&n)
		v.SetInt(int64(n))
	case reflect.Float64:
		start := s.at
		s.number()
		n, err := strconv.ParseFloat(string(s.data[start:s.at]), 64)
		s.bad = s.bad || err != nil
		v.SetFloat(n)
	case reflect.Bool:
		is := false
		s.bool(&is)
		v.SetBool(is)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		s.value(v.Elem())
	case reflect.Slice:
		s.list(v)
	case reflect.Map:
		s.members(v)
	case reflect.Struct:
		s.fields(v)
	default:
		s.bad = true
	}
}

func (s *scanner) list(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 { // base64
		s.bad = true
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	n := 0
	for s.array(); s.element(); n++ {
		if n == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(n + 1)
		s.value(v.Index(n))
	}
}

func (s *scanner) members(v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	for s.object(); s.member(); {
		name, member := string(s.key), reflect.New(v.Type().Elem()).Elem()
		s.value(member)
		v.SetMapIndex(reflect.ValueOf(name), member)
	}
}

// fields reads an object into a struct. A member that comes twice is left to encoding/json.
func (s *scanner) fields(v reflect.Value) {
	t := layoutOf(v.Type())
	var seen uint64
	for s.object(); s.member(); {
		i, ok := t.byName[string(s.key)]
		if !ok {
			s.other(t.names)
			continue
		}
		s.bad = s.bad || seen&(1<<i) != 0
		seen |= 1 << i
		s.value(v.FieldByIndex(t.index[i]))
	}
}

// isJSON is [json.Valid].
func isJSON(data []byte) bool {
	var s scanner
	s.reset(data)
	s.skip()
	return s.end() || json.Valid(data)
}

// layout has the fields of a type by the names of their members.
type layout struct {
	byName map[string]int
	names  []string
	index  [][]int
}

var layouts sync.Map // of *layout, by reflect.Type

func layoutOf(t reflect.Type) *layout {
	if known, ok := layouts.Load(t); ok {
		return known.(*layout)
	}
	l := &layout{byName: make(map[string]int)}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name := f.Tag.Get("json")
		if name == "" {
			name = f.Name
		}
		l.byName[name] = len(l.names)
		l.names, l.index = append(l.names, name), append(l.index, f.Index)
	}
	known, _ := layouts.LoadOrStore(t, l)
	return known.(*layout)
}
