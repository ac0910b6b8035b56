package spans

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// table lists the attributes of a type of record, in the order in which they are encoded.
// Encoding, decoding and validating use it. It has the offsets of the fields, because
// decoding one attribute must not cost more than finding its key.
type table[T any] struct {
	rows []row
	// byLength finds a row by the length of its key, which few keys share. It is faster
	// than a map.
	byLength [48][]int
}

// row is an attribute and the field with its value.
type row struct {
	key    attribute.Key
	offset uintptr
	kind   kind
	flags  flags
	// bucket is the offset of a count in Tokens. damaged is that of the count of damaged
	// parts, 0 if there is none.
	bucket, damaged uintptr
	// within is the offset of the id of the message that the field belongs to, 0 if it
	// belongs to none: a message without an id is not encoded.
	within uintptr
	value  attribute.Value // of a constant
}

// kind is the type of a field.
type kind uint8

const (
	constant   kind = iota // it has no field
	text                   // string
	textAsList             // string, encoded as a list of one
	integer                // int64
	integerPtr             // *int64
	doublePtr              // *float64
	boolean                // bool
	stringList             // []string
	object                 // json.RawMessage
	partList               // []Part
	bucket                 // a count in *Tokens
)

type flags uint8

const (
	// always encodes the zero value too.
	always flags = 1 << iota
	// required reports a zero value as missing.
	required
	// enum reports a value that semconv does not list.
	enum
	// alias is read only if the field is empty, because another attribute has the value.
	alias
	// readOnly is not encoded.
	readOnly
	// array is JSON that is an array and not an object.
	array
)

// newTable returns the table of the attributes that describe adds. It gets a record whose
// fields it points to.
func newTable[T any](describe func(t *builder, r *T)) *table[T] {
	r := new(T)
	b := &builder{base: unsafe.Pointer(r)}
	describe(b, r)
	t := &table[T]{rows: b.rows}
	for i, row := range t.rows {
		n := len(row.key)
		t.byLength[n] = append(t.byLength[n], i)
	}
	return t
}

// builder collects the rows of a table.
type builder struct {
	base unsafe.Pointer
	rows []row
}

// add adds the attribute of a field, which is given by a pointer to it.
func (b *builder) add(key attribute.Key, field any, all ...flags) {
	r := row{key: key, offset: b.offset(field)}
	for _, f := range all {
		r.flags |= f
	}
	switch field.(type) {
	case *string:
		r.kind = text
	case *int64:
		r.kind = integer
	case **int64:
		r.kind = integerPtr
	case **float64:
		r.kind = doublePtr
	case *bool:
		r.kind = boolean
	case *[]string:
		r.kind = stringList
	case *json.RawMessage:
		r.kind = object
	case *[]Part:
		r.kind = partList
	default:
		panic(fmt.Sprintf("%s: no encoding of %T", key, field))
	}
	b.rows = append(b.rows, r)
}

func (b *builder) offset(field any) uintptr {
	return reflect.ValueOf(field).Pointer() - uintptr(b.base)
}

// last returns the row that was added last.
func (b *builder) last() *row { return &b.rows[len(b.rows)-1] }

// session adds the session id and its aliases that are only read.
func (b *builder) session(id *string, aliases ...attribute.Key) {
	b.add(semconv.SessionIDKey, id, always, required)
	for _, key := range aliases {
		b.add(key, id, alias, readOnly)
	}
}

// constant adds an attribute without a field.
func (b *builder) constant(kv attribute.KeyValue) {
	b.rows = append(b.rows, row{key: kv.Key, value: kv.Value})
}

// ignore adds attributes that are not read, because others have their values, and that
// Append encodes by itself.
func (b *builder) ignore(keys ...attribute.Key) {
	for _, key := range keys {
		b.rows = append(b.rows, row{key: key, flags: readOnly})
	}
}

// append appends the attributes of a record.
func (t *table[T]) append(r *T, dst []attribute.KeyValue) []attribute.KeyValue {
	return appendRows(t.rows, unsafe.Pointer(r), dst)
}

// appendRows is not generic, so the record does not escape to the heap.
func appendRows(rows []row, base unsafe.Pointer, dst []attribute.KeyValue) []attribute.KeyValue {
	for i := range rows {
		row := &rows[i]
		if row.flags&readOnly != 0 || row.within != 0 && *at[string](base, row.within) == "" {
			continue
		}
		field, always := unsafe.Add(base, row.offset), row.flags&always != 0
		switch row.kind {
		case constant:
			dst = append(dst, attribute.KeyValue{Key: row.key, Value: row.value})
		case text:
			if s := *(*string)(field); always || s != "" {
				dst = append(dst, row.key.String(s))
			}
		case integer:
			if n := *(*int64)(field); always || n != 0 {
				dst = append(dst, row.key.Int64(n))
			}
		case boolean:
			if b := *(*bool)(field); always || b {
				dst = append(dst, row.key.Bool(b))
			}
		default:
			dst = row.appendOptional(field, dst)
		}
	}
	return dst
}

