package web

import (
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
)

// sessionPath names a session.
type sessionPath struct {
	ID string `path:"id" names:"session" doc:"an id of a session, the beginning of one, an id of a trace, or last"`
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
	return []operation{
		reading("sessions", "listSessions", "List sessions, newest first, as agenttrace ls does.", (*api).list),
		reading("search", "search",
			"Find a text in titles, prompts, messages and tool calls, as agenttrace search does.", (*api).search),
		reading("stats", "stats", "Count turns, tokens, calls and time, as agenttrace stats does.", (*api).stats),
		reading("status", "serverStatus", "Report which store is served, and what can be done with it.",
			(*api).serverStatus),
		reading("openapi.json", "openAPI", "Describe the API.", (*api).openAPI),

		reading("sessions/{id}", "getSession", "Read a session without its turns.", (*api).head),
		reading("sessions/{id}/document", "getDocument", "Read a session turn by turn, as agenttrace show does.",
			(*api).read),
		reading("sessions/{id}/turns/{n}", "getTurn",
			"Read one turn of a session, without the totals of the others.", (*api).turn),
		reading("sessions/{id}/turns/{n}/replay", "getReplay",
			"Read what the model was given at a turn, and answered: the bundle of agenttrace replay.", (*api).replay),
		reading("sessions/{id}/replay", "getEligibility",
			"Report which turns can be rerun, and what is missing, as agenttrace replay does.", (*api).eligibility),
		reading("sessions/{id}/parts/{message}/{part}", "getPart", "Read a part.", (*api).part),
		reading("sessions/{id}/rows", "getRows", "Read the rows of a session as they are stored.", (*api).rows),
		reading("sessions/{id}/status", "getStatus", "Report what a session is doing, as agenttrace status does.",
			(*api).status),
		reading("sessions/{id}/annotations", "listAnnotations", "List the tags, notes and scores of a session.",
			(*api).annotations),
		reading("sessions/{id}/decisions", "listDecisions", "List the permission decisions of a session.",
			(*api).decisions),
		reading("sessions/{id}/spans", "listSpans", "List the spans that a session was built from.", (*api).spans),
		reading("sessions/{id}/diff/{b}", "diffSessions", "Compare two sessions, as agenttrace diff does.",
			(*api).diff),
		raw(http.MethodGet, "sessions/{id}/export", "exportSession",
			"Write a session in a format, byte for byte as agenttrace export does.", content{},
			content{media: exportTypes()}, (*api).export),
		raw(http.MethodGet, "events", "followSessions",
			"Follow all sessions: an event for each that changes, and one for any change of the store.", content{},
			storeEvents, (*api).events),
		raw(http.MethodGet, "sessions/{id}/events", "followSession",
			"Follow the end of a session: an event for each turn that changes, and for its status.", content{},
			sessionEvents, (*api).sessionEvents),
		changing(http.MethodPatch, "sessions/{id}", "updateSession", "Set the title of a session, or archive it.",
			http.StatusOK, (*api).update),
		changing(http.MethodDelete, "sessions/{id}", "deleteSession",
			"Delete a session for good, as agenttrace rm does.", http.StatusOK, (*api).remove),
		changing(http.MethodPost, "sessions/{id}/annotations", "annotate", "Add a tag, a note or a score.",
			http.StatusCreated, (*api).annotate),
		changing(http.MethodDelete, "sessions/{id}/annotations/{annotation}", "removeAnnotation",
			"Take back an annotation.", http.StatusNoContent, (*api).removeAnnotation),
		changing(http.MethodPost, "sessions/{id}/fork", "forkSession",
			"Copy the beginning of a session into a new one.", http.StatusCreated, (*api).fork),
		changing(http.MethodPost, "sessions/{id}/rewind", "rewindSession", "Hide the messages after a question.",
			http.StatusOK, (*api).rewind),
		changing(http.MethodPost, "sessions/{id}/unrewind", "unrewindSession", "Show again what the last rewind hid.",
			http.StatusOK, (*api).unrewind),
		raw(http.MethodPost, "import", "importFile", "Import a file of any format, as agenttrace import does.",
			content{media: []string{"*/*"}}, content{json: reflect.TypeFor[importer.Summary]()}, (*api).importFile),
		raw(http.MethodPost, "store/{method}", "callStore",
			"Call a method of the store, as commands of agenttrace do that are given the address of this server.",
			content{json: reflect.TypeFor[json.RawMessage]()}, content{json: reflect.TypeFor[json.RawMessage]()},
			(*api).callStore),
		reading("prompts/{digest}", "getPrompt", "Read a system prompt.", (*api).prompt),
		reading("catalogs/{digest}", "getCatalog", "Read a tool catalog.", (*api).catalog),
		reading("traces/{trace}", "findTrace", "Find the session of a trace.", (*api).trace),
		reading("traces/{trace}/{span}", "findSpan", "Find the session, turn and part of a span.", (*api).span),
	}
}
