package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// recorded is the content of a store with the sessions of the reference program and of the captures of real clients.
var recorded = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "api-test-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s.db")
	im, err := importer.New(path, importer.Options{})
	if err != nil {
		return nil, err
	}
	inputs := importer.Inputs([]string{"../testdata/reference.jsonl", "../ingest/testdata/captures"}, nil, nil)
	if _, err := im.Run(context.Background(), inputs); err != nil {
		return nil, err
	}
	if n := len(im.Summary.Total.Sessions); n < 20 {
		return nil, fmt.Errorf("%d sessions were imported; are the captures there?", n)
	}
	if err := im.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// open opens a store with the recorded sessions.
func open(t testing.TB) *sqlite.Store {
	t.Helper()
	content, err := recorded()
	path := filepath.Join(t.TempDir(), "s.db")
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	testscale.Must(t, err)
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// site is a server of the API of a store.
type site struct {
	testing.TB
	*httptest.Server
	store *sqlite.Store
}

// newSite serves a store, or with remote, a client of it in its place.
func newSite(t testing.TB, remote bool) *site {
	t.Helper()
	s := open(t)
	changes := NewCounter(sqlite.Follow(s.Path()))
	t.Cleanup(func() { changes.Close() })
	var of store.Service = s
	if remote {
		of = clientOf(t, s, changes)
	}
	done := make(chan struct{})
	server := httptest.NewServer(New(Backend{Sessions: document.Reader{Reader: of}, Changes: changes,
		Done: done, Author: "ann",
		Change: func(ctx context.Context, fn func(context.Context, store.Service) error) error {
			return fn(ctx, of)
		}}, Options{Version: "test"}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(done) })
	return &site{t, server, s}
}

// ask sends a request, and returns the answer with its body.
func (s *site) ask(method, path, body string, header ...string) (*http.Response, []byte) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.URL+path, strings.NewReader(body))
	testscale.Must(s, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := s.Client().Do(r)
	testscale.Must(s, err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	return answer, content
}

// get reads the JSON of an answer that is a success.
func (s *site) get(path string, to any) {
	s.Helper()
	s.do(http.MethodGet, path, "", http.StatusOK, to)
}

// do sends a request, of which the answer has the status, and decodes that.
func (s *site) do(method, path, body string, status int, to any) {
	s.Helper()
	answer, content := s.ask(method, Prefix+path, body)
	if answer.StatusCode != status {
		s.Fatalf("%s %s: status %d, want %d\n%s", method, path, answer.StatusCode, status, content)
	}
	s.valid(method, path, status, content)
	if to == nil {
		return
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		s.Fatalf("%s %s: %v\n%s", method, path, err, content)
	}
}

// valid checks an answer by the schema that is described for it.
func (s *site) valid(method, path string, status int, content []byte) {
	s.Helper()
	path, _, _ = strings.Cut(path, "?")
	elements := strings.Split(path, "/")
	d := describedBy(s.TB)
	for template, methods := range d.Paths {
		of := strings.Split(strings.TrimPrefix(template, "/"), "/")
		o, ok := methods[strings.ToLower(method)]
		for i := range of {
			ok = ok && len(of) == len(elements) && (of[i] == elements[i] || strings.HasPrefix(of[i], "{"))
		}
		if !ok {
			continue
		}
		r, ok := o.Responses[strconv.Itoa(status)]
		if !ok {
			s.Errorf("%s %s: the status %d is not described", method, path, status)
		}
		if schema := r.Content["application/json"].Schema; schema != nil {
			var v any
			if err := errors.Join(json.Unmarshal(content, &v), d.schema(s, schema).Validate(v)); err != nil {
				s.Errorf("%s %s: %v\n%.1000s", method, path, err, content)
			}
		}
		return
	}
	s.Errorf("%s %s is not described", method, path)
}

// describedBy is the document of the API.
func describedBy(t testing.TB) (d documented) {
	testscale.Must(t, json.Unmarshal(describe(""), &d))
	return d
}

// fails sends a request that is refused with a problem.
func (s *site) fails(method, path, body string, status int, code, parameter string, header ...string) {
	s.Helper()
	answer, content := s.ask(method, path, body, header...)
	var p Problem
	if err := json.Unmarshal(content, &p); err != nil ||
		answer.Header.Get("Content-Type") != "application/problem+json" {
		s.Errorf("%s %s: %v, content %s\n%s", method, path, err, answer.Header.Get("Content-Type"), content)
		return
	}
	if answer.StatusCode != status || p.Status != status || p.Code != code || p.Parameter != parameter ||
		p.Remedy == "" {
		s.Errorf("%s %s: status %d, want %d, code %s, and parameter %q\n%s", method, path, answer.StatusCode, status,
			code,
			parameter, content)
	}
}

// examples are addresses of an operation that reads, for all that is in a store.
func examples(t testing.TB, s store.Reader) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	add := func(path string, elements ...any) {
		var b strings.Builder
		rest := path
		for _, e := range elements {
			before, after, _ := strings.Cut(rest, "{")
			_, rest, _ = strings.Cut(after, "}")
			b.WriteString(before + url.PathEscape(fmt.Sprint(e)))
		}
		all[path] = append(all[path], b.String()+rest)
	}
	for _, path := range []string{"sessions", "stats", "status", "openapi.json"} {
		add(path)
	}
	all["search"] = []string{"search?q=the", "search?q=nothing+has+this", "search?q=weather&agent=x&tag=none"}
	all["sessions"] = append(all["sessions"], "sessions?children=true&archived=true&limit=500",
		"sessions?tag=none&status=error", "sessions?sort=cost&limit=3", "sessions?since=2001-01-01&until=1h")
	all["stats"] = append(all["stats"], "stats?by=tool", "stats?by=day&zone=Europe/Berlin&since=2001-01-01",
		"stats?status=error")
	before := "last"
	for _, row := range storetest.Sessions(t, s) {
		doc, err := document.Load(t.Context(), s, row.ID)
		testscale.Must(t, err)
		for _, what := range []string{"", "/document", "/replay", "/rows", "/status", "/annotations", "/decisions",
			"/spans"} {
			add("sessions/{id}"+what, row.ID)
		}
		add("sessions/{id}/diff/{b}", row.ID, before)
		before = row.ID
		for _, turn := range doc.Turns {
			add("sessions/{id}/turns/{n}", row.ID, turn.Number)
			add("sessions/{id}/turns/{n}/replay", row.ID, turn.Number)
		}
		for _, m := range doc.Messages() {
			for _, p := range m.Parts {
				add("sessions/{id}/parts/{message}/{part}", row.ID, m.ID, p.ID)
			}
		}
		for _, p := range doc.SystemPrompts {
			if p.Resolved {
				add("prompts/{digest}", p.Digest)
			}
		}
		for _, c := range doc.ToolCatalogs {
			if c.Resolved {
				add("catalogs/{digest}", c.Digest)
			}
		}
		for _, trace := range doc.Traces {
			add("traces/{trace}", trace)
		}
		for _, span := range doc.Spans {
			add("traces/{trace}/{span}", span.TraceID, span.SpanID)
		}
	}
	return all
}

