package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/replay"
)

// The objects of an OpenAPI document, version 3.1, as far as the API has them.
type (
	openAPI struct {
		OpenAPI string `json:"openapi"`
		Info    struct {
			Title       string `json:"title"`
			Version     string `json:"version"`
			Description string `json:"description"`
		} `json:"info"`
		Servers []server                              `json:"servers"`
		Paths   map[string]map[string]operationObject `json:"paths"`
		// Security: a server wants a token or not.
		Security   []map[string][]string `json:"security"`
		Components struct {
			Schemas         map[string]*jsonschema.Schema `json:"schemas"`
			SecuritySchemes map[string]securityScheme     `json:"securitySchemes"`
		} `json:"components"`
	}
	securityScheme struct {
		Type   string `json:"type"`
		Scheme string `json:"scheme"`
	}
	server struct {
		URL string `json:"url"`
	}
	operationObject struct {
		ID          string              `json:"operationId"`
		Summary     string              `json:"summary"`
		Parameters  []parameterObject   `json:"parameters,omitempty"`
		RequestBody *body               `json:"requestBody,omitempty"`
		Responses   map[string]response `json:"responses"`
		// Events are the schemas of the data of events by their names, which OpenAPI has no place for.
		Events map[string]*jsonschema.Schema `json:"x-events,omitempty"`
	}
	parameterObject struct {
		Name        string             `json:"name"`
		In          string             `json:"in"`
		Description string             `json:"description"`
		Required    bool               `json:"required,omitempty"`
		Schema      *jsonschema.Schema `json:"schema"`
	}
	body struct {
		Required bool                 `json:"required"`
		Content  map[string]mediaType `json:"content"`
	}
	response struct {
		Description string               `json:"description"`
		Content     map[string]mediaType `json:"content,omitempty"`
	}
	mediaType struct {
		Schema *jsonschema.Schema `json:"schema,omitempty"`
	}
)

// describe returns the OpenAPI document of operations.
func describe(all []operation, version string) json.RawMessage {
	var d openAPI
	d.OpenAPI = "3.1.1"
	d.Info.Title, d.Info.Version = "agenttrace sessions", "1"
	d.Info.Description = "Sessions of AI agents as JSON. " +
		"An element of a path that is . or .., or begins with ~, has ~ before it."
	if version != "" {
		d.Info.Description += " Served by agenttrace " + version + "."
	}
	d.Servers = []server{{strings.TrimSuffix(Prefix, "/")}}
	d.Paths = make(map[string]map[string]operationObject)
	s := newSchemas()
	problem := map[string]mediaType{"application/problem+json": {s.of(reflect.TypeFor[Problem]())}}
	for _, op := range all {
		o := operationObject{ID: op.id, Summary: op.summary, Responses: make(map[string]response)}
		for _, p := range op.params {
			o.Parameters = append(o.Parameters, parameterObject{p.name, p.in, p.doc, p.required, p.schema})
		}
		if c := s.content(op.body); c != nil {
			o.RequestBody = &body{true, c}
		}
		o.Responses[strconv.Itoa(op.status)] = response{http.StatusText(op.status), s.content(op.result)}
		if op.method == http.MethodGet && op.result.events == nil {
			o.Responses["304"] = response{Description: "The answer has the ETag of the header If-None-Match."}
		}
		o.Responses["default"] = response{"The request failed.", problem}
		for name, t := range op.result.events {
			if o.Events == nil {
				o.Events = make(map[string]*jsonschema.Schema)
			}
			o.Events[name] = s.of(t)
		}
		path := "/" + op.path
		if d.Paths[path] == nil {
			d.Paths[path] = make(map[string]operationObject)
		}
		d.Paths[path][strings.ToLower(op.method)] = o
	}
	d.Components.Schemas = s.named
	d.Components.SecuritySchemes = map[string]securityScheme{"token": {"http", "bearer"}}
	d.Security = []map[string][]string{{}, {"token": {}}}
	text, err := json.Marshal(&d)
	if err != nil {
		panic(fmt.Sprintf("describe the API: %v", err)) // a type of the table has no JSON
	}
	return text
}

// schemas are the schemas of types. A struct with a name has a component.
type schemas struct {
	named map[string]*jsonschema.Schema
	// refs are what stands for a type that has a component, or that encodes itself.
	refs map[reflect.Type]*jsonschema.Schema
}

