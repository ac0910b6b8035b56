package document

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Diff is what two sessions differ in. Its JSON is a stable format: keys are added, never renamed.
//
// Compared is the content of a session: texts, tool calls, outcomes, system prompts,
// models and tokens. Ids, times, durations and costs are not; of those in texts, see [CompareOptions].
type Diff struct {
	A Compared `json:"a"`
	B Compared `json:"b"`
	// Equal reports that Turns have no changes.
	Equal bool `json:"equal"`
	// First is the first change of content; where only tokens differ, the first of those. Nil when Equal.
	First *Divergence `json:"first_divergence,omitempty"`
	// Turns are the turns of both, aligned, in order.
	Turns []DiffTurn `json:"turns"`
}

// Compared names one of the two sessions.
type Compared struct {
	SessionID string         `json:"session_id"`
	Title     string         `json:"title"`
	Agent     string         `json:"agent"`
	Model     *session.Model `json:"model,omitempty"`
	Turns     int            `json:"turns"`
	CreatedAt int64          `json:"created_at"`
	// ToolCalls, Usage, CostUSD and DurationMS are the session's [Totals]. They are not compared.
	ToolCalls  int            `json:"tool_calls"`
	Usage      *session.Usage `json:"usage,omitempty"`
	CostUSD    *float64       `json:"cost_usd,omitempty"`
	DurationMS *int64         `json:"duration_ms,omitempty"`
	// ForkOf reports that the session is a fork of the other.
	ForkOf bool `json:"fork_of_other,omitempty"`
}

// Divergence names a change and where it is.
type Divergence struct {
	// A and B are the numbers of the turns; 0 where only the other session has it.
	A int `json:"a_turn,omitempty"`
	B int `json:"b_turn,omitempty"`
	Change
}

// DiffTurn is a turn of each session, or one of one of them.
type DiffTurn struct {
	A int `json:"a_turn,omitempty"`
	B int `json:"b_turn,omitempty"`
	// Copied reports that the turns are one: a fork has it from its parent.
	Copied  bool     `json:"copied,omitempty"`
	Changes []Change `json:"changes,omitempty"`
	// Aspects are all that was compared, in order. Changes are those that are not the same.
	Aspects []Aspect `json:"-"`
}

// Aspect is one thing that both turns have, or that differs.
type Aspect struct {
	Change
	// Same reports that A is what both have.
	Same bool
	// Calls are the calls of the two turns that it is about, nil if it is about no call.
	Calls *[2]*ToolCall
}

// Aspects of a turn that may differ, in the order in which they are compared.
const (
	AspectTurn         = "turn" // only one session has the turn
	AspectUser         = "user"
	AspectRewound      = "rewound"
	AspectSystemPrompt = "system_prompt"
	AspectModel        = "model"
	AspectTools        = "tools" // what could be called
	AspectReasoning    = "reasoning"
	AspectCall         = "tool_call" // only one session made the call
	AspectInput        = "tool_input"
	AspectOutcome      = "tool_outcome"
	AspectOutput       = "tool_output"
	AspectAssistant    = "assistant"
	AspectCompaction   = "compaction"
	AspectEnd          = "end"
	AspectUsage        = "usage"
)

// Change is one thing that differs.
type Change struct {
	Aspect string `json:"aspect"`
	// Tool is the name of the call's tool, CallA and CallB are the places of the call among those of the turn, from 1.
	Tool  string `json:"tool,omitempty"`
	CallA int    `json:"a_call,omitempty"`
	CallB int    `json:"b_call,omitempty"`
	// A and B are what the two have; nil is nothing. Values that are JSON are laid out as text.
	A *string `json:"a,omitempty"`
	B *string `json:"b,omitempty"`
	// DigestA and DigestB are those of system prompts. Where the text of one is not stored, A and B are nil.
	DigestA string `json:"a_digest,omitempty"`
	DigestB string `json:"b_digest,omitempty"`
}

