package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

// Turns of a page, and links to turns in a group of the outline.
const (
	pageTurns  = 20
	groupTurns = 100
)

// sessionPage is a session, and some of its turns.
type sessionPage struct {
	Doc *document.Document
	// Tab is the page of the session that is shown.
	Tab string
	// Of is the turn that the page is of, 0 if it is of the session. Then Doc has no other, and no totals.
	Of int
	// First and Last are the numbers of Turns; Older and Newer those to go on with, 0 where there are none.
	First, Last, Older, Newer int
	Turns                     []turnData
	Outline                   []outlineGroup
	Map                       []mapBar
	// Live is where the page is read again when something changed; "" if the last turn of the session is not in it.
	Live string
}

// turnData is a turn with what its page shows around it.
type turnData struct {
	render.Turn
	Doc  *document.Document
	Rows []waterfallRow
	// Alone reports that the page is the turn's.
	Alone bool
}

// Target is what annotations of the turn are made at: its user message.
func (t turnData) Target() target {
	message := cmp.Or(t.Question(), t.Turn.TurnWords.Turn.Messages[0]).ID
	id, back := t.Doc.Session.ID, turnLink(t.Doc, t.Number)
	if !t.Alone {
		back = fmt.Sprintf("%s?at=%d#turn-%d", Address("s", id), t.Number, t.Number)
	}
	return target{id, message, "", back}
}

// outlineGroup is a group of the outline. Turns are nil where the group is folded away, and Landmarks are not.
type outlineGroup struct {
	First, Last int
	Open        bool
	Turns       []outlineTurn
}

// outlineTurn leads to a turn.
type outlineTurn struct {
	Number int
	Text   string
	Marks  []string
}

// load reads a session. The id is the one in the address of a page.
func (v *pages) load(r *http.Request) (*document.Document, error) {
	return v.Sessions.LoadAll(r.Context(), element(r.PathValue("id")))
}

// outline reads the outline of the session whose id is in the address.
func (v *pages) outline(r *http.Request) (*document.Outline, error) {
	return v.Sessions.LoadOutline(r.Context(), element(r.PathValue("id")))
}

// data are turns as pages show them.
func (v *pages) data(doc *document.Document, turns []*document.Turn, alone bool) []turnData {
	spans := spansOf(doc)
	span := func(id string) string { return v.spanURL(spans[id].TraceID, spans[id].SpanID) }
	all := make([]turnData, len(turns))
	for i, t := range turns {
		turn := render.NewTurn(document.Words{Zone: v.Zone}, t)
		for k := range turn.Messages {
			m := &turn.Messages[k]
			m.ElementID, m.Span = messageID(m.Message), span(m.ID)
			m.Time = time.UnixMilli(m.CreatedAt).UTC().Format(time.RFC3339)
			for e := range m.Errors {
				m.ErrorIDs = append(m.ErrorIDs, errorID(m.Message, e))
			}
			for n := range m.Parts {
				if p := &m.Parts[n]; p.Part != nil {
					p.Span = span(p.Part.ID)
					linkPart(p, doc, t, m.Message)
				}
			}
		}
		all[i] = turnData{Turn: turn, Doc: doc, Rows: waterfall(t), Alone: alone}
	}
	return all
}

// linkPart adds the addresses of other pages to a part, and cuts what is too long for this one.
func linkPart(p *render.Part, doc *document.Document, t *document.Turn, m *document.Message) {
	id := doc.Session.ID
	p.ElementID, p.Self = partID(p.Part.ID), Address("s", id, "p", m.ID, p.Part.ID)
	if len(p.Text) > maxProse {
		p.Long = document.Head(p.Text, headProse)
	}
	p.Images = nil
	if f := p.Part.File; f != nil && f.Size != nil && slices.Contains(images, f.MediaType) {
		p.Images = []render.Image{{Source: template.URL(p.Self + "/blob"), Alt: p.Title, Link: true}}
	}
	if p.Outcome == document.OutcomeFailed || p.Outcome == document.OutcomeDenied {
		p.Next = Address("s", id, "next") + "?" +
			url.Values{"from": {strconv.Itoa(t.Number)}, "after": {p.ElementID}}.Encode()
	}
	if c := p.Part.Tool; c != nil && c.ChildSessionID != "" {
		at := slices.IndexFunc(doc.Children, func(x document.Child) bool { return x.SessionID == c.ChildSessionID })
		if at >= 0 {
			p.Child, p.ChildLink = &doc.Children[at], Address("s", c.ChildSessionID)
		}
	}
}

