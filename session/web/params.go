package web

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// parameter is a field of the struct of an operation's parameters. The field has a tag path, query or header with the
// name of the parameter, and may have the tags doc, default, min, max, required, and names:"session" where a value names
// a session and the field gets its id. Its type is a string, a number, a bool, or a type that is read from text; or a
// slice of these, for a parameter that may be repeated.
type parameter struct {
	in, name, doc string
	required      bool
	many          bool
	standard      string // the value if there is none, "" for the zero value
	schema        *jsonschema.Schema
	index         []int
	session       bool // whether it names a session
	// set reads a value. Its error is what is to be given instead.
	set func(to reflect.Value, text string) error
}

// choice is a type of parameters that has certain values only.
type choice interface{ values() []string }

// described is a type of parameters that is read from text, and describes that for a schema.
type described interface {
	encoding.TextUnmarshaler
	schema() *jsonschema.Schema
}

// parametersOf are the parameters of a struct, those of embedded structs included.
func parametersOf[P any]() (all []parameter) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[P]()) {
		for _, in := range []string{"path", "query", "header"} {
			name, ok := f.Tag.Lookup(in)
			if !ok {
				continue
			}
			p := parameter{in: in, name: name, doc: f.Tag.Get("doc"), standard: f.Tag.Get("default"), index: f.Index,
				required: in == "path" || f.Tag.Get("required") == "true"}
			t := f.Type
			_, whole := reflect.New(t).Interface().(described)
			if p.many = t.Kind() == reflect.Slice && !whole; p.many {
				t = t.Elem()
			}
			p.schema, p.set = kindOf(t, f.Tag)
			_, p.session = f.Tag.Lookup("names")
			if p.standard != "" {
				p.schema.Default, _ = json.Marshal(p.standard) // a string can be marshaled
				if t.Kind() == reflect.Int {
					p.schema.Default = json.RawMessage(p.standard)
				}
			}
			if p.many {
				p.schema = &jsonschema.Schema{Type: "array", Items: p.schema}
			}
			all = append(all, p)
		}
	}
	return all
}

// kindOf returns the schema of a type of parameters, and what reads a value of it.
func kindOf(t reflect.Type, tag reflect.StructTag) (*jsonschema.Schema, func(reflect.Value, string) error) {
	zero := reflect.New(t).Interface()
	if c, ok := reflect.Zero(t).Interface().(choice); ok {
		s := &jsonschema.Schema{Type: "string"}
		for _, v := range c.values() {
			s.Enum = append(s.Enum, v)
		}
		return s, func(to reflect.Value, text string) error {
			for _, v := range c.values() {
				if v == text {
					to.SetString(text)
					return nil
				}
			}
			return fmt.Errorf("use %s", strings.Join(c.values(), ", "))
		}
	}
	if d, ok := zero.(described); ok {
		return d.schema(), func(to reflect.Value, text string) error {
			return to.Addr().Interface().(described).UnmarshalText([]byte(text))
		}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}, func(to reflect.Value, text string) error {
			v, err := strconv.ParseBool(text)
			if err != nil {
				return fmt.Errorf("use true or false")
			}
			to.SetBool(v)
			return nil
		}
	case reflect.Int:
		low, high := bound(tag, "min", 1), bound(tag, "max", math.MaxInt32)
		s := &jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(float64(low)),
			Maximum: jsonschema.Ptr(float64(high))}
		return s, func(to reflect.Value, text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < low || n > high {
				return fmt.Errorf("use a number from %d to %d", low, high)
			}
			to.SetInt(n)
			return nil
		}
	case reflect.String:
		notEmpty := &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1)}
		return notEmpty, func(to reflect.Value, text string) error {
			to.SetString(text)
			return nil
		}
	}
	panic(fmt.Sprintf("a parameter of type %s cannot be read", t)) // a mistake in the table
}

func bound(tag reflect.StructTag, name string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(tag.Get(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// named adds the parameter that names a session to the error for one that is not there, or for several.
func named(parameter string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, store.ErrNotFound):
		remedy = "list the sessions, with archived and children, for their ids"
	case errors.Is(err, store.ErrAmbiguous):
		remedy = "give more of the id"
	default:
		return err
	}
	p := *ProblemOf(err)
	if p.Parameter != "" {
		return err
	}
	p.Parameter, p.Remedy = parameter, remedy
	return &p
}

// decode reads the parameters of a request.
func decode[P any](a *api, r *http.Request, params []parameter) (p P, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return p, Invalidf("", "escape the values of parameters", "the query cannot be read: %v", err)
	}
	v := reflect.ValueOf(&p).Elem()
	var known []string
	for _, param := range params {
		var values []string
		switch param.in {
		case "path":
			// An element that is . or .., which a client would resolve, or begins with a tilde has a tilde before it.
			values = []string{strings.TrimPrefix(r.PathValue(param.name), "~")}
		case "query":
			values = query[param.name]
			delete(query, param.name)
			known = append(known, param.name)
		case "header":
			values = r.Header.Values(param.name)
		}
		if err := param.decode(v.FieldByIndex(param.index), values); err != nil {
			return p, err
		}
		if name := v.FieldByIndex(param.index); param.session && name.String() != "" {
			id, err := a.Sessions.Resolve(r.Context(), name.String())
			if err != nil {
				return p, named(param.name, err)
			}
			name.SetString(id)
		}
	}
	for name := range query {
		remedy := "leave it out"
		if len(known) > 0 {
			remedy += ", or use " + strings.Join(known, ", ")
		}
		return p, Invalidf(name, remedy, "there is no parameter %q here", name)
	}
	return p, nil
}

