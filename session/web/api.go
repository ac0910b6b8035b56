// Package web serves sessions to readers in other processes: pages for a browser, a versioned JSON API with an OpenAPI
// document for programs, and tools for agents over the Model Context Protocol.
//
//	browser ─ pages, forms, events ────────────┐
//	program ─ GET, PATCH, POST, DELETE ────────┼─ New ───┬─ Backend ─┬─ document.Reader ─ store.Reader
//	command ─ Dial ─── POST store/{method} ────┘         │           └─ store.Service
//	agent ─── list_sessions, read_session, … ─── NewMCP ─┴─ document.Reader
//
// The API is what openapi.json describes: by it requests are routed and parameters are read, so they agree, and by the
// id of an operation a function of [endpoints] answers. Answers have the JSON that commands print with --json. A
// client ([Dial]) is a store of another process: its methods are those of the store there.
//
// The URL is the state of a page, and pages are read without JavaScript; a script adds updates, keys and folding.
// Nothing is loaded from elsewhere, and the Content-Security-Policy allows no inline script or style. All that comes
// from a session is shown as text, except for the Markdown that package render permits.
//
// The handler checks neither the host nor the origin of a request, and asks for no credentials. That is for the server
// to do, as extension/sessionview does.
package web

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Prefix is where the API answers. Its last element is the version of the API.
const Prefix = "/api/v1/"

// api is the handler. It is safe for concurrent use.
type api struct {
	Backend
	version string
	// importing has the imports under way.
	importing chan struct{}
}

// New returns the handler of a store: of its API below [Prefix], and of its pages.
func New(b Backend, o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", newPages(b, o))
	mux.Handle(Prefix, newAPI(b, o.Version))
	return mux
}

func newAPI(b Backend, version string) http.Handler {
	a := &api{b, version, make(chan struct{}, maxImports)}
	mux := http.NewServeMux()
	allowed := make(map[string][]string)
	for _, op := range operations() {
		path := Prefix + op.path
		if allowed[path] = append(allowed[path], op.method); op.method == http.MethodGet {
			allowed[path] = append(allowed[path], http.MethodHead)
		}
		mux.HandleFunc(op.method+" "+path, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, op) })
	}
	for path, methods := range allowed {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			secure(w, apiPolicy, "no-referrer")
			list := strings.Join(methods, ", ")
			w.Header().Set("Allow", list)
			WriteProblem(w, NewProblem("method-not-allowed", http.StatusMethodNotAllowed, "", "use "+list,
				fmt.Sprintf("%s cannot be used with %s", r.URL.Path, r.Method)))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		secure(w, apiPolicy, "no-referrer")
		WriteProblem(w, NotFoundf("", Prefix+"openapi.json lists what there is",
			"there is nothing at %s", r.URL.Path))
	})
	return mux
}

func (a *api) serve(w http.ResponseWriter, r *http.Request, op *operation) {
	secure(w, apiPolicy, "no-referrer")
	if err := endpoints[op.ID](a, op, w, r); err != nil && r.Context().Err() == nil {
		err = named("id", err) // it was deleted meanwhile
		if ProblemOf(err).Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "2")
		}
		WriteProblem(w, err)
	}
}

// apiPolicy has a browser run nothing of an answer of the API.
const apiPolicy = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"

// secure sets what holds for every answer of the API or of the pages.
func secure(w http.ResponseWriter, policy, referrer string) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", referrer)
	h.Set("Cache-Control", "private, no-cache")
}

func answer(w http.ResponseWriter, r *http.Request, status int, v any) error {
	body, err := jsonLines([]any{v})
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	WriteBody(w, r, status, "application/json", []byte(body))
	return nil
}

// change has fn executed with a service that can change sessions.
func (a *api) change(ctx context.Context, fn func(context.Context, store.Service) error) error {
	if a.Change == nil {
		return NewProblem("read-only", http.StatusForbidden, "", "use a server that holds the store",
			"sessions cannot be changed here")
	}
	return a.Change(ctx, fn)
}

// Backend is a store as a server of pages, or of an API, has it. All but Sessions may be empty.
type Backend struct {
	Sessions document.Reader
	// Change has fn executed with a service that can change the sessions. If it is nil, they cannot be changed.
	Change func(ctx context.Context, fn func(context.Context, store.Service) error) error
	// Changes counts the changes of the store. If it is nil, clients cannot follow them.
	Changes *Counter
	// Done, if it is not nil, ends the streams of events when it is closed.
	Done <-chan struct{}
	// Author is who annotates, unless a request names somebody else.
	Author string
	// UpdatePrices fetches the prices that Sessions has. If it is nil, nobody may ask for that.
	UpdatePrices func(context.Context) error
}

// gzipAccepted finds gzip in a header Accept-Encoding, unless with the weight 0, which refuses it.
var gzipAccepted = lazy.Regexp(`(?i)(^|,)[ \t]*(x-)?gzip[ \t]*(;[ \t]*q=(1|0\.0*[1-9])[0-9.]*[ \t]*)?(,|$)`)