func newSchemas() *schemas {
	return &schemas{make(map[string]*jsonschema.Schema), map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage]():     {},
		reflect.TypeFor[importer.SessionSet](): {Type: "integer"},
	}}
}

// prefixes distinguish types of the same name.
var prefixes = map[reflect.Type]string{
	reflect.TypeFor[session.Session](): "Row",
	reflect.TypeFor[session.Message](): "Row",
	reflect.TypeFor[session.Part]():    "Row",
	reflect.TypeFor[replay.Tool]():     "Bundle",
}

const components = "#/components/schemas/"

// content is what a body may be.
func (s *schemas) content(c content) map[string]mediaType {
	switch c.json {
	case nil:
	case reflect.TypeFor[json.RawMessage](): // any JSON
		return map[string]mediaType{"application/json": {}}
	default:
		return map[string]mediaType{"application/json": {s.of(c.json)}}
	}
	var all map[string]mediaType
	for _, m := range c.media {
		if all == nil {
			all = make(map[string]mediaType)
		}
		all[m] = mediaType{}
	}
	return all
}

// schemaTypes are the names that schemas have for kinds of types.
var schemaTypes = map[reflect.Kind]string{reflect.Bool: "boolean", reflect.String: "string", reflect.Float64: "number",
	reflect.Int: "integer", reflect.Int64: "integer", reflect.Slice: "array", reflect.Array: "array",
	reflect.Map: "object", reflect.Struct: "object"}

// of returns the schema of a type, by reference if it has a component.
func (s *schemas) of(t reflect.Type) *jsonschema.Schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if ref := s.refs[t]; ref != nil {
		return ref.CloneSchemas()
	}
	if _, ok := reflect.Zero(t).Interface().(choice); ok {
		s.refs[t], _ = kindOf(t, "")
		return s.refs[t].CloneSchemas()
	}
	schema := &jsonschema.Schema{Type: schemaTypes[t.Kind()]}
	switch t.Kind() {
	case reflect.Slice:
		schema.Items = s.of(t.Elem())
	case reflect.Array:
		schema.Items, schema.MinItems, schema.MaxItems = s.of(t.Elem()), jsonschema.Ptr(t.Len()), jsonschema.Ptr(t.Len())
	case reflect.Map:
		schema.AdditionalProperties = s.of(t.Elem())
	case reflect.Struct:
		schema.AdditionalProperties = &jsonschema.Schema{Not: new(jsonschema.Schema)} // no others
		if t.NumField() > 0 {
			schema.Properties = make(map[string]*jsonschema.Schema)
		}
		s.members(schema, t, make(map[string]bool))
	}
	if t.Kind() != reflect.Struct || t.Name() == "" {
		return schema
	}
	name := prefixes[t] + strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if s.named[name] != nil {
		panic(fmt.Sprintf("describe %s: another type is called %s", t, name)) // see prefixes
	}
	s.named[name] = schema
	s.refs[t] = &jsonschema.Schema{Ref: components + name}
	return s.refs[t].CloneSchemas()
}

// members adds the members of a struct and of those that it embeds, except for those that are hidden by an outer one.
func (s *schemas) members(schema *jsonschema.Schema, t reflect.Type, hidden map[string]bool) {
	hidden = maps.Clone(hidden)
	var fields []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || f.IsExported() && name != "-" && !hidden[name] {
			fields = append(fields, f)
		}
	}
	for _, f := range fields {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		hidden[name] = hidden[name] || !f.Anonymous
	}
	for _, f := range fields {
		if f.Anonymous {
			s.members(schema, f.Type, hidden)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		member := s.of(f.Type)
		schema.Properties[name], schema.PropertyOrder = member, append(schema.PropertyOrder, name)
		if strings.Contains(options, "omit") {
			continue // it is left out where it is nothing, and never null
		}
		schema.Required = append(schema.Required, name)
		switch kind := f.Type.Kind(); {
		case kind == reflect.Pointer && member.Ref != "":
			schema.Properties[name] = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{member, {Type: "null"}}}
		case kind == reflect.Pointer || kind == reflect.Slice && member.Type == "array":
			member.Type, member.Types = "", []string{"null", member.Type}
		}
	}
}
