package ingest

import (
	"encoding/json"
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/internal/nesting"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// A value that is nested too deep is cut before anything recurses into it. Telemetry
// belongs to the caller, who may hand it to others, so what is cut is a copy. Nearly
// nothing is: the common case costs a look at the types of the attributes.

// boundSpan returns a span without values that are nested too deep, and the keys of
// those that were cut.
func boundSpan(s ptrace.Span) (_ ptrace.Span, cut []string) {
	deep := nesting.Deep(s.Attributes())
	for _, e := range s.Events().All() {
		deep = deep || nesting.Deep(e.Attributes())
	}
	if !deep {
		return s, nil // links are not read
	}
	c := ptrace.NewSpan()
	s.CopyTo(c)
	cut = nesting.Map(c.Attributes())
	for _, e := range c.Events().All() {
		cut = append(cut, nesting.Map(e.Attributes())...)
	}
	return c, cut
}

// boundRecord does the same with a log record.
func boundRecord(r plog.LogRecord) (_ plog.LogRecord, cut []string) {
	if !nesting.Deep(r.Attributes()) && !nesting.DeepValue(r.Body()) {
		return r, nil
	}
	c := plog.NewLogRecord()
	r.CopyTo(c)
	cut = nesting.Map(c.Attributes())
	if nesting.Value(c.Body()) {
		cut = append(cut, "body")
	}
	return c, cut
}

func boundResource(r pcommon.Resource) pcommon.Resource {
	if !nesting.Deep(r.Attributes()) {
		return r
	}
	c := pcommon.NewResource()
	r.CopyTo(c)
	nesting.Map(c.Attributes())
	return c
}

func boundScope(s pcommon.InstrumentationScope) pcommon.InstrumentationScope {
	if !nesting.Deep(s.Attributes()) {
		return s
	}
	c := pcommon.NewInstrumentationScope()
	s.CopyTo(c)
	nesting.Map(c.Attributes())
	return c
}

// problemDeep notes the values of the span or record at hand that were cut.
func (b *builder) problemDeep(cut []string) {
	for _, key := range cut {
		b.problem(fmt.Sprintf("%s: nested deeper than %d levels, and cut there", key, nesting.MaxDepth))
	}
}

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
