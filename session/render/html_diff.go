package render

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// HTMLDiff writes what two sessions differ in: d is [document.Compare] of a and b. The first divergence is at the top
// and leads to its place; turns that are equal, or differ in their tokens alone, are folded. On a narrow screen the
// sessions stand below each other. The same input gives the same bytes.
func HTMLDiff(w io.Writer, d *document.Diff, a, b *document.Document, o document.Words) error {
	return encodeDiff(w, "diff", d, a, b, o)
}

// Comparison writes the main element of that page, for a page that has the [Style].
func Comparison(w io.Writer, d *document.Diff, a, b *document.Document, o document.Words) error {
	return encodeDiff(w, "comparison", d, a, b, o)
}

func encodeDiff(w io.Writer, template string, d *document.Diff, a, b *document.Document, o document.Words) error {
	c := comparer{o: o, d: d, a: a, b: b, shown: map[[2]string]string{}}
	if err := htmlTemplates.ExecuteTemplate(w, template, c.page()); err != nil {
		return fmt.Errorf("write diff of %s and %s: %w", d.A.SessionID, d.B.SessionID, err)
	}
	return nil
}

// diffPage is what is in the page. Strings are sanitized.
type diffPage struct {
	Title   string
	Equal   bool
	Verdict string
	Link    string    // to the first divergence
	Excerpt []diffRun // of the first divergence
	// A and B name the sessions over their columns, with a detail.
	A, B  document.Field
	Facts []pairFact
	Runs  []turnRun
}

// pairFact is a fact of both sessions.
type pairFact struct{ Name, A, B string }

// turnRun is a run of turns that are equal, which are folded under Label, or one turn that differs.
type turnRun struct {
	Label string
	Turns []*diffTurn
}

// diffTurn is a turn. Class is "alike", "differs" or "tokens" if only these differ, and Name and Title are of the link
// that leads to it.
type diffTurn struct {
	ID, Name, Title, Class, Label, Count string
	// A or B is the turn that only one session has, and A that of both that are alike.
	A, B  *document.TurnWords
	Items []diffItem
}

// diffItem is an aspect of a turn: one that differs when it has an ID.
type diffItem struct {
	ID, Class, Label string
	// Note stands for what is not shown; Link is where to.
	Note, Link string
	// Same is what both have, folded unless Open.
	Same *document.Text
	Open bool
	// Values are what the two have, in a line each.
	Values *[2]string
	Text   []diffRun
	// More is a text behind a fold.
	MoreLabel string
	More      []diffRun
	Usage     [][]string
	// Title, Subject, Place, A, B and Items are of a call of one or of both. There are no items if it is the same.
	Title, Subject, Place string
	A, B                  *document.Block
	Items                 []diffItem
	// Apart are calls that follow each other and that only one of the two made.
	Apart []diffItem
}

// comparer puts a diff into words.
type comparer struct {
	o    document.Words
	d    *document.Diff
	a, b *document.Document
	// shown are prompts and catalogs that were compared, by their digests, and where.
	shown map[[2]string]string
	first string // the id of the first divergence
	start []diffRun
}

func (c *comparer) page() *diffPage {
	p := &diffPage{Equal: c.d.Equal, Facts: c.facts()}
	p.A, p.B = c.columns()
	p.Title = p.A.Name + " ⇄ " + p.B.Name
	for _, run := range c.d.Runs() {
		of := turnRun{}
		if len(run[0].Changes) == 0 {
			of.Label = document.Capital(document.RunLabel(run))
		}
		for i := range run {
			of.Turns = append(of.Turns, c.turn(&run[i]))
		}
		p.Runs = append(p.Runs, of)
	}
	p.Verdict = "The content does not differ."
	if f := c.d.First; f != nil {
		p.Verdict = document.Capital(f.String())
		p.Link, p.Excerpt = "#"+c.first, c.start
	}
	return p
}

func turnID(t *document.DiffTurn) string {
	if t.A == 0 {
		return "turn-b" + strconv.Itoa(t.B)
	}
	return "turn-" + strconv.Itoa(t.A)
}

func turnName(t *document.DiffTurn) string {
	a, b := strconv.Itoa(t.A), strconv.Itoa(t.B)
	switch {
	case t.A == 0:
		return "B" + b
	case t.B == 0:
		return "A" + a
	case t.A == t.B:
		return a
	}
	return a + "/" + b
}

