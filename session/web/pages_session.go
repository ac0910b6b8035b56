package web

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	// maxPart is the size in bytes up to which a page shows a part as a whole.
	maxPart = 1 << 20
	// maxHits is how many places of a text in a session are looked at.
	maxHits = 1000
)

func title(doc *document.Document) string {
	return document.Line(document.Name(doc.Session.Title, doc.Session.Opening))
}

func (v *pages) load(r *http.Request) (*document.Document, error) {
	return v.Sessions.LoadAll(r.Context(), pathOf(r, "id"))
}

func turnNumber(name, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, invalid("%s%q is not the number of a turn", name, text)
	}
	return n, nil
}

// partOf is the part that the address of a page names.
func partOf(r *http.Request) partPath {
	return partPath{sessionPath{pathOf(r, "id")}, pathOf(r, "message"), pathOf(r, "part")}
}

// partPage is one part, whole.
type partPage struct {
	sessionPage
	document.Block
	// Target is what annotations of the part are made at.
	Target target
	// Plain reports that the part is too large for a page.
	Plain bool
}

func (v *pages) part(w http.ResponseWriter, r *http.Request) error {
	at := partOf(r)
	doc, t, m, x, err := v.findPart(r.Context(), at)
	if err == nil && t == nil {
		err = notFound("the session has no message %s that is in a turn", at.Message)
	}
	if err != nil {
		return err
	}
	doc = doc.Between(t.Number, t.Number)
	p := partPage{sessionPage: sessionPage{Doc: doc, Tab: "turns", Of: t.Number},
		Block: document.Words{Full: true, Zone: v.Zone}.Block(x)}
	linkPart(&p.Block, doc, t, m)
	p.Colored = true
	span := spansOf(doc)[at.Part]
	p.Span = v.spanURL(span.TraceID, span.SpanID)
	p.Target = target{doc.Session.ID, at.Message, at.Part, p.Self}
	size := len(p.Text)
	for _, s := range p.Sections {
		size += len(s.Text.Body)
	}
	p.Plain = size > maxPart
	return v.show(w, r, page{Title: "Part · " + title(doc)}, "part", p)
}

// sandboxed is the Content-Security-Policy of an answer of which a browser runs nothing.
const sandboxed = "default-src 'none'; sandbox; frame-ancestors 'none'"

func (v *pages) raw(w http.ResponseWriter, r *http.Request) error {
	p, err := v.partRow(r.Context(), partOf(r))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Security-Policy", sandboxed)
	WriteBody(w, r, http.StatusOK, "text/plain; charset=utf-8", append(p.AppendJSON(nil), '\n'))
	return nil
}

// blob answers with the content of a file part, or of one of the pictures that a call returned: n counts them from 0.
// All but pictures that a browser shows is downloaded.
func (v *pages) blob(w http.ResponseWriter, r *http.Request) error {
	p, err := v.partRow(r.Context(), partOf(r))
	if err != nil {
		return err
	}
	d, _ := session.ParseUIPart(p.DataJSON) // what is of the wrong kind is not there
	head, body, ok := strings.Cut(session.Deref(d.URL), ",")
	ok = ok && strings.HasPrefix(head, "data:") && strings.HasSuffix(head, ";base64")
	if session.IsToolType(p.Type) {
		pictures := document.Pictures(&d)
		n, _ := strconv.Atoi(r.FormValue("n"))
		if ok = n >= 0 && n < len(pictures); ok {
			body = pictures[n].Data
		}
	}
	if !ok {
		return notFound("the part has no content of a file")
	}
	content, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return notFound("the content of the file is damaged")
	}
	w.Header().Set("Content-Security-Policy", sandboxed)
	mediaType := http.DetectContentType(content)
	if !(document.Media{Type: mediaType}).IsImage() {
		mediaType = "application/octet-stream"
		w.Header().Set("Content-Disposition", "attachment")
	}
	WriteBody(w, r, http.StatusOK, mediaType, content)
	return nil
}

// contextPage is what the model had to work with in a turn: the document has that one alone.
type contextPage struct {
	sessionPage
	Tools []toolUse
	// Applied are decisions of the turn, one for each rule that is not among those of the session: an agent has others
	// besides.
	Applied []document.Decision
	// Changes are what the model was given otherwise than in the turn before.
	Changes []document.Change
}

