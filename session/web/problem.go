package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

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

// Codes of problems that are not errors of package store.
const (
	// CodeInvalid: the request is wrong.
	CodeInvalid = "invalid-request"
	// CodeBusy: the session is at work, and cannot be changed until it is idle.
	CodeBusy = "busy"
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
	{"hidden", store.ErrHidden, http.StatusConflict},
	{"not-users-message", store.ErrNotUsers, http.StatusConflict},
	{"no-rewind", store.ErrNoRewind, http.StatusConflict},
	{"refused", store.ErrRefused, http.StatusUnprocessableEntity},
	{"reported", store.ErrReported, http.StatusConflict},
	{"store-locked", store.ErrLocked, http.StatusServiceUnavailable},
	{"not-a-store", store.ErrNotStore, http.StatusServiceUnavailable},
	{"newer-store", store.ErrNewer, http.StatusServiceUnavailable},
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
