package ingest

import (
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// boundFact keeps as text what should be JSON of a fact and is not, or is nested deeper than readers follow.
// Every value of a fact comes through here before it is encoded, so that what is
// written can be read: the decoder of JSON ends at 10,000 levels, and a value that
// is just below them is beyond them within the fact.
func boundFact(f *fact.Fact) {
	bound := func(what string, raw *json.RawMessage, levels int) {
		switch {
		case len(*raw) == 0 || jsonscan.IsValue(*raw, levels):
			return
		case jsonscan.NestsDeeper(*raw, levels):
			f.Problems = append(f.Problems, fmt.Sprintf("%s: JSON nested deeper than %d levels, kept as text", what, levels))
		case json.Valid(*raw):
			return // with space around it
		default:
			f.Problems = append(f.Problems, what+": invalid JSON, kept as text")
		}
		*raw = quoted(*raw)
	}
	parts := func(all []fact.Part) {
		for i := range all {
			p := &all[i]
			bound("input of tool "+p.Name, &p.Input, maxDepth)
			bound("output of tool "+p.Name, &p.Output, maxDepth)
			bound("part of a message", &p.Data, maxDepth)
		}
	}
	for i := range f.Input {
		parts(f.Input[i].Parts)
	}
	parts(f.Output)
	if t := f.Tool; t != nil {
		bound("input of tool "+t.Name, &t.Input, maxDepth)
		bound("output of tool "+t.Name, &t.Output, maxDepth)
	}
	if f.Usage != nil {
		bound("usage", &f.Usage.Raw, maxDepth)
	}
	if f.CostUSD != nil && *f.CostUSD < 0 {
		f.Problems = append(f.Problems, "cost: negative, and left out")
		f.CostUSD = nil
	}
	if a := f.SessionAttrs; a != nil && (TooDeep(a.Rules) || len(a.Rules) > 0 && !json.Valid(a.Rules)) {
		f.Problems = append(f.Problems, "permission rules: nested too deep or invalid, and left out")
		a.Rules = nil
	}
	// It must stay an object, which is a level around its values.
	f.Extra = eachMember(f.Extra, func(m *member) { bound(m.name, &m.value, maxDepth-1) })
	if !json.Valid(f.Extra) {
		f.Extra = nil
	}
	if catalog := json.RawMessage(f.ToolCatalog); TooDeep(catalog) {
		bound("tool catalog", &catalog, maxDepth)
		f.ToolCatalog = string(catalog)
	}
}
