package web

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session/store"
)

// parameter is a parameter of an operation, as the document describes it. Its value becomes the field of a struct that
// has its name, or that in the tag param. The field is a string, a number, a bool, or of a type that is read from text; or a
// slice of these, for a parameter that may be repeated. Of one with the tag session the value names a session, and the
// field gets its id.
type parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
	Schema      schema `json:"schema"`
}

// schema is what values of a parameter are, of one that may be repeated each of the values.
type schema struct {
	Enum    []string `json:"enum"`
	Minimum int64    `json:"minimum"`
	Maximum int64    `json:"maximum"`
	Default any      `json:"default"`
}

// decode reads the parameters of a request into a pointer to a struct.
func (a *api) decode(op *operation, r *http.Request, to any) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Invalidf("", "escape the values of parameters", "the query cannot be read: %v", err)
	}
	var known []string
	for i := range op.Parameters {
		p := &op.Parameters[i]
		var values []string
		switch p.In {
		case "path":
			values = []string{element(r.PathValue(p.Name))}
		case "query":
			values = query[p.Name]
			delete(query, p.Name)
			known = append(known, p.Name)
		case "header":
			values = r.Header.Values(p.Name)
		}
		field, namesSession := p.field(to)
		if err := p.decode(field, values); err != nil {
			return err
		}
		if namesSession && field.String() != "" {
			id, err := a.Sessions.Resolve(r.Context(), field.String())
			if err != nil {
				return named(p.Name, err)
			}
			field.SetString(id)
		}
	}
	for name := range query {
		remedy := "leave it out"
		if len(known) > 0 {
			remedy += ", or use " + strings.Join(known, ", ")
		}
		return Invalidf(name, remedy, "there is no parameter %q here", name)
	}
	return nil
}

// fromQuery reads the parameters of a page, which are those of an operation. Forms send all their fields: those that
// are empty are left out, and others are not looked at.
func fromQuery(op *operation, query url.Values, to any) error {
	for i := range op.Parameters {
		p := &op.Parameters[i]
		field, _ := p.field(to)
		values := slices.DeleteFunc(slices.Clone(query[p.Name]), func(text string) bool { return text == "" })
		if err := p.decode(field, values); err != nil {
			return err
		}
	}
	return nil
}

// field is the field of a struct that a parameter sets, and whether it names a session.
func (p *parameter) field(of any) (field reflect.Value, namesSession bool) {
	v := reflect.ValueOf(of).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name := cmp.Or(f.Tag.Get("param"), f.Name); strings.EqualFold(name, p.Name) {
			_, namesSession = f.Tag.Lookup("session")
			return v.FieldByIndex(f.Index), namesSession
		}
	}
	panic(fmt.Sprintf("%s has no field for the parameter %s", v.Type(), p.Name)) // the document has more than the code
}

// decode sets the field of a parameter to its values in a request.
func (p *parameter) decode(to reflect.Value, values []string) error {
	_, whole := to.Addr().Interface().(encoding.TextUnmarshaler)
	many := to.Kind() == reflect.Slice && !whole
	switch {
	case len(values) == 0 && p.Required:
		return Invalidf(p.Name, "give "+p.Description, "%s is missing", p.Name)
	case len(values) == 0 && p.Schema.Default != nil:
		values = []string{fmt.Sprint(p.Schema.Default)}
	case len(values) > 1 && !many:
		return Invalidf(p.Name, "give one", "%s is there %d times", p.Name, len(values))
	}
	for _, text := range values {
		field := to
		if many {
			to.Set(reflect.Append(to, reflect.Zero(to.Type().Elem())))
			field = to.Index(to.Len() - 1)
		}
		var err error
		switch {
		case text == "":
			err = fmt.Errorf("leave it out, or give %s", p.Description)
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			err = fmt.Errorf("give text in UTF-8, without NUL")
		default:
			err = p.Schema.set(field, text)
		}
		if err != nil {
			return Invalidf(p.Name, err.Error(), "%s is %q", p.Name, text)
		}
	}
	return nil
}

// set reads a value. Its error is what is to be given instead.
func (s *schema) set(to reflect.Value, text string) error {
	if own, ok := to.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return own.UnmarshalText([]byte(text))
	}
	switch to.Kind() {
	case reflect.Bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("use true or false")
		}
		to.SetBool(v)
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < s.Minimum || n > s.Maximum {
			return fmt.Errorf("use a number from %d to %d", s.Minimum, s.Maximum)
		}
		to.SetInt(n)
	default:
		if s.Enum != nil && !slices.Contains(s.Enum, text) {
			return fmt.Errorf("use %s", strings.Join(s.Enum, ", "))
		}
		to.SetString(text)
	}
	return nil
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

// sessionPath names a session.
type sessionPath struct {
	ID string `session:""`
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

func (i *instant) UnmarshalText(text []byte) error {
	*i = instant(text)
	if _, err := store.ParseTime(string(text), time.Now(), time.UTC); err != nil {
		return fmt.Errorf("use a time such as 2026-11-20T15:04:05Z, a day such as 2026-11-20, " +
			"or a duration before now such as 12h, 7d or 6mo")
	}
	return nil
}

// groups is a parameter that is what figures are grouped by.
type groups []store.StatsBy

func (g *groups) UnmarshalText(text []byte) (err error) {
	if *g, err = store.ParseStatsBy(string(text)); err != nil {
		return fmt.Errorf("use %s, or several with commas between", strings.Join(store.StatsKeys(), ", "))
	}
	return nil
}

// score is a parameter that compares a score.
type score struct{ store.ScoreFilter }

func (s *score) UnmarshalText(text []byte) (err error) {
	if s.ScoreFilter, err = store.ParseScoreFilter(string(text)); err != nil {
		return fmt.Errorf("use a name and a comparison with a number, such as quality>=0.8")
	}
	return nil
}

// cursor is a parameter that continues a list: when the last session of it was updated, and its id.
type cursor struct{ *store.Cursor }

func (c *cursor) UnmarshalText(text []byte) error {
	at, id, ok := strings.Cut(string(text), ".")
	ms, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || id == "" {
		return fmt.Errorf("use the next of an answer, or leave it out to begin at the first session")
	}
	c.Cursor = &store.Cursor{UpdatedAt: ms, ID: id}
	return nil
}

// zone is a parameter that is a time zone.
type zone struct{ *time.Location }

func (z *zone) UnmarshalText(text []byte) (err error) {
	if z.Location, err = time.LoadLocation(string(text)); err != nil {
		return fmt.Errorf("use the name of a time zone such as Europe/Berlin")
	}
	return nil
}
