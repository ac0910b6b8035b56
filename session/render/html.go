package render

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

//go:embed blocks.html transcript.html diff.html style.css
var files embed.FS

//go:embed style.css
var style string

// Style is the style of all pages, for a server that has parts of them in pages of its own.
func Style() string { return style }

// policy allows the style of the pages by its checksum, the images that are in the pages, and nothing else.
var policy = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"
})

var htmlTemplates = sync.OnceValue(func() *template.Template {
	return template.Must(Templates().Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(style) },
		"policy": policy,
	}).ParseFS(files, "transcript.html", "diff.html"))
})

// Templates has the templates of messages, for a server that has them in pages of its own: "message" shows
// [document.MessageWords], "block" a [document.Block], "images" its images and "runs" what [Runs] returns.
func Templates() *template.Template {
	return template.Must(template.New("").Funcs(document.Functions()).Funcs(template.FuncMap{
		"rich": Rich, "runs": Runs,
		"prose": func(b document.Block) template.HTML {
			if b.Colored {
				return rich(b.Text, MaxFenced)
			}
			return Rich(b.Text)
		},
		"section": func(b document.Block, s document.Section) shown {
			return shown{section(b, s), b.Colored}
		},
		"compared": func(c document.Change) (e Edit) {
			e.compare(session.Deref(c.A), session.Deref(c.B))
			return e
		},
		"colored": func(all shown, v Value) shown { return shown{v, all.Colored} },
		"code": func(v shown) []Run {
			if v.Colored && v.Lines {
				return Code(v.Text, v.Lang)
			}
			return Runs(v.Text)
		},
		"cut":  func(s string) string { left, _, _ := strings.Cut(s, ";"); return left },
		"gist": func(s string) string { return document.Head(strings.TrimSpace(s), maxGist) }, "edit": edits, "open": isOpen,
		"source": func(m document.Media) template.URL { return template.URL(m.URL()) }, // of a known type, in base64
	}).ParseFS(files, "blocks.html"))
}

// shown is a value of a page that has code in colors, or not.
type shown struct {
	Value
	Colored bool
}

// maxGist is the size in bytes of the head of reasoning that is folded.
const maxGist = 160

// isOpen reports whether a block is not folded, which replaces texts as in e, or nil.
func isOpen(b document.Block, e *Edit) bool {
	return b.Kind == document.BlockTool && b.Outcome != document.OutcomeOK && b.Outcome != document.OutcomeLost ||
		len(b.Images) > 0 || e != nil && e.Added+e.Removed <= openEdit
}

// HTML writes the transcript in HTML. The same document gives the same bytes.
func HTML(w io.Writer, d *document.Document, o document.Words) error {
	if err := htmlTemplates().ExecuteTemplate(w, "transcript", o.Session(d)); err != nil {
		return fmt.Errorf("write session %s: %w", d.Session.ID, err)
	}
	return nil
}

// Rich is a text with its Markdown, in an element of its own that holds nothing but the
// tags below, each of them closed. A text that is empty has none.
func Rich(text string) template.HTML { return rich(text, 0) }

// Fenced is how many bytes the fenced code of a text has.
func Fenced(text string) (n int) {
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			n += len(part)
		}
	}
	return n
}

// rich has colors in so many bytes of code.
func rich(text string, colored int) template.HTML {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	w := textWriter{colored: colored}
	blocks, ok := parseText(text)
	if ok {
		w.element("div", ` class="rich"`, blocks)
	} else {
		w.WriteString(`<div class="text">`)
		w.text(strings.Trim(text, "\n"))
		w.WriteString("</div>")
	}
	return template.HTML(w.String()) // all that is not of this file is escaped
}

type textWriter struct {
	strings.Builder
	cell    string // the element of a cell of the row that is written
	colored int    // how many bytes of code can have colors
}

func (w *textWriter) text(s string) { template.HTMLEscape(w, []byte(s)) }

// element writes nodes between tags. The attributes are markup.
func (w *textWriter) element(name, attributes string, children []*node) {
	w.WriteString("<" + name + attributes + ">")
	w.nodes(children)
	w.WriteString("</" + name + ">")
}

