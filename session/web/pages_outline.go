package web

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	// groupTurns are the turns that a group of the outline leads to, and maxLandmarks how many landmarks it shows when
	// it is folded. groupCalls are the calls of a model in a group of those of a turn that has more than maxCalls.
	groupTurns   = 100
	maxLandmarks = 6
	// allLandmarks is how many all groups show at most: none where there are more groups, which the map has all of.
	allLandmarks = 40
	groupCalls   = 50
	maxCalls     = 150
	// maxFound is how many places of a text an outline leads to.
	maxFound = 300
	// maxLine is the length of the text of an entry, in characters.
	maxLine = 60
	// A map has at most mapBars bars, and none for a session that is shorter than minMap.
	mapBars   = 250
	minMap    = 8
	mapHeight = 28
)

// entry is a line of the outline of a session: a group of turns, a turn, a call of a model or of a tool, or a place
// where a text was found.
type entry struct {
	Kind, Text string
	// Link is the address of what the entry is about, and ID that of the element there.
	Link, ID string
	// Number is that of a turn, 0 of all else.
	Number int
	Marks  []string
	// Facts are a duration, tokens and a cost, as far as they are known. Failed is how many of a group failed.
	Facts   []string
	Failed  int
	Entries []entry
	// More is where the entries are that are not here, "" if all are.
	More string
	Open bool
}

func clipped(text string) string {
	line := document.OneLine(text)
	if all := []rune(line); len(all) > maxLine {
		return string(all[:maxLine-1]) + "…"
	}
	return line
}

// turnGroup is a group of turns, of which the outline leads to some.
type turnGroup struct {
	first, last int
	shown       []int
}

// turnGroups are those of an outline, with one that is open. Others have their landmarks only.
func turnGroups(turns []*document.Turn, open int) (all []turnGroup) {
	most := min(maxLandmarks, allLandmarks*groupTurns/max(len(turns), 1))
	for part := range slices.Chunk(turns, groupTurns) {
		g := turnGroup{first: part[0].Number, last: part[len(part)-1].Number}
		folded := (open < g.first || open > g.last) && len(turns) > groupTurns
		for _, t := range part {
			marks := marks(t)
			if !folded || marks != nil && marks[0] != "rewound" && len(g.shown) < most {
				g.shown = append(g.shown, t.Number)
			}
		}
		all = append(all, g)
	}
	return all
}

// shownOf are the turns that the outline of the groups leads to.
func shownOf(all []turnGroup) (numbers []int) {
	for _, g := range all {
		numbers = append(numbers, g.shown...)
	}
	return numbers
}

// outline leads to the turns of the groups. Those that the page shows, of those that are loaded, have all of their
// calls, and others what failed.
func (v *pages) outline(doc *document.Document, all []turnGroup, loaded, shown []turnData) (entries []entry) {
	base, here := Address("s", doc.Session.ID), make(map[string]bool)
	known := make(map[int]*turnData)
	for _, t := range shown {
		known[t.Number] = &loaded[t.Number-loaded[0].Number]
		for _, m := range t.Messages {
			here[m.ElementID] = true
			for _, b := range m.Blocks {
				here[b.ElementID] = true
			}
		}
	}
	var folded []*document.Turn // turns of which the page shows nothing
	for _, n := range shownOf(all) {
		if known[n] == nil {
			folded = append(folded, doc.Turns[n-1])
		}
	}
	others := v.data(doc, folded, false)
	for _, g := range all {
		of := entry{Kind: "turns", Text: fmt.Sprintf("Turns %d to %d", g.first, g.last),
			Link: fmt.Sprintf("%s?at=%d", base, g.first), More: fmt.Sprintf("%s/outline?from=%d", base, g.first)}
		for _, n := range g.shown {
			var e entry
			if t := known[n]; t != nil {
				e = t.entry()
				e.Entries, e.Open = inGroups(fewer(t.calls(here), e.More), e.More), len(shown) <= 3
				e.Link, e.More = "#"+e.ID, ""
			} else {
				e = others[0].entry()
				for _, step := range failing(others[0].calls(nil)) { // its text is not loaded
					below := step.Entries
					if step.Entries = nil; step.Marks != nil {
						e.Entries = append(e.Entries, step)
					}
					e.Entries = append(e.Entries, below...)
				}
				e.Open, others = e.Entries != nil, others[1:]
			}
			of.Entries = append(of.Entries, e)
		}
		if len(of.Entries) == g.last-g.first+1 {
			of.More, of.Open = "", true
		} else {
			of.Failed = countStops(doc.Turns[g.first-1:g.last], isFailed)
		}
		entries = append(entries, of)
	}
	if len(entries) == 1 {
		return entries[0].Entries
	}
	return entries
}