// appendOptional appends the attribute of a field whose type has a value for none.
func (r *row) appendOptional(field unsafe.Pointer, dst []attribute.KeyValue) []attribute.KeyValue {
	switch r.kind {
	case textAsList:
		if s := *(*string)(field); s != "" {
			return append(dst, r.key.StringSlice([]string{s}))
		}
	case integerPtr:
		if n := *(**int64)(field); n != nil {
			return append(dst, r.key.Int64(*n))
		}
	case doublePtr:
		if n := *(**float64)(field); n != nil {
			return append(dst, r.key.Float64(*n))
		}
	case stringList:
		if all := *(*[]string)(field); len(all) > 0 {
			return append(dst, r.key.StringSlice(all))
		}
	case object:
		if raw := *(*json.RawMessage)(field); len(raw) > 0 {
			return append(dst, r.key.String(string(raw)))
		}
	case partList:
		if parts := *(*[]Part)(field); len(parts) > 0 {
			return append(dst, r.key.StringSlice(encodeParts(parts)))
		}
	case bucket:
		if tokens := *(**Tokens)(field); tokens != nil {
			return append(dst, r.key.Int64(*at[int64](unsafe.Pointer(tokens), r.bucket)))
		}
	}
	return dst
}

// at returns a pointer to a field.
func at[T any](base unsafe.Pointer, offset uintptr) *T { return (*T)(unsafe.Add(base, offset)) }

// set decodes one attribute, as [SpanData] describes it.
func (t *table[T]) set(r *T, key string, v Value) (known bool, err error) {
	if len(key) >= len(t.byLength) {
		return false, nil
	}
	for _, i := range t.byLength[len(key)] {
		if row := &t.rows[i]; string(row.key) == key {
			return true, row.decode(unsafe.Pointer(r), v)
		}
	}
	return false, nil
}

func (r *row) decode(base unsafe.Pointer, v Value) error {
	field := unsafe.Add(base, r.offset)
	switch r.kind {
	case text:
		if s := (*string)(field); r.flags&alias == 0 || *s == "" {
			return store(s, v, Value.text)
		}
	case textAsList:
		var reasons []string
		err := store(&reasons, v, Value.Strings)
		if s := (*string)(field); len(reasons) > 0 && *s == "" {
			*s = reasons[len(reasons)-1]
		}
		return err
	case integer:
		return store((*int64)(field), v, Value.Int)
	case integerPtr:
		return storePtr((**int64)(field), v, Value.Int)
	case doublePtr:
		return storePtr((**float64)(field), v, Value.Double)
	case boolean:
		return store((*bool)(field), v, Value.Bool)
	case stringList:
		return store((*[]string)(field), v, Value.Strings)
	case object:
		if r.flags&array != 0 {
			return store((*json.RawMessage)(field), v, Value.jsonArray)
		}
		return store((*json.RawMessage)(field), v, Value.jsonObject)
	case partList:
		all, err := v.Strings()
		if err != nil {
			return err
		}
		parts, damaged, err := parseParts(all)
		if *(*[]Part)(field) = parts; r.damaged != 0 {
			*at[int](base, r.damaged) += damaged
		}
		return err
	case bucket:
		n, err := v.Int()
		if err != nil {
			return err
		}
		tokens := (**Tokens)(field)
		if *tokens == nil {
			*tokens = new(Tokens)
		}
		if n < 0 {
			return errors.New("want a count, have a negative number")
		}
		*at[int64](unsafe.Pointer(*tokens), r.bucket) = n
	}
	return nil
}

func store[T any](field *T, v Value, get func(Value) (T, error)) error {
	x, err := get(v)
	if err == nil {
		*field = x
	}
	return err
}

func storePtr[T any](field **T, v Value, get func(Value) (T, error)) error {
	x := new(T)
	err := store(x, v, get)
	if err == nil {
		*field = x
	}
	return err
}

// validate returns the joined errors about what is missing, the ones that are given, which
// may be nil, and those about values that semconv does not list.
func (t *table[T]) validate(r *T, others ...error) error {
	var errs, invalid []error
	for _, row := range t.rows {
		field := unsafe.Add(unsafe.Pointer(r), row.offset)
		if row.flags&required != 0 {
			empty := row.kind == text && *(*string)(field) == "" || row.kind == integerPtr && *(**int64)(field) == nil
			errs = append(errs, missingIf(empty, row.key))
		}
		if row.flags&enum == 0 {
			continue
		}
		if s := *(*string)(field); s != "" && !slices.Contains(enums[row.key], s) {
			invalid = append(invalid, fmt.Errorf("%s: invalid value %q", row.key, s))
		}
	}
	return errors.Join(slices.Concat(errs, others, invalid)...)
}

var enums = func() map[attribute.Key][]string {
	all := make(map[attribute.Key][]string)
	for _, e := range semconv.Enums() {
		all[attribute.Key(e.Key)] = e.Values
	}
	return all
}()

// missingIf reports an attribute if it is missing.
func missingIf(absent bool, key attribute.Key) error {
	if absent {
		return fmt.Errorf("%s is missing", key)
	}
	return nil
}