// session answers with the latest turns, or those from a number on.
func (v *pages) session(w http.ResponseWriter, r *http.Request) error {
	o, err := v.outline(r)
	if err != nil {
		return err
	}
	n := len(o.Turns)
	first := max(1, n-pageTurns+1)
	if text := r.URL.Query().Get("at"); text != "" {
		at, err := strconv.Atoi(text)
		if err != nil || at < 1 {
			return invalid("at %q is not the number of a turn", text)
		}
		first = max(1, min(at, n))
	}
	last := min(n, first+pageTurns-1)
	p, err := v.turns(r.Context(), o, first, last)
	if err != nil {
		return err
	}
	doc := p.Doc
	if n > 0 {
		p.First, p.Last = first, last
		p.Turns = v.data(doc, doc.Turns[first-1:last], false)
	}
	if first > 1 {
		p.Older = max(1, first-pageTurns)
	}
	if last < n {
		p.Newer = last + 1
	} else {
		p.Live = Address("s", doc.Session.ID)
	}
	p.Map = minimap(doc.Turns)
	return v.show(w, r, http.StatusOK, page{Title: title(doc)}, "session", p)
}

// turns returns the page of a session with the content of the turns from first to last, and an outline that is open
// there.
func (v *pages) turns(ctx context.Context, o *document.Outline, first, last int) (p sessionPage, err error) {
	if first <= last {
		if err := o.Load(ctx, first, last); err != nil {
			return p, err
		}
	}
	p = sessionPage{Tab: "turns", Outline: outline(o.Turns, first)}
	if err := o.LoadQuestions(ctx, numbers(p.Outline)); err != nil {
		return p, err
	}
	p.Doc = o.Document()
	p.texts()
	return p, nil
}

func title(doc *document.Document) string {
	return cmp.Or(document.Line(doc.Session.Title), "Untitled session")
}

// partID is the id of the element of a part.
func partID(id string) string { return "p-" + id }

// alone loads one turn of a session.
func (v *pages) alone(ctx context.Context, id string, n int) (*document.Document, error) {
	doc, err := v.Sessions.LoadRange(ctx, id, n, n)
	var none *document.NoTurnError
	if errors.As(err, &none) {
		return nil, notFound("%v", none)
	}
	return doc, err
}

// turnNumber is the one in the address.
func turnNumber(r *http.Request) (int, error) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		return 0, invalid("%q is not the number of a turn", r.PathValue("n"))
	}
	return n, nil
}

// turn answers with one turn.
func (v *pages) turn(w http.ResponseWriter, r *http.Request) error {
	n, err := turnNumber(r)
	if err != nil {
		return err
	}
	doc, err := v.alone(r.Context(), element(r.PathValue("id")), n)
	if err != nil {
		return err
	}
	p := sessionPage{Doc: doc, Tab: "turns", Of: n, First: n, Last: n, Turns: v.data(doc, doc.Turns, true)}
	if n == doc.Totals.Turns {
		p.Live = turnLink(doc, n)
	}
	return v.show(w, r, http.StatusOK, page{Title: fmt.Sprintf("Turn %d · %s", n, title(doc))}, "turn-page", p)
}

// contextPage is what the model had to work with in a turn.
type contextPage struct {
	sessionPage
	Turn    *document.Turn
	Prompt  *document.SystemPrompt
	Catalog *document.ToolCatalog
	Tools   []toolUse
	Rules   []session.Rule
	// Applied are decisions of the turn, one for each rule that is not among Rules: an agent has rules besides those of
	// the session.
	Applied []document.Decision
	// Decisions are those of the turn.
	Decisions []document.Decision
	Notices   []session.Notice
	Calls     []document.ModelCall
}