// entry leads to the turn.
func (t *turnData) entry() entry {
	e := entry{Kind: "turn", Number: t.Number, ID: turnID(t.Number), Marks: marks(t.Turn),
		Text: clipped(cmp.Or(t.UserText(), t.SummaryText(), t.AnswerText())),
		Link: inSession(t.Doc.Session.ID, t.Number),
		Facts: document.Present(document.OptionalDuration(t.DurationMS), brief(t.Usage),
			document.Cost(t.CostUSD, t.EstimatedCostUSD))}
	if slices.ContainsFunc(t.Turn.Messages, func(m *document.Message) bool { return m.Role == session.RoleAssistant }) {
		e.More = fmt.Sprintf("%s?turn=%d", Address("s", t.Doc.Session.ID, "outline"), t.Number)
	}
	return e
}

func brief(u *session.Usage) string {
	if u == nil {
		return ""
	}
	return document.Brief(u.Total())
}

// calls are the calls of models in the turn, each with the tool calls that it requested. The page has the elements here.
func (t *turnData) calls(here map[string]bool) (all []entry) {
	tree := callTree{link: func(id string) string {
		if here[id] {
			return "#" + url.PathEscape(id)
		}
		return Address("s", t.Doc.Session.ID) + toElement(url.Values{"at": {strconv.Itoa(t.Number)}}, id)
	}}
	for i := range t.Messages {
		if m := &t.Messages[i]; m.Role == session.RoleAssistant && m.Compaction == nil {
			tree.message(m)
		}
	}
	for i := range tree.entries {
		tree.entries[i].Text = cmp.Or(tree.entries[i].Text, "call "+strconv.Itoa(i+1))
	}
	return tree.entries
}

// callTree collects the calls of messages.
type callTree struct {
	entries []entry
	link    func(id string) string
	// steps are the calls of the steps of the message that no entry has yet.
	steps [][]document.ModelCall
}

// message adds the calls of a message: each of its steps is a call, and what failed without an answer another one.
func (c *callTree) message(m *document.MessageWords) {
	c.steps, _ = m.StepCalls()
	var step *entry
	thought := ""
	for k := range m.Blocks {
		b := &m.Blocks[k]
		if b.Kind == document.BlockStep {
			step = nil
		}
		if b.Part == nil || b.Kind == document.BlockStep {
			continue
		}
		if step == nil {
			step, thought = c.begin(b.ElementID), ""
		}
		switch b.Kind {
		case document.BlockProse:
			step.Text = cmp.Or(step.Text, clipped(b.Text))
		case document.BlockReasoning:
			thought = cmp.Or(thought, clipped(b.Text))
		case document.BlockTool:
			step.Entries = append(step.Entries, c.tool(b))
		}
		step.Text = cmp.Or(step.Text, thought)
	}
	for len(c.steps) > 0 {
		c.begin(m.ElementID)
	}
	for k, text := range m.Errors {
		if k < len(m.ErrorIDs) {
			c.entries = append(c.entries, entry{Kind: "failure", Text: clipped(text), ID: m.ErrorIDs[k],
				Link: c.link(m.ErrorIDs[k]), Marks: []string{"error"}})
		}
	}
}

// begin adds the calls of the next step, of which all but the last failed. The entry of that is returned.
func (c *callTree) begin(id string) *entry {
	calls := []document.ModelCall{{}}
	if len(c.steps) > 0 {
		calls, c.steps = c.steps[0], c.steps[1:]
	}
	for i := range calls {
		call, e := &calls[i], entry{Kind: "model", ID: id, Link: c.link(id)}
		if call.StartedAt > 0 {
			e.Facts = document.Present(document.Duration(call.DurationMS), brief(call.Usage))
		}
		if call.Failed {
			e.Marks = []string{"failed"}
		}
		if i < len(calls)-1 {
			e.Text = "failed " + document.ModelName(call.Model)
		}
		c.entries = append(c.entries, e)
	}
	return &c.entries[len(c.entries)-1]
}

