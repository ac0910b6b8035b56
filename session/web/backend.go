package web

import (
	"context"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

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
}