// toolUse is a tool of the catalog, or one that was called and is not in it.
type toolUse struct {
	document.Tool
	Called *document.Called
}

// context answers with the seven inspection points of a turn.
func (v *pages) context(w http.ResponseWriter, r *http.Request) error {
	n, err := turnNumber(r)
	if err != nil {
		return err
	}
	doc, err := v.alone(r.Context(), element(r.PathValue("id")), n)
	if err != nil {
		return err
	}
	t := doc.Turns[0]
	p := contextPage{sessionPage: sessionPage{Doc: doc, Tab: "context", Of: n}, Turn: t,
		Prompt: doc.Prompt(t.SystemPromptDigest), Catalog: doc.Catalog(t.Tools.CatalogDigest), Rules: doc.Session.Rules,
		Decisions: doc.Decisions, Notices: doc.Notices}
	called := make(map[string]*document.Called)
	for _, c := range t.Tools.Called {
		called[c.Name] = c
	}
	if p.Catalog != nil {
		for _, tool := range p.Catalog.Tools {
			p.Tools = append(p.Tools, toolUse{tool, called[tool.Name]})
			delete(called, tool.Name)
		}
	}
	for _, c := range t.Tools.Called {
		if called[c.Name] != nil {
			p.Tools = append(p.Tools, toolUse{document.Tool{Name: c.Name}, c})
		}
	}
	for _, m := range t.Messages {
		p.Calls = append(p.Calls, m.Calls...)
	}
	for _, d := range p.Decisions {
		known := slices.ContainsFunc(p.Rules, func(r session.Rule) bool {
			return r.Action == d.Action && r.Permission == d.ToolID && r.Pattern == d.Pattern
		}) || slices.ContainsFunc(p.Applied, func(a document.Decision) bool {
			return a.Action == d.Action && a.ToolID == d.ToolID && a.Pattern == d.Pattern && a.Source == d.Source
		})
		if !known && d.Pattern != "" {
			p.Applied = append(p.Applied, d)
		}
	}
	heading := fmt.Sprintf("Context of turn %d · %s", t.Number, title(doc))
	return v.show(w, r, http.StatusOK, page{Title: heading}, "context", p)
}

// treePage is where a session comes from and what came of it.
type treePage struct {
	sessionPage
	Events []treeEvent
	// Rewound reports that messages are hidden.
	Rewound bool
}

// treeEvent is a fork, a rewind, a compaction or a sub-agent.
type treeEvent struct {
	At         int64
	Kind, Text string
	// Link leads to a session or a turn.
	Link string
}

// tree answers with the descent of a session.
func (v *pages) tree(w http.ResponseWriter, r *http.Request) error {
	doc, err := v.load(r)
	if err != nil {
		return err
	}
	p := treePage{sessionPage: sessionPage{Doc: doc, Tab: "tree"}}
	rewinds := make(map[int64]int)
	for t, m := range doc.Messages() {
		if m.HiddenAt != nil {
			rewinds[*m.HiddenAt]++
		}
		if c := m.Compaction; c != nil {
			text := "in turn " + strconv.Itoa(t.Number)
			if c.ContextBefore > 0 && c.ContextAfter > 0 {
				text += fmt.Sprintf(", context %s → %s tokens",
					document.Brief(c.ContextBefore), document.Brief(c.ContextAfter))
			}
			p.Events = append(p.Events, treeEvent{m.CreatedAt, "compaction", text, turnLink(doc, t.Number)})
		}
	}
	p.Rewound = len(rewinds) > 0
	for at, n := range rewinds {
		p.Events = append(p.Events, treeEvent{at, "rewind", document.Plural(n, "message", "messages") + " hidden", ""})
	}
	numbers := make(map[string]int)
	for t, m := range doc.Messages() {
		numbers[m.ID] = t.Number
	}
	for _, c := range doc.Children {
		kind := "fork"
		if c.ToolCallID != "" {
			kind = "sub-agent"
		}
		text := cmp.Or(document.Line(c.Title), "Untitled session")
		if n := numbers[c.MessageID]; n > 0 {
			text += fmt.Sprintf(" (turn %d)", n)
		}
		text += " · " + document.Brief(c.TotalTokens) + " tokens"
		p.Events = append(p.Events, treeEvent{c.CreatedAt, kind, text, Address("s", c.SessionID)})
	}
	slices.SortFunc(p.Events, func(x, y treeEvent) int {
		return cmp.Or(cmp.Compare(x.At, y.At), strings.Compare(x.Link, y.Link))
	})
	return v.show(w, r, http.StatusOK, page{Title: "Tree · " + title(doc)}, "tree", p)
}