// toolUse is a tool of the catalog, or one that was called and is not in it.
type toolUse struct {
	document.Tool
	Called *document.Called
}

// context answers with the seven inspection points of a turn.
func (v *pages) context(w http.ResponseWriter, r *http.Request) error {
	n, err := turnNumber("", r.PathValue("n"))
	if err != nil {
		return err
	}
	o, err := v.Sessions.LoadOutline(r.Context(), pathOf(r, "id"))
	if err != nil {
		return err
	}
	if err := o.LoadContext(r.Context(), n); err != nil {
		return err
	}
	whole := o.Document()
	doc := whole.Between(n, n)
	t := doc.Turns[0]
	p := contextPage{sessionPage: sessionPage{Doc: doc, Tab: "context", Of: t.Number}}
	if catalog := doc.Catalog(t.Tools.CatalogDigest); catalog != nil {
		for _, tool := range catalog.Tools {
			p.Tools = append(p.Tools, toolUse{Tool: tool})
		}
	}
	for _, c := range t.Tools.Called {
		at := slices.IndexFunc(p.Tools, func(u toolUse) bool { return u.Name == c.Name })
		if at < 0 {
			at, p.Tools = len(p.Tools), append(p.Tools, toolUse{Tool: document.Tool{Name: c.Name}})
		}
		p.Tools[at].Called = c
	}
	for of, changes := range whole.ContextChanges() {
		if of.Number == n {
			p.Changes = changes
		}
	}
	for _, d := range doc.Decisions {
		known := slices.ContainsFunc(doc.Session.Rules, func(r session.Rule) bool {
			return r.Action == d.Action && r.Permission == d.ToolID && r.Pattern == d.Pattern
		}) || slices.ContainsFunc(p.Applied, func(a document.Decision) bool {
			return a.Action == d.Action && a.ToolID == d.ToolID && a.Pattern == d.Pattern && a.Source == d.Source
		})
		if !known && d.Pattern != "" {
			p.Applied = append(p.Applied, d)
		}
	}
	return v.show(w, r, page{Title: fmt.Sprintf("Context of turn %d · %s", t.Number, title(doc))}, "context", p)
}

// treePage is where a session comes from and what came of it.
type treePage struct {
	sessionPage
	Events []treeEvent
	// Rewound reports that messages are hidden.
	Rewound bool
}

// treeEvent is a fork, a rewind, a compaction or a sub-agent. Link leads to a session or a turn, and Turn is the number
// of the turn that it is in.
type treeEvent struct {
	At           int64
	Kind, Link   string
	Turn, Hidden int
	Compaction   *document.Compaction
	Child        *document.Child
}

// tree answers with the descent of a session.
func (v *pages) tree(w http.ResponseWriter, r *http.Request) error {
	doc, err := v.load(r)
	if err != nil {
		return err
	}
	p := treePage{sessionPage: sessionPage{Doc: doc, Tab: "tree"}}
	rewinds, numbers := make(map[int64]int), make(map[string]int)
	for t, m := range doc.Messages() {
		numbers[m.ID] = t.Number
		if m.HiddenAt != nil {
			rewinds[*m.HiddenAt]++
		}
		if c := m.Compaction; c != nil {
			p.Events = append(p.Events, treeEvent{At: m.CreatedAt, Kind: "compaction", Link: turnLink(doc, t.Number),
				Turn: t.Number, Compaction: c})
		}
	}
	p.Rewound = len(rewinds) > 0
	for at, n := range rewinds {
		p.Events = append(p.Events, treeEvent{At: at, Kind: "rewind", Hidden: n})
	}
	for i := range doc.Children {
		c, kind := &doc.Children[i], "fork"
		answering := c.ToolCallID != ""
		for _, m := range doc.Messages() { // a sub-agent begins while somebody answers
			answering = answering || m.CreatedAt <= c.CreatedAt && c.CreatedAt <= m.UpdatedAt
		}
		if answering {
			kind = "sub-agent"
		}
		p.Events = append(p.Events, treeEvent{At: c.CreatedAt, Kind: kind, Link: Address("s", c.SessionID),
			Turn: numbers[c.MessageID], Child: c})
	}
	p.Events = session.SortedRows(p.Events, func(x, y *treeEvent) int {
		return cmp.Or(cmp.Compare(x.At, y.At), strings.Compare(x.Link, y.Link))
	})
	return v.show(w, r, page{Title: "Tree · " + title(doc)}, "tree", p)
}

