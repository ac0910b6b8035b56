package ingest

import (
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// boundFact keeps JSON of a fact that is nested deeper than readers follow as text.
// Every value of a fact comes through here before it is encoded, so that what is
// written can be read: the decoder of JSON ends at 10,000 levels, and a value that
// is just below them is beyond them within the fact.
func boundFact(f *fact.Fact) {
	bound := func(what string, raw *json.RawMessage) {
		if TooDeep(*raw) {
			f.Problems = append(f.Problems, fmt.Sprintf("%s: JSON nested deeper than %d levels, kept as text",
				what, maxDepth))
			*raw = quoted(*raw)
		}
	}
	eachJSON(f, bound)
	if f.CostUSD != nil && *f.CostUSD < 0 {
		f.Problems = append(f.Problems, "cost: negative, and left out")
		f.CostUSD = nil
	}
	if a := f.SessionAttrs; a != nil && TooDeep(a.Rules) {
		f.Problems = append(f.Problems, "permission rules: nested too deep, and left out")
		a.Rules = nil
	}
	if TooDeep(f.Extra) { // it must stay an object
		f.Extra = eachMember(f.Extra, func(m *member) {
			if jsonscan.NestsDeeper(m.value, maxDepth-1) { // the object around it is a level
				f.Problems = append(f.Problems, fmt.Sprintf("%s: JSON nested deeper than %d levels, kept as text", m.name,
					maxDepth-1))
				m.value = quoted(m.value)
			}
		})
	}
	catalog := json.RawMessage(f.ToolCatalog)
	bound("tool catalog", &catalog)
	f.ToolCatalog = string(catalog)
}

// eachJSON calls fn with every value of a fact that may be any JSON.
func eachJSON(f *fact.Fact, fn func(what string, raw *json.RawMessage)) {
	part := func(p *fact.Part) {
		fn("input of tool "+p.Name, &p.Input)
		fn("output of tool "+p.Name, &p.Output)
		fn("part of a message", &p.Data)
	}
	for i := range f.Input {
		for j := range f.Input[i].Parts {
			part(&f.Input[i].Parts[j])
		}
	}
	for i := range f.Output {
		part(&f.Output[i])
	}
	if t := f.Tool; t != nil {
		fn("input of tool "+t.Name, &t.Input)
		fn("output of tool "+t.Name, &t.Output)
	}
	if u := f.Usage; u != nil {
		fn("usage", &u.Raw)
	}
}
