// Package dialect reads the telemetry of agents that were not instrumented with the SDK: each file
// reads what one client or convention emits and gives facts in the terms of package fact. Table
// names them all.
//
// A dialect looks at one span or record at a time, because what belongs to it may come an hour
// later, or never. Package assemble puts the facts together.
package dialect

import (
	"cmp"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Dialect is a row of [Table].
type Dialect struct {
	// Name is stored with everything that was read by the dialect.
	Name string
	// Title is what people call the client or convention.
	Title string

	// Spans reports whether a span is of the dialect, Records whether a log record is. They must be
	// cheap: they see everything that passes, noise included. Nil recognizes nothing.
	Spans   func(*Span) bool
	Records func(*Record) bool

	// ReadSpan and ReadRecord give the facts. Giving none reports that the span or record has no
	// fact of a session.
	ReadSpan   func(*Span, *Emitter)
	ReadRecord func(*Record, *Emitter)

	// Prompts reports that the user's messages are facts of their own.
	Prompts bool

	// PromptFirst reports that the fact of a prompt comes before the span of its turn, which
	// therefore begins nothing.
	PromptFirst bool

	// Threads reports that a sub-agent has a session of its own name in the trace of the session
	// that started it. Its records outside of any trace belong there too.
	Threads bool
}

// Table names every dialect. The first that recognizes a span or record reads it, so clients come
// before the conventions that they build on.
var Table = []Dialect{
	claudeCode,
	codex,
	geminiCLI,
	qwenCode,
	openCode,
	mastra,
	voltAgent,
	adk,
	openInference,
	langSmith,
	openLLMetry,
	aiSDK,
	genkit,
	genAI,
	langfuse,
	generic,
}

// HasThreads reports whether the sub-agents of the dialect have sessions of their own names.
func HasThreads(name string) bool {
	i := slices.IndexFunc(Table, func(d Dialect) bool { return d.Name == name })
	return i >= 0 && Table[i].Threads
}

// OfSpan returns the dialect of a span, or nil.
func OfSpan(s *Span) *Dialect {
	for i := range Table {
		if d := &Table[i]; d.Spans != nil && d.Spans(s) {
			return d
		}
	}
	return nil
}

// OfRecord returns the dialect of a log record, or nil.
func OfRecord(r *Record) *Dialect {
	for i := range Table {
		if d := &Table[i]; d.Records != nil && d.Records(r) {
			return d
		}
	}
	return nil
}

// AttrFamilies state which families of attributes a span or record has: the prefix of a key up to
// its first dot or colon, where it is one that a dialect asks for.
type AttrFamilies uint32

// Families of attributes.
const (
	MarkGenAI         AttrFamilies = 1 << iota // gen_ai.
	MarkAI                                     // ai.
	MarkOpenInference                          // openinference.span.kind
	MarkLLM                                    // llm.
	MarkTraceloop                              // traceloop.
	MarkGenkit                                 // genkit:
	MarkMastra                                 // mastra.
	MarkADK                                    // gcp.vertex.agent.
	MarkMCP                                    // mcp.
	MarkLangSmith                              // langsmith.
	MarkLangfuse                               // langfuse.
	MarkVoltAgent                              // entity. and voltagent.
	MarkOrdinary                               // of a program that is no agent
	MarkOther                                  // none of these
)

var families = byWord(map[AttrFamilies]string{
	MarkGenAI: "gen_ai", MarkAI: "ai", MarkOpenInference: "openinference", MarkLLM: "llm", MarkTraceloop: "traceloop",
	MarkGenkit: "genkit", MarkMastra: "mastra", MarkADK: "gcp", MarkMCP: "mcp", MarkLangSmith: "langsmith",
	MarkLangfuse: "langfuse", MarkVoltAgent: "entity voltagent",
	MarkOrdinary: strings.Join(wordsOf("ordinary")["families"], " "),
})

// Span is a span with its scope and resource. It is read, never changed.
type Span struct {
	ptrace.Span
	Scope    pcommon.InstrumentationScope
	Resource pcommon.Resource
	// AttrFamilies are the families of the span's attributes.
	AttrFamilies AttrFamilies
}

// NewSpan looks at the span's attributes once for all dialects.
func NewSpan(s ptrace.Span, scope pcommon.InstrumentationScope, resource pcommon.Resource) Span {
	return Span{Span: s, Scope: scope, Resource: resource, AttrFamilies: marksOf(s.Attributes())}
}

// Attrs are the span's attributes.
func (s *Span) Attrs() Attrs { return Attrs{s.Attributes()} }

// Has reports whether the span has attributes of any of the families.
func (s *Span) Has(m AttrFamilies) bool { return s.AttrFamilies&m != 0 }

// Record is a log record with its scope and resource. It is read, never changed.
type Record struct {
	plog.LogRecord
	Scope    pcommon.InstrumentationScope
	Resource pcommon.Resource
	// Event is the record's event name: the one of the record, or of the attribute event.name,
	// which wins.
	Event string
}

// NewRecord finds the record's name.
func NewRecord(r plog.LogRecord, scope pcommon.InstrumentationScope, resource pcommon.Resource) Record {
	event := cmp.Or(Attrs{r.Attributes()}.Str("event.name"), r.EventName())
	return Record{LogRecord: r, Scope: scope, Resource: resource, Event: event}
}

// Attrs are the record's attributes.
func (r *Record) Attrs() Attrs { return Attrs{r.Attributes()} }

func marksOf(m pcommon.Map) AttrFamilies {
	var marks AttrFamilies
	for key := range m.All() {
		if known := families[family(key)]; known != 0 {
			marks |= known
		} else {
			marks |= MarkOther
		}
	}
	return marks
}

// Emitter collects what a span or record reports.
type Emitter struct {
	All []fact.Fact
	// base is what every fact of the span or record at hand shares.
	base fact.Fact
}

// Add returns a new fact, to be filled in. It has the identity, times, status and session of the
// span or record at hand. It is valid until the next call.
func (f *Emitter) Add(kind fact.Kind) *fact.Fact {
	f.All = append(f.All, f.base)
	added := &f.All[len(f.All)-1]
	added.Kind = kind
	return added
}

// Problem notes what is wrong with the span or record at hand, on every fact that is added after
// it.
func (f *Emitter) Problem(problems ...string) {
	f.base.Problems = slices.Concat(f.base.Problems, problems)
}
