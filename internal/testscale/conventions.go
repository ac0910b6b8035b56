package testscale

import (
	"os"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
)

// Attribute is what semconv/CONVENTIONS.md lists of a key.
type Attribute struct {
	Key                             attribute.Key
	Type, Unit, Group, Doc, Example string
	Spans, Values                   []string
}

// Attributes reads the tables of the page, each below the name of its spans or events, and that of enumerations' values.
var Attributes = sync.OnceValue(func() (all []Attribute) {
	dir := ""
	page, err := os.ReadFile("semconv/CONVENTIONS.md")
	for ; err != nil && len(dir) < 100; page, err = os.ReadFile(dir + "semconv/CONVENTIONS.md") {
		dir += "../"
	}
	heading := ""
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			heading = strings.TrimSpace(name)
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		key := attribute.Key(strings.Trim(cells[0], " `"))
		i := slices.IndexFunc(all, func(a Attribute) bool { return a.Key == key })
		if i < 0 {
			i = len(all)
			all = append(all, Attribute{Key: key})
		}
		if a := &all[i]; heading == "Values" {
			a.Values = strings.Split(strings.Trim(cells[1], "`"), "`, `")
		} else {
			a.Type, a.Unit, a.Group = cells[1], strings.Trim(cells[2], "`"), cells[3]
			a.Doc, a.Example = strings.ReplaceAll(cells[4], `\|`, "|"), strings.Trim(cells[5], "` ")
			a.Spans = append(a.Spans, heading)
		}
	}
	return all
})