// next leads to the next place of a kind: after the one that the address names, or in a turn beyond from, and around; or
// to the failure with a number.
func (v *pages) next(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	stops, wanted, err := v.stops(r)
	if err != nil {
		return err
	}
	from, err := turnNumber("from ", cmp.Or(q.Get("from"), "0"))
	if err != nil {
		return err
	}
	failures := slices.DeleteFunc(slices.Clone(stops), func(s stop) bool { return !isFailure(s.mark) })
	var to stop
	if text := q.Get("failure"); text != "" && len(failures) > 0 {
		number, err := turnNumber("failure ", text)
		if err != nil {
			return err
		}
		to = failures[((number-1)%len(failures)+len(failures))%len(failures)]
	} else {
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
		to = stops[start%len(stops)]
	}
	query := url.Values{}
	if q.Get("kind") == "hit" {
		query.Set("find", q.Get("q"))
	}
	if at := slices.Index(failures, to); at >= 0 {
		query.Set("failure", strconv.Itoa(at+1))
	}
	http.Redirect(w, r, Address("s", pathOf(r, "id"), "t", to.turn)+toElement(query, to.id), http.StatusSeeOther)
	return nil
}

// stops are the places of a session, and which of them have the kind in the address: there is one. Those of the kind
// hit are turns that have a text.
func (v *pages) stops(r *http.Request) (stops []stop, wanted func(stop) bool, err error) {
	q, id := r.URL.Query(), pathOf(r, "id")
	kind := cmp.Or(q.Get("kind"), "error")
	kinds := map[string][]string{"error": {"error", "failed", "denied"}, "denial": {"denied", "waiting"},
		"compaction": {"compaction"}, "hit": {""}}
	if kinds[kind] == nil {
		return nil, nil, invalid("kind %q is unknown; use error, denial or compaction", kind)
	}
	wanted = func(s stop) bool { return slices.Contains(kinds[kind], s.mark) }
	none := notFound("the session has no turn with an event of the kind %s", kind)
	if kind == "hit" {
		hits, _, err := v.Sessions.Find(r.Context(), store.SearchQuery{Text: q.Get("q"), Session: id}, nil, maxHits,
			maxPageSearch)
		if err != nil {
			return nil, nil, err
		}
		for i := range hits {
			if n := hits[i].Turn; n > 0 {
				stops = append(stops, stop{turn: n})
			}
		}
		stops = session.SortedRows(stops, func(x, y *stop) int { return cmp.Compare(x.turn, y.turn) })
		none = notFound("%q is in no turn of the session", q.Get("q"))
	} else {
		o, err := v.Sessions.LoadOutline(r.Context(), id)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range o.Turns {
			stops = append(stops, stopsOf(t)...)
		}
	}
	if !slices.ContainsFunc(stops, wanted) {
		return nil, nil, none
	}
	return stops, wanted, nil
}

