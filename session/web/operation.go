package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/agenttrace/agenttrace/session/store"
)

// operation is a row of the table.
type operation struct {
	method string
	// path is below Prefix, with the path parameters in braces.
	path string
	// id names the operation for generated clients, summary states in a line what it does.
	id, summary string
	params      []parameter
	// body is what a request has, and result what the answer to a successful one has.
	body, result content
	status       int
	serve        func(a *api, w http.ResponseWriter, r *http.Request) error
}

// content is a body: JSON of a type, or if that is nil, bytes of one of the media types. Without either there is none.
type content struct {
	json  reflect.Type
	media []string
	// events are the types of the data of events by the names of these.
	events map[string]reflect.Type
}

// none is no parameters, or no body.
type none struct{}

// reading is an operation that answers with JSON of a type R.
func reading[P, R any](path, id, summary string, do func(*api, context.Context, P) (R, error)) operation {
	params := parametersOf[P]()
	return operation{method: http.MethodGet, path: path, id: id, summary: summary, params: params,
		result: content{json: reflect.TypeFor[R]()}, status: http.StatusOK,
		serve: func(a *api, w http.ResponseWriter, r *http.Request) error {
			p, err := decode[P](a, r, params)
			if err != nil {
				return err
			}
			v, err := do(a, r.Context(), p)
			if err != nil {
				return err
			}
			return answer(w, r, http.StatusOK, v)
		}}
}

// raw is an operation that answers by itself.
func raw[P any](method, path, id, summary string, body, result content,
	do func(*api, http.ResponseWriter, *http.Request, P) error) operation {
	params := parametersOf[P]()
	return operation{method: method, path: path, id: id, summary: summary, params: params, body: body,
		result: result, status: http.StatusOK, serve: func(a *api, w http.ResponseWriter, r *http.Request) error {
			p, err := decode[P](a, r, params)
			if err != nil {
				return err
			}
			return do(a, w, r, p)
		}}
}

// changing is an operation that changes sessions. Its body is JSON of a type B, and its answer of a type R.
func changing[P, B, R any](method, path, id, summary string, status int,
	do func(*api, context.Context, store.Service, P, B) (R, error)) operation {
	op := operation{method: method, path: path, id: id, summary: summary, params: parametersOf[P](), status: status}
	if t := reflect.TypeFor[B](); t != reflect.TypeFor[none]() {
		op.body.json = t
	}
	if t := reflect.TypeFor[R](); t != reflect.TypeFor[none]() {
		op.result.json = t
	}
	op.serve = func(a *api, w http.ResponseWriter, r *http.Request) error {
		p, err := decode[P](a, r, op.params)
		if err != nil {
			return err
		}
		var b B
		if op.body.json != nil {
			if err := decodeBody(w, r, &b); err != nil {
				return err
			}
		}
		var v R
		err = a.change(r.Context(), func(ctx context.Context, s store.Service) (err error) {
			v, err = do(a, ctx, s, p, b)
			return err
		})
		if err != nil {
			return err
		}
		if op.result.json == nil {
			w.WriteHeader(status)
			return nil
		}
		return answer(w, r, status, v)
	}
	return op
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
		return Invalidf(wrong.Field, "give "+jsonName(wrong.Type), "%s is a JSON %s", wrong.Field, wrong.Value)
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLargeProblem(tooLarge.Limit)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		remedy := "leave it out, or use " + strings.Join(members(reflect.TypeOf(to).Elem()), ", ")
		return Invalidf(name, remedy, "the body has no member %q", name)
	}
	return Invalidf("", "send one JSON object", "the body is not JSON: %v", err)
}

// tooLargeProblem is the error of a body that is longer than a limit.
func tooLargeProblem(limit int64) error {
	return NewProblem("too-large", http.StatusRequestEntityTooLarge, "", "send less at once",
		fmt.Sprintf("the body has more than %d bytes", limit))
}

// jsonName describes the JSON of a type.
func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}

// members are the names of the members of a type's JSON.
func members(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}