func (c *callTree) tool(b *document.Block) entry {
	e := entry{Kind: "tool", Text: clipped(b.Title + " " + b.Subject), ID: b.ElementID, Link: c.link(b.ElementID),
		Facts: document.Present(document.OptionalDuration(b.Part.Tool.DurationMS))}
	if b.Outcome != document.OutcomeOK {
		e.Marks = []string{b.Outcome}
	}
	if b.Child != nil {
		e.Kind, e.More = "agent", b.ChildLink+"/outline"
		e.Facts = append(e.Facts, document.Brief(b.Child.TotalTokens))
	}
	return e
}

// isFailed reports whether a mark is of what failed, isFailure whether it is of that or of what was denied.
func isFailed(mark string) bool  { return mark == "error" || mark == "failed" }
func isFailure(mark string) bool { return isFailed(mark) || mark == "denied" }

// isTrouble reports whether a mark is of what failed, was denied or waits.
func isTrouble(mark string) bool { return isFailure(mark) || mark == "waiting" }

// failing are the entries that failed, were denied or wait, and those above them.
func failing(all []entry) (kept []entry) {
	for _, e := range all {
		if e.Entries = failing(e.Entries); e.Entries != nil || slices.ContainsFunc(e.Marks, isTrouble) {
			e.Open = true
			kept = append(kept, e)
		}
	}
	return kept
}

// fewer leaves of the tool calls of a model's answer that has more than maxCalls those that failed, and a link to all.
func fewer(steps []entry, more string) []entry {
	for i := range steps {
		if len(steps[i].Entries) > maxCalls {
			steps[i].Entries, steps[i].More = failing(steps[i].Entries), more
		}
	}
	return steps
}

// inGroups has many calls in groups. One that is folded has what failed, and the address of the others.
func inGroups(all []entry, more string) (parts []entry) {
	if len(all) <= maxCalls {
		return all
	}
	for i := 0; i < len(all); i += groupCalls {
		part := all[i:min(len(all), i+groupCalls)]
		parts = append(parts, entry{Kind: "calls", Text: fmt.Sprintf("calls %d to %d", i+1, i+len(part)), Link: part[0].Link,
			Entries: failing(part), More: fmt.Sprintf("%s&from=%d", more, i+1), Failed: countFailed(part)})
	}
	return parts
}

// countFailed counts the failures among the entries and those below them. A call of a model that failed has an entry
// for its error.
func countFailed(all []entry) (n int) {
	for _, e := range all {
		n += countFailed(e.Entries)
		if e.Kind != "model" && slices.ContainsFunc(e.Marks, isFailed) {
			n++
		}
	}
	return n
}

// outlinePage is a piece of the outline of a session.
type outlinePage struct {
	sessionPage
	Query, Only string
}

// outlineOf answers with the outline of a session, of turns from a number on or of the calls of a turn; or with what of
// the session failed, or has a text.
func (v *pages) outlineOf(w http.ResponseWriter, r *http.Request) error {
	ctx, q := r.Context(), r.URL.Query()
	o, err := v.Sessions.LoadOutline(ctx, pathOf(r, "id"))
	if err != nil {
		return err
	}
	n := len(o.Turns)
	turn, err := turnNumber("turn ", cmp.Or(q.Get("turn"), "0"))
	if err != nil {
		return err
	}
	from, err := turnNumber("from ", cmp.Or(q.Get("from"), "1"))
	if err != nil {
		return err
	}
	p := outlinePage{sessionPage: sessionPage{Tab: "turns"}, Query: q.Get("q"), Only: q.Get("only")}
	all := turnGroups(o.Turns, max(1, from))
	switch {
	case p.Query != "":
		hits, _, err := v.Sessions.Find(ctx, store.SearchQuery{Text: p.Query, Session: pathOf(r, "id")}, nil, maxFound,
			maxPageSearch)
		if err != nil {
			return err
		}
		p.Outline = found(hits, p.Query)
	case p.Only != "":
		all = []turnGroup{{first: 1, last: n}}
		for _, t := range o.Turns {
			if slices.ContainsFunc(marks(t), isTrouble) {
				all[0].shown = append(all[0].shown, t.Number)
			}
		}
	case q.Get("from") != "" && turn == 0:
		all = slices.DeleteFunc(all, func(g turnGroup) bool { return from < g.first || from > g.last })
	case turn == 0 && n == 1:
		turn = 1
	}
	if turn != 0 {
		if err = o.Load(ctx, turn, turn); err != nil {
			return err
		}
	}
	if err := o.LoadQuestions(ctx, shownOf(all)); err != nil {
		return err
	}
	doc := o.Document()
	switch p.Doc = doc; {
	case turn != 0:
		p.Of = turn
		t := v.data(doc, doc.Turns[turn-1:turn], true)[0]
		if p.Outline = t.calls(nil); q.Get("from") == "" {
			p.Outline = inGroups(p.Outline, t.entry().More)
		} else {
			p.Outline = p.Outline[max(0, min(from-1, len(p.Outline))):min(len(p.Outline), max(0, from-1+groupCalls))]
		}
	case p.Outline == nil && p.Query == "":
		p.Outline = v.outline(doc, all, nil, nil)
	}
	return v.show(w, r, page{Title: "Outline · " + title(doc)}, "outline-page", p)
}

