package importer

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// Summary is what import prints.
type Summary struct {
	Store string   `json:"store"`
	Files []*Tally `json:"files"`
	Total Tally    `json:"total"`
	// Notices are what is doubtful in sessions that telemetry was read of.
	Notices []string `json:"notices,omitempty"`
}

// Tally counts what became of a file.
type Tally struct {
	File   string `json:"file,omitempty"`
	Format string `json:"format,omitempty"`
	// Spans and Records were read; Accepted and Ignored add up to them. Pending are
	// those of Accepted that no session has after all was read.
	Spans     int   `json:"spans"`
	Records   int   `json:"records"`
	Accepted  int   `json:"accepted"`
	Pending   int64 `json:"pending"`
	Ignored   int   `json:"ignored"`
	Malformed int   `json:"malformed"`
	Rows      int64 `json:"rows"`
	Refused   int64 `json:"refused"`
	// Whole reports that the file holds sessions and no telemetry. Of its rows Messages
	// and Parts were added or replaced, and Unchanged are messages, parts and
	// decisions that the store had. Added are sessions that it did not have.
	Whole     bool `json:"-"`
	Added     int  `json:"sessions_added"`
	Messages  int  `json:"messages"`
	Parts     int  `json:"parts"`
	Unchanged int  `json:"unchanged"`
	// Joined are transcripts that were merged with what telemetry reports of their sessions.
	Joined int `json:"joined"`
	// Same reports that the file did not change since it was imported, and was not read: the
	// counts are those of that time.
	Same bool `json:"same,omitempty"`
	// Deleted counts sessions of the file that were deleted from the store and are left out.
	Deleted int `json:"deleted,omitempty"`
	// Redacted counts values that a secret was taken out of.
	Redacted int `json:"redacted"`
	// Skipped counts bodies of metrics and profiles, Damaged pieces that could not
	// be read, of which Damages are the first.
	Skipped int      `json:"skipped"`
	Damaged int      `json:"damaged"`
	Damages []string `json:"damages,omitempty"`
	// Problems state what was wrong with the first of those that were Malformed.
	Problems []string `json:"problems,omitempty"`
	// Dialects states which dialects recognized how many.
	Dialects map[string]int `json:"dialects,omitempty"`
	// Unrecognized counts what no dialect of a client knows, by the scope that made it.
	Unrecognized []ScopeTally `json:"unrecognized,omitempty"`
	// Sessions are those that were touched.
	Sessions SessionSet `json:"sessions,omitempty"`
	Error    string     `json:"error,omitempty"`

	items int // the messages, parts and decisions in the file
	// lost reports that not all of its sessions were stored, such as when the import was interrupted.
	lost bool
	// before is what was remembered of the file if sessions of it were deleted, and are to be left out: deleted are
	// those that were.
	input   Input
	before  *store.ImportSource
	deleted []string
	// versions are those of the sessions of a database, nil for another file.
	versions *versions
}

// ScopeTally counts the spans and records of an instrumentation scope that no dialect
// knows. Read are those that the generic reading found something of a session in.
type ScopeTally struct {
	Scope   string `json:"scope"`
	Version string `json:"version,omitempty"`
	Spans   int    `json:"spans"`
	Records int    `json:"records"`
	Read    int    `json:"read"`
}

// addScope adds the counts of a scope, in order of name and version.
func (t *Tally) addScope(o ScopeTally) {
	i, known := slices.BinarySearchFunc(t.Unrecognized, o, func(a, b ScopeTally) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), strings.Compare(a.Version, b.Version))
	})
	if !known {
		t.Unrecognized = slices.Insert(t.Unrecognized, i, o)
		return
	}
	s := &t.Unrecognized[i]
	s.Spans, s.Records, s.Read = s.Spans+o.Spans, s.Records+o.Records, s.Read+o.Read
}

// SessionSet is a set of session ids. Its JSON is how many there are.
type SessionSet map[string]struct{}

// MarshalJSON writes the number of sessions.
func (s SessionSet) MarshalJSON() ([]byte, error) { return fmt.Append(nil, len(s)), nil }

func (t *Tally) add(r ingest.Report) {
	t.Include(&Tally{
		Spans: r.Spans, Records: r.Records, Accepted: r.Accepted, Ignored: r.Ignored, Malformed: r.Malformed,
		Rows: r.Rows, Refused: r.Refused, Redacted: r.Redacted, Dialects: r.Dialects,
	})
	for scope, c := range r.Unrecognized {
		t.addScope(ScopeTally{scope.Name, scope.Version, c.Spans, c.Records, c.Read})
	}
	for _, id := range r.Sessions {
		t.addSession(id)
	}
}

func (t *Tally) addSession(id string) {
	if t.Sessions == nil {
		t.Sessions = SessionSet{}
	}
	t.Sessions[id] = struct{}{}
}

func (t *Tally) has(s *store.Imported) {
	t.addSession(s.Session.ID)
	n := itemsOf(s)
	t.items += n
	t.versions.has(s.Session.ID, n)
}

func itemsOf(s *store.Imported) int {
	n := len(s.Decisions) + len(s.Messages)
	for i := range s.Messages {
		n += len(s.Messages[i].Parts)
	}
	return n
}

// Include adds the counts of a file to those of all.
func (t *Tally) Include(o *Tally) {
	sum, one := reflect.ValueOf(t).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		if n := sum.Field(i); n.CanInt() && n.CanSet() {
			n.SetInt(n.Int() + one.Field(i).Int())
		}
	}
	t.Whole = t.Whole || o.Whole
	if t.Dialects == nil && len(o.Dialects) > 0 {
		t.Dialects = map[string]int{}
	}
	for name, n := range o.Dialects {
		t.Dialects[name] += n
	}
	for _, scope := range o.Unrecognized {
		t.addScope(scope)
	}
	for id := range o.Sessions {
		t.addSession(id)
	}
}

// empty states why an input without an error gave nothing, or "" if it gave something.
func (t *Tally) empty() string {
	switch {
	case t.Spans+t.Records+t.Damaged+t.Joined+t.Deleted+len(t.Sessions) > 0:
		return ""
	case t.Whole:
		return "there is no session in it"
	case t.Format == "":
		return "there is nothing in it"
	}
	return "there are no spans or log records in it"
}
