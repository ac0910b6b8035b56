package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// Columns are the columns of a table whose rows are values of one type, in order. The fields of the type define them,
// so that SQL, canonical JSON and checks need no list of their own. See [ColumnsOf]. A row is passed as a pointer. The
// type of rows is no parameter, because each method would be compiled for each of them.
type Columns []Column

// Column is a column of a table, and a field of its rows.
type Column struct {
	Name string
	// Optional reports that the table has NULL for the zero value of the field: a string
	// that is empty, or a pointer, slice or map that is nil.
	Optional bool

	index  []int // of the field, as in reflect.StructField
	isJSON bool  // the column has the JSON of the field as text
}

// The columns of the canonical tables.
var (
	SessionColumns = sync.OnceValue(ColumnsOf[Session])
	MessageColumns = sync.OnceValue(ColumnsOf[Message])
	PartColumns    = sync.OnceValue(ColumnsOf[Part])
)

// ColumnsOf returns the columns that the fields of Row define. The name of a column is in
// the field's tag "column", or else in "json". With ",omitempty" an empty string is NULL. A
// struct without a tag stands for its fields; a field whose name is "-" is no column.
func ColumnsOf[Row any]() Columns {
	return appendColumns(nil, reflect.TypeFor[Row](), nil)
}

func appendColumns(columns []Column, row reflect.Type, outer []int) []Column {
	for f := range row.Fields() {
		tag, ok := f.Tag.Lookup("column")
		if !ok {
			tag, ok = f.Tag.Lookup("json")
		}
		name, options, _ := strings.Cut(tag, ",")
		index := slices.Concat(outer, f.Index)
		switch {
		case !ok && f.Type.Kind() == reflect.Struct:
			columns = appendColumns(columns, f.Type, index)
			continue
		case !ok || name == "-":
			continue
		}
		c := Column{Name: name, index: index}
		switch reflect.New(f.Type).Interface().(type) {
		case *string, **string, *int, *int64, **int64, *float64, **float64, *bool, *[]byte:
		default:
			c.isJSON = true
		}
		switch f.Type.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice:
			c.Optional = f.Type != reflect.TypeFor[[]byte]()
		case reflect.String:
			c.Optional = options == "omitempty"
		}
		columns = append(columns, c)
	}
	return columns
}

// Names are the names of the columns.
func (columns Columns) Names() []string {
	names := make([]string, len(columns))
	for i := range columns {
		names[i] = columns[i].Name
	}
	return names
}

// Field returns a pointer to the field of the row that the column is: a *string, **string,
// *int, *int64, **int64, *float64, **float64, *bool or *[]byte, or a pointer to what the column has as JSON.
func (c *Column) Field(row any) any {
	return reflect.ValueOf(row).Elem().FieldByIndex(c.index).Addr().Interface()
}

// JSON returns the text that the table has for the column of the row, which is of a type
// that it has as JSON; "" for NULL.
func (c *Column) JSON(row any) string {
	v := reflect.ValueOf(row).Elem().FieldByIndex(c.index)
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			return ""
		}
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return ""
	}
	return string(b)
}

// Value is that of the column of the row: string, int64, float64, []byte or nil. A bool is 0 or 1.
func (c *Column) Value(row any) any {
	switch v := c.Field(row).(type) {
	case *string:
		if *v != "" || !c.Optional {
			return *v
		}
	case **string:
		if *v != nil {
			return **v
		}
	case *int:
		return int64(*v)
	case *int64:
		return *v
	case **int64:
		if *v != nil {
			return **v
		}
	case *float64:
		return *v
	case **float64:
		if *v != nil {
			return **v
		}
	case *bool:
		if *v {
			return int64(1)
		}
		return int64(0)
	case *[]byte:
		return append([]byte{}, *v...) // no bytes are not NULL
	default:
		if text := c.JSON(row); text != "" {
			return text
		}
	}
	return nil
}

// AppendJSON appends the row as a JSON object and returns the extended slice.
//
// Keys have the order of the columns, none is omitted, and NULL is null. JSON columns stay text, so a reader gets what
// the store has. Strings are escaped as in JSON.stringify: a quote, a backslash and control characters, nothing else.
// The output is valid UTF-8 for any row: each invalid byte becomes U+FFFD. A number that JSON cannot express (NaN or
// an infinity) becomes 0.
func (columns Columns) AppendJSON(dst []byte, row any) []byte {
	for i := range columns {
		c := &columns[i]
		if i == 0 {
			dst = append(dst, '{', '"')
		} else {
			dst = append(dst, ',', '"')
		}
		dst = append(append(dst, c.Name...), `":`...)
		field, optional := reflect.ValueOf(row).Elem().FieldByIndex(c.index), c.Optional
		if field.Kind() == reflect.Pointer && !c.isJSON {
			if field.IsNil() {
				dst = append(dst, "null"...)
				continue
			}
			field, optional = field.Elem(), false
		}
		switch v := field.Addr().Interface().(type) {
		case *string:
			dst = appendText(dst, *v, optional)
		case *int:
			dst = strconv.AppendInt(dst, int64(*v), 10)
		case *int64:
			dst = strconv.AppendInt(dst, *v, 10)
		case *float64:
			dst = appendFloat(dst, *v)
		case *bool:
			dst = strconv.AppendBool(dst, *v)
		default:
			dst = appendText(dst, c.JSON(row), optional)
		}
	}
	return append(dst, '}')
}

func appendText(dst []byte, v string, optional bool) []byte {
	if optional && v == "" {
		return append(dst, "null"...)
	}
	return jsonscan.AppendString(dst, v)
}

// DecodeJSON sets the row's fields to the columns in data, a JSON object as AppendJSON
// writes it. Columns that are absent or null keep their value, unknown keys are ignored. A
// column that must be there has to be named as required, and not be empty.
func (columns Columns) DecodeJSON(data []byte, row any, required ...string) error {
	var values map[string]json.RawMessage
	if err := decodeValue("row", data, &values); err != nil {
		return err
	}
	for _, name := range required {
		if v := string(values[name]); v == "" || v == "null" || v == `""` {
			return fmt.Errorf("%s is missing", name)
		}
	}
	for i := range columns {
		c := &columns[i]
		value := values[c.Name]
		if string(value) == "null" || len(value) == 0 {
			continue
		}
		if c.isJSON {
			var text string
			if err := decodeValue(c.Name, value, &text); err != nil {
				return err
			}
			if value = []byte(text); text == "" {
				continue
			}
		}
		if err := decodeValue(c.Name, value, c.Field(row)); err != nil {
			return err
		}
	}
	return nil
}

// decodeValue is json.Unmarshal with an error that names what has the wrong type.
func decodeValue(name string, data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := e.Type.Kind().String()
		if want == "struct" || want == "map" {
			want = "object"
		}
		return fmt.Errorf("%s is %s, want %s", strings.Trim(name+"."+e.Field, "."), e.Value, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// InvalidUTF8 returns the names of the columns of a row whose text is not valid UTF-8.
func (columns Columns) InvalidUTF8(row any) (names []string) {
	for i := range columns {
		if columns[i].isJSON {
			continue
		}
		if text, is := columns[i].Value(row).(string); is && !utf8.ValidString(text) {
			names = append(names, columns[i].Name)
		}
	}
	return slices.Clip(names)
}
