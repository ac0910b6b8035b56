package web

import (
	"cmp"
	"context"
	_ "embed"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// endpoint answers the requests of an operation.
type endpoint func(a *api, op *operation, w http.ResponseWriter, r *http.Request) error

// endpoints are those of the operations, by the ids that these have in the document.
var endpoints = map[string]endpoint{
	"listSessions":     reading((*api).list),
	"search":           reading((*api).search),
	"stats":            reading((*api).stats),
	"serverStatus":     reading((*api).serverStatus),
	"openAPI":          reading((*api).openAPI),
	"getSession":       ofDocument(headOf),
	"getDocument":      reading((*api).read),
	"getTurn":          reading((*api).turn),
	"getReplay":        reading((*api).replay),
	"getEligibility":   ofDocument((*document.Document).Eligibility),
	"getPart":          reading((*api).part),
	"getRows":          ofSession(document.Reader.Transcript),
	"getStatus":        ofSession(document.Reader.LoadStatus),
	"listAnnotations":  reading((*api).annotations),
	"listDecisions":    reading((*api).decisions),
	"listSpans":        ofDocument(spansIn),
	"diffSessions":     reading((*api).diff),
	"getPrompt":        reading(blob(store.BlobSystemPrompt, "system prompt")),
	"getCatalog":       reading(blob(store.BlobToolCatalog, "tool catalog")),
	"findTrace":        reading((*api).locate),
	"findSpan":         reading((*api).locate),
	"exportSession":    raw((*api).export),
	"followSessions":   raw((*api).events),
	"followSession":    raw((*api).sessionEvents),
	"importFile":       raw((*api).importFile),
	"callStore":        raw((*api).callStore),
	"updateSession":    changing(http.StatusOK, (*api).update),
	"deleteSession":    changing(http.StatusOK, (*api).remove),
	"annotate":         changing(http.StatusCreated, (*api).annotate),
	"removeAnnotation": changing(http.StatusNoContent, (*api).removeAnnotation),
	"forkSession":      changing(http.StatusCreated, (*api).fork),
	"rewindSession":    changing(http.StatusOK, (*api).rewind),
	"unrewindSession":  changing(http.StatusOK, (*api).unrewind),
}

// none is no parameters, or no body.
type none struct{}

// raw is an endpoint that answers by itself, with parameters of a type P.
func raw[P any](do func(*api, http.ResponseWriter, *http.Request, P) error) endpoint {
	return func(a *api, op *operation, w http.ResponseWriter, r *http.Request) error {
		var p P
		if err := a.decode(op, r, &p); err != nil {
			return err
		}
		return do(a, w, r, p)
	}
}

// reading is an endpoint that answers with JSON of a type R.
func reading[P, R any](do func(*api, context.Context, P) (R, error)) endpoint {
	return raw(func(a *api, w http.ResponseWriter, r *http.Request, p P) error {
		v, err := do(a, r.Context(), p)
		if err != nil {
			return err
		}
		return answer(w, r, http.StatusOK, v)
	})
}

// ofSession is an endpoint that answers with what is read of a session.
func ofSession[R any](read func(r document.Reader, ctx context.Context, id string) (R, error)) endpoint {
	return reading(func(a *api, ctx context.Context, p sessionPath) (R, error) { return read(a.Sessions, ctx, p.ID) })
}

// ofDocument is an endpoint that answers with something of the document of a session.
func ofDocument[R any](of func(*document.Document) R) endpoint {
	return ofSession(func(r document.Reader, ctx context.Context, id string) (v R, err error) {
		doc, err := r.LoadAll(ctx, id)
		if err == nil {
			v = of(doc)
		}
		return v, err
	})
}

// changing is an endpoint that changes sessions. Its body is JSON of a type B, and its answer of a type R.
func changing[P, B, R any](status int, do func(*api, context.Context, store.Service, P, B) (R, error)) endpoint {
	return raw(func(a *api, w http.ResponseWriter, r *http.Request, p P) error {
		var b B
		if _, empty := any(b).(none); !empty {
			if err := decodeBody(w, r, &b); err != nil {
				return err
			}
		}
		var v R
		err := a.change(r.Context(), func(ctx context.Context, s store.Service) (err error) {
			v, err = do(a, ctx, s, p, b)
			return err
		})
		if err == nil && status == http.StatusNoContent {
			w.WriteHeader(status)
		} else if err == nil {
			err = answer(w, r, status, v)
		}
		return err
	})
}

// maxBody is the size in bytes up to which a body of JSON is accepted.
const maxBody = 1 << 20

// decodeBody reads the body of a request, one JSON object, into a pointer. Names of members have a case here.
func decodeBody(w http.ResponseWriter, r *http.Request, to any) error {
	d, err := jsonBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var body json.RawMessage
	var given map[string]json.RawMessage
	if err = d.Decode(&body); err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			err = json.Unmarshal(body, &given)
		} else if err == nil {
			err = errors.New("something follows the object")
		}
	}
	var members []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(to).Elem()) {
		if member, _, _ := strings.Cut(f.Tag.Get("json"), ","); member != "" {
			members = append(members, member)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(members, name) {
			return Invalidf(name, "leave it out, or use "+strings.Join(members, ", "), "the body has no member %q", name)
		}
	}
	if err == nil {
		err = json.Unmarshal(body, to)
	}
	return bodyProblem(err)
}

