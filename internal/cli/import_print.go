package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
)

// printImport prints what an import did.
func printImport(w io.Writer, s *importer.Summary) error {
	var b strings.Builder
	for _, t := range s.Files {
		if t.Error == "" || t.Spans+t.Records+t.Damaged+t.Joined+t.Deleted+len(t.Sessions) > 0 {
			printTally(&b, t, t.File)
		}
	}
	if len(s.Files) > 1 {
		printTally(&b, &s.Total, "total")
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

// printTally writes what is not 0, for most counts are.
func printTally(b *strings.Builder, t *importer.Tally, name string) {
	fmt.Fprintf(b, "%s: ", document.Sanitize(name))
	telemetry := t.Spans+t.Records > 0 || t.Format == "otlp"
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
		fmt.Fprintf(b, "%s, %s, %s", counted(len(t.Sessions), "session"), counted(t.Messages, "message"),
			counted(t.Parts, "part"))
	}
	for _, c := range []struct {
		n    int64
		what string
	}{
		{int64(t.Accepted), "accepted"}, {t.Pending, "pending"}, {int64(t.Ignored), "ignored"},
		{int64(t.Malformed), "malformed"},
		{int64(t.Unchanged), "unchanged"}, {t.Refused, "refused"}, {int64(t.Joined), "merged with telemetry"},
		{int64(t.Deleted), "deleted from the store"}, {int64(t.Redacted), "redacted"},
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
		name := cmp.Or(strings.TrimSpace(document.Sanitize(s.Scope+" "+s.Version)), "without a name")
		fmt.Fprintf(b, "  no dialect knows scope %s: %s, %s, %d read by their attributes' names (generic reading)\n",
			name, counted(s.Spans, "span"), counted(s.Records, "log record"), s.Read)
	}
}

// contentOf states what is in a place.
func contentOf(p *importer.Place) string {
	if len(p.Files) == 1 && p.Files[0] == p.Path {
		return p.Whole
	}
	return counted(len(p.Files), "file")
}

// listedPlace is a place as JSON.
type listedPlace struct {
	Program string   `json:"program"`
	Path    string   `json:"path"`
	Files   []string `json:"files"`
	Error   string   `json:"error,omitempty"`
}

// listed are the places where something is, or may be.
func listed(all []importer.Place) []listedPlace {
	found := []listedPlace{}
	for _, p := range all {
		l := listedPlace{Program: p.Program, Path: p.Path, Files: append([]string{}, p.Files...)}
		if p.Err != nil {
			l.Error = p.Err.Error()
		}
		if len(l.Files) > 0 || l.Error != "" {
			found = append(found, l)
		}
	}
	return found
}

func printPlaces(w io.Writer, all []importer.Place) error {
	var b, looked strings.Builder
	files, wide := 0, 0
	for i := range all {
		wide = max(wide, len(all[i].Program))
	}
	for i := range all {
		p := &all[i]
		if files += len(p.Files); len(p.Files) > 0 {
			fmt.Fprintf(&b, "%s: %s in %s\n", p.Program, contentOf(p), document.Sanitize(p.Path))
		}
		if p.Err != nil {
			fmt.Fprintf(&b, "%s: not all of it can be read: %s\n", p.Program, document.Sanitize(p.Err.Error()))
		}
		fmt.Fprintf(&looked, "  %-*s  %s\n", wide, p.Program, document.Sanitize(p.Path))
	}
	switch {
	case files > 0:
		b.WriteString("Import all of it with: agenttrace import --discover --yes\n")
	case b.Len() == 0:
		b.WriteString("nothing found in the usual places\n" + looked.String())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