// documented is the OpenAPI document as far as tests read it.
type documented struct {
	Paths map[string]map[string]struct {
		Parameters []struct{ Schema *jsonschema.Schema }
		Responses  map[string]struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
		Events map[string]json.RawMessage `json:"x-events"`
	}
	Components struct {
		Schemas map[string]json.RawMessage
	}
}

// schema is a schema of the document, with the components that it refers to.
func (d *documented) schema(t testing.TB, of json.RawMessage) *jsonschema.Resolved {
	t.Helper()
	text, err := json.Marshal(map[string]any{"$defs": d.Components.Schemas, "allOf": []any{of}})
	testscale.Must(t, err)
	var s jsonschema.Schema
	testscale.Must(t, json.Unmarshal(bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/$defs/")), &s))
	resolved, err := s.Resolve(nil)
	testscale.Must(t, err)
	return resolved
}

// Every operation answers as the document describes, of all that real clients recorded.
func TestAnswersAreAsDescribed(t *testing.T) {
	s := newSite(t, false)
	var d documented
	_, text := s.ask(http.MethodGet, Prefix+"openapi.json", "")
	testscale.Must(t, json.Unmarshal(text, &d))
	addresses := examples(t, s.store)
	for _, op := range operations() {
		o, ok := d.Paths["/"+op.path][strings.ToLower(op.method)]
		if !ok {
			t.Errorf("the document has no %s %s", op.method, op.path)
			continue
		}
		answer, ok := o.Responses["200"].Content["application/json"]
		if op.method != http.MethodGet || !ok || op.ID == "exportSession" {
			continue
		}
		if len(addresses[op.path]) == 0 {
			t.Errorf("there is no example of %s", op.path)
		}
		described := answer.Schema
		if described == nil {
			described = json.RawMessage("{}")
		}
		schema := d.schema(t, described)
		for i, address := range addresses[op.path] {
			if i%(1+len(addresses[op.path])/testscale.Rounds(40, 1000)) != 0 {
				continue
			}
			answer, content := s.ask(http.MethodGet, Prefix+address, "")
			var v any
			if err := json.Unmarshal(content, &v); err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%s: status %d (%v)\n%s", address, answer.StatusCode, err, content)
				continue
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s: %v\n%.2000s", address, err, content)
			}
			if i > 0 || op.path == "openapi.json" {
				continue
			}
			v.(map[string]any)["unknown"] = true
			if schema.Validate(v) == nil {
				t.Errorf("%s: an unknown member is valid", address)
			}
		}
	}
}

// The address of a span, as other viewers of traces link it, leads to the page of its turn.
func TestASpanLeadsToItsPage(t *testing.T) {
	s := newSite(t, false)
	spans := examples(t, s.store)["traces/{trace}/{span}"]
	for i := 0; i < len(spans); i += 1 + len(spans)/20 {
		var at located
		s.get(spans[i], &at)
		want := Address("s", at.SessionID)
		if at.Turn > 0 {
			want = Address("s", at.SessionID, "t", at.Turn)
		}
		if at.PartID != "" {
			want += "?to=p-" + at.PartID
		}
		answer, _ := s.ask(http.MethodGet, strings.Replace(spans[i], "traces", "/trace", 1), "")
		if answer.StatusCode != http.StatusOK || answer.Request.URL.RequestURI() != want {
			t.Errorf("%s: status %d at %s, want %s", spans[i], answer.StatusCode, answer.Request.URL, want)
		}
	}
}

func TestListsContinue(t *testing.T) {
	s := newSite(t, false)
	for _, sort := range store.SessionSorts() {
		var whole, page sessionList
		s.get("sessions?limit=500&sort="+sort, &whole)
		var items []document.Item
		for next := ""; ; next = page.Next {
			page = sessionList{}
			address := "sessions?limit=7&sort=" + sort
			if next != "" {
				address += "&cursor=" + url.QueryEscape(next)
			}
			s.get(address, &page)
			if page.Next != "" {
				next = url.QueryEscape(page.Next)
				s.fails(http.MethodGet, Prefix+"sessions?errors=true&cursor="+next, "", 400, CodeInvalid, "cursor")
			}
			if items = append(items, page.Sessions...); page.Next == "" {
				break
			}
		}
		if len(whole.Sessions) < 10 || !reflect.DeepEqual(items, whole.Sessions) {
			t.Errorf("by %s: %d sessions in pages, and %d at once", sort, len(items), len(whole.Sessions))
		}
	}
}

// An answer without sessions names the filter that excludes them.
func TestAnEmptyListNamesItsFilters(t *testing.T) {
	s := newSite(t, false)
	var list sessionList
	s.get("sessions?tag=none&agent=grida", &list)
	want := []document.Exclusion{{Filter: "agent", Value: "grida"}, {Filter: "tag", Value: "none", Without: 2}}
	if len(list.Sessions) != 0 || !reflect.DeepEqual(list.Filters, want) {
		t.Errorf("the list is %+v, want the filters %+v", list, want)
	}
}

func TestAnswersAreNotSentTwice(t *testing.T) {
	s := newSite(t, false)
	for _, path := range []string{"sessions", "sessions/last/document", "sessions/last/export?format=markdown",
		"openapi.json"} {
		answer, body := s.ask(http.MethodGet, Prefix+path, "", "Accept-Encoding", "identity")
		tag := answer.Header.Get("ETag")
		if !strings.HasPrefix(tag, `W/"`) || len(body) == 0 {
			t.Errorf("%s: ETag %q", path, tag)
		}
		for _, known := range []string{tag, `"x", ` + tag, strings.TrimPrefix(tag, "W/"), "*"} {
			answer, body = s.ask(http.MethodGet, Prefix+path, "", "If-None-Match", known)
			if answer.StatusCode != http.StatusNotModified || len(body) != 0 {
				t.Errorf("%s: status %d for one who has %s", path, answer.StatusCode, known)
			}
		}
		if answer, body = s.ask(http.MethodHead, Prefix+path, ""); answer.StatusCode != http.StatusOK ||
			len(body) != 0 {
			t.Errorf("HEAD %s: status %d", path, answer.StatusCode)
		}
	}
	for accepted, want := range map[string]string{"gzip": "gzip", "br;q=1.0, GZIP;q=0.5": "gzip", "identity": "",
		"gzip;q=0": "", "gzip ; q=0.000, identity": "", "notgzip": ""} {
		answer, _ := s.ask(http.MethodGet, Prefix+"sessions", "", "Accept-Encoding", accepted)
		if got := answer.Header.Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding: %s: the answer is encoded with %q, want %q", accepted, got, want)
		}
	}
}
