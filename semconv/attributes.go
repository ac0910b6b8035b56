package semconv

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
)

// Type is the type of an attribute's value on the wire.
type Type string

// Types of attribute values. A JSON value is sent as a string.
const (
	String  Type = "string"
	Strings Type = "string[]"
	Int     Type = "int"
	Double  Type = "double"
	Bool    Type = "boolean"
	JSON    Type = "JSON string"
)

// Group is the origin of a key.
type Group string

// Groups of keys: those of the agent guide, of OpenTelemetry, and of agenttrace.
const (
	Floor  Group = "floor"
	Mirror Group = "mirror"
	Own    Group = "own"
)

// Attribute describes one key.
type Attribute struct {
	Key   attribute.Key
	Type  Type
	Unit  string // empty for plain text and flags
	Group Group
	// Spans are the names of the spans and events that have it.
	Spans   []string
	Example string
	Doc     string
}

// Enum is an attribute with a closed set of values.
type Enum struct {
	Key    string
	Values []string
	Doc    string
}

// Attributes describes every key, in the order in which CONVENTIONS.md lists
// them. The caller must not change the result.
func Attributes() []Attribute { return conventions().attributes }

// Enums lists every attribute with a closed set of values. The caller must not change the result.
func Enums() []Enum { return conventions().enums }

// The page is the one list of the attributes. Programs that do not ask for the list do not contain it.
//
//go:embed CONVENTIONS.md
var page string

type lists struct {
	attributes []Attribute
	enums      []Enum
}

// conventions reads the tables of the page. Each is below a heading with the name of its spans or events;
// the last one has the values of enumerations.
var conventions = sync.OnceValue(func() (all lists) {
	heading := ""
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			heading = strings.TrimSpace(name)
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		key := strings.Trim(cells[0], " `")
		switch {
		case !strings.HasPrefix(line, "| `"):
		case heading == "Values":
			values := strings.Split(strings.Trim(cells[1], "`"), "`, `")
			all.enums = append(all.enums, Enum{key, values, strings.TrimSpace(cells[2])})
		default:
			i := slices.IndexFunc(all.attributes, func(a Attribute) bool { return string(a.Key) == key })
			if i < 0 {
				i = len(all.attributes)
				all.attributes = append(all.attributes, Attribute{
					Key: attribute.Key(key), Type: Type(cells[1]), Unit: strings.Trim(cells[2], "`"), Group: Group(cells[3]),
					Doc: strings.ReplaceAll(cells[4], `\|`, "|"), Example: strings.Trim(cells[5], "` "),
				})
			}
			all.attributes[i].Spans = append(all.attributes[i].Spans, heading)
		}
	}
	return all
})