// CompareOptions are what counts as a difference. The zero value leaves out noise: what two runs of one task differ in
// whatever the agent does, which is times, ids, temporary paths, ports and durations within texts.
type CompareOptions struct {
	// Exact counts noise.
	Exact bool
	// IgnoreUsage leaves tokens out.
	IgnoreUsage bool
}

// Compare compares two sessions, turn by turn.
//
// Turns are aligned by the user's messages: first those that one session copied from the other, then as many equal ones
// as can be, in order; what is between two such is paired by its place.
func Compare(a, b *Document, o CompareOptions) *Diff {
	d := &Diff{A: compared(a, b), B: compared(b, a), Turns: []DiffTurn{}}
	var usage *Divergence
	byUser := func(t *Turn) string { return o.Key(t.UserText()) }
	for _, pair := range placesOf(align(a.Turns, b.Turns, copied, byUser), true) {
		turnA, turnB := at(a.Turns, pair[0]), at(b.Turns, pair[1])
		td := DiffTurn{A: session.Deref(turnA).Number, B: session.Deref(turnB).Number,
			Copied:  turnA != nil && turnB != nil && copied(turnA) == copied(turnB),
			Aspects: compareTurns(a, b, turnA, turnB, o)}
		for _, as := range td.Aspects {
			first := &d.First
			if as.Aspect == AspectUsage {
				first = &usage
			}
			if !as.Same {
				td.Changes = append(td.Changes, as.Change)
				*first = cmp.Or(*first, &Divergence{A: td.A, B: td.B, Change: as.Change})
			}
		}
		d.Turns = append(d.Turns, td)
	}
	d.First = cmp.Or(d.First, usage)
	d.Equal = d.First == nil
	return d
}

func compared(doc, other *Document) Compared {
	s := &doc.Session
	return Compared{
		SessionID: s.ID, Title: Name(s.Title, s.Opening), Agent: s.Agent, Model: s.Model, Turns: len(doc.Turns),
		CreatedAt: s.CreatedAt,
		ToolCalls: doc.Totals.ToolCalls, Usage: doc.Totals.Usage, CostUSD: doc.Totals.CostUSD,
		DurationMS: doc.Totals.DurationMS,
		ForkOf:     s.Origin != nil && s.Origin.Fork && s.Origin.SessionID == other.Session.ID,
	}
}

// copied is what a turn and its copy have in common and other turns have not.
func copied(t *Turn) string {
	at := int64(0)
	if len(t.Messages) > 0 {
		at = t.Messages[0].CreatedAt
	}
	return strconv.FormatInt(at, 10) + "\x00" + t.UserText()
}

// align finds what two sequences have in common: first by one key, and between that by another.
func align[T any](a, b []T, exact, loose func(T) string) (script []edit) {
	common := func(a, b []T, key func(T) string) []edit { return edits(keys(a, key), keys(b, key)) }
	for _, e := range common(a, b, exact) {
		if e.same {
			script = append(script, e)
			continue
		}
		for _, f := range common(a[e.a0:e.a1], b[e.b0:e.b1], loose) {
			script = append(script, edit{e.a0 + f.a0, e.a0 + f.a1, e.b0 + f.b0, e.b0 + f.b1, f.same})
		}
	}
	return script
}

func keys[T any](all []T, key func(T) string) []string {
	found := make([]string, len(all))
	for i := range all {
		found[i] = key(all[i])
	}
	return found
}

// placesOf are the places of what a script aligns, -1 where one sequence lacks it. What is not the same is paired by its
// place if it is to be, or else follows each other: what is in the first sequence only, then what is in the second only.
func placesOf(script []edit, byPlace bool) (pairs [][2]int) {
	for _, e := range script {
		both := min(e.a1-e.a0, e.b1-e.b0)
		if !e.same && !byPlace {
			both = 0
		}
		for i := range both {
			pairs = append(pairs, [2]int{e.a0 + i, e.b0 + i})
		}
		for i := e.a0 + both; i < e.a1; i++ {
			pairs = append(pairs, [2]int{i, -1})
		}
		for i := e.b0 + both; i < e.b1; i++ {
			pairs = append(pairs, [2]int{-1, i})
		}
	}
	return pairs
}

