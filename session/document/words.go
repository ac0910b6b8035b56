package document

import (
	"cmp"
	_ "embed"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Messages yields the messages of all turns, each with its turn, in order.
func (doc *Document) Messages() iter.Seq2[*Turn, *Message] {
	return func(yield func(*Turn, *Message) bool) {
		for _, t := range doc.Turns {
			for _, m := range t.Messages {
				if !yield(t, m) {
					return
				}
			}
		}
	}
}

// ToolCalls yields the tool calls of the message, each with its part.
func (m *Message) ToolCalls() iter.Seq2[*Part, *ToolCall] {
	return func(yield func(*Part, *ToolCall) bool) {
		for _, p := range m.Parts {
			if p.Tool != nil && !yield(p, p.Tool) {
				return
			}
		}
	}
}

// FindPart returns a part of one of the messages, by their ids; nil if there is none.
func FindPart(messages []*Message, message, part string) (*Message, *Part) {
	m := find(messages, func(m *Message) bool { return m.ID == message })
	if m == nil {
		return nil, nil
	}
	return m, find(m.Parts, func(p *Part) bool { return p.ID == part })
}

// ToolCalls yields the tool calls of all turns.
func (doc *Document) ToolCalls() iter.Seq[*ToolCall] {
	return func(yield func(*ToolCall) bool) {
		for _, m := range doc.Messages() {
			for _, c := range m.ToolCalls() {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// OtherDecisions are the decisions that are about no call of the document.
func (doc *Document) OtherDecisions() []Decision {
	reported := map[string]bool{}
	for c := range doc.ToolCalls() {
		for i := range c.Decisions {
			reported[c.Decisions[i].ID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(doc.Decisions), func(x Decision) bool { return reported[x.ID] })
}

// Failures reports how many of the calls failed or were denied, or is empty.
func (t *Totals) Failures() string { return phrases.Text("failures", t) }

// Gaps reports what is missing before the turn.
func (t *Turn) Gaps() []string { return phrases.Facts("gaps", t) }

// Text reports how many turns never arrived.
func (m *MissingTurns) Text() string { return phrases.Text("missing turns", m) }

// DecisionText reports what a rule decided, what a human replied, and what came of it.
func DecisionText(d *Decision) (text string, allowed bool) {
	// What follows from the rule or the reply need not be printed.
	follows := map[string]string{"allow": "allowed", "deny": "denied", "once": "allowed", "always": "allowed",
		"reject": "denied"}
	shown := *d
	if follows[cmp.Or(d.Reply, d.Action)] == d.Outcome {
		shown.Outcome = ""
	}
	return phrases.Text("decision", &shown), d.Outcome == "allowed" || d.Outcome == "" && d.Action == "allow"
}

// ApprovalText is what a human answered about a call, or empty where no answer is reported.
func ApprovalText(a *session.Approval) string {
	if a == nil || a.Approved == nil {
		return ""
	}
	answer := map[bool]string{true: "approved", false: "rejected"}[*a.Approved]
	return strings.Join(Present(answer, a.Reason), ": ")
}

// UsageRow is a row of the table of tokens. Its Label is not sanitized.
type UsageRow struct {
	Label string
	// Number is that of the row's turn, 0 of other rows.
	Number                    int
	Usage                     *session.Usage
	CostUSD, EstimatedCostUSD *float64
	// Unpriced reports that the costs are not all: see [Document.Estimate].
	Unpriced bool
	// Aside marks what is no part of the total, or was rewound.
	Aside bool
}

// UsageRows are what the turns and compactions used, and the sums of that, of which the first is the total.
func (doc *Document) UsageRows() (rows, sums []UsageRow) {
	for _, t := range doc.Turns {
		var marks []string
		if t.Hidden {
			marks = append(marks, "rewound")
		}
		if t.Copied() {
			marks = append(marks, "copied")
		}
		label := ModelName(t.Model)
		if len(marks) > 0 {
			label = "(" + strings.Join(marks, ", ") + ")"
		}
		spoke := slices.ContainsFunc(t.Messages, (*Message).answers)
		if spoke || t.Usage != nil {
			rows = append(rows, UsageRow{
				label, t.Number, t.Usage, t.CostUSD, t.EstimatedCostUSD, t.Unpriced, len(marks) > 0,
			})
		}
		for _, m := range t.Messages {
			if m.Marker {
				rows = append(rows, UsageRow{"compaction", 0, m.Usage, m.CostUSD, m.EstimatedCostUSD, false, true})
			}
		}
	}
	tot := &doc.Totals
	label := "total"
	if len(doc.Turns) < tot.Turns {
		label = "session" // the rows are one turn's
	}
	sums = []UsageRow{{label, 0, tot.Usage, tot.CostUSD, tot.EstimatedCostUSD, tot.Unpriced, false}}
	if tot.CopiedUsage != nil {
		sums = append(sums, UsageRow{Label: "copied", Usage: tot.CopiedUsage, Aside: true})
	}
	if tot.Usage == nil && tot.Context != (session.Usage{}) || tot.Usage != nil && *tot.Usage != tot.Context {
		sums = append(sums, UsageRow{Label: "context (sum)", Usage: &tot.Context, Aside: true})
	}
	return rows, sums
}

// Estimate asks price for the cost of the messages that state usage and no cost, and fills in EstimatedCostUSD of
// these, of their turns and of the totals. What a source stated stays as it is: of a session whose cost is stated as a
// whole nothing is estimated. Compactions do not name their model and are not estimated. What has a message without a
// price is marked as Unpriced.
//
// It is for a document as [Build] returns it, once. With a nil price it estimates nothing.
func (doc *Document) Estimate(price store.Price) {
	if doc.costOfWhole || price == nil {
		return
	}
	unpriced := map[string]bool{}
	for t, m := range doc.Messages() {
		if m.Role == session.RoleUser || m.Marker || m.CostUSD != nil || m.Usage == nil || m.Usage.Total() == 0 {
			continue
		}
		usd, lacking, ok := price.Message(m.Model, *m.Usage, m.steps, m.ModelCalls)
		if !ok {
			lacking.Variant = ""
			unpriced[FullModelName(&lacking)] = true
			t.Unpriced = true
			doc.Totals.Unpriced = doc.Totals.Unpriced || !m.Copied
			continue
		}
		m.EstimatedCostUSD = &usd
		addNumber(&t.EstimatedCostUSD, &usd)
		if !m.Copied {
			addNumber(&doc.Totals.EstimatedCostUSD, &usd)
		}
	}
	if len(unpriced) > 0 {
		doc.UnpricedModels = slices.Sorted(maps.Keys(unpriced))
	}
}

// UserText is what the user of the turn wrote, with a line for each file. What a
// rewind hid is left out unless it hid the whole turn.
func (t *Turn) UserText() string {
	return turnText(t, func(m *Message) bool { return m.Role == session.RoleUser }, KindText)
}

// AnswerText is the rest of the turn's text: see [Turn.UserText].
func (t *Turn) AnswerText() string {
	return turnText(t, func(m *Message) bool { return m.Role != session.RoleUser }, KindText)
}

// SummaryText is what compactions made of the context, in order.
func (t *Turn) SummaryText() string {
	return turnText(t, func(m *Message) bool { return m.Compaction != nil }, KindCompaction)
}

// ReasoningText is the reasoning of the turn: see [Turn.UserText].
func (t *Turn) ReasoningText() string {
	return turnText(t, func(m *Message) bool { return m.Role != session.RoleUser }, KindReasoning)
}

// turnText joins the texts of one kind in those messages of a turn that are wanted, and files where texts are.
func turnText(t *Turn, wanted func(*Message) bool, kind Kind) string {
	var all []string
	for _, m := range t.Messages {
		if !wanted(m) || m.HiddenAt != nil && !t.Hidden {
			continue
		}
		for _, p := range m.Parts {
			switch {
			case p.Kind == kind && p.Text != "":
				all = append(all, p.Text)
			case p.Kind == KindFile && kind == KindText && p.File != nil:
				all = append(all, "["+strings.TrimSpace(p.File.Name+" "+p.File.MediaType)+"]")
			}
		}
		if m.Compaction != nil && kind == KindCompaction {
			all = append(all, m.Compaction.Summary)
		}
	}
	return strings.Join(all, "\n\n")
}

// ToolCalls are the calls of the turn, in order, without those that a rewind hid
// unless it hid the whole turn. They are what [Change] counts.
func (t *Turn) ToolCalls() []*ToolCall {
	var calls []*ToolCall
	for _, m := range t.Messages {
		if m.HiddenAt == nil || t.Hidden {
			for _, c := range m.ToolCalls() {
				calls = append(calls, c)
			}
		}
	}
	return calls
}

// Phrases are templates of what is put into words, in a file of their own. See [NewPhrases].
type Phrases struct{ templates func() *template.Template }

// NewPhrases returns phrases, which have [Functions] and others. They are parsed when the first is asked for.
func NewPhrases(text string, others template.FuncMap) Phrases {
	return Phrases{sync.OnceValue(func() *template.Template {
		return template.Must(template.New("").Funcs(Functions()).Funcs(others).Parse(text))
	})}
}

// Functions are for numbers, names and texts from outside in templates. Of these, line and oneline keep a fact in its
// line.
func Functions() map[string]any {
	number := func(n any) int64 { return reflect.Indirect(reflect.ValueOf(n)).Int() }
	return map[string]any{
		"line": Line, "oneline": OneLine, "flat": Flat, "named": Name, "plain": Sanitize, "capital": Capital, "short": Short,
		"head":  Head,
		"model": FullModelName, "name": ModelName, "tokens": Tokens, "cost": Cost, "spent": Spent, "turns": Turns,
		"aspect":   AspectLabel,
		"join":     func(all []string) string { return Join(all...) },
		"tool":     func(name string) string { return cmp.Or(OneLine(name), Unnamed) },
		"words":    func(a Activity) string { return strings.ReplaceAll(string(a), "_", " ") },
		"plus":     func(a, b any) int64 { return number(a) + number(b) },
		"minus":    func(a, b any) int64 { return number(a) - number(b) },
		"known":    func(list []string) bool { return list != nil },
		"plural":   func(n any, one string) string { return Plural(int(number(n)), one, one+"s") },
		"count":    func(n any) string { return Count(number(n)) },
		"brief":    func(n any) string { return Brief(number(n)) },
		"bytes":    func(n any) string { return Bytes(number(n)) },
		"ms":       Duration,
		"duration": OptionalDuration,
	}
}

// Text is a phrase about a value.
func (p Phrases) Text(name string, of any) string {
	var b strings.Builder
	if err := p.templates().ExecuteTemplate(&b, name, of); err != nil {
		b.WriteString(err.Error()) // of a phrase that does not fit the type of its value
	}
	return b.String()
}

// Facts are the lines of a phrase that are not empty.
func (p Phrases) Facts(name string, of any) []string {
	lines := strings.Split(p.Text(name, of), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return Present(lines...)
}

// Fields are the lines of a phrase that have a value after a colon.
func (p Phrases) Fields(name string, of any) (all []Field) {
	for _, line := range p.Facts(name, of) {
		if name, value, ok := strings.Cut(line, ": "); ok {
			all = append(all, Field{name, value})
		}
	}
	return all
}

//go:embed words.tmpl
var wordsFile string

var phrases = NewPhrases(wordsFile, nil)

// timed is a value whose phrase has times.
type timed struct {
	Words
	Of any
}

// Times are what a turn spent its time with, in milliseconds, as far as its messages, calls and decisions report it.
// What runs at the same time counts once, and a tool does not run while it waits for a person.
type Times struct {
	// Queue is how long the question waited for its turn, People how long permissions waited for an answer.
	Queue, Model, Tools, People int64
}

// Times returns what the turn spent its time with.
func (t *Turn) Times() (sum Times) {
	var models, people, tools [][2]int64
	question := t.Question()
	for _, m := range t.Messages {
		if question != nil && question.QueuedAt != nil && sum.Queue == 0 && m.Role == session.RoleAssistant {
			sum.Queue = max(0, m.CreatedAt-*question.QueuedAt)
		}
		for _, c := range m.Calls {
			models = append(models, [2]int64{c.StartedAt, c.StartedAt + c.DurationMS})
		}
		for p, c := range m.ToolCalls() {
			if c.DurationMS != nil {
				begin := cmp.Or(c.StartedAt, p.CreatedAt)
				tools = append(tools, [2]int64{begin, begin + *c.DurationMS})
			}
			for _, d := range c.Decisions {
				if d.WaitedMS != nil {
					people = append(people, [2]int64{d.DecidedAt - *d.WaitedMS, d.DecidedAt})
				}
			}
		}
	}
	sum.Model, sum.People = covered(models), covered(people)
	sum.Tools = covered(append(tools, people...)) - sum.People
	return sum
}

// Words are the times that are known.
func (t Times) Words() []string { return phrases.Facts("times", t) }

// covered is the length of what intervals cover.
func covered(all [][2]int64) (sum int64) {
	slices.SortFunc(all, func(x, y [2]int64) int { return cmp.Compare(x[0], y[0]) })
	end := int64(math.MinInt64)
	for _, i := range all {
		if from := max(i[0], end); i[1] > from {
			sum, end = sum+i[1]-from, i[1]
		}
	}
	return sum
}

// Dialects are those of other agents' telemetry that the session is from, in order.
func (doc *Document) Dialects() string {
	known := map[string]bool{}
	for i := range doc.Spans {
		known[doc.Spans[i].Dialect] = true
	}
	delete(known, "")
	delete(known, store.DialectSDK)
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

// Provenance are the marks of what the session's rows do not have from their source as it was, each with the reason.
func (doc *Document) Provenance() []Field { return phrases.Fields("provenance", doc) }

// Provenance are the marks of what the part does not have from its source as it was, each with the reason.
func (p *Part) Provenance() []Field { return phrases.Fields("provenance of a part", p) }
