package web

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// documentText is the OpenAPI document of the API. By it requests are routed and parameters are read. Names in braces
// stand for what other packages know.
//
//go:embed openapi.json
var documentText string

// describe returns the OpenAPI document of a server of a version of the program.
func describe(version string) json.RawMessage {
	if version != "" {
		version = " Served by agenttrace " + version + "."
	}
	list := func(all []string) string { return strings.Join(all, `", "`) }
	return json.RawMessage(strings.NewReplacer(
		"{{imports}}", list(formats.Names((*formats.Format).Reads)),
		"{{exports}}", list(formats.Names((*formats.Format).Written)),
		"{{export types}}", strings.Join(exportTypes(), `": {}, "`),
		"{{statuses}}", list(document.Statuses()), "{{sorts}}", list(store.SessionSorts()),
		"{{groups}}", strings.Join(store.StatsKeys(), ", "), "{{served}}", version,
	).Replace(documentText))
}

// operation is an operation of the document.
type operation struct {
	ID         string      `json:"operationId"`
	Parameters []parameter `json:"parameters"`
	method     string
	path       string // below Prefix, with the path parameters in braces
}

// methods are those of operations, in the order in which answers list them.
var methods = []string{http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodDelete}

// operations are those of the document, by path and method.
var operations = sync.OnceValue(func() (all []*operation) {
	var d struct {
		Paths map[string]map[string]*operation `json:"paths"`
	}
	if err := json.Unmarshal(describe(""), &d); err != nil {
		panic(fmt.Sprintf("read openapi.json: %v", err)) // it is embedded
	}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range methods {
			if op := d.Paths[path][strings.ToLower(method)]; op != nil {
				op.method, op.path = method, strings.TrimPrefix(path, "/")
				all = append(all, op)
			}
		}
	}
	return all
})

// operationOf is the operation with an id.
func operationOf(id string) *operation {
	all := operations()
	return all[slices.IndexFunc(all, func(op *operation) bool { return op.ID == id })]
}