// trace leads from a span, as another viewer of traces links it, to the place in its session.
func (v *pages) trace(w http.ResponseWriter, r *http.Request) error {
	found, err := v.locate(r.Context(), spanPath{r.PathValue("trace"), r.PathValue("span")})
	if found == nil {
		return err
	}
	to := Address("s", found.SessionID)
	if found.SpanID != "" && found.Turn > 0 {
		to = Address("s", found.SessionID, "t", found.Turn)
	}
	if found.PartID != "" {
		to += toElement(url.Values{}, partID(found.PartID))
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// share shows what the file contains before it is downloaded.
func (v *pages) share(w http.ResponseWriter, r *http.Request) error {
	doc, err := v.load(r)
	if err != nil {
		return err
	}
	return v.show(w, r, page{Title: "Share · " + title(doc)}, "share", sessionPage{Doc: doc, Tab: "share"})
}

func (v *pages) download(w http.ResponseWriter, r *http.Request) error {
	doc, err := v.load(r)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	words := document.Words{Zone: v.Zone, Full: r.URL.Query().Get("full") != ""}
	if err := render.HTML(&file, doc, words); err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", `attachment; filename="session.html"`)
	WriteBody(w, r, http.StatusOK, "text/html; charset=utf-8", file.Bytes())
	return nil
}

func (v *pages) digest(kind store.BlobKind, name string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		b, err := v.Sessions.Blob(r.Context(), kind, pathOf(r, "digest"))
		if err != nil {
			return err
		}
		return v.show(w, r, page{Title: name + " " + document.Short(b.Digest)}, "digest", struct {
			Title, Digest, Text string
			Exact               bool
		}{name, b.Digest, document.Pretty([]byte(b.Body)), b.Exact})
	}
}

// maxCompared is how many sessions a page has beside each other.
const maxCompared = 20

// diff answers with the differences of two sessions, which the list names in its query, or with more beside each other.
func (v *pages) diff(w http.ResponseWriter, r *http.Request) error {
	query, ids := r.URL.Query(), []string{pathOf(r, "a"), pathOf(r, "b")}
	exact := query.Get("exact") != ""
	if ids[0] == "" {
		ids = nil
		for _, name := range slices.Concat(query["s"], query["a"], query["b"]) {
			id, err := v.Sessions.Resolve(r.Context(), name)
			if err != nil {
				return err
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		switch {
		case len(ids) < 2 || len(ids) > maxCompared:
			return invalid("%s chosen; go back to the list and choose 2 to %d",
				document.Plural(len(ids), "session is", "sessions are"), maxCompared)
		case len(ids) > 2:
			return v.compare(w, r, ids, exact)
		}
		http.Redirect(w, r, Address("diff", ids[0], ids[1]), http.StatusSeeOther)
		return nil
	}
	d, one, other, err := v.Sessions.Compare(r.Context(), ids[0], ids[1], document.CompareOptions{Exact: exact})
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if err := render.Comparison(&body, d, one, other, document.Words{Zone: v.Zone}); err != nil {
		return err
	}
	return v.show(w, r, page{Title: "Diff"}, "diff", struct {
		A, B  *document.Document
		Exact bool
		With  string // the address of the page with the other way to compare
		Body  template.HTML
	}{one, other, exact, exactly(r, !exact), template.HTML(body.String())})
}

// comparedSession is a session beside others, with where it and the first of them part ways: nil of the first, and of
// one that does not differ from it.
type comparedSession struct {
	document.Item
	ToolCalls int
	First     *document.Divergence
	Link      string
}

// compare answers with sessions beside each other.
func (v *pages) compare(w http.ResponseWriter, r *http.Request, ids []string, exact bool) error {
	ctx := r.Context()
	var rows []session.Session
	for _, id := range ids {
		row, err := v.Sessions.Session(ctx, id)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	items, _, err := v.Sessions.Briefly(ctx, rows)
	if err != nil {
		return err
	}
	first, err := v.Sessions.LoadAll(ctx, ids[0])
	if err != nil {
		return err
	}
	all := make([]comparedSession, len(items))
	for i := range items {
		doc := first
		if i > 0 {
			if doc, err = v.Sessions.LoadAll(ctx, ids[i]); err != nil {
				return err
			}
			all[i].First = document.Compare(first, doc, document.CompareOptions{Exact: exact}).First
			all[i].Link = Address("diff", ids[0], ids[i])
		}
		all[i].Item, all[i].ToolCalls = items[i], doc.Totals.ToolCalls
	}
	return v.show(w, r, page{Title: "Compare"}, "compare", struct {
		Sessions []comparedSession
		Exact    bool
		With     string // the address of the page with the other way to compare
	}{all, exact, exactly(r, !exact)})
}

// exactly is the address of the page with everything that differs counted, or without.
func exactly(r *http.Request, exact bool) string {
	q := r.URL.Query()
	if q.Del("exact"); exact {
		q.Set("exact", "1")
	}
	return r.URL.EscapedPath() + "?" + q.Encode()
}
