package web

import (
	"bytes"
	"cmp"
	"context"
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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
)

// Client is a [store.Service] of a store in another process, which it asks by the API. It is safe for concurrent use.
//
// An error of the store is one of package store here as well, with the same text. That of a server which cannot be
// reached, or is no server of sessions, wraps [store.ErrUnavailable] or [store.ErrDenied].
type Client struct {
	http  *http.Client
	base  *url.URL
	token string
	name  string

	mu sync.Mutex
	// asked are the models whose prices the server has asked for, by which the next question is answered at once.
	asked []session.Model
}

var _ store.Service = (*Client)(nil)

// Dial returns a client of the server at an address: http://host:port, https://host:port, each with a path before
// that of the server if a proxy needs one, or unix:///path/of/socket. The token, which may be empty, is sent as a
// bearer token; over plain HTTP only to this machine. Dial asks the server for the name of its store.
func Dial(ctx context.Context, address, token string) (*Client, error) {
	c := &Client{token: token}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	transport.DisableCompression = true // which takes longer than to send it nearby
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		c.base = &url.URL{Scheme: "http", Host: "localhost"}
	} else if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, Invalidf("", "", "%q is not the address of a collector; "+
			"write http://host:port, https://host:port or unix:///path/of/socket", address)
	} else if c.base = u; token != "" && u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, Invalidf("", "", "a token is not sent to %s, because others can read it on the way; use https",
			u.Host)
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a token is for this server alone
	}}
	name, err := call[string](ctx, c, "Name")
	if err != nil {
		transport.CloseIdleConnections()
		return nil, err
	}
	c.name = name
	return c, nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// call calls a method of the store.
func call[A any](ctx context.Context, c *Client, method string, args ...any) (a A, err error) {
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
func (c *Client) do(ctx context.Context, method string, args ...any) error {
	_, err := call[none](ctx, c, method, args...)
	return err
}

// each calls a method of the store that returns a sequence.
func each[A any](ctx context.Context, c *Client, method string, args ...any) iter.Seq2[A, error] {
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
			case l.Value == nil:
				return
			case !yield(*l.Value, nil):
				return
			}
		}
	}
}

// send sends a request and returns the body of its answer.
func (c *Client) send(ctx context.Context, method string, args []any) (io.ReadCloser, error) {
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
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // it has the address a second time
	}
	return fmt.Errorf("%w: ask the collector at %s: %w; is it running, with the extension session_view?",
		store.ErrUnavailable, c.address(), err)
}

// address is the server's, without a password.
func (c *Client) address() string { return c.base.Redacted() }

// refused is the error of an answer that is one.
func (c *Client) refused(response *http.Response) error {
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
			store.ErrDenied, c.address(), response.Status)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Errorf("%w: %s has no sessions: it answers %s; name the address of a collector's session_view",
			store.ErrUnavailable, c.address(), response.Status)
	}
	return fmt.Errorf("%w: the collector at %s answers %s", store.ErrUnavailable, c.address(), response.Status)
}