// jsonBody returns a decoder of the body of a request, which has at most limit bytes.
func jsonBody(w http.ResponseWriter, r *http.Request, limit int64) (*json.Decoder, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		return nil, NewProblem("unsupported-media-type", http.StatusUnsupportedMediaType, "Content-Type",
			"send JSON, with the header Content-Type: application/json",
			fmt.Sprintf("the body has the media type %q", r.Header.Get("Content-Type")))
	}
	return json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)), nil
}

// bodyProblem is the error of a body that cannot be decoded, nil of one that can.
func bodyProblem(err error) error {
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		want := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a string",
			reflect.Struct: "an object", reflect.Map: "an object"}[wrong.Type.Kind()]
		return Invalidf(wrong.Field, "give "+cmp.Or(want, "a number"), "%s is a JSON %s", wrong.Field, wrong.Value)
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLargeProblem(tooLarge.Limit)
	}
	return Invalidf("", "send one JSON object", "the body is not JSON: %v", err)
}

// tooLargeProblem is the error of a body that is longer than a limit.
func tooLargeProblem(limit int64) error {
	return NewProblem("too-large", http.StatusRequestEntityTooLarge, "", "send less at once",
		fmt.Sprintf("the body has more than %d bytes", limit))
}

// documentText is the OpenAPI document of the API. By it requests are routed and parameters are read. Names in braces
// stand for what other packages know.
//
//go:embed openapi.json
var documentText string

// describe returns the OpenAPI document of a server of a version of the program.
func describe(version string) json.RawMessage {
	if version != "" {
		version = " Served by agenttrace " + version + "."
	}
	list := func(all []string) string { return strings.Join(all, `", "`) }
	return json.RawMessage(strings.NewReplacer(
		"{{imports}}", list(formats.Names((*formats.Format).Reads)),
		"{{exports}}", list(formats.Names((*formats.Format).InFile)),
		"{{export types}}", strings.Join(exportTypes(), `": {}, "`),
		"{{statuses}}", list(document.Statuses()), "{{sorts}}", list(store.SessionSorts()),
		"{{groups}}", strings.Join(store.StatsKeys(), ", "), "{{served}}", version,
	).Replace(documentText))
}

// operation is an operation of the document.
type operation struct {
	ID         string      `json:"operationId"`
	Parameters []parameter `json:"parameters"`
	method     string
	path       string // below Prefix, with the path parameters in braces
}

// methods are those of operations, in the order in which answers list them.
var methods = []string{http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodDelete}

// operations are those of the document, by path and method.
var operations = sync.OnceValue(func() (all []*operation) {
	var d struct {
		Paths map[string]map[string]*operation `json:"paths"`
	}
	if err := json.Unmarshal(describe(""), &d); err != nil {
		panic(fmt.Sprintf("read openapi.json: %v", err)) // it is embedded
	}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range methods {
			if op := d.Paths[path][strings.ToLower(method)]; op != nil {
				op.method, op.path = method, strings.TrimPrefix(path, "/")
				all = append(all, op)
			}
		}
	}
	return all
})

func operationOf(id string) *operation {
	all := operations()
	return all[slices.IndexFunc(all, func(op *operation) bool { return op.ID == id })]
}

// parameter is a parameter of an operation, as the document describes it. Its value becomes the field of a struct that
// has its name, or that in the tag param. The field is a string, a number, a bool, or of a type that is read from text;
// or a slice of these, for a parameter that may be repeated. Of one with the tag session the value names a session, and
// the field gets its id.
type parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
	Schema      schema `json:"schema"`
}

// schema is what values of a parameter are. Of one that may be repeated Items is what each of the values is.
type schema struct {
	Type    any      `json:"type,omitempty"`
	Enum    []string `json:"enum,omitempty"`
	Minimum int64    `json:"minimum,omitempty"`
	Maximum int64    `json:"maximum,omitempty"`
	Default any      `json:"default,omitempty"`
	Items   *schema  `json:"items,omitempty"`
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
		case text == "" && p.Required:
			err = fmt.Errorf("give %s", p.Description)
		case text == "":
			err = fmt.Errorf("leave it out, or give a value: %s", p.Description)
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

// cursor is a parameter that continues a list: when the last session of it was updated, what the list is of, and the id
// of that session.
type cursor struct {
	*store.Cursor
	of string
}

func (c *cursor) UnmarshalText(text []byte) error {
	fields := strings.SplitN(string(text), ".", 3)
	ms, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || len(fields) < 3 || fields[2] == "" {
		return errors.New("use the next of an answer, or leave it out to begin at the first session")
	}
	c.Cursor, c.of = &store.Cursor{UpdatedAt: ms, ID: fields[2]}, fields[1]
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