// at returns an element, nil for the place -1.
func at[T any](all []*T, i int) *T {
	if i < 0 {
		return nil
	}
	return all[i]
}

func compareTurns(tlA, tlB *Document, a, b *Turn, o CompareOptions) []Aspect {
	if b == nil {
		return []Aspect{{Change: Change{Aspect: AspectTurn, A: new(turnSummary(a))}}}
	} else if a == nil {
		return []Aspect{{Change: Change{Aspect: AspectTurn, B: new(turnSummary(b))}}}
	}
	var all []Aspect
	text := func(aspect, inA, inB string) {
		all = append(all, Aspect{Change{Aspect: aspect, A: optional(inA), B: optional(inB)}, o.same(inA, inB), nil})
	}
	text(AspectUser, a.UserText(), b.UserText())
	text(AspectRewound, strconv.FormatBool(a.Hidden), strconv.FormatBool(b.Hidden))
	prompt := promptChange(tlA, tlB, a.SystemPromptDigest, b.SystemPromptDigest)
	all = append(all, Aspect{prompt, prompt.DigestA == prompt.DigestB, nil})
	text(AspectModel, FullModelName(a.Model), FullModelName(b.Model))
	if a.Tools.CatalogDigest != b.Tools.CatalogDigest {
		text(AspectTools, catalogText(a), catalogText(b))
	}
	text(AspectReasoning, a.ReasoningText(), b.ReasoningText())
	all = append(all, compareCalls(a.ToolCalls(), b.ToolCalls(), o)...)
	text(AspectAssistant, a.AnswerText(), b.AnswerText())
	text(AspectCompaction, a.SummaryText(), b.SummaryText())
	text(AspectEnd, endText(a), endText(b))
	if !o.IgnoreUsage {
		text(AspectUsage, phrases.Text("usage", a.Usage), phrases.Text("usage", b.Usage))
	}
	return all
}

// noise matches what differs between two runs, by kind: dates with times of day, times of day, ids (UUIDs, those of
// messages and calls, long hexadecimal numbers), elements of temporary directories, ports of this machine, durations.
var noise = lazy.Regexp(`\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?` +
	`|\b\d\d?:\d\d:\d\d(?:[.,]\d+)?\b` +
	`|\b[Ii][Dd]:? [0-9a-f]{4,}\b` +
	`|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b` +
	`|\b(?:ses|msg|prt|call|toolu|run|req|resp|chatcmpl|per)[_-][0-9A-Za-z]{8,}` +
	`|\b(?:[0-9a-f]*[0-9][0-9a-f]*[a-f][0-9a-f]*|[0-9a-f]*[a-f][0-9a-f]*[0-9][0-9a-f]*|\d{12,})\b` +
	`|(?:/private)?(?:/var/folders/\w+/\w+/T|/var/tmp|/tmp)/[^\s/"'\x60:,)]+` +
	`|\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]):\d+` +
	`|\b\d+(?:\.\d+)?\s?(?:ns|µs|us|ms|s|sec|secs|seconds|m|min|minutes|h)\b(?:\s?\d+(?:\.\d+)?\s?(?:ms|s|m)\b)*`)

// minID is the length from which on a hexadecimal number in a text is an id.
const minID = 7

// Key is what two texts that count as one have in common.
func (o CompareOptions) Key(text string) string {
	if o.Exact {
		return text
	}
	return noise().ReplaceAllStringFunc(text, func(found string) string {
		if len(found) < minID && strings.Trim(found, "0123456789abcdef") == "" {
			return found
		}
		return "\x00"
	})
}

// Value is Key of JSON, of the texts in it as they are.
func (o CompareOptions) Value(raw json.RawMessage) string { return o.Key(o.value(raw)) }