func (w *textWriter) nodes(all []*node) {
	for _, n := range all {
		w.node(n)
	}
}

// code writes code, with colors if it is not too long for that.
func (w *textWriter) code(n *node) {
	if n.Lang == "" || len(n.Text) > min(maxFenced, w.colored) {
		w.text(n.Text)
		return
	}
	w.colored -= len(n.Text)
	for _, run := range Code(n.Text, n.Lang) {
		if run.Class == "" {
			w.text(run.Text)
			continue
		}
		w.WriteString(`<span class="` + run.Class + `">`)
		w.text(run.Text)
		w.WriteString("</span>")
	}
}

// fixed is what stands before and after nodes that have no attributes, and are not just the element of their kind.
var fixed = map[nodeKind][2]string{nodeLine: {}, nodeCode: {"<pre><code>", "</code></pre>"}, nodeRule: {"<hr>"},
	nodeCodeSpan: {"<code>", "</code>"}, nodeBreak: {"<br>\n"}}

func (w *textWriter) node(n *node) {
	if around, is := fixed[n.Kind]; is {
		w.WriteString(around[0])
		w.code(n)
		w.nodes(n.Children)
		w.WriteString(around[1])
		return
	}
	name, attributes := string(n.Kind), ""
	switch n.Kind {
	case nodeText:
		w.text(n.Text)
		return
	case nodeBox:
		attributes = `"to do"`
		if n.Checked {
			attributes = `"done" checked`
		}
		w.WriteString(`<input type="checkbox" aria-label=` + attributes + ` disabled> `)
		return
	case nodeHeading:
		name = "h" + strconv.Itoa(n.Level+3) // below that of a message
	case nodeList:
		attributes = ` dir="auto"` // by which its marks are where its first letter is
		if n.Ordered {
			name = "ol"
		}
		if n.Ordered && n.Start != 1 {
			attributes += ` start="` + strconv.Itoa(n.Start) + `"`
		}
		if !n.Tight {
			attributes += ` class="loose"`
		}
	case nodeItem:
		if len(n.Children) > 0 && len(n.Children[0].Children) > 0 && n.Children[0].Children[0].Kind == nodeBox {
			attributes = ` class="task"` // the box takes the place of the mark
		}
	case nodeTable:
		w.WriteString(`<div class="scroll">`)
		w.cell = "th"
		defer w.WriteString("</div>")
	case nodeRow:
		defer func() {
			w.WriteByte('\n')
			w.cell = "td"
		}()
	case nodeCell:
		if name = w.cell; n.Align != "" {
			attributes = ` align="` + n.Align + `"`
		}
	case nodeLink:
		attributes = ` href="` + template.HTMLEscapeString(n.To) + `" rel="noopener noreferrer nofollow"`
	}
	w.element(name, attributes, n.Children)
}

// HTMLDiff writes what two sessions differ in: d is [document.Compare] of a and b. The first divergence is named at the
// top, with a link to its place; turns that are equal, or differ in their tokens alone, are folded. On a narrow screen
// the sessions stand below each other. The same input gives the same bytes.
func HTMLDiff(w io.Writer, d *document.Diff, a, b *document.Document, o document.Words) error {
	return encodeDiff(w, "diff", d, a, b, o)
}

// Comparison writes the main element of that page, for a page that has the [Style].
func Comparison(w io.Writer, d *document.Diff, a, b *document.Document, o document.Words) error {
	return encodeDiff(w, "comparison", d, a, b, o)
}

func encodeDiff(w io.Writer, template string, d *document.Diff, a, b *document.Document, o document.Words) error {
	c := comparer{o: o, d: d, a: a, b: b, shown: map[[4]string]string{}}
	if err := htmlTemplates().ExecuteTemplate(w, template, c.page()); err != nil {
		return fmt.Errorf("write diff of %s and %s: %w", d.A.SessionID, d.B.SessionID, err)
	}
	return nil
}