// sendable is a time that JSON has a form for, or the nearest: a duration that a user gave may lead anywhere.
func sendable(at time.Time) time.Time {
	switch year := at.Year(); {
	case year < 0:
		return time.Time{}.AddDate(-1, 0, 0)
	case year > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return at
}

// Name returns the name of the store behind the server.
func (c *Client) Name() string { return c.name }

// Close closes the connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// withPrice asks with the prices of the models that the server needs. The first question may find out which these are.
func withPrice[A any](ctx context.Context, c *Client, find store.Price, method string, q any) (A, error) {
	var known *rates
	for {
		if find != nil {
			c.mu.Lock()
			models := c.asked
			c.mu.Unlock()
			known = &rates{Models: models, Rates: make([]*price.Rate, len(models))}
			for i, m := range models {
				known.Rates[i] = find(m)
			}
		}
		a, err := call[priced[A]](ctx, c, method, q, known)
		if err != nil || len(a.Asked) == 0 {
			return a.Answer, err
		}
		c.mu.Lock()
		c.asked = append(c.asked[:len(c.asked):len(c.asked)], a.Asked...)
		c.mu.Unlock()
	}
}

// Spent implements [store.Reader].
func (c *Client) Spent(ctx context.Context, ids []string, find store.Price) (map[string]store.Spent, error) {
	return withPrice[map[string]store.Spent](ctx, c, find, "Spent", ids)
}

// Stats implements [store.Reader].
func (c *Client) Stats(ctx context.Context, q store.StatsQuery) (store.Stats, error) {
	return withPrice[store.Stats](ctx, c, q.Price, "Stats", statsQuery{q.By, sendable(q.Since), sendable(q.Until),
		zoneName(q.Location), q.Sessions})
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

// Origin implements [store.Reader].
func (c *Client) Origin(ctx context.Context, in *store.Imported) error {
	r, err := call[store.Imported](ctx, c, "Origin", in.Session.ID)
	if err == nil {
		in.SpanRefs, in.Traces, in.State, in.RequestedIndexes = r.SpanRefs, r.Traces, r.State, r.RequestedIndexes
	}
	return err
}

// Apply implements [store.Writer].
func (c *Client) Apply(ctx context.Context, b *store.Batch) (store.Result, error) {
	sent := *b
	// encoding/json takes no raw JSON of no bytes, but nil.
	sent.Messages, sent.Parts = slices.Clone(b.Messages), slices.Clone(b.Parts)
	for i := range sent.Messages {
		sent.Messages[i].Metadata = orNil(sent.Messages[i].Metadata)
	}
	for i := range sent.Parts {
		sent.Parts[i].Data = orNil(sent.Parts[i].Data)
	}
	return call[store.Result](ctx, c, "Apply", &sent)
}

func orNil(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	return raw
}

// Import implements [store.Manager].
func (c *Client) Import(ctx context.Context, in *store.Imported) (result store.ImportResult, err error) {
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

// ImportAll implements [store.Manager].
func (c *Client) ImportAll(ctx context.Context, sessions iter.Seq[*store.Imported],
	done func(*store.Imported, store.ImportResult, error) bool) {
	for group := range store.ImportGroups(sessions, maxImported, maxImportedBytes) {
		sent := group
		for r, err := range each[importResult](ctx, c, "ImportAll", group) {
			if err == nil && r.Problem != nil {
				err = r.Problem
			}
			if r.Refusal != nil {
				err = &importError{r.Problem, &store.NotWholeError{Refusal: *r.Refusal}}
			}
			in := sent[0]
			if sent = sent[1:]; !done(in, r.Result, err) {
				return
			}
			if len(sent) == 0 {
				break
			}
		}
	}
}

// importError is an error of an import that callers branch on.
type importError struct {
	*Problem
	of error
}

func (e *importError) Unwrap() error { return e.of }

// Sessions implements [store.Reader].
func (c *Client) Sessions(ctx context.Context, q store.SessionQuery) iter.Seq2[session.Session, error] {
	q.Since, q.Until = sendable(q.Since), sendable(q.Until)
	return each[session.Session](ctx, c, "Sessions", q)
}

// SessionsSince implements [store.Reader].
func (c *Client) SessionsSince(ctx context.Context, at int64) ([]session.Session, error) {
	return call[[]session.Session](ctx, c, "SessionsSince", at)
}

// Stale implements [store.Reader].
func (c *Client) Stale(ctx context.Context, before time.Time, archived bool) ([]session.Session, error) {
	return call[[]session.Session](ctx, c, "Stale", sendable(before), archived)
}

// Resolve implements [store.Reader].
func (c *Client) Resolve(ctx context.Context, name string) (string, error) {
	return call[string](ctx, c, "Resolve", name)
}

// Session implements [store.Reader].
func (c *Client) Session(ctx context.Context, id string) (session.Session, error) {
	return call[session.Session](ctx, c, "Session", id)
}

// Transcript implements [store.Reader].
func (c *Client) Transcript(ctx context.Context, id string) (*session.Transcript, error) {
	return call[*session.Transcript](ctx, c, "Transcript", id)
}

// Excerpt implements [store.Reader].
func (c *Client) Excerpt(ctx context.Context, id string, q store.ExcerptQuery) (*store.Excerpt, error) {
	return call[*store.Excerpt](ctx, c, "Excerpt", id, q)
}

// MayHaveNotices implements [store.Reader].
func (c *Client) MayHaveNotices(ctx context.Context, ids []string) (map[string]bool, error) {
	return call[map[string]bool](ctx, c, "MayHaveNotices", ids)
}

// Decisions implements [store.Reader].
func (c *Client) Decisions(ctx context.Context, id string) ([]store.Decision, error) {
	return call[[]store.Decision](ctx, c, "Decisions", id)
}

// Annotations implements [store.Reader].
func (c *Client) Annotations(ctx context.Context, ids ...string) ([]store.Annotation, error) {
	return call[[]store.Annotation](ctx, c, "Annotations", ids)
}

// Spans implements [store.Reader].
func (c *Client) Spans(ctx context.Context, id string) ([]store.SpanRef, error) {
	return call[[]store.SpanRef](ctx, c, "Spans", id)
}

// SpanRefs implements [store.Reader].
func (c *Client) SpanRefs(ctx context.Context, id string) ([]store.SpanRef, error) {
	return call[[]store.SpanRef](ctx, c, "SpanRefs", id)
}

// Observed implements [store.Reader].
func (c *Client) Observed(ctx context.Context, id string) (int, error) {
	return call[int](ctx, c, "Observed", id)
}

// Pending implements [store.Reader].
func (c *Client) Pending(ctx context.Context) (int64, error) {
	return call[int64](ctx, c, "Pending")
}

// Search implements [store.Reader].
func (c *Client) Search(ctx context.Context, q store.SearchQuery) iter.Seq2[store.Hit, error] {
	q.Since = sendable(q.Since)
	return each[store.Hit](ctx, c, "Search", q)
}

// Blob implements [store.Reader].
func (c *Client) Blob(ctx context.Context, kind store.BlobKind, digest string) (store.Blob, error) {
	return call[store.Blob](ctx, c, "Blob", kind, digest)
}

// ImportSources implements [store.ImportSources].
func (c *Client) ImportSources(ctx context.Context, prefix string) iter.Seq2[store.ImportSource, error] {
	return each[store.ImportSource](ctx, c, "ImportSources", prefix)
}

// ImportSource implements [store.ImportSources].
func (c *Client) ImportSource(ctx context.Context, path string) (store.ImportSource, error) {
	return call[store.ImportSource](ctx, c, "ImportSource", path)
}

// RecordSources implements [store.ImportSources].
func (c *Client) RecordSources(ctx context.Context, sources ...*store.ImportSource) error {
	return c.do(ctx, "RecordSources", sources)
}

// Fork implements [store.Manager].
func (c *Client) Fork(ctx context.Context, o store.ForkOptions) (string, error) {
	return call[string](ctx, c, "Fork", o)
}

// Rewind implements [store.Manager].
func (c *Client) Rewind(ctx context.Context, id, to string, now time.Time) (store.Rewound, error) {
	return call[store.Rewound](ctx, c, "Rewind", id, to, now)
}

// Unrewind implements [store.Manager].
func (c *Client) Unrewind(ctx context.Context, id string) (store.Rewound, error) {
	return call[store.Rewound](ctx, c, "Unrewind", id)
}

// Archive implements [store.Manager].
func (c *Client) Archive(ctx context.Context, id string, archived bool, now time.Time) error {
	return c.do(ctx, "Archive", id, archived, now)
}

// SetTitle implements [store.Manager].
func (c *Client) SetTitle(ctx context.Context, id, title string, now time.Time) error {
	return c.do(ctx, "SetTitle", id, title, now)
}

// Annotate implements [store.Manager].
func (c *Client) Annotate(ctx context.Context, annotations []store.Annotation) error {
	return c.do(ctx, "Annotate", annotations)
}

// Delete implements [store.Manager].
func (c *Client) Delete(ctx context.Context, id string) error { return c.do(ctx, "Delete", id) }

// Collect implements [store.Manager].
func (c *Client) Collect(ctx context.Context, recent time.Time, dryRun bool) (store.Garbage, error) {
	return call[store.Garbage](ctx, c, "Collect", sendable(recent), dryRun)
}

// remoteFollower is a [store.Follower] of the store behind a server.
type remoteFollower struct {
	address, token string
	client         *Client
	at             Position
}

// Follow returns a Follower of the store behind the server at an address, which need not answer yet: see [Dial].
func Follow(address, token string) store.Follower {
	return &remoteFollower{address: address, token: token}
}

// Poll implements [store.Follower].
func (f *remoteFollower) Poll(ctx context.Context) (store.Reader, store.Change, error) {
	if f.client == nil {
		c, err := Dial(ctx, f.address, f.token)
		if errors.Is(err, store.ErrUnavailable) {
			return nil, store.Unchanged, nil
		}
		if err != nil {
			return nil, store.Unchanged, err
		}
		f.client = c
		f.at = Position{}
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

// Close implements [store.Follower].
func (f *remoteFollower) Close() error {
	if f.client == nil {
		return nil
	}
	c := f.client
	f.client = nil
	return c.Close()
}