func turnLink(doc *document.Document, n int) string { return Address("s", doc.Session.ID, "t", n) }

// next leads to the next place of a kind: after the one that the address names, or in a turn beyond from, and around.
func (v *pages) next(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	id, query := element(r.PathValue("id")), ""
	var stops []stop
	var err error
	wanted := func(stop) bool { return true }
	if q.Get("kind") == "hit" {
		query = "?" + url.Values{"find": {q.Get("q")}}.Encode()
		stops, err = v.hits(r, id)
	} else {
		stops, wanted, err = v.landmarks(r, id)
	}
	if err != nil {
		return err
	}
	from, err := strconv.Atoi(cmp.Or(q.Get("from"), "0"))
	if err != nil {
		return invalid("from %q is not the number of a turn", q.Get("from"))
	}
	beyond := func(s stop) bool { return s.turn > from || s.turn == from && s.id != "" }
	if q.Get("back") != "" {
		slices.Reverse(stops)
		beyond = func(s stop) bool { return s.turn < from }
	}
	start := max(0, slices.IndexFunc(stops, beyond)) // the first where none is beyond
	after := q.Get("after")
	if at := slices.IndexFunc(stops, func(s stop) bool { return s.id == after }); after != "" && at >= 0 {
		start = at + 1
	}
	for !wanted(stops[start%len(stops)]) {
		start++
	}
	to := stops[start%len(stops)]
	address := Address("s", id, "t", to.turn) + query
	if to.id != "" {
		address += "#" + url.PathEscape(to.id)
	}
	http.Redirect(w, r, address, http.StatusSeeOther)
	return nil
}

// landmarks are the places of all kinds, and which of them have the kind in the address: there is one.
func (v *pages) landmarks(r *http.Request, id string) (stops []stop, wanted func(stop) bool, err error) {
	kinds := map[string][]string{"error": {"error", "failed", "denied"}, "denial": {"denied", "waiting"},
		"compaction": {"compaction"}}
	kind := cmp.Or(r.URL.Query().Get("kind"), "error")
	if kinds[kind] == nil {
		return nil, nil, invalid("kind %q is unknown; use error, denial or compaction", kind)
	}
	o, err := v.Sessions.LoadOutline(r.Context(), id)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range o.Turns {
		stops = append(stops, stopsOf(t)...)
	}
	wanted = func(s stop) bool { return slices.Contains(kinds[kind], s.mark) }
	if !slices.ContainsFunc(stops, wanted) {
		return nil, nil, notFound("the session has no turn with an event of the kind %s", kind)
	}
	return stops, wanted, nil
}

// maxHits is how many places of a text in a session are looked at.
const maxHits = 1000

// hits are the turns that have a text, of which there is one.
func (v *pages) hits(r *http.Request, id string) ([]stop, error) {
	search := store.SearchQuery{Text: r.URL.Query().Get("q"), Session: id}
	hits, _, err := v.Sessions.Find(r.Context(), search, nil, maxHits, maxPageSearch)
	if err != nil {
		return nil, err
	}
	var turns []stop
	for i := range hits {
		if n := hits[i].Turn; n > 0 {
			turns = append(turns, stop{turn: n})
		}
	}
	if turns == nil {
		return nil, notFound("%q is in no turn of the session", search.Text)
	}
	slices.SortFunc(turns, func(x, y stop) int { return cmp.Compare(x.turn, y.turn) })
	return turns, nil
}

