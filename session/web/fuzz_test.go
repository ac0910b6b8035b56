package web

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// values are what a parameter may be given.
var values = []string{"", "1", "-1", "last", "true", "x", "2026-11-20", "1.a", "1-2-3", "Local", "\xff\x00", "/..%",
	`{"title":"x"}`, `{"kind":"score","name":"n","value":1e999}`, `{"turn":-1}`, `[]`}

// No value of a parameter, and no body, breaks an operation.
func TestAnyValueOfAParameterIsAnswered(t *testing.T) {
	ask := asker(t)
	for i := range inputs() {
		for j, value := range values {
			if (i+j)%testscale.Rounds(2, 1) == 0 {
				ask(t, uint16(i), value)
			}
		}
	}
}

// FuzzParameters gives any value to any parameter of any operation, and any body to those that have one.
func FuzzParameters(f *testing.F) {
	for i := range inputs() {
		f.Add(uint16(i), values[i%len(values)])
	}
	ask := asker(f)
	f.Fuzz(func(t *testing.T, which uint16, value string) { ask(t, which, value) })
}

// asker returns what gives a value to an input. The operation answers, or has a problem that names the parameter.
func asker(t testing.TB) func(t *testing.T, which uint16, value string) {
	s := open(t)
	changes := NewCounter(sqlite.Follow(s.Path()))
	t.Cleanup(func() { changes.Close() })
	done := make(chan struct{})
	close(done)
	// Without a service nothing is changed, and parameters and bodies are read all the same.
	backend := Backend{Sessions: document.Reader{Reader: s}, Changes: changes, Done: done}
	handler, all := New(backend, Options{}), inputs()
	return func(t *testing.T, which uint16, value string) {
		t.Helper()
		to := all[int(which)%len(all)]
		r := to.request(value)
		if r == nil {
			return
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code < 400 {
			return
		}
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code >= 500 || p.Status != w.Code ||
			p.Detail == "" {
			t.Fatalf("%s %s: status %d (%v)\n%s", r.Method, r.URL, w.Code, err, w.Body)
		}
		if of := to.parameter; of != nil && w.Code == http.StatusBadRequest && p.Parameter != of.Name {
			t.Fatalf("%s %s: the parameter is %q, not %q\n%s", r.Method, r.URL, of.Name, p.Parameter, w.Body)
		}
	}
}

// inputs are all that requests can be wrong in.
func inputs() (all []fuzzed) {
	for _, op := range operations() {
		all = append(all, fuzzed{op, nil})
		for i := range op.Parameters {
			all = append(all, fuzzed{op, &op.Parameters[i]})
		}
	}
	return all
}

// fuzzed is a parameter of an operation or, without one, the body.
type fuzzed struct {
	*operation
	parameter *parameter
}

// request is a request with a value for the parameter, nil if an address cannot have it.
func (f fuzzed) request(value string) *http.Request {
	path, query, header := Prefix+f.path, url.Values{}, http.Header{"Content-Type": {"application/json"}}
	for i := range f.Parameters {
		p := &f.Parameters[i]
		given := f.parameter != nil && p.Name == f.parameter.Name
		switch {
		case p.In == "path":
			element := map[string]string{"n": "1", "trace": "00000000", "message": "m", "part": "p"}[p.Name]
			if element == "" {
				element = "last"
			}
			if given {
				element = value
			}
			if element == "" || element == "." || element == ".." {
				return nil // it is another path
			}
			path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(element), 1)
		case given && p.In == "query":
			query.Set(p.Name, value)
		case given && p.In == "header":
			header.Set(p.Name, value)
		case p.Required:
			query.Set(p.Name, "x")
		}
	}
	body := "{}"
	if f.parameter == nil {
		body = value
	}
	r := httptest.NewRequest(f.method, "/", strings.NewReader(body))
	r.URL = &url.URL{Path: path, RawQuery: query.Encode()}
	if unescaped, err := url.PathUnescape(path); err == nil {
		r.URL.Path, r.URL.RawPath = unescaped, path
	}
	r.Header = header
	return r
}