// found leads to the places of a text, by turn.
func found(hits []store.Hit, text string) (all []entry) {
	hits = session.SortedRows(hits, func(x, y *store.Hit) int { return cmp.Compare(x.Turn, y.Turn) })
	for i := range hits {
		h := &hits[i]
		if h.Turn == 0 {
			continue
		}
		link := func(id string) string {
			of := url.Values{"at": {strconv.Itoa(h.Turn)}, "find": {text}}
			return Address("s", h.SessionID) + toElement(of, id)
		}
		if len(all) == 0 || all[len(all)-1].Number != h.Turn {
			id := turnID(h.Turn)
			all = append(all, entry{Kind: "turn", Number: h.Turn, ID: id, Open: true, Link: link(id)})
		}
		id := messageID(h.MessageID)
		if h.PartID != "" {
			id = partID(h.PartID)
		}
		var around strings.Builder
		for _, piece := range document.Pieces(h) {
			around.WriteString(piece.Text)
		}
		of := &all[len(all)-1]
		of.Entries = append(of.Entries, entry{Kind: "hit", ID: id, Link: link(id),
			Text: clipped(cmp.Or(h.Tool, h.Field) + ": " + around.String())})
	}
	return all
}

// mapBar is a few turns in the map of a session: its place and size, in a picture that is mapHeight high and has a unit
// of width for each turn.
type mapBar struct {
	First, Last, Height int
	// Bad is how much of Height is of turns in which something failed or was denied.
	Bad int
	// Class is the most severe of the other marks of its turns, and Marks are all.
	Class, Marks string
}

// Count is the number of turns of the bar.
func (b mapBar) Count() int { return b.Last - b.First + 1 }

// minimap draws how many tokens turns used, or how long they took, and where something is remarkable.
func minimap(turns []*document.Turn, byTime bool) (bars []mapBar) {
	if len(turns) < minMap {
		return nil
	}
	most, used, bad := 1.0, []float64{}, []float64{}
	for part := range slices.Chunk(turns, (len(turns)+mapBars-1)/mapBars) {
		size, failed, seen := int64(0), 0.0, make(map[string]bool)
		for _, t := range part {
			switch {
			case byTime:
				size = max(size, session.Deref(t.DurationMS))
			case t.Usage != nil:
				size = max(size, t.Usage.Total())
			}
			all := marks(t)
			if slices.ContainsFunc(all, isFailure) {
				failed++
			}
			for _, mark := range all {
				seen[mark] = true
			}
		}
		all := bySeverity(seen)
		b := mapBar{First: part[0].Number, Last: part[len(part)-1].Number, Marks: strings.Join(all, ", ")}
		if len(all) > 0 && !isFailure(all[len(all)-1]) {
			b.Class = all[len(all)-1]
		}
		bars, used = append(bars, b), append(used, math.Sqrt(float64(size))) // short turns are seen beside long ones
		bad = append(bad, failed/float64(len(part)))
		most = max(most, used[len(used)-1])
	}
	for i := range bars {
		bars[i].Height = 4 + int(used[i]/most*(mapHeight-4))
		bars[i].Bad = int(math.Ceil(bad[i] * float64(bars[i].Height)))
	}
	return bars
}

// bySeverity are the marks that were seen of those that turns can have, the most severe first.
func bySeverity(seen map[string]bool) (all []string) {
	for _, mark := range []string{"error", "failed", "denied", "waiting", "compaction", "rewound"} {
		if seen[mark] {
			all = append(all, mark)
		}
	}
	return all
}

// marks are all that is remarkable in a turn, by severity. One that was rewound begins with that.
func marks(t *document.Turn) []string {
	seen := map[string]bool{"error": t.State == document.StateError, "waiting": t.State == document.StateWaiting}
	for _, s := range stopsOf(t) {
		seen[s.mark] = true
	}
	all := bySeverity(seen)
	if t.Hidden {
		all = slices.Insert(all, 0, "rewound")
	}
	return all
}

