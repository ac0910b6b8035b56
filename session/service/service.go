// Package service is what front ends ask of sessions and change in them: the command line, the pages in a browser,
// and agents that look up past sessions; and what those that serve them over HTTP have in common.
//
//	front end ─ Service ─┬─ a store of this process
//	                     └─ api.Client ─ HTTP ─ a store of another process
//
// A client gives the same answers as the store behind it, errors and their texts included, so a front end prints
// the same bytes whichever of them it has.
package service

import (
	"context"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Service is all that a front end may ask of a store of sessions and change in it. Every [store.Store] is one, and a
// client of one in another process is. It is safe for concurrent use.
//
// Through a client, the functions of a batch are not sent: the server sets its own.
type Service interface {
	store.Reader
	store.Writer
	store.Manager
	store.ImportSources
}

// Backend is a store as a server of pages, or of an API, has it. All but Sessions may be empty.
type Backend struct {
	Sessions document.Reader
	// Change has fn executed with a service that can change the sessions. If it is nil, they cannot be changed.
	Change func(ctx context.Context, fn func(context.Context, Service) error) error
	// Changes counts the changes of the store. If it is nil, clients cannot follow them.
	Changes *Counter
	// Done, if it is not nil, ends the streams of events when it is closed.
	Done <-chan struct{}
	// Author is who annotates, unless a request names somebody else.
	Author string
}
