package web

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/replay"
	"github.com/agenttrace/agenttrace/session/store"
)

var update = flag.Bool("update", false, "write the surface of the API into testdata")

// What programs depend on within version 1 is in a file, so that a change of it is seen. Lines may be added to it; one
// that is gone breaks programs.
func TestTheSurfaceOfVersion1(t *testing.T) {
	const path = "testdata/v1.txt"
	var b strings.Builder
	d := describedBy(t)
	for _, op := range operations() {
		o := d.Paths["/"+op.path][strings.ToLower(op.method)]
		fmt.Fprintf(&b, "%s %s %s %s\n", op.method, op.path, op.ID, slices.Min(slices.Collect(maps.Keys(o.Responses))))
		for i, p := range op.Parameters {
			fmt.Fprintf(&b, "%s %s %s parameter %s\n", op.ID, p.In, p.Name, typeOf(o.Parameters[i].Schema))
		}
		for _, name := range slices.Sorted(maps.Keys(o.Events)) {
			fmt.Fprintf(&b, "%s event %s\n", op.ID, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		var s jsonschema.Schema
		testscale.Must(t, json.Unmarshal(d.Components.Schemas[name], &s))
		for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
			always := ""
			if slices.Contains(s.Required, member) {
				always = " always"
			}
			fmt.Fprintf(&b, "%s.%s %s%s\n", name, member, typeOf(s.Properties[member]), always)
		}
	}
	if *update {
		testscale.Must(t, os.WriteFile(path, []byte(b.String()), 0o666))
	}
	want := testscale.ReadFile(t, path)
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

// The document has all members of the types that answers and bodies are made of, also those that no example has.
func TestSchemasHaveTheMembersOfTypes(t *testing.T) {
	d, seen := describedBy(t), make(map[string]bool)
	var check func(s *jsonschema.Schema, of reflect.Type)
	check = func(s *jsonschema.Schema, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		for ; s.Ref == "" && s.Type != "object"; s = s.Items {
			if len(s.AnyOf) > 0 {
				s = s.AnyOf[0]
				break
			}
			if s.Items == nil {
				return
			}
		}
		name := typeOf(s)
		if seen[name] || of.Kind() != reflect.Struct {
			return
		}
		seen[name] = true
		var described jsonschema.Schema
		if err := json.Unmarshal(d.Components.Schemas[name], &described); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range reflect.VisibleFields(of) {
			member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || member == "" || member == "-" {
				continue
			}
			if p := described.Properties[member]; p == nil {
				t.Errorf("%s has no member %s, which %s has", name, member, of)
			} else {
				check(p, f.Type)
			}
		}
	}
	for name, of := range map[string]any{
		"SessionList": sessionList{}, "SearchResult": searchResult{}, "Stats": store.Stats{},
		"ServerStatus": serverStatus{}, "SessionHead": sessionHead{}, "Document": document.Document{},
		"Bundle": replay.Bundle{}, "Eligibility": document.Eligibility{}, "WholePart": wholePart{},
		"Transcript": session.Transcript{}, "AnnotationList": annotationList{}, "DecisionList": decisionList{},
		"SpanList": spanList{}, "Diff": document.Diff{}, "Text": text{}, "Located": located{}, "Deleted": deleted{},
		"SessionChange": sessionChange{}, "NewAnnotation": newAnnotation{}, "NewFork": newFork{}, "Place": Place{},
		"Forked": Forked{}, "Rewound": Rewound{}, "Removed": removed{}, "Summary": importer.Summary{}, "Problem": Problem{},
	} {
		check(&jsonschema.Schema{Ref: "#/components/schemas/" + name}, reflect.TypeOf(of))
	}
	for name := range d.Components.Schemas {
		if !seen[name] && name != "EmptyEvent" {
			t.Errorf("no type was compared with %s", name)
		}
	}
}

// typeOf is the type of a schema in a word.
func typeOf(s *jsonschema.Schema) string {
	switch {
	case s.Ref != "":
		return strings.TrimPrefix(s.Ref, "#/components/schemas/")
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