// trace leads from a span, as another viewer of traces links it, to the place in its session.
func (v *pages) trace(w http.ResponseWriter, r *http.Request) error {
	found, err := v.locate(r.Context(), r.PathValue("trace"), r.PathValue("span"))
	if found == nil {
		return err
	}
	to := Address("s", found.SessionID)
	if found.SpanID != "" && found.Turn > 0 {
		to = Address("s", found.SessionID, "t", found.Turn)
	}
	if found.PartID != "" {
		to += "#" + url.PathEscape(partID(found.PartID))
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// sharePage is what a shared file has.
type sharePage struct {
	sessionPage
	Size string
}

// share shows what the file contains before it is downloaded.
func (v *pages) share(w http.ResponseWriter, r *http.Request) error {
	doc, err := v.load(r)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := render.HTML(&b, doc, document.Words{Zone: v.Zone}); err != nil {
		return err
	}
	p := sharePage{sessionPage{Doc: doc, Tab: "share"}, document.Bytes(int64(b.Len()))}
	return v.show(w, r, http.StatusOK, page{Title: "Share · " + title(doc)}, "share", p)
}

// download answers with the session in one file.
func (v *pages) download(w http.ResponseWriter, r *http.Request) error {
	doc, err := v.load(r)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := render.HTML(&b, doc, document.Words{Zone: v.Zone, Full: r.URL.Query().Get("full") != ""}); err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", `attachment; filename="session.html"`)
	return write(w, r, http.StatusOK, "text/html; charset=utf-8", b.Bytes())
}

// diff answers with the differences of two sessions, which the form names in its query.
func (v *pages) diff(w http.ResponseWriter, r *http.Request) error {
	if r.PathValue("a") == "" {
		var ids [2]string
		for i, name := range []string{"a", "b"} {
			id, err := v.Sessions.Resolve(r.Context(), r.URL.Query().Get(name))
			if err != nil {
				return err
			}
			ids[i] = id
		}
		http.Redirect(w, r, Address("diff", ids[0], ids[1]), http.StatusSeeOther)
		return nil
	}
	a, err := v.Sessions.LoadAll(r.Context(), element(r.PathValue("a")))
	if err != nil {
		return err
	}
	b, err := v.Sessions.LoadAll(r.Context(), element(r.PathValue("b")))
	if err != nil {
		return err
	}
	var body bytes.Buffer
	d := document.Compare(a, b, false)
	if err := render.Comparison(&body, d, a, b, document.Words{Zone: v.Zone}); err != nil {
		return err
	}
	return v.show(w, r, http.StatusOK, page{Title: "Diff"}, "diff", struct {
		A, B *document.Document
		Body template.HTML
	}{a, b, template.HTML(body.String())})
}

// digestPage is a system prompt or a tool catalog.
type digestPage struct {
	Title, Digest, Text string
	Exact               bool
}

func (v *pages) prompt(w http.ResponseWriter, r *http.Request) error {
	return v.showBlob(w, r, store.BlobSystemPrompt, "System prompt")
}

func (v *pages) catalog(w http.ResponseWriter, r *http.Request) error {
	return v.showBlob(w, r, store.BlobToolCatalog, "Tool catalog")
}

func (v *pages) showBlob(w http.ResponseWriter, r *http.Request, kind store.BlobKind, title string) error {
	b, err := v.Sessions.Blob(r.Context(), kind, element(r.PathValue("digest")))
	if err != nil {
		return err
	}
	p := digestPage{title, b.Digest, document.Pretty([]byte(b.Body)), b.Exact}
	return v.show(w, r, http.StatusOK, page{Title: title + " " + document.Short(b.Digest)}, "digest", p)
}