// columns name the two by what distinguishes them: their titles, else their models, else their ids.
func (c *comparer) columns() (a, b document.Field) {
	name := func(s *document.Compared) []string {
		return []string{document.Line(s.Title), document.FullModelName(s.Model), document.Line(s.SessionID), ""}
	}
	inA, inB, at := name(&c.d.A), name(&c.d.B), 0
	for at < 2 && (inA[at] == inB[at] || inA[at] == "" || inB[at] == "") {
		at++
	}
	return document.Field{Name: inA[at], Value: inA[at+1]}, document.Field{Name: inB[at], Value: inB[at+1]}
}

// facts are the heads of the two beside each other.
func (c *comparer) facts() []pairFact {
	var names []string
	head := func(d *document.Document) map[string]string {
		all := map[string]string{"Title": document.Line(d.Session.Title)}
		for _, f := range c.o.Head(d) {
			all[f.Name] = f.Value
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
		return all
	}
	a, b := head(c.a), head(c.b)
	var facts []pairFact
	for _, name := range append([]string{"Title"}, names...) {
		if a[name] != "" || b[name] != "" {
			facts = append(facts, pairFact{name, cmp.Or(a[name], "–"), cmp.Or(b[name], "–")})
		}
	}
	return facts
}

func (c *comparer) turn(td *document.DiffTurn) *diffTurn {
	t := &diffTurn{
		ID: turnID(td), Name: turnName(td), Class: "differs", Label: document.Capital(document.TurnPair(td.A, td.B)),
		Count: document.Plural(len(td.Changes), "difference", "differences"),
	}
	defer func() { t.Title = cmp.Or(t.Title, t.Label+": "+t.Count) }()
	a, b := c.a.Turn(td.A), c.b.Turn(td.B)
	switch {
	case len(td.Changes) == 0:
		t.A, t.Class, t.Title = new(c.o.Turn(a)), "alike", document.RunLabel([]document.DiffTurn{*td})
		return t
	case b == nil:
		t.A, t.Count = new(c.o.Turn(a)), "only in A"
	case a == nil:
		t.B, t.Count = new(c.o.Turn(b)), "only in B"
	}
	if a == nil || b == nil {
		c.seen(td, &td.Changes[0], t.ID)
		return t
	}
	if !slices.ContainsFunc(td.Changes, func(ch document.Change) bool { return ch.Aspect != document.AspectUsage }) {
		t.Class, t.Count = "tokens", "only tokens differ"
	}
	count := 0
	for rest := td.Aspects; len(rest) > 0; {
		n := 1 // the aspects of a call are one item
		for rest[0].Calls != nil && n < len(rest) && rest[n].Calls == rest[0].Calls {
			n++
		}
		aspects := rest[:n]
		rest = rest[n:]
		var it *diffItem
		if aspects[0].Calls != nil {
			it = c.call(aspects)
		} else if it = c.aspect(&aspects[0], t, a, b); it == nil {
			continue
		}
		count++
		for i := range aspects {
			if as := &aspects[i]; !as.Same {
				it.ID = t.ID + "-" + strconv.Itoa(count)
				c.seen(td, &as.Change, it.ID)
			}
		}
		if (it.A == nil) == (it.B == nil) {
			t.Items = append(t.Items, *it)
			continue
		}
		if n := len(t.Items); n == 0 || t.Items[n-1].Apart == nil {
			t.Items = append(t.Items, diffItem{})
		}
		last := &t.Items[len(t.Items)-1]
		last.Apart = append(last.Apart, *it)
	}
	return t
}

// aspect is an aspect of both turns that is about no call, nil if there is nothing to show.
func (c *comparer) aspect(as *document.Aspect, t *diffTurn, a, b *document.Turn) (it *diffItem) {
	prose := slices.Contains([]string{document.AspectUser, document.AspectReasoning, document.AspectAssistant,
		document.AspectCompaction}, as.Aspect)
	switch text := strings.TrimSpace(session.Deref(as.A)); {
	case as.Same && prose && text != "":
		it = &diffItem{Same: c.clipped(text), Open: as.Aspect == document.AspectUser}
	case as.Same:
		return nil
	case prose:
		it = c.text(&as.Change, true)
	case as.Aspect == document.AspectSystemPrompt:
		it = c.prompt(&as.Change, t)
	case as.Aspect == document.AspectTools:
		it = c.catalog(&as.Change, t, a, b)
	case as.Aspect == document.AspectUsage:
		it = c.usage(a, b)
	default:
		it = c.values(&as.Change)
	}
	it.Class, it.Label = as.Aspect, document.Capital(document.AspectLabel(as.Aspect))
	return it
}

// seen keeps where the first divergence stands, and what it begins with.
func (c *comparer) seen(td *document.DiffTurn, ch *document.Change, id string) {
	if f := c.d.First; f == nil || c.first != "" || f.A != td.A || f.B != td.B || f.Change != *ch {
		return
	}
	c.first = id
	for _, run := range c.runs(session.Deref(ch.A), session.Deref(ch.B), false) {
		if !run.Same && len(run.Rows) > 0 {
			run.Rows = run.Rows[:min(len(run.Rows), 2)]
			c.start = []diffRun{run}
			return
		}
	}
}

func (c *comparer) values(ch *document.Change) *diffItem {
	return &diffItem{Values: &[2]string{cmp.Or(document.Line(session.Deref(ch.A)), "–"),
		cmp.Or(document.Line(session.Deref(ch.B)), "–")}}
}

func (c *comparer) text(ch *document.Change, prose bool) *diffItem {
	it := &diffItem{Text: c.runs(session.Deref(ch.A), session.Deref(ch.B), prose)}
	if !slices.ContainsFunc(it.Text, func(r diffRun) bool { return !r.Same }) {
		it.Text, it.Note = nil, "the same but for characters that are not printed"
	}
	return it
}

// prompt compares two system prompts where they are first met: turns after it have mostly the same two.
func (c *comparer) prompt(ch *document.Change, t *diffTurn) *diffItem {
	if it := c.shownBefore([2]string{ch.DigestA, ch.DigestB}, t); it != nil {
		return it
	}
	if ch.A == nil && ch.B == nil {
		return &diffItem{Note: "their texts are not both stored; their digests are " +
			document.Line(cmp.Or(document.Short(ch.DigestA), "none")+" and "+
				cmp.Or(document.Short(ch.DigestB), "none"))}
	}
	return c.text(ch, false)
}

func (c *comparer) shownBefore(key [2]string, t *diffTurn) *diffItem {
	if id, shown := c.shown[key]; shown {
		return &diffItem{Note: "differ as in an earlier turn", Link: "#" + id}
	}
	c.shown[key] = t.ID
	return nil
}

// catalog compares what could be called: the names, and behind a fold all that is said of the tools.
func (c *comparer) catalog(ch *document.Change, t *diffTurn, a, b *document.Turn) *diffItem {
	if it := c.shownBefore([2]string{a.Tools.CatalogDigest, b.Tools.CatalogDigest}, t); it != nil {
		return it
	}
	it := c.text(ch, false)
	bodyA, okA := catalogBody(c.a, a.Tools.CatalogDigest)
	bodyB, okB := catalogBody(c.b, b.Tools.CatalogDigest)
	if okA && okB {
		it.MoreLabel, it.More = "The complete tool definitions", c.runs(bodyA, bodyB, false)
	}
	return it
}

func catalogBody(d *document.Document, digest string) (string, bool) {
	if c := d.Catalog(digest); c != nil && c.Resolved {
		return document.Pretty([]byte(c.Body)), true
	}
	return "", false
}

// usage is a table with a row per bucket that either has something in.
func (c *comparer) usage(a, b *document.Turn) *diffItem {
	inA, inB := document.Buckets(a.Usage), document.Buckets(b.Usage)
	cellsA, cellsB := document.UsageCells(a.Usage), document.UsageCells(b.Usage)
	it := &diffItem{}
	for i := range inA {
		if inA[i] != 0 || inB[i] != 0 || i == len(inA)-1 {
			how := ""
			if a.Usage != nil && b.Usage != nil {
				how = change(inA[i], inB[i])
			}
			row := []string{document.UsageTitles[i], cmp.Or(cellsA[i], "–"), cmp.Or(cellsB[i], "–"), how}
			it.Usage, it.Note = append(it.Usage, row), row[1]+" → "+row[2]
			if how != "" {
				it.Note += " (" + how + ")"
			}
		}
	}
	return it
}

// change is how much b is of a, in percent more or less.
func change(a, b int64) string {
	percent := (float64(b)/float64(a) - 1) * 100
	switch text := strconv.FormatFloat(math.Abs(percent), 'f', 0, 64); {
	case a == b:
		return "="
	case a <= 0:
		return ""
	case percent >= 1000:
		return "×" + strconv.FormatFloat(float64(b)/float64(a), 'f', 0, 64)
	case text == "0":
		return "≈"
	case percent > 0:
		return "+" + text + "%"
	default:
		return "−" + text + "%"
	}
}

func (c *comparer) call(aspects []document.Aspect) *diffItem {
	first := &aspects[0]
	one := cmp.Or(first.Calls[0], first.Calls[1])
	it := &diffItem{Class: "call", Place: document.Pair("call", first.CallA, first.CallB, ", "),
		Title:   cmp.Or(document.Line(one.Name), document.Unnamed),
		Subject: document.Head(document.Line(one.Subject()), 200)}
	if first.Calls[0] != nil {
		it.A = new(c.o.Call(first.Calls[0]))
	}
	if first.Calls[1] != nil {
		it.B = new(c.o.Call(first.Calls[1]))
	}
	if it.A == nil || it.B == nil || !slices.ContainsFunc(aspects, func(as document.Aspect) bool { return !as.Same }) {
		return it
	}
	for i := range aspects {
		as := &aspects[i]
		if !as.Same {
			item := c.values(&as.Change)
			if as.Aspect != document.AspectOutcome {
				item = c.text(&as.Change, false)
			}
			item.Label = document.Capital(document.AspectLabel(as.Aspect))
			it.Items = append(it.Items, *item)
			continue
		}
		for k := range it.A.Sections {
			s := &it.A.Sections[k]
			if (s.Title == "Input") == (as.Aspect == document.AspectInput) && as.Aspect != document.AspectOutcome {
				it.Items = append(it.Items, diffItem{Label: s.Title, Same: &s.Text})
			}
		}
	}
	return it
}

// What is longer is cut, unless all is wanted.
const (
	context  = 3   // lines alike beside one that differs
	maxFold  = 400 // lines alike that are folded and not left out
	maxLines = 400 // lines that differ, of one text
	maxLine  = 4 << 10
)

// diffRun is a run of rows. Fold is the label that they are folded under; Left says what is left out in their place.
type diffRun struct {
	Same       bool
	Prose      bool
	Fold, Left string
	Rows       []document.DiffRow
}

// Marked reports whether the words of a row are worth a mark: a line that differs as a whole needs none.
func (r diffRun) Marked(line []document.Piece) bool { return len(line) > 1 }

func (c *comparer) clipped(text string) *document.Text {
	clipped := document.Text{Body: document.Sanitize(text)}
	if !c.o.Full && len(clipped.Body) > maxLine {
		clipped.Body = document.Head(clipped.Body, maxLine)
		clipped.Cut = "the rest is the same too"
	}
	return &clipped
}

// runs compares two texts and cuts the rows into runs that differ and that are alike;
// of the latter, what is not beside a difference is folded.
func (c *comparer) runs(a, b string, prose bool) []diffRun {
	rows := document.DiffTexts(document.Sanitize(a), document.Sanitize(b))
	var runs []diffRun
	room := maxLines
	for _, h := range document.Hunks(rows, context, 3) {
		n := len(h.Rows)
		run := diffRun{Same: h.Same, Prose: prose, Rows: c.cut(h.Rows)}
		switch {
		case h.Apart && n > maxFold && !c.o.Full:
			run.Left, run.Rows = document.Plural(n, "line", "lines")+" alike are left out; --full has them", nil
		case h.Apart:
			run.Fold = document.Plural(n, "line", "lines") + " alike"
		case !h.Same && n > room && !c.o.Full:
			if run.Rows = run.Rows[:room]; room > 0 {
				runs = append(runs, run)
			}
			run.Left = document.Plural(n-room, "line", "lines") + " more that differ are left out; --full has them"
			run.Rows = nil
		}
		if !h.Same {
			room = max(room-n, 0)
		}
		runs = append(runs, run)
	}
	return runs
}

// cut shortens lines that are very long.
func (c *comparer) cut(rows []document.DiffRow) []document.DiffRow {
	if c.o.Full {
		return rows
	}
	short := func(line []document.Piece) []document.Piece {
		room := maxLine
		for i := range line {
			if len(line[i].Text) > room {
				cut := slices.Clone(line[:i+1])
				cut[i].Text = document.Head(cut[i].Text, room) + " …"
				return cut
			}
			room -= len(line[i].Text)
		}
		return line
	}
	out := make([]document.DiffRow, len(rows))
	for i, r := range rows {
		out[i] = document.DiffRow{A: short(r.A), B: short(r.B), Same: r.Same}
	}
	return out
}