// decode sets the field of a parameter to its values in a request.
func (p *parameter) decode(to reflect.Value, values []string) error {
	switch {
	case len(values) == 0 && p.required:
		return Invalidf(p.name, "give "+p.doc, "%s is missing", p.name)
	case len(values) == 0 && p.standard != "":
		values = []string{p.standard}
	case len(values) > 1 && !p.many:
		return Invalidf(p.name, "give one", "%s is there %d times", p.name, len(values))
	}
	for _, text := range values {
		field := to
		if p.many {
			to.Set(reflect.Append(to, reflect.Zero(to.Type().Elem())))
			field = to.Index(to.Len() - 1)
		}
		var err error
		switch {
		case text == "":
			err = fmt.Errorf("leave it out, or give %s", p.doc)
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			err = fmt.Errorf("give text in UTF-8, without NUL")
		default:
			err = p.set(field, text)
		}
		if err != nil {
			return Invalidf(p.name, err.Error(), "%s is %q", p.name, text)
		}
	}
	return nil
}

// fromQuery reads the parameters of a page. Forms send all their fields: those that are empty are left out, and others
// are not looked at.
func fromQuery[P any](query url.Values) (p P, err error) {
	to := reflect.ValueOf(&p).Elem()
	for _, param := range parametersOf[P]() {
		values := slices.DeleteFunc(slices.Clone(query[param.name]), func(text string) bool { return text == "" })
		if err := param.decode(to.FieldByIndex(param.index), values); err != nil {
			return p, err
		}
	}
	return p, nil
}

// instant is a parameter that is a point in time, "" for none.
type instant string

// in is the time, where days begin in a zone.
func (i instant) in(zone *time.Location) (at time.Time) {
	if i != "" {
		at, _ = store.ParseTime(string(i), time.Now(), zone) // it was parsed before
	}
	return at
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (i *instant) UnmarshalText(text []byte) error {
	*i = instant(text)
	if _, err := store.ParseTime(string(text), time.Now(), time.UTC); err != nil {
		return fmt.Errorf("use a time such as 2026-11-20T15:04:05Z, a day such as 2026-11-20, " +
			"or a duration before now such as 12h, 7d or 6mo")
	}
	return nil
}

func (*instant) schema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "string",
		Description: "A time as of RFC 3339, a day in UTC such as 2026-11-20, " +
			"or a duration before now such as 12h or 7d.",
		Examples: []any{"2026-11-20T15:04:05Z", "2026-11-20", "7d"},
	}
}

// groups is a parameter that is what figures are grouped by.
type groups []store.StatsBy

// UnmarshalText implements [encoding.TextUnmarshaler].
func (g *groups) UnmarshalText(text []byte) (err error) {
	if *g, err = store.ParseStatsBy(string(text)); err != nil {
		return fmt.Errorf("use %s, or several with commas between", strings.Join(store.StatsKeys(), ", "))
	}
	return nil
}

func (*groups) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: "One of " + strings.Join(store.StatsKeys(), ", ") +
		", or several with commas between: each combination is a group.", Examples: []any{"day", "project,week"}}
}

// score is a parameter that compares a score.
type score struct{ store.ScoreFilter }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *score) UnmarshalText(text []byte) (err error) {
	if s.ScoreFilter, err = store.ParseScoreFilter(string(text)); err != nil {
		return fmt.Errorf("use a name and a comparison with a number, such as quality>=0.8")
	}
	return nil
}

func (*score) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: "The name of a score, or a comparison of one with a number.",
		Examples: []any{"quality>=0.8", "quality"}}
}

// cursor is a parameter that continues a list.
type cursor struct{ *store.Cursor }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *cursor) UnmarshalText(text []byte) error {
	at, id, ok := strings.Cut(string(text), ".")
	ms, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || id == "" {
		return fmt.Errorf("use the next of an answer, or leave it out to begin at the first session")
	}
	c.Cursor = &store.Cursor{UpdatedAt: ms, ID: id}
	return nil
}

func (*cursor) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: "The next of the answer before. Its form may change."}
}

// cursorOf is the parameter that continues a list after a session.
func cursorOf(s *session.Session) string { return fmt.Sprintf("%d.%s", s.UpdatedAt, s.ID) }

// zone is a parameter that is a time zone.
type zone struct{ *time.Location }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (z *zone) UnmarshalText(text []byte) (err error) {
	if z.Location, err = time.LoadLocation(string(text)); err != nil {
		return fmt.Errorf("use the name of a time zone such as Europe/Berlin")
	}
	return nil
}

func (*zone) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: "The name of a time zone in the IANA database.",
		Examples: []any{"Europe/Berlin"}}
}
