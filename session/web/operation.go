package web

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

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

// decodeBody reads the body of a request, one JSON object, into a pointer.
func decodeBody(w http.ResponseWriter, r *http.Request, to any) error {
	d, err := jsonBody(w, r, maxBody)
	if err != nil {
		return err
	}
	d.DisallowUnknownFields()
	if err = d.Decode(to); err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("something follows the object")
		}
	}
	return bodyProblem(err, to)
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

// bodyProblem is the error of a body that cannot be decoded.
func bodyProblem(err error, to any) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		want := "a number"
		switch wrong.Type.Kind() {
		case reflect.Bool:
			want = "true or false"
		case reflect.String:
			want = "a string"
		case reflect.Struct, reflect.Map:
			want = "an object"
		}
		return Invalidf(wrong.Field, "give "+want, "%s is a JSON %s", wrong.Field, wrong.Value)
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLargeProblem(tooLarge.Limit)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		var members []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(to).Elem()) {
			if member, _, _ := strings.Cut(f.Tag.Get("json"), ","); member != "" {
				members = append(members, member)
			}
		}
		name = strings.Trim(name, `"`)
		return Invalidf(name, "leave it out, or use "+strings.Join(members, ", "), "the body has no member %q", name)
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
		"{{exports}}", list(formats.Names((*formats.Format).Written)),
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
