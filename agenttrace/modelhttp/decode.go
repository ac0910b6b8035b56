package modelhttp

import (
	"bytes"
	"cmp"
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
	s.value(v, planOf(v.Type()))
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

// view is JSON that is decoded next. It may be a part of the document, so it is valid as long as that.
type view struct{ json.RawMessage }

// value reads a value into v, which is zero, as the plan of its type states.
func (s *scanner) value(v reflect.Value, p *plan) {
	c := s.peek()
	if p.raw != unread {
		start := s.at
		s.use = p.raw
		s.skip()
		s.use = unread
		if !s.bad {
			if p.kind == reflect.Struct {
				v = v.Field(0)
			}
			raw := s.data[start:s.at:s.at]
			if !p.view {
				raw = bytes.Clone(raw)
			}
			v.SetBytes(raw)
		}
		return
	}
	if c == 'n' {
		s.literal("null")
		return
	}
	switch p.kind {
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
		s.value(v.Elem(), p.elem)
	case reflect.Slice:
		s.list(v, p)
	case reflect.Map:
		s.members(v, p)
	case reflect.Struct:
		s.fields(v, p)
	default:
		s.bad = true
	}
}

func (s *scanner) list(v reflect.Value, p *plan) {
	if p.elem.kind == reflect.Uint8 { // base64
		s.bad = true
		return
	}
	n := 0
	for s.array(); s.element(); n++ {
		if n == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(n + 1)
		s.value(v.Index(n), p.elem)
	}
	if n == 0 {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
}

func (s *scanner) members(v reflect.Value, p *plan) {
	v.Set(reflect.MakeMap(v.Type()))
	for s.object(); s.member(); {
		name, member := string(s.key), reflect.New(v.Type().Elem()).Elem()
		s.value(member, p.elem)
		v.SetMapIndex(reflect.ValueOf(name), member)
	}
}

// fields reads an object into a struct. A member that comes twice is left to encoding/json.
func (s *scanner) fields(v reflect.Value, p *plan) {
	var seen uint64
	for s.object(); s.member(); {
		i := p.find(s.key)
		if i < 0 {
			s.other(p.names)
			continue
		}
		s.bad = s.bad || seen&(1<<i) != 0
		seen |= 1 << i
		f := &p.fields[i]
		s.value(v.FieldByIndex(f.index), f.plan)
	}
}

// isJSON is [json.Valid].
func isJSON(data []byte) bool {
	var s scanner
	s.reset(data)
	s.skip()
	return s.end() || json.Valid(data)
}

// plan states how values of a type are read.
type plan struct {
	kind reflect.Kind
	// raw is what becomes of a value that is kept as it is, unread if it is decoded. view reports that it is not copied.
	raw  use
	view bool
	// elem is that of a pointer, list or map.
	elem *plan
	// names are those of the members of a struct, fields where they are read to.
	names  []string
	fields []member
}

type member struct {
	index []int
	plan  *plan
}

// find returns the index of a member, -1 if it is not read. Structs have few.
func (p *plan) find(name []byte) int {
	for i, known := range p.names {
		if string(name) == known {
			return i
		}
	}
	return -1
}

var plans sync.Map // of *plan, by reflect.Type

func planOf(t reflect.Type) *plan {
	if known, ok := plans.Load(t); ok {
		return known.(*plan)
	}
	known, _ := plans.LoadOrStore(t, newPlan(t, make(map[reflect.Type]*plan)))
	return known.(*plan)
}

// newPlan returns the plan of a type. known are those that are being made, as a type may have values of its own.
func newPlan(t reflect.Type, known map[reflect.Type]*plan) *plan {
	if p := known[t]; p != nil {
		return p
	}
	p := &plan{kind: t.Kind()}
	known[t] = p
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		p.raw = decoded
	case t == reflect.TypeFor[view]():
		p.raw, p.view = decoded, true
	case t == reflect.TypeFor[counts]():
		p.raw = counted
	case p.kind == reflect.Pointer || p.kind == reflect.Slice || p.kind == reflect.Map:
		p.elem = newPlan(t.Elem(), known)
	case p.kind == reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous {
				p.names = append(p.names, cmp.Or(f.Tag.Get("json"), f.Name))
				p.fields = append(p.fields, member{f.Index, newPlan(f.Type, known)})
			}
		}
	}
	return p
}
