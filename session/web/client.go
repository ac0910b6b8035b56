package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
)

// client is a [store.Service] of a store in another process: a method of it calls that of the store by the API. It is
// safe for concurrent use.
type client struct {
	http  *http.Client
	base  *url.URL
	token string
	name  string
}

// Dial returns the store of the server at an address: http://host:port, https://host:port, each with a path before
// that of the server if a proxy needs one, or unix:///path/of/socket. The token, which may be empty, is sent as a
// bearer token; over plain HTTP only to this machine. Dial asks the server for the name of its store.
//
// An error of the store is one of package store here as well, with the same text. That of a server which cannot be
// reached, or is no server of sessions, wraps [store.ErrUnavailable] or [store.ErrDenied].
func Dial(ctx context.Context, address, token string) (store.Service, error) {
	c := &client{token: token}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	transport.DisableCompression = true // which takes longer than to send it nearby
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		c.base = &url.URL{Scheme: "http", Host: "localhost"}
	} else if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" ||
		u.RawQuery != "" || strings.Contains(u.Path+"/", Prefix) {
		return nil, Invalidf("", "", "%q is not the address of a collector; write http://host:port, https://host:port or "+
			"unix:///path/of/socket, without the path of a page or of the API", address)
	} else if c.base = u; token != "" && u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, Invalidf("", "", "a token is not sent to %s, because others can read it on the way; use https",
			u.Host)
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a token is for this server alone
	}}
	var err error
	if c.name, err = call[string](ctx, c, "Name"); err != nil {
		transport.CloseIdleConnections()
		return nil, err
	}
	return c, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func call[A any](ctx context.Context, c *client, method string, args ...any) (a A, err error) {
	body, err := c.send(ctx, method, args)
	if err != nil {
		return a, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&a); err != nil {
		return a, c.broken(ctx, err)
	}
	return a, nil
}

// do is call without an answer.
func (c *client) do(ctx context.Context, method string, args ...any) error {
	_, err := call[none](ctx, c, method, args...)
	return err
}

// each calls a method of the store that returns a sequence.
func each[A any](ctx context.Context, c *client, method string, args ...any) iter.Seq2[A, error] {
	return func(yield func(A, error) bool) {
		var zero A
		body, err := c.send(ctx, method, args)
		if err != nil {
			yield(zero, err)
			return
		}
		defer body.Close()
		for lines := json.NewDecoder(body); ; {
			var l line[A]
			switch err := lines.Decode(&l); {
			case err != nil:
				yield(zero, c.broken(ctx, err))
				return
			case l.Problem != nil:
				yield(zero, l.Problem)
				return
			case l.Value == nil || !yield(*l.Value, nil):
				return
			}
		}
	}
}

func (c *client) send(ctx context.Context, method string, args []any) (io.ReadCloser, error) {
	body, err := json.Marshal(append([]any{}, args...))
	if err != nil {
		return nil, fmt.Errorf("encode the arguments of %s: %w", method, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(Prefix, "store", method).String(),
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	return nil, c.refused(response)
}

// broken is the error of a request without an answer, or without its end.
func (c *client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // it has the address a second time
	}
	hint := "is it running, with the extension session_view?"
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		hint = "name the file with its authority in SSL_CERT_FILE, and an address that is in its certificate"
	}
	return fmt.Errorf("%w: ask the collector at %s: %w; %s", store.ErrUnavailable, c.base.Redacted(), err, hint)
}

// refused is the error of an answer that is one.
func (c *client) refused(response *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	var p Problem
	if json.Unmarshal(body, &p) == nil && p.Code != "" && response.StatusCode != http.StatusUnauthorized {
		return &p
	}
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: the collector at %s answers %s; "+
			"give a token with AGENTTRACE_TOKEN or AGENTTRACE_TOKEN_FILE: the one that the collector is configured "+
			"with, or the file with the suffix .key beside its store",
			store.ErrDenied, c.base.Redacted(), response.Status)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Errorf("%w: %s has no sessions: it answers %s; name the address of a collector's session_view, "+
			"without the path of a page",
			store.ErrUnavailable, c.base.Redacted(), response.Status)
	}
	return fmt.Errorf("%w: the collector at %s answers %s", store.ErrUnavailable, c.base.Redacted(), response.Status)
}