// diffPage is what is in the page. Strings are sanitized.
type diffPage struct {
	Title, Verdict string
	Link           string // to the first divergence, "" if there is none
	// A and B name the sessions over their columns, with their ids.
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

// diffTurn is a turn. Class is "alike", "differs" or "tokens" if only these differ. Name, which is short, and Count are
// those of the link that leads to it.
type diffTurn struct {
	ID, Name, Class, Label, Count string
	// A or B is the turn that only one session has, and A that of both that are alike.
	A, B  *document.TurnWords
	Items []diffItem
}

// diffItem is an aspect of a turn, or a call: one that differs when it has an ID.
type diffItem struct {
	ID, Class, Label string
	// Note stands for what is not shown; Link is where to.
	Note, Link string
	// Same is what both have, and Text what they differ in.
	Same string
	Text []diffRun
	// A and B are a call of one or of both, and Items what differs in it.
	A, B  *document.Block
	Items []diffItem
}

// comparer puts a diff into words.
type comparer struct {
	o    document.Words
	d    *document.Diff
	a, b *document.Document
	// shown are prompts and catalogs that were compared, with their digests, and where.
	shown map[[4]string]string
	first string // the id of the first divergence
}

func (c *comparer) page() *diffPage {
	column := func(d *document.Document) document.Field {
		return document.Field{Name: document.Line(document.Name(d.Session.Title, d.Session.Opening)),
			Value: document.Line(d.Session.ID)}
	}
	p := &diffPage{Facts: c.facts(), A: column(c.a), B: column(c.b), Verdict: "The content does not differ."}
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
	if f := c.d.First; f != nil {
		p.Verdict, p.Link = document.Capital(f.String()), "#"+c.first
	}
	return p
}

// facts are the heads of the two beside each other.
func (c *comparer) facts() (facts []pairFact) {
	var names []string
	values := map[string][2]string{}
	for i, d := range []*document.Document{c.a, c.b} {
		head := append([]document.Field{{Name: "Title", Value: document.Line(d.Session.Title)}}, c.o.Head(d)...)
		for _, f := range head {
			of := values[f.Name]
			of[i] = f.Value
			values[f.Name] = of
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	for _, name := range names {
		facts = append(facts, pairFact{name, cmp.Or(values[name][0], absent), cmp.Or(values[name][1], absent)})
	}
	return facts
}

func (c *comparer) turn(td *document.DiffTurn) *diffTurn {
	name := strconv.Itoa(td.A)
	if td.A == 0 {
		name = "b" + strconv.Itoa(td.B)
	}
	t := &diffTurn{ID: "turn-" + name, Name: name, Class: "differs",
		Label: document.Capital(document.TurnPair(td.A, td.B)),
		Count: document.Plural(len(td.Changes), "difference", "differences")}
	a, b := c.a.Turn(td.A), c.b.Turn(td.B)
	switch {
	case len(td.Changes) == 0:
		t.A, t.Class, t.Count = new(c.o.Turn(a)), "alike", "equal"
		return t
	case b == nil:
		t.A, t.Count = new(c.o.Turn(a)), "only in A"
	case a == nil:
		t.B, t.Count = new(c.o.Turn(b)), "only in B"
	case !slices.ContainsFunc(td.Changes, func(ch document.Change) bool { return ch.Aspect != document.AspectUsage }):
		t.Class, t.Count = "tokens", "only tokens differ"
	}
	for rest := td.Aspects; len(rest) > 0; {
		n := 1 // the aspects of a call are one item
		for rest[0].Calls != nil && n < len(rest) && rest[n].Calls == rest[0].Calls {
			n++
		}
		id := t.ID + "-" + strconv.Itoa(len(t.Items)+1)
		if a == nil || b == nil {
			id = t.ID // which is its only aspect
		} else if it := c.item(rest[:n], t); it.Same != "" || it.Note != "" || it.Text != nil || it.A != nil || it.B != nil {
			if slices.ContainsFunc(rest[:n], func(as document.Aspect) bool { return !as.Same }) {
				it.ID = id
			}
			t.Items = append(t.Items, it)
		}
		for _, as := range rest[:n] {
			if f := c.d.First; f != nil && c.first == "" && f.A == td.A && f.B == td.B && f.Change == as.Change {
				c.first = id
			}
		}
		rest = rest[n:]
	}
	return t
}

// item is an aspect of both turns, or the aspects of a call. It is empty if there is nothing to show.
func (c *comparer) item(aspects []document.Aspect, t *diffTurn) diffItem {
	as := &aspects[0]
	if as.Calls != nil {
		return c.call(aspects)
	}
	prose := slices.Contains([]string{document.AspectUser, document.AspectReasoning, document.AspectAssistant,
		document.AspectCompaction}, as.Aspect)
	if as.Same {
		it := diffItem{Class: as.Aspect, Label: document.Capital(document.AspectLabel(as.Aspect))}
		if prose {
			it.Same = strings.TrimSpace(document.Sanitize(session.Deref(as.A)))
		}
		return it
	}
	it := c.differs(&as.Change, prose)
	if as.Aspect == document.AspectSystemPrompt || as.Aspect == document.AspectTools {
		// Turns after the first have mostly the same two.
		key := [4]string{as.DigestA, as.DigestB, session.Deref(as.A), session.Deref(as.B)}
		if id, shown := c.shown[key]; shown {
			it.Text, it.Note, it.Link = nil, "differ as in an earlier turn", "#"+id
		} else {
			c.shown[key] = t.ID
		}
	}
	return it
}

func (c *comparer) differs(ch *document.Change, prose bool) diffItem {
	it := diffItem{Class: ch.Aspect, Label: document.Capital(document.AspectLabel(ch.Aspect)),
		Text: c.runs(session.Deref(ch.A), session.Deref(ch.B), prose)}
	switch {
	case slices.ContainsFunc(it.Text, func(r diffRun) bool { return !r.Same }):
	case ch.A == nil && ch.B == nil:
		it.Note = "their texts are not both stored; their digests are " +
			document.Line(cmp.Or(document.Short(ch.DigestA), "none")+" and "+cmp.Or(document.Short(ch.DigestB), "none"))
	default:
		it.Text, it.Note = nil, differUnprinted
	}
	return it
}

func (c *comparer) call(aspects []document.Aspect) diffItem {
	as := &aspects[0]
	it := diffItem{Class: "call", Label: document.Capital(document.Pair("call", as.CallA, as.CallB, ", "))}
	if as.Calls[0] != nil {
		it.A = new(c.o.Call(as.Calls[0]))
	}
	if as.Calls[1] != nil {
		it.B = new(c.o.Call(as.Calls[1]))
	}
	for i := range aspects {
		if !aspects[i].Same && it.A != nil && it.B != nil {
			it.Items = append(it.Items, c.differs(&aspects[i].Change, false))
		}
	}
	return it
}

const (
	context  = 3   // lines alike beside one that differs
	maxLines = 400 // lines that differ, of one text, or that are alike and folded: more are cut, unless all is wanted
)

// diffRun is a run of rows. Fold is the label that they are folded under; Left says what is left out after them.
type diffRun struct {
	Same, Prose bool
	Fold, Left  string
	Rows        []document.DiffRow
}

// runs compares two texts and cuts the rows into runs that differ and that are alike;
// of the latter, what is not beside a difference is folded.
func (c *comparer) runs(a, b string, prose bool) (runs []diffRun) {
	rows := document.DiffTexts(document.Sanitize(a), document.Sanitize(b))
	room := maxLines
	for _, h := range document.Hunks(rows, context, 3) {
		n, limit := len(h.Rows), maxLines
		if !h.Same {
			limit, room = room, max(room-n, 0)
		}
		run := diffRun{Same: h.Same, Prose: prose, Rows: h.Rows}
		if h.Apart {
			run.Fold = document.Plural(n, "line", "lines") + " alike"
		}
		if n > limit && !c.o.Full {
			run.Rows = h.Rows[:limit]
			run.Left = document.Plural(n-limit, "line", "lines") + " more are left out; --full has them"
		}
		runs = append(runs, run)
	}
	return runs
}
