package api

import (
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// sessionPath names a session.
type sessionPath struct {
	ID string `path:"id" doc:"an id of a session, the beginning of one, an id of a trace, or last"`
}

// turnPath names a turn.
type turnPath struct {
	sessionPath
	N int `path:"n" doc:"the number of a turn, from 1"`
}

// partPath names a part.
type partPath struct {
	sessionPath
	Message string `path:"message" doc:"the id of a message"`
	Part    string `path:"part" doc:"the id of a part of the message"`
}

// digestPath names a system prompt or a tool catalog.
type digestPath struct {
	Digest string `path:"digest" doc:"a SHA-256 in hexadecimal digits, as messages have it"`
}

// tracePath names a trace.
type tracePath struct {
	Trace string `path:"trace" doc:"the id of a trace, or at least 8 digits at its beginning"`
}

// spanPath names a span.
type spanPath struct {
	tracePath
	Span string `path:"span" doc:"the id of a span"`
}

// status is a parameter that is what a session does, or how its last run ended.
type status string

func (status) values() []string { return document.Statuses() }

// order is a parameter that is an order of sessions.
type order string

func (order) values() []string { return store.SessionSorts() }

// group is a parameter that is what figures are grouped by.
type group string

func (group) values() []string {
	return []string{string(store.StatsByDay), string(store.StatsByWeek), string(store.StatsByModel),
		string(store.StatsByAgent), string(store.StatsByProject), string(store.StatsByTool)}
}

// exportFormat is a parameter that is a format which is written.
type exportFormat string

func (exportFormat) values() []string { return names((*formats.Format).Written) }

// importFormat is a parameter that is a format which is read.
type importFormat string

func (importFormat) values() []string {
	return names(func(f *formats.Format) bool { return f.Imported != "" })
}

func names(which func(*formats.Format) bool) (all []string) {
	for _, f := range formats.Filter(which) {
		all = append(all, f.Name)
	}
	return all
}

// operations is the table of the API.
func operations() []operation {
	return []operation{}
}