func (o CompareOptions) value(raw json.RawMessage) string {
	if o.Exact {
		return Canonical(raw)
	}
	return Value(json.RawMessage(Canonical(raw)))
}

// same reports that two texts do not differ. Noise is looked for up to the first line that differs, and in no line that
// is very long: the expression takes half a second for a megabyte.
func (o CompareOptions) same(a, b string) bool {
	more := a != b && !o.Exact
	for lineA, lineB, moreB := "", "", false; more; {
		lineA, a, more = strings.Cut(a, "\n")
		lineB, b, moreB = strings.Cut(b, "\n")
		if more != moreB || lineA != lineB && (len(lineA)+len(lineB) > maxLine || o.Key(lineA) != o.Key(lineB)) {
			return false
		}
	}
	return a == b
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// ContextChanges yields each turn but the first with what the model was given otherwise than before: the system prompt,
// and each tool that was added, removed or changed, with its description and schema as the text. A turn that does not
// report the one or the other is passed over.
func (doc *Document) ContextChanges() iter.Seq2[*Turn, []Change] {
	return func(yield func(*Turn, []Change) bool) {
		prompt, catalog := "", ""
		for i, t := range doc.Turns {
			var all []Change
			newPrompt, newCatalog := cmp.Or(t.SystemPromptDigest, prompt), cmp.Or(t.Tools.CatalogDigest, catalog)
			if prompt != "" && newPrompt != prompt {
				all = append(all, promptChange(doc, doc, prompt, newPrompt))
			}
			if catalog != "" && newCatalog != catalog {
				all = append(all, toolChanges(doc.Catalog(catalog), doc.Catalog(newCatalog))...)
			}
			prompt, catalog = newPrompt, newCatalog
			if i > 0 && !yield(t, all) {
				return
			}
		}
	}
}

func promptChange(tlA, tlB *Document, a, b string) Change {
	c := Change{Aspect: AspectSystemPrompt, DigestA: a, DigestB: b}
	bodyA, okA := promptBody(tlA, a)
	bodyB, okB := promptBody(tlB, b)
	if okA && okB {
		c.A, c.B = optional(bodyA), optional(bodyB)
	}
	return c
}

// toolChanges are the tools that two catalogs differ in, or the catalogs if that is not known.
func toolChanges(a, b *ToolCatalog) (all []Change) {
	texts := map[string]*[2]string{}
	for i, c := range []*ToolCatalog{a, b} {
		for _, t := range c.Tools {
			if texts[t.Name] == nil {
				texts[t.Name] = new([2]string)
			}
			text := t.Description + "\n" + Value(json.RawMessage(Canonical(t.InputSchema)))
			texts[t.Name][i] = cmp.Or(strings.TrimSpace(text), "(no description)")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if text := texts[name]; text[0] != text[1] && a.Resolved && b.Resolved {
			all = append(all, Change{Aspect: AspectTools, Tool: name, A: optional(text[0]), B: optional(text[1])})
		}
	}
	if all == nil {
		all = []Change{{Aspect: AspectTools, A: new("catalog " + Short(a.Digest)), B: new("catalog " + Short(b.Digest))}}
	}
	return all
}

// promptBody is the text of a system prompt, if it is known. That of none is empty.
func promptBody(d *Document, digest string) (string, bool) {
	if p := d.Prompt(digest); p != nil {
		return p.Body, p.Resolved
	}
	return "", digest == ""
}

// catalogText is a line for each tool, with the digest, as the tools of two catalogs may have the same names.
func catalogText(t *Turn) string {
	if t.Tools.CatalogDigest == "" {
		return ""
	}
	names := slices.Sorted(slices.Values(t.Tools.Available))
	return strings.Join(append([]string{"catalog " + Short(t.Tools.CatalogDigest)}, names...), "\n")
}

func turnSummary(t *Turn) string {
	lines := []string{t.UserText()}
	for _, c := range t.ToolCalls() {
		lines = append(lines, strings.TrimSpace("▸ "+cmp.Or(c.Name, Unnamed)+"  "+c.Subject())+" · "+c.Outcome())
	}
	return strings.Join(Present(append(lines, t.AnswerText())...), "\n\n")
}

func endText(t *Turn) string {
	return strings.Join(Present(string(t.State), t.StopReason, t.Error), ", ")
}

// compareCalls pairs the calls of two turns in an order that keeps that of both: those with equal inputs first, and
// between them those of one tool by their order.
func compareCalls(a, b []*ToolCall, o CompareOptions) (all []Aspect) {
	withInput := func(c *ToolCall) string { return c.Name + "\x00" + o.Value(c.Input) }
	for _, pair := range placesOf(align(a, b, withInput, func(c *ToolCall) string { return c.Name }), false) {
		calls, about := [2]*ToolCall{at(a, pair[0]), at(b, pair[1])}, Change{CallA: pair[0] + 1, CallB: pair[1] + 1}
		add := func(aspect string, inA, inB *string, same bool) {
			about.Aspect, about.A, about.B = aspect, inA, inB
			all = append(all, Aspect{about, same, &calls})
		}
		about.Tool = cmp.Or(calls[0], calls[1]).Name
		a, b := calls[0], calls[1]
		if a == nil || b == nil {
			add(AspectCall, a.text(), b.text(), false)
			continue
		}
		add(AspectInput, optional(Value(a.Input)), optional(Value(b.Input)), o.same(o.value(a.Input), o.value(b.Input)))
		add(AspectOutcome, optional(a.Outcome()), optional(b.Outcome()), a.Outcome() == b.Outcome())
		add(AspectOutput, optional(cmp.Or(a.Error, Value(a.Output))), optional(cmp.Or(b.Error, Value(b.Output))),
			o.same(a.Error, b.Error) && o.same(o.value(a.Output), o.value(b.Output)))
	}
	return all
}

// text is a call that only one session made, nil if it did not.
func (c *ToolCall) text() *string {
	if c == nil {
		return nil
	}
	return new(strings.TrimSpace(Value(c.Input) + "\n→ " + c.Outcome()))
}

// Canonical is JSON with its keys sorted and without spaces, so that two sources
// that write one value differently agree.
func Canonical(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if len(raw) == 0 || d.Decode(&v) != nil {
		return string(raw)
	}
	var b strings.Builder
	_ = EncodeJSON(&b, "", v) // what was decoded can be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

// Runs cuts the turns into runs of equal ones, copied or not, and single ones that differ. It shares the turns.
func (d *Diff) Runs() [][]DiffTurn {
	return runsOf(d.Turns, func(a, b DiffTurn) bool {
		return len(a.Changes) == 0 && len(b.Changes) == 0 && a.Copied == b.Copied
	})
}

// String reports where the sessions part ways.
func (f *Divergence) String() string { return phrases.Text("divergence", f) }

// Turns names the turn of both sessions.
func (f *Divergence) Turns() string { return TurnPair(f.A, f.B) }

// TurnPair names a turn of both sessions by its numbers; 0 where only the other session has it.
func TurnPair(a, b int) string { return Pair("turn", a, b, " and ") }

// Pair names something that both sessions have, such as a turn or a call, by its number in each: see [TurnPair].
func Pair(what string, a, b int, and string) string {
	return phrases.Text("pair", struct {
		What, And string
		A, B      int
	}{what, and, a, b})
}

// RunLabel names a run of turns that are equal.
func RunLabel(turns []DiffTurn) string {
	run := struct {
		What        string
		First, Last *DiffTurn
	}{First: &turns[0], Last: &turns[len(turns)-1]}
	if len(turns) == 1 {
		run.What = TurnPair(turns[0].A, turns[0].B)
	}
	return phrases.Text("run of turns", run)
}

// aspectLabels name the aspects that have not the name of what they are of.
var aspectLabels = map[string]string{AspectTurn: "only here", AspectCall: "only here", AspectTools: "tools available",
	AspectUsage: "tokens"}

// AspectLabel names an aspect.
func AspectLabel(aspect string) string {
	return cmp.Or(aspectLabels[aspect], strings.ReplaceAll(strings.TrimPrefix(aspect, "tool_"), "_", " "))
}

// Label names in one line what differs.
func (c *Change) Label() string { return phrases.Text("change", c) }

// edit is a run of elements that two sequences have in common, or that are in one of them only.
type edit struct {
	// a0 and a1, b0 and b1 are the ranges of the two sequences. Of a run in common
	// they are of one length; of another one at least is not empty.
	a0, a1, b0, b1 int
	same           bool
}

// maxEdits bounds the work of edits: what differs by more is shown as replaced. Memory grows with its square.
const maxEdits = 1500

// maxLine is how many bytes two lines have together up to which their words are compared.
const maxLine = 128 << 10

// edits finds the shortest script that makes b of a, after Myers, "An O(ND) Difference Algorithm": as many elements as
// can be are kept. Runs in common and others take turns. What a and b begin and end with alike is always kept.
func edits[T comparable](a, b []T) (script []edit) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	atA, atB := 0, 0
	add := func(toA, toB int, same bool) {
		switch n := len(script); {
		case toA == atA && toB == atB:
		case n > 0 && script[n-1].same == same:
			script[n-1].a1, script[n-1].b1 = toA, toB
		default:
			script = append(script, edit{atA, toA, atB, toB, same})
		}
		atA, atB = toA, toB
	}
	add(head, head, true)
	for _, snake := range snakes(a[head:len(a)-tail], b[head:len(b)-tail]) {
		add(head+snake[0], head+snake[1], false)
		add(head+snake[2], head+snake[3], true)
	}
	add(len(a)-tail, len(b)-tail, false)
	add(len(a), len(b), true)
	return script
}

// snakes are the runs that a and b have in common, in order, each as where it begins and
// ends in a and b; some are empty.
func snakes[T comparable](a, b []T) [][4]int {
	limit := min(len(a)+len(b), maxEdits)
	// far[limit+1+k] is how far in a one comes on diagonal k = x-y with d edits; trail keeps what each d began with.
	far := make([]int32, 2*limit+3)
	var trail [][]int32
	from := func(far []int32, d, k int) (diagonal, x int) { // where a step to diagonal k begins, and ends
		if k == -d || k != d && far[k-1+d+1] < far[k+1+d+1] {
			return k + 1, int(far[k+1+d+1])
		}
		return k - 1, int(far[k-1+d+1]) + 1
	}
	for d := 0; d <= limit; d++ {
		before := slices.Clone(far[limit-d : limit+3+d])
		trail = append(trail, before)
		for k := -d; k <= d; k += 2 {
			_, x := from(before, d, k)
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			far[limit+1+k] = int32(x)
			if x >= len(a) && x-k >= len(b) {
				return walkBack(trail, from, x, x-k)
			}
		}
	}
	return nil
}

// walkBack follows the trail of snakes from the ends of both sequences.
func walkBack(trail [][]int32, from func([]int32, int, int) (int, int), x, y int) (snakes [][4]int) {
	for d := len(trail) - 1; d > 0; d-- {
		diagonal, begin := from(trail[d], d, x-y)
		snakes = append(snakes, [4]int{begin, begin - (x - y), x, y})
		x = int(trail[d][diagonal+d+1])
		y = x - diagonal
	}
	slices.Reverse(snakes)
	return append([][4]int{{0, 0, x, y}}, snakes...)
}

// word matches a word, a run of spaces, or a single other character, so that all matches together are the text.
var word = lazy.Regexp(`(?s)[\pL\p{Nd}\pM_]+|[\s\pZ\x{85}]+|.`)

// DiffRow is a row of two texts side by side.
type DiffRow struct {
	// A and B are the line in pieces, which make it up; nil where only the other text has the line.
	A, B []Piece
	// Same reports that the two are one.
	Same bool
}

// Piece is a part of a line.
type Piece struct {
	Text string
	// Differs reports that the other text has something else in its place or, in the context of a hit, that it is what
	// was searched for.
	Differs bool
}

// Pieces are the context of a hit.
func Pieces(h *store.Hit) (all []Piece) {
	at := 0
	for _, m := range h.Marks {
		if m[0] < at || m[1] < m[0] || m[1] > len(h.Context) {
			continue
		}
		all = append(all, Piece{h.Context[at:m[0]], false}, Piece{h.Context[m[0]:m[1]], true})
		at = m[1]
	}
	return append(all, Piece{h.Context[at:], false})
}

// DiffTexts lays two texts beside each other, line by line. As many lines as can be are kept; in lines that replace
// each other the words that differ are marked, or the whole line where next to nothing is alike. Rows of one kind that
// follow each other are a run: of those that differ, the lines that have a partner come first.
//
// It sanitizes nothing. Two texts that differ in the newline at their end alone have no row that differs.
func DiffTexts(a, b string) []DiffRow {
	linesA, linesB := splitLines(a), splitLines(b)
	var rows []DiffRow
	for _, e := range edits(linesA, linesB) {
		for i := range max(e.a1-e.a0, e.b1-e.b0) {
			row := DiffRow{Same: e.same}
			if e.a0+i < e.a1 {
				row.A = []Piece{{linesA[e.a0+i], !e.same}}
			}
			if e.b0+i < e.b1 {
				row.B = []Piece{{linesB[e.b0+i], !e.same}}
			}
			if row.A != nil && row.B != nil && !e.same {
				row.A, row.B = comparePieces(row.A[0].Text, row.B[0].Text)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// Hunk is a run of rows that all differ, or are all the same.
type Hunk struct {
	Rows []DiffRow
	Same bool
	// Apart marks rows that are the same and not beside a difference.
	Apart bool
}

// Hunks cuts rows into hunks. Of rows that are the same, context of them are kept
// beside a difference; the others are a hunk apart, if they are at least so many.
func Hunks(rows []DiffRow, context, least int) (hunks []Hunk) {
	add := func(rows []DiffRow, apart bool) {
		if len(rows) > 0 {
			hunks = append(hunks, Hunk{rows, rows[0].Same, apart})
		}
	}
	runs := runsOf(rows, func(a, b DiffRow) bool { return a.Same == b.Same })
	for i, run := range runs {
		before, after := context, context
		if i == 0 {
			before = 0
		}
		if i == len(runs)-1 {
			after = 0
		}
		if !run[0].Same || len(run)-before-after < least {
			before, after = len(run), 0
		}
		add(run[:before], false)
		add(run[before:len(run)-after], true)
		add(run[len(run)-after:], false)
	}
	return hunks
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// comparePieces marks what differs in two lines, unless next to nothing is alike, or the lines are very long.
func comparePieces(a, b string) (inA, inB []Piece) {
	if len(a)+len(b) > maxLine {
		return []Piece{{a, true}}, []Piece{{b, true}}
	}
	wordsA, wordsB := word().FindAllString(a, -1), word().FindAllString(b, -1)
	script := edits(wordsA, wordsB)
	alike := 0
	for _, e := range script {
		if e.same {
			alike += len(strings.TrimSpace(strings.Join(wordsA[e.a0:e.a1], "")))
		}
	}
	if alike*4 < min(len(a), len(b)) {
		return []Piece{{a, true}}, []Piece{{b, true}}
	}
	piece := func(words []string, differs bool) Piece { return Piece{strings.Join(words, ""), differs} }
	for _, e := range script {
		inA, inB = append(inA, piece(wordsA[e.a0:e.a1], !e.same)), append(inB, piece(wordsB[e.b0:e.b1], !e.same))
	}
	return inA, inB
}
