package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/inspect"
)

// importSummary is what import prints.
type importSummary struct {
	Store string   `json:"store"`
	Files []*tally `json:"files"`
	Total tally    `json:"total"`
	// Notices are what is doubtful in sessions that telemetry was read of.
	Notices []string `json:"notices,omitempty"`
}

// tally counts what became of a file.
type tally struct {
	File   string `json:"file,omitempty"`
	Format string `json:"format,omitempty"`
	// Spans and Records were read; Accepted and Ignored add up to them. Pending are
	// those of Accepted of which no session tells after all was read.
	Spans     int   `json:"spans"`
	Records   int   `json:"records"`
	Accepted  int   `json:"accepted"`
	Pending   int64 `json:"pending"`
	Ignored   int   `json:"ignored"`
	Malformed int   `json:"malformed"`
	Rows      int64 `json:"rows"`
	Refused   int64 `json:"refused"`
	// Whole says that the file holds sessions and no telemetry. Of its rows Messages
	// and Parts were added or replaced, and Unchanged are messages, parts and
	// decisions that the store had. Added are sessions that it did not have.
	Whole     bool `json:"-"`
	Added     int  `json:"sessions_added"`
	Messages  int  `json:"messages"`
	Parts     int  `json:"parts"`
	Unchanged int  `json:"unchanged"`
	// Joined are transcripts that were merged with what telemetry reports of their
	// sessions.
	Joined int `json:"joined"`
	// Redacted counts values that a secret was taken out of.
	Redacted int `json:"redacted"`
	// Skipped counts bodies of metrics and profiles, Damaged pieces that could not
	// be read, of which Damages are the first.
	Skipped int      `json:"skipped"`
	Damaged int      `json:"damaged"`
	Damages []string `json:"damages,omitempty"`
	// Problems say what was wrong with the first of those that were Malformed.
	Problems []string `json:"problems,omitempty"`
	// Dialects says which dialects recognized how many.
	Dialects map[string]int `json:"dialects,omitempty"`
	// Unrecognized counts what no dialect of a client knows, by the scope that made it.
	Unrecognized []scopeTally `json:"unrecognized,omitempty"`
	// Sessions are those that were touched.
	Sessions sessionSet `json:"sessions,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// scopeTally counts the spans and records of an instrumentation scope that no dialect
// knows. Read are those that the generic reading found something of a session in.
type scopeTally struct {
	Scope   string `json:"scope"`
	Version string `json:"version,omitempty"`
	Spans   int    `json:"spans"`
	Records int    `json:"records"`
	Read    int    `json:"read"`
}

// addScope adds the counts of a scope, in order of name and version.
func (t *tally) addScope(o scopeTally) {
	i, known := slices.BinarySearchFunc(t.Unrecognized, o, func(a, b scopeTally) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), strings.Compare(a.Version, b.Version))
	})
	if !known {
		t.Unrecognized = slices.Insert(t.Unrecognized, i, o)
		return
	}
	s := &t.Unrecognized[i]
	s.Spans, s.Records, s.Read = s.Spans+o.Spans, s.Records+o.Records, s.Read+o.Read
}

// sessionSet is a set of session ids. Its JSON is how many there are.
type sessionSet map[string]struct{}

func (s sessionSet) MarshalJSON() ([]byte, error) { return fmt.Append(nil, len(s)), nil }

// add counts what ingestion reports.
func (t *tally) add(r ingest.Report) {
	t.Spans += r.Spans
	t.Records += r.Records
	t.Accepted += r.Accepted
	t.Ignored += r.Ignored
	t.Malformed += r.Malformed
	t.Rows += r.Rows
	t.Refused += r.Refused
	t.Redacted += r.Redacted
	t.addDialects(r.Dialects)
	for scope, c := range r.Unrecognized {
		t.addScope(scopeTally{scope.Name, scope.Version, c.Spans, c.Records, c.Read})
	}
	for _, id := range r.Sessions {
		t.addSession(id)
	}
}

func (t *tally) addDialects(counts map[string]int) {
	for name, n := range counts {
		if t.Dialects == nil {
			t.Dialects = map[string]int{}
		}
		t.Dialects[name] += n
	}
}

func (t *tally) addSession(id string) {
	if t.Sessions == nil {
		t.Sessions = sessionSet{}
	}
	t.Sessions[id] = struct{}{}
}

// include adds the counts of a file to those of all.
func (t *tally) include(o *tally) {
	t.Spans += o.Spans
	t.Records += o.Records
	t.Accepted += o.Accepted
	t.Ignored += o.Ignored
	t.Malformed += o.Malformed
	t.Rows += o.Rows
	t.Refused += o.Refused
	t.Joined += o.Joined
	t.Redacted += o.Redacted
	t.Skipped += o.Skipped
	t.Damaged += o.Damaged
	t.Added += o.Added
	t.Messages += o.Messages
	t.Parts += o.Parts
	t.Unchanged += o.Unchanged
	t.Whole = t.Whole || o.Whole
	t.addDialects(o.Dialects)
	for _, scope := range o.Unrecognized {
		t.addScope(scope)
	}
	for id := range o.Sessions {
		t.addSession(id)
	}
}

func (s *importSummary) print(w io.Writer) error {
	var b strings.Builder
	for _, t := range s.Files {
		if t.Error == "" || t.Spans+t.Records+t.Damaged+t.Joined+len(t.Sessions) > 0 {
			t.print(&b, t.File)
		}
	}
	if len(s.Files) > 1 {
		s.Total.print(&b, "total")
	}
	const maximum = 20
	for _, line := range s.Notices[:min(maximum, len(s.Notices))] {
		b.WriteString(line + "\n")
	}
	if more := len(s.Notices) - maximum; more > 0 {
		fmt.Fprintf(&b, "%s more; agenttrace check lists them\n", counted(more, "notice"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// print writes what is not 0, for most counts are.
func (t *tally) print(b *strings.Builder, name string) {
	fmt.Fprintf(b, "%s: ", inspect.Sanitize(name))
	telemetry := t.Spans+t.Records > 0 || t.Format == "otlp" || t.Format == "spool"
	if telemetry {
		fmt.Fprintf(b, "%s, %s", counted(t.Spans, "span"), counted(t.Records, "log record"))
		if t.Whole {
			b.WriteString(", ")
		}
	}
	switch {
	case !t.Whole && !telemetry:
		b.WriteString("nothing")
	case t.Whole:
		fmt.Fprintf(b, "%s, %s, %s", counted(len(t.Sessions), "session"), counted(t.Messages, "message"), counted(t.Parts, "part"))
	}
	for _, c := range []struct {
		n    int64
		what string
	}{
		{int64(t.Accepted), "accepted"}, {t.Pending, "pending"}, {int64(t.Ignored), "ignored"}, {int64(t.Malformed), "malformed"},
		{int64(t.Unchanged), "unchanged"}, {t.Refused, "refused"}, {int64(t.Joined), "merged with telemetry"}, {int64(t.Redacted), "redacted"},
		{int64(t.Skipped), "skipped"}, {int64(t.Damaged), "damaged"},
	} {
		if c.n > 0 {
			fmt.Fprintf(b, ", %d %s", c.n, c.what)
		}
	}
	if len(t.Sessions) > 0 && !t.Whole {
		fmt.Fprintf(b, "; %s", counted(len(t.Sessions), "session"))
	}
	b.WriteByte('\n')
	for i, name := range slices.Sorted(maps.Keys(t.Dialects)) {
		fmt.Fprintf(b, "%s%s %d", []string{"  ", ", "}[min(i, 1)], name, t.Dialects[name])
	}
	if len(t.Dialects) > 0 {
		b.WriteByte('\n')
	}
	for _, s := range t.Unrecognized {
		if s.Read == 0 {
			continue // most of these are no agents
		}
		name := strings.TrimSpace(inspect.Sanitize(s.Scope + " " + s.Version))
		if name == "" {
			name = "without a name"
		}
		fmt.Fprintf(b, "  no dialect knows scope %s: %s, %s, %d read by their attributes' names (generic reading)\n",
			name, counted(s.Spans, "span"), counted(s.Records, "log record"), s.Read)
	}
}