// WriteBody answers a request with a body, compressed if the client can read that. Of an answer that is a success a
// client which has it already, by its ETag, gets the report of that.
func WriteBody(w http.ResponseWriter, r *http.Request, status int, mediaType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Add("Vary", "Accept-Encoding")
	if status == http.StatusOK {
		tag, known := fmt.Sprintf(`"%.12x"`, sha256.Sum256(body)), strings.Join(r.Header.Values("If-None-Match"), ",")
		h.Set("ETag", "W/"+tag)
		get := r.Method == http.MethodGet || r.Method == http.MethodHead
		if get && (known == "*" || strings.Contains(known, tag)) { // weak or strong, it counts
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if !gzipAccepted().MatchString(strings.Join(r.Header.Values("Accept-Encoding"), ",")) {
		w.WriteHeader(status)
		_, _ = w.Write(body) // a reader that is gone needs no answer
		return
	}
	h.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is a valid one
	_, _ = z.Write(body)
	_ = z.Close()
}

// WriteProblem answers a request with an error.
func WriteProblem(w http.ResponseWriter, err error) {
	p := ProblemOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	body, _ := jsonLines([]*Problem{p}) // it has no value without JSON
	_, _ = io.WriteString(w, body)      // a reader that is gone needs no answer
}

// Problem is an error as it is sent over HTTP: problem details as of RFC 9457, with the media type
// application/problem+json.
type Problem struct {
	// Type is a URI reference of the kind of error, "/problems/" and its Code.
	Type string `json:"type"`
	// Title describes the kind, Detail this error, with a remedy where there is one.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Code is the last element of Type, which a program branches on.
	Code string `json:"code"`
	// Parameter is the parameter of the request that is wrong, if one is.
	Parameter string `json:"parameter,omitempty"`
	// Remedy states what to do, where that is known.
	Remedy string `json:"remedy,omitempty"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// Unwrap returns the error of package store that the problem is, nil if it is none.
func (p *Problem) Unwrap() error {
	for i := range kinds {
		if kinds[i].code == p.Code {
			return kinds[i].err
		}
	}
	return nil
}

// Codes of problems that programs branch on, of what a request or a change is.
const (
	// CodeInvalid: the request is wrong.
	CodeInvalid = "invalid-request"
	// CodeBusy: the session is at work, and cannot be changed until it is idle.
	CodeBusy = "busy"
	// CodeHidden: what the change is about is hidden by a rewind.
	CodeHidden = "hidden"
	// CodeNotUsers: a rewind names a message that is not the user's.
	CodeNotUsers = "not-users-message"
	// CodeNoRewind: there is no rewind to undo.
	CodeNoRewind = "no-rewind"
	// CodeNotFound: something that the request names, other than a session, is not there.
	CodeNotFound = "not-found"
	// CodeInternal: anything else.
	CodeInternal = "internal"
)

// kinds are the errors that callers branch on, the more specific one first.
var kinds = []struct {
	code   string
	err    error
	status int
}{
	{"session-not-found", store.ErrNotFound, http.StatusNotFound},
	{"ambiguous", store.ErrAmbiguous, http.StatusConflict},
	{CodeHidden, store.ErrHidden, http.StatusConflict},
	{CodeNotUsers, store.ErrNotUsers, http.StatusConflict},
	{CodeNoRewind, store.ErrNoRewind, http.StatusConflict},
	{"refused", store.ErrRefused, http.StatusUnprocessableEntity},
	{"reported", store.ErrReported, http.StatusConflict},
	{"store-locked", store.ErrLocked, http.StatusServiceUnavailable},
	{"not-a-store", store.ErrNotStore, http.StatusServiceUnavailable},
	{"newer-store", store.ErrNewer, http.StatusServiceUnavailable},
	{"older-store", store.ErrOlder, http.StatusServiceUnavailable},
	{"store-denied", store.ErrDenied, http.StatusServiceUnavailable},
	{"store-closed", store.ErrClosed, http.StatusServiceUnavailable},
	{"store-unavailable", store.ErrUnavailable, http.StatusServiceUnavailable},
	{"canceled", context.Canceled, http.StatusServiceUnavailable},
	{"timed-out", context.DeadlineExceeded, http.StatusGatewayTimeout},
}

// Invalidf is a problem of a parameter of a request, "" for the request as a whole. The remedy may be empty.
func Invalidf(parameter, remedy, format string, args ...any) *Problem {
	return NewProblem(CodeInvalid, http.StatusBadRequest, parameter, remedy, fmt.Sprintf(format, args...))
}

// conflictf is a problem of a session that cannot be changed so now.
func conflictf(code, parameter, remedy, format string, args ...any) *Problem {
	return NewProblem(code, http.StatusConflict, parameter, remedy, fmt.Sprintf(format, args...))
}

// NotFoundf is a problem of a parameter that names something which is not there.
func NotFoundf(parameter, remedy, format string, args ...any) *Problem {
	return NewProblem(CodeNotFound, http.StatusNotFound, parameter, remedy, fmt.Sprintf(format, args...))
}

// ProblemOf is err as a problem. An error that is one already stays as it is.
func ProblemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok && p.Detail == err.Error() {
		return p
	}
	code, status := CodeInternal, http.StatusInternalServerError
	for i := range kinds {
		if errors.Is(err, kinds[i].err) {
			code, status = kinds[i].code, kinds[i].status
			break
		}
	}
	if turn, ok := errors.AsType[*document.NoTurnError](err); ok {
		what, remedy, _ := strings.Cut(turn.Error(), "; ")
		return NotFoundf("turn", remedy, "%s", what)
	}
	return NewProblem(code, status, "", "", err.Error())
}

// NewProblem returns a problem of a kind; parameter and remedy may be empty. Its Detail is what is wrong, and the
// remedy.
func NewProblem(code string, status int, parameter, remedy, what string) *Problem {
	detail := what
	if remedy != "" {
		detail += "; " + remedy
	}
	return &Problem{Type: "/problems/" + code, Title: http.StatusText(status), Status: status, Detail: detail,
		Code: code, Parameter: parameter, Remedy: remedy}
}