// stop is a place of a turn that something remarkable is at: an element of its page.
type stop struct {
	turn     int
	mark, id string
}

// stopsOf are those of a turn, in the order of its page. There is one for each failure and for each denied call, as
// [session.Failures] counts them.
func stopsOf(t *document.Turn) (all []stop) {
	add := func(mark, id string) { all = append(all, stop{t.Number, mark, id}) }
	for _, m := range t.Messages {
		if m.Compaction != nil {
			add("compaction", messageID(m.ID))
		}
		for p, c := range m.ToolCalls() {
			switch {
			case c.Denied:
				add("denied", partID(p.ID))
			case c.Failed():
				add("failed", partID(p.ID))
			case c.State == session.StateApprovalRequested:
				add("waiting", partID(p.ID))
			}
		}
		mark := "failed"
		if m.State == document.StateError {
			mark = "error"
		}
		for i := range m.Failures() {
			id := messageID(m.ID)
			if i < len(m.ModelErrors) || m.Error != "" {
				id = errorID(m, i)
			}
			add(mark, id)
		}
	}
	return all
}

// countStops counts those of the turns with a mark of a kind.
func countStops(turns []*document.Turn, of func(mark string) bool) (n int) {
	for _, t := range turns {
		for _, s := range stopsOf(t) {
			if of(s.mark) {
				n++
			}
		}
	}
	return n
}

// messageID is the id of the element of a message, errorID that of one of its errors, and partID that of a part.
func messageID(id string) string { return "m-" + id }

func errorID(m *document.Message, i int) string { return "e-" + m.ID + "-" + strconv.Itoa(i) }

func partID(id string) string { return "p-" + id }

// waterfallRow is a model call, a tool call or a wait for a person in a turn. X and Width are in thousandths of the turn's
// time.
type waterfallRow struct {
	Kind, Name, Class, Link string
	X, Width                int
	start, DurationMS       int64
	TraceID, SpanID         string
}

// maxWaterfall is how many calls a waterfall has: of more it has those that took longest.
const maxWaterfall = 40

// waterfall has the calls of a turn in order of their start, as far as times are known.
func waterfall(t *document.Turn) (rows []waterfallRow) {
	for _, m := range t.Messages {
		for _, c := range m.Calls {
			row := waterfallRow{Kind: "model", Name: cmp.Or(document.ModelName(c.Model), "model call"),
				start: c.StartedAt, DurationMS: c.DurationMS, TraceID: c.TraceID, SpanID: c.SpanID}
			if c.Failed {
				row.Class = document.OutcomeFailed
			}
			rows = append(rows, row)
		}
		for p, c := range m.ToolCalls() {
			name, link := document.Line(cmp.Or(c.Name, document.Unnamed)), "#"+partID(p.ID)
			for _, d := range c.Decisions {
				if ms := session.Deref(d.WaitedMS); ms > 0 {
					rows = append(rows, waterfallRow{Kind: "people", Name: name + " waits", Link: link,
						start: d.DecidedAt - ms, DurationMS: ms})
				}
			}
			if c.DurationMS != nil {
				rows = append(rows, waterfallRow{Kind: "tool", Name: name, Class: c.Outcome(), Link: link,
					start: cmp.Or(c.StartedAt, p.CreatedAt), DurationMS: *c.DurationMS})
			}
		}
	}
	if len(rows) < 2 {
		return nil
	}
	rows = session.SortedRows(rows, func(x, y *waterfallRow) int { return cmp.Compare(x.start, y.start) })
	begin, end := rows[0].start, int64(0)
	for i := range rows {
		end = max(end, rows[i].start+rows[i].DurationMS)
	}
	if len(rows) > maxWaterfall {
		rows = session.SortedRows(rows, func(x, y *waterfallRow) int { return cmp.Compare(y.DurationMS, x.DurationMS) })
		rows = rows[:maxWaterfall]
		rows = session.SortedRows(rows, func(x, y *waterfallRow) int { return cmp.Compare(x.start, y.start) })
	}
	span := max(1, end-begin)
	for i := range rows {
		rows[i].X = int((rows[i].start - begin) * 1000 / span)
		rows[i].Width = max(4, int(rows[i].DurationMS*1000/span))
	}
	return rows
}