func (c *client) Name() string { return c.name }

func (c *client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// withPrice asks with the prices of the models that the server needs. The first question finds out which these are.
func withPrice[A any](ctx context.Context, c *client, find store.Price, method string, args ...any) (A, error) {
	var known []modelRate
	if find != nil {
		known = []modelRate{}
	}
	for {
		a, err := call[priced[A]](ctx, c, method, append(args, known)...)
		if err != nil || len(a.Asked) == 0 {
			return a.Answer, err
		}
		for _, m := range a.Asked {
			known = append(known, modelRate{m, find(m)})
		}
	}
}

func (c *client) Spent(ctx context.Context, ids []string, find store.Price) (map[string]store.Spent, error) {
	return withPrice[map[string]store.Spent](ctx, c, find, "Spent", ids)
}

func (c *client) Stats(ctx context.Context, q store.StatsQuery) (store.Stats, error) {
	return withPrice[store.Stats](ctx, c, q.Price, "Stats", q, zoneName(q.Location))
}

// zoneName is the name of a time zone in the IANA database. That of the system's own is in the variable TZ, or in the
// name of the file that /etc/localtime leads to; where neither has one, it is the offset of now, in whole hours.
func zoneName(where *time.Location) string {
	if where == nil {
		return "UTC"
	}
	if where != time.Local {
		return where.String()
	}
	named, set := os.LookupEnv("TZ")
	if !set {
		named, _ = filepath.EvalSymlinks("/etc/localtime") // without the file the system has UTC
	}
	named = strings.TrimPrefix(named, ":")
	if _, name, ok := strings.Cut(named, "zoneinfo/"); ok {
		named = name
	}
	if _, err := time.LoadLocation(named); err == nil && named != "Local" {
		return cmp.Or(named, "UTC")
	}
	_, seconds := time.Now().Zone()
	return fmt.Sprintf("Etc/GMT%+d", -seconds/3600) // where east of Greenwich is negative
}

func (c *client) Origin(ctx context.Context, in *store.Imported) error {
	r, err := call[store.Imported](ctx, c, "Origin", in.Session.ID)
	if err == nil {
		in.SpanRefs, in.Traces, in.State, in.RequestedIndexes = r.SpanRefs, r.Traces, r.State, r.RequestedIndexes
	}
	return err
}

func (c *client) Import(ctx context.Context, in *store.Imported) (result store.ImportResult, err error) {
	c.ImportAll(ctx, func(yield func(*store.Imported) bool) { yield(in) },
		func(_ *store.Imported, r store.ImportResult, failed error) bool {
			result, err = r, failed
			return true
		})
	return result, err
}

// Sessions are sent together up to these limits, so that many small ones do not wait for each other.
const (
	maxImported      = 64
	maxImportedBytes = 4 << 20
)

func (c *client) ImportAll(ctx context.Context, sessions iter.Seq[*store.Imported],
	done func(*store.Imported, store.ImportResult, error) bool) {
	for group := range store.ImportGroups(sessions, maxImported, maxImportedBytes) {
		results, failed := call[[]importResult](ctx, c, "ImportAll", group)
		for i, in := range group {
			var r importResult
			err := failed
			if i < len(results) {
				r = results[i]
			}
			if r.Problem != nil {
				err = r.Problem
			}
			if !done(in, r.Result, err) {
				return
			}
		}
	}
}

func (c *client) Apply(ctx context.Context, b *store.Batch) (store.Result, error) {
	return call[store.Result](ctx, c, "Apply", b)
}

func (c *client) Sessions(ctx context.Context, q store.SessionQuery) iter.Seq2[session.Session, error] {
	return each[session.Session](ctx, c, "Sessions", q)
}

func (c *client) Resolve(ctx context.Context, name string) (string, error) {
	return call[string](ctx, c, "Resolve", name)
}

func (c *client) Session(ctx context.Context, id string) (session.Session, error) {
	return call[session.Session](ctx, c, "Session", id)
}

func (c *client) Transcript(ctx context.Context, id string) (*session.Transcript, error) {
	return call[*session.Transcript](ctx, c, "Transcript", id)
}

func (c *client) Excerpt(ctx context.Context, id string, q store.ExcerptQuery) (*store.Excerpt, error) {
	return call[*store.Excerpt](ctx, c, "Excerpt", id, q)
}

func (c *client) MayHaveNotices(ctx context.Context, ids []string) (map[string]bool, error) {
	return call[map[string]bool](ctx, c, "MayHaveNotices", ids)
}

func (c *client) Missing(ctx context.Context, ids []string) (map[string]map[string]int64, error) {
	return call[map[string]map[string]int64](ctx, c, "Missing", ids)
}

func (c *client) Openings(ctx context.Context, ids []string) (map[string]string, error) {
	return call[map[string]string](ctx, c, "Openings", ids)
}

func (c *client) Decisions(ctx context.Context, id string) ([]store.Decision, error) {
	return call[[]store.Decision](ctx, c, "Decisions", id)
}

func (c *client) Annotations(ctx context.Context, ids ...string) ([]store.Annotation, error) {
	return call[[]store.Annotation](ctx, c, "Annotations", ids)
}

func (c *client) Spans(ctx context.Context, id string) ([]store.SpanRef, error) {
	return call[[]store.SpanRef](ctx, c, "Spans", id)
}

func (c *client) SpanRefs(ctx context.Context, id string) ([]store.SpanRef, error) {
	return call[[]store.SpanRef](ctx, c, "SpanRefs", id)
}

func (c *client) Observed(ctx context.Context, id string) (int, error) {
	return call[int](ctx, c, "Observed", id)
}

func (c *client) Pending(ctx context.Context) (int64, error) { return call[int64](ctx, c, "Pending") }

func (c *client) Search(ctx context.Context, q store.SearchQuery) iter.Seq2[store.Hit, error] {
	return each[store.Hit](ctx, c, "Search", q)
}

func (c *client) Blob(ctx context.Context, kind store.BlobKind, digest string) (store.Blob, error) {
	return call[store.Blob](ctx, c, "Blob", kind, digest)
}

func (c *client) ImportSources(ctx context.Context, prefix string) ([]store.ImportSource, error) {
	return call[[]store.ImportSource](ctx, c, "ImportSources", prefix)
}

func (c *client) ImportSource(ctx context.Context, path string) (store.ImportSource, error) {
	return call[store.ImportSource](ctx, c, "ImportSource", path)
}

func (c *client) RecordSources(ctx context.Context, sources ...*store.ImportSource) error {
	return c.do(ctx, "RecordSources", sources)
}

func (c *client) Fork(ctx context.Context, o store.ForkOptions) (string, error) {
	return call[string](ctx, c, "Fork", o)
}

func (c *client) Rewind(ctx context.Context, id, to string, now time.Time) (store.Rewound, error) {
	return call[store.Rewound](ctx, c, "Rewind", id, to, now)
}

func (c *client) Unrewind(ctx context.Context, id string) (store.Rewound, error) {
	return call[store.Rewound](ctx, c, "Unrewind", id)
}

func (c *client) Archive(ctx context.Context, id string, archived bool, now time.Time) error {
	return c.do(ctx, "Archive", id, archived, now)
}

func (c *client) SetTitle(ctx context.Context, id, title string, now time.Time) error {
	return c.do(ctx, "SetTitle", id, title, now)
}

func (c *client) Annotate(ctx context.Context, annotations []store.Annotation) error {
	return c.do(ctx, "Annotate", annotations)
}

func (c *client) Delete(ctx context.Context, id string) error { return c.do(ctx, "Delete", id) }

func (c *client) Collect(ctx context.Context, recent time.Time, dryRun bool) (store.Garbage, error) {
	return call[store.Garbage](ctx, c, "Collect", recent, dryRun)
}

// remoteFollower is a [store.Follower] of the store behind a server.
type remoteFollower struct {
	address, token string
	client         *client
	at             Position
}

// Follow returns a Follower of the store behind the server at an address, which need not answer yet: see [Dial].
func Follow(address, token string) store.Follower {
	return &remoteFollower{address: address, token: token}
}

func (f *remoteFollower) Poll(ctx context.Context) (store.Reader, store.Change, error) {
	if f.client == nil {
		c, err := Dial(ctx, f.address, f.token)
		if errors.Is(err, store.ErrUnavailable) {
			return nil, store.Unchanged, nil
		}
		if err != nil {
			return nil, store.Unchanged, err
		}
		f.client, f.at = c.(*client), Position{}
	}
	at, err := call[Position](ctx, f.client, "Position")
	before := f.at
	switch {
	case errors.Is(err, store.ErrUnavailable):
		change := store.Gone
		if before == (Position{}) {
			change = store.Unchanged // it was never there
		}
		return nil, change, f.Close()
	case err != nil:
		return f.client, store.Unchanged, err
	}
	f.at = at
	switch {
	case at == before:
		return f.client, store.Unchanged, nil
	case at.Epoch == before.Epoch:
		return f.client, store.Changed, nil
	}
	return f.client, store.Opened, nil
}

func (f *remoteFollower) Close() error {
	if f.client == nil {
		return nil
	}
	defer func() { f.client = nil }()
	return f.client.Close()
}

// storeMethod names a method of a store that a client calls.
type storeMethod struct {
	Method string
}

// callStore calls a method of the store for a client: the body is a JSON array of its arguments. The answer is the JSON
// of its result or, of a sequence, a line of JSON for each element and one for the end.
func (a *api) callStore(w http.ResponseWriter, r *http.Request, p storeMethod) error {
	method, ok := reflect.TypeFor[callee]().MethodByName(p.Method)
	if !ok || slices.Contains([]string{"Close", "Import"}, p.Method) {
		return NotFoundf("method", "use the same version of agenttrace", "a store has no method %q", p.Method)
	}
	d, err := jsonBody(w, r, maxImport)
	if err != nil {
		return err
	}
	var args []json.RawMessage
	if err := d.Decode(&args); err != nil {
		return bodyProblem(err)
	}
	in := []reflect.Value{{}, {}} // the receiver and the context
	if len(args) != method.Type.NumIn()-len(in) {
		return Invalidf("", "send an array of them", "the body is not the arguments of %s", p.Method)
	}
	for i, text := range args {
		arg := reflect.New(method.Type.In(i + 2))
		if err := json.Unmarshal(text, arg.Interface()); err != nil {
			return bodyProblem(err)
		}
		in = append(in, arg.Elem())
	}
	// The client gets an error as the store returned it, not as one of a parameter of this request.
	if err := a.change(r.Context(), func(ctx context.Context, s store.Service) error {
		in[0], in[1] = reflect.ValueOf(callee{s, a.Changes}), reflect.ValueOf(ctx)
		call := method.Func.Call
		if method.Type.IsVariadic() {
			call = method.Func.CallSlice
		}
		out := call(in)
		if out[0].Kind() == reflect.Func {
			writeLines(w, out[0])
			return nil
		}
		if err, _ := out[len(out)-1].Interface().(error); err != nil {
			return err
		}
		if len(out) == 1 {
			return answer(w, r, http.StatusOK, none{})
		}
		return answer(w, r, http.StatusOK, out[0].Interface())
	}); err != nil {
		WriteProblem(w, err)
	}
	return nil
}

// line is a line of the answer of a sequence. The last has End or Problem.
type line[A any] struct {
	Value   *A       `json:"value,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
	End     bool     `json:"end,omitempty"`
}

// writeLines answers with a sequence of values and errors.
func writeLines(w http.ResponseWriter, all reflect.Value) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(patiently(w))
	out.SetEscapeHTML(false)
	last := line[any]{End: true}
	for v, failed := range all.Seq2() {
		if err, _ := failed.Interface().(error); err != nil {
			last = line[any]{Problem: ProblemOf(err)}
			break
		}
		value := v.Interface()
		if out.Encode(line[any]{Value: &value}) != nil {
			return // the reader is gone
		}
	}
	_ = out.Encode(last) // likewise
}

// callee is a store as a client calls it. It has other arguments where those of a store have no JSON.
type callee struct {
	store.Service
	changes *Counter
}

// Name is that of the store.
func (c callee) Name(context.Context) (string, error) { return c.Service.Name(), nil }

// Position is that of the store's changes.
func (c callee) Position(ctx context.Context) (Position, error) {
	if c.changes == nil {
		return Position{}, NotFoundf("", "", "the changes of this store are not counted")
	}
	return c.changes.Position(ctx)
}

// Origin returns what a store adds to a session.
func (c callee) Origin(ctx context.Context, id string) (in store.Imported, err error) {
	in.Transcript = &session.Transcript{Session: session.Session{ID: id}}
	return in, c.Service.Origin(ctx, &in)
}

// Apply sets the functions of a batch.
func (c callee) Apply(ctx context.Context, b *store.Batch) (store.Result, error) {
	if b == nil {
		return store.Result{}, Invalidf("", "", "the batch is null")
	}
	ingest.Complete(b)
	return c.Service.Apply(ctx, b)
}

// importResult is a result of an import with its error.
type importResult struct {
	Result  store.ImportResult
	Problem *Problem `json:",omitempty"`
}

// ImportAll returns a result for each session.
func (c callee) ImportAll(ctx context.Context, sessions []*store.Imported) (all []importResult, _ error) {
	if slices.ContainsFunc(sessions, func(in *store.Imported) bool { return in == nil || in.Transcript == nil }) {
		return nil, Invalidf("", "", "a session has no rows")
	}
	c.Service.ImportAll(ctx, slices.Values(sessions), func(_ *store.Imported, r store.ImportResult, err error) bool {
		out := importResult{Result: r}
		if err != nil {
			out.Problem = ProblemOf(err)
		}
		all = append(all, out)
		return true
	})
	return all, nil
}

// modelRate is a price that a client has, of a model that the server has asked for. A function cannot be sent, and a
// list of all prices is large.
type modelRate struct {
	Model session.Model
	Rate  *price.Rate
}

// priced is an answer, and the models whose prices the server lacked. Then the client asks again.
type priced[A any] struct {
	Answer A
	Asked  []session.Model
}

// withRates calls do with a price of these rates, nil without them.
func withRates[A any](known []modelRate, do func(store.Price) (A, error)) (a priced[A], err error) {
	if known == nil {
		a.Answer, err = do(nil)
		return a, err
	}
	var mu sync.Mutex
	a.Answer, err = do(func(m session.Model) *price.Rate {
		m.Variant = ""
		mu.Lock()
		defer mu.Unlock()
		i := slices.IndexFunc(known, func(r modelRate) bool { return r.Model == m })
		if i < 0 {
			i, known = len(known), append(known, modelRate{Model: m})
			a.Asked = append(a.Asked, m)
		}
		return known[i].Rate
	})
	return a, err
}

// Spent has rates in the place of a price.
func (c callee) Spent(ctx context.Context, ids []string, r []modelRate) (priced[map[string]store.Spent], error) {
	return withRates(r, func(p store.Price) (map[string]store.Spent, error) { return c.Service.Spent(ctx, ids, p) })
}

// Stats has the name of a time zone and rates in the place of a location and a price.
func (c callee) Stats(ctx context.Context, q store.StatsQuery, name string, r []modelRate) (priced[store.Stats],
	error) {
	var in zone
	if err := in.UnmarshalText([]byte(name)); err != nil {
		return priced[store.Stats]{}, Invalidf("zone", err.Error(), "the time zone is %q", name)
	}
	return withRates(r, func(p store.Price) (store.Stats, error) {
		q.Location, q.Price = in.Location, p
		return c.Service.Stats(ctx, q)
	})
}
