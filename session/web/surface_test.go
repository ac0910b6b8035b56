package web

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

var update = flag.Bool("update", false, "write the surface of the API into testdata")

// What programs depend on within version 1 is in a file, so that a change of it is seen. Lines may be added to it; one
// that is gone breaks programs.
func TestTheSurfaceOfVersion1(t *testing.T) {
	const path = "testdata/v1.txt"
	var b strings.Builder
	for _, op := range operations() {
		fmt.Fprintf(&b, "%s %s %s %d\n", op.method, op.path, op.id, op.status)
		for _, p := range op.params {
			fmt.Fprintf(&b, "%s %s %s parameter %s\n", op.id, p.in, p.name, typeOf(p.schema))
		}
		for _, name := range slices.Sorted(maps.Keys(op.result.events)) {
			fmt.Fprintf(&b, "%s event %s\n", op.id, name)
		}
	}
	d := describedBy(t)
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		var s jsonschema.Schema
		if err := json.Unmarshal(d.Components.Schemas[name], &s); err != nil {
			t.Fatal(err)
		}
		for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
			always := ""
			if slices.Contains(s.Required, member) {
				always = " always"
			}
			fmt.Fprintf(&b, "%s.%s %s%s\n", name, member, typeOf(s.Properties[member]), always)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for line := range strings.Lines(string(want)) {
		if !slices.Contains(lines, strings.TrimSuffix(line, "\n")) {
			t.Errorf("the API has no longer: %s", line)
		}
	}
	if b.String() != string(want) {
		t.Error("the API is not the one in testdata/v1.txt; if it has grown, run the test with -update")
	}
}

// typeOf is the type of a schema in a word.
func typeOf(s *jsonschema.Schema) string {
	switch {
	case s.Ref != "":
		return strings.TrimPrefix(s.Ref, components)
	case len(s.AnyOf) > 0:
		return typeOf(s.AnyOf[0]) + "|null"
	case s.Items != nil:
		return "[" + typeOf(s.Items) + "]"
	case s.Type == "object" && s.AdditionalProperties != nil:
		return "{" + typeOf(s.AdditionalProperties) + "}"
	case s.Type == "" && len(s.Types) == 0:
		return "any"
	case s.Type == "":
		return strings.Join(s.Types, "|")
	}
	return s.Type
}
