// Package service is what front ends ask of sessions and change in them: the command line, the pages in a browser,
// and agents that look up past sessions.
//
//	front end ─ Service ─┬─ a store of this process
//	                     └─ Client ─ HTTP ─ Handler ─ a store of another process
//
// A [Client] gives the same answers as the store behind it, errors and their texts included, so a front end prints
// the same bytes whichever of them it has.
package service

import "github.com/agenttrace/agenttrace/session/store"

// Service is all that a front end may ask of a store of sessions and change in it. Every [store.Store] is one, and a
// [Client] of one in another process is. It is safe for concurrent use.
//
// Through a Client, the functions of a batch are not sent: a [Handler] sets those that it was given.
type Service interface {
	store.Reader
	store.Writer
	store.Manager
	store.ImportSources
}
