package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

const (
	// A page has at most pageTurns turns, and of these as many blocks as have some maxPageText bytes of HTML.
	pageTurns   = 20
	maxPageText = 95 << 10
	// Of a text that is longer than maxProse bytes its head is shown, of which the length is headProse.
	maxProse  = 32 << 10
	headProse = 8 << 10
)

// sessionPage is a session, and some of its turns.
type sessionPage struct {
	Doc *document.Document
	// Tab is the page of the session that is shown.
	Tab string
	// Of is the turn that the page is of, 0 if it is of the session.
	Of int
	// First and Last are the numbers of Turns. Older and Newer are the addresses to go on with, "" where there is nothing.
	First, Last  int
	Older, Newer string
	Turns        []turnData
	Outline      []entry
	Map          []mapBar
	// Failures counts what failed or was denied, and Failure is the number of the one that the page was opened at, or 0.
	Failures, Failure int
	// Live is where the page is read again when something changed; "" if the last turn of the session is not in it.
	Live string
}

// turnData is a turn with what its page shows around it.
type turnData struct {
	document.TurnWords
	Doc   *document.Document
	Rows  []waterfallRow
	Times document.Times
	// From, To and Blocks are the blocks of the turn that the page has, counted from 0, and how many there are.
	From, To, Blocks int
	// Alone reports that the page is the turn's.
	Alone bool
}

// Target is what annotations of the turn are made at: its user message.
func (t turnData) Target() target {
	message := cmp.Or(t.Question(), t.Turn.Messages[0]).ID
	id, back := t.Doc.Session.ID, turnLink(t.Doc, t.Number)
	if !t.Alone {
		back = inSession(id, t.Number)
	}
	return target{id, message, "", back}
}

// inSession is the address of the page of a session that begins with a turn, and turnID the id of its element.
func inSession(id string, turn int) string {
	return fmt.Sprintf("%s?at=%d#%s", Address("s", id), turn, turnID(turn))
}

func turnID(n int) string { return fmt.Sprintf("turn-%d", n) }

func turnLink(doc *document.Document, n int) string { return Address("s", doc.Session.ID, "t", n) }

// target is what a form annotates: a session, the turn of a message or a part. Back is the address of the page that
// has the form.
type target struct{ Session, Message, Part, Back string }

// place is a place in the text of a session: before a block of a turn. Blocks are counted from 0; a message without
// any counts as one.
type place struct{ turn, block int }

// String is the place as it is in an address: "12", or "12.40" for block 40 of turn 12.
func (p place) String() string {
	if p.block == 0 {
		return strconv.Itoa(p.turn)
	}
	return fmt.Sprintf("%d.%d", p.turn, p.block)
}

func parsePlace(name, text string) (p place, err error) {
	turn, block, some := strings.Cut(text, ".")
	if p.turn, err = turnNumber(name, turn); err == nil && some {
		p.block, err = turnNumber(name, block)
	}
	return place{p.turn, max(0, p.block)}, err
}

// toElement ends the address of a turn or a session at an element, "" for none: the page has the piece of the turn with
// it.
func toElement(query url.Values, id string) (end string) {
	if id != "" {
		query.Set("to", id)
	}
	if len(query) > 0 {
		end = "?" + query.Encode()
	}
	if id != "" {
		end += "#" + url.PathEscape(id)
	}
	return end
}

// unit is a block of a turn, with its size in a page: bytes of HTML, about. IDs are those of the elements in it.
type unit struct {
	place
	weight int
	ids    []string
}

// units are the blocks of the turn. The first has the head of the turn besides.
func (t *turnData) units() (all []unit) {
	for _, m := range t.Messages {
		last := max(1, len(m.Blocks)) - 1
		for i := range last + 1 {
			u := unit{place{t.Number, len(all)}, 800, nil}
			if len(all) == 0 {
				u.weight += 1000 + 300*len(t.Rows)
			}
			if i == 0 {
				u.ids = append(u.ids, m.ElementID)
			}
			if i == last {
				u.ids = append(u.ids, m.ErrorIDs...)
			}
			if i < len(m.Blocks) {
				b := &m.Blocks[i]
				u.ids = append(u.ids, b.ElementID)
				texts := []string{cmp.Or(b.Long, b.Text)}
				for _, s := range b.Sections {
					texts = append(texts, s.Text.Body)
				}
				for _, s := range texts {
					u.weight += len(s)*5/4 + 4*(strings.Count(s, `"`)+strings.Count(s, "<")+strings.Count(s, "'"))
				}
			}
			all = append(all, u)
		}
	}
	return all
}

// before returns where a page begins that has an element: with the turn, if there is room for what is between.
func (t *turnData) before(id string, room int) int {
	all := t.units()
	at := max(0, slices.IndexFunc(all, func(u unit) bool { return slices.Contains(u.ids, id) }))
	for _, u := range all[:at] {
		room -= u.weight
	}
	if room > maxPageText/2 {
		return 0
	}
	return max(0, at-2)
}

// cut leaves the blocks in a range.
func (t *turnData) cut(from, to int) {
	at, kept := 0, []document.MessageWords{}
	for _, m := range t.Messages {
		n := max(1, len(m.Blocks))
		lo, hi := max(0, from-at), min(n, to-at)
		if at += n; lo >= hi {
			continue
		}
		if lo > 0 {
			m.Facts, m.Compacted, m.Summary = nil, nil, ""
		}
		if hi < n {
			m.Errors, m.Doubts = nil, nil
		}
		if m.Blocks != nil {
			m.Blocks = m.Blocks[lo:hi]
		}
		kept = append(kept, m)
	}
	t.Messages, t.From, t.To, t.Blocks = kept, from, to, at
}

// upTo returns from where on a page has room for the units before last, and onFrom up to where for those from first on.
// There is at least one.
func upTo(all []unit, last, room int) (first int) {
	for first = last; first > 0 && (room >= all[first-1].weight || first == last); first-- {
		room -= all[first-1].weight
	}
	return first
}

func onFrom(all []unit, first, room int) (last int) {
	for last = first; last < len(all) && (room >= all[last].weight || last == first); last++ {
		room -= all[last].weight
	}
	return last
}

// window cuts turns to what a page has room for, from a place on or, with back, up to it. It returns where that begins
// and what follows it.
func window(turns []turnData, at place, back bool, room int) (cut []turnData, begin, end place) {
	var all []unit
	for i := range turns {
		all = append(all, turns[i].units()...)
	}
	first := slices.IndexFunc(all, func(u unit) bool {
		return u.turn == at.turn && u.block >= at.block || u.turn > at.turn
	})
	if first < 0 {
		first = len(all)
	}
	last := first
	if back && first > 0 {
		first = upTo(all, last, room)
	} else {
		first = min(first, len(all)-1)
		last = onFrom(all, first, room)
	}
	end = place{turns[len(turns)-1].Number + 1, 0}
	if last < len(all) {
		end = all[last].place
	}
	for _, t := range turns {
		of := slices.DeleteFunc(slices.Clone(all[first:last]), func(u unit) bool { return u.turn != t.Number })
		if len(of) > 0 {
			t.cut(of[0].block, of[len(of)-1].block+1)
			cut = append(cut, t)
		}
	}
	return cut, all[first].place, end
}

// data are turns as pages show them.
func (v *pages) data(doc *document.Document, turns []*document.Turn, alone bool) []turnData {
	spans := spansOf(doc)
	span := func(id string) string { return v.spanURL(spans[id].TraceID, spans[id].SpanID) }
	all, colored := make([]turnData, len(turns)), 0
	for i, t := range turns {
		turn := document.Words{Zone: v.Zone}.Turn(t)
		for k := range turn.Messages {
			m := &turn.Messages[k]
			m.ElementID, m.Span = messageID(m.ID), span(m.ID)
			m.Time = time.UnixMilli(m.CreatedAt).UTC().Format(time.RFC3339)
			for e := range m.Errors {
				m.ErrorIDs = append(m.ErrorIDs, errorID(m.Message, e))
			}
			for n := range m.Blocks {
				b := &m.Blocks[n]
				if b.Part != nil {
					b.Span = span(b.Part.ID)
					linkPart(b, doc, t, m.Message)
				}
				if code := render.Fenced(b.Text); b.Kind == document.BlockProse && colored+code <= render.MaxFenced {
					b.Colored, colored = code > 0, colored+code
				}
			}
		}
		all[i] = turnData{TurnWords: turn, Doc: doc, Rows: waterfall(t), Times: t.Times(), Alone: alone}
	}
	return all
}

// spansOf are the spans of the parts and messages of a document, by id.
func spansOf(d *document.Document) map[string]document.Span {
	all := make(map[string]document.Span, len(d.Spans))
	for _, s := range slices.Backward(d.Spans) {
		switch {
		case s.PartID != "":
			all[s.PartID] = s
		case s.MessageID != "" && (s.Kind == "session.turn" || all[s.MessageID].Kind != "session.turn"):
			all[s.MessageID] = s
		}
	}
	return all
}

// linkPart adds the addresses of other pages to a part, and cuts what is too long for this one.
func linkPart(p *document.Block, doc *document.Document, t *document.Turn, m *document.Message) {
	id := doc.Session.ID
	p.ElementID, p.Self = partID(p.Part.ID), Address("s", id, "p", m.ID, p.Part.ID)
	if len(p.Text) > maxProse {
		p.Long = document.Head(p.Text, headProse)
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

// session answers with the end of a session, with what begins at a place or, with before, what ends there.
func (v *pages) session(w http.ResponseWriter, r *http.Request) error {
	o, err := v.Sessions.LoadOutline(r.Context(), pathOf(r, "id"))
	if err != nil {
		return err
	}
	n, q := len(o.Turns), r.URL.Query()
	at, back, err := placeIn(q, place{n + 1, 0}, true)
	if err != nil {
		return err
	}
	if !back {
		at.turn = max(1, min(at.turn, n))
	}
	most := pageTurns
	if q.Get("live") != "" {
		most *= 4 // it grows until it is read from a later place on
	}
	first, last := at.turn, min(n, at.turn+most-1)
	if back {
		last = at.turn
		if at.block == 0 {
			last--
		}
		last = max(min(n, last), min(1, n))
		first = max(1, last-pageTurns+1)
	}
	return v.showTurns(w, r, o, first, last, at, back)
}

// placeIn is the place at or before which an address has a page, or another.
func placeIn(q url.Values, otherwise place, before bool) (at place, back bool, err error) {
	for _, name := range []string{"at", "before"} {
		if text := q.Get(name); text != "" {
			before = name == "before"
			otherwise, err = parsePlace(name+" ", text)
		}
	}
	return otherwise, before, err
}

// turn answers with a turn, from a block of it on.
func (v *pages) turn(w http.ResponseWriter, r *http.Request) error {
	o, err := v.Sessions.LoadOutline(r.Context(), pathOf(r, "id"))
	if err != nil {
		return err
	}
	n, err := turnNumber("", r.PathValue("n"))
	if err != nil {
		return err
	}
	at, back, err := placeIn(r.URL.Query(), place{n, 0}, false)
	if err != nil {
		return err
	}
	return v.showTurns(w, r, o, n, n, place{n, at.block}, back)
}

// showTurns answers with what of the turns from first to last a page has room for, from a place on or up to it.
func (v *pages) showTurns(w http.ResponseWriter, r *http.Request, o *document.Outline, first, last int, at place,
	back bool) error {
	q, ctx := r.URL.Query(), r.Context()
	p := sessionPage{Tab: "turns"}
	if r.PathValue("n") != "" {
		p.Of = first
	}
	n := len(o.Turns)
	if n > 0 || p.Of > 0 {
		if err := o.Load(ctx, first, last); err != nil {
			return err
		}
	}
	all := turnGroups(o.Turns, first)
	if err := o.LoadQuestions(ctx, shownOf(all)); err != nil {
		return err
	}
	doc := o.Document()
	p.Doc, p.Map = doc, minimap(doc.Turns, q.Get("by") == "time")
	if p.Failure, _ = strconv.Atoi(q.Get("failure")); p.Failure != 0 {
		p.Failures = countStops(doc.Turns, isFailure)
	}
	base, begin, end := Address("s", doc.Session.ID), at, at
	if n > 0 {
		room := maxPageText
		if q.Get("live") != "" {
			room *= 4
		}
		turns := v.data(doc, doc.Turns[first-1:last], p.Of > 0)
		if id := q.Get("to"); id != "" {
			at.block = turns[0].before(id, room)
		}
		p.Turns, begin, end = window(turns, at, back, room)
		p.Outline = v.outline(doc, all, turns, p.Turns)
		p.First, p.Last = p.Turns[0].Number, p.Turns[len(p.Turns)-1].Number
	}
	title, from, to := title(doc), 1, n
	if p.Of > 0 {
		title, base, from, to = fmt.Sprintf("Turn %d · %s", p.Of, title), turnLink(doc, p.Of), p.Of, p.Of
	}
	if begin != (place{from, 0}) {
		p.Older = base + "?before=" + begin.String()
	}
	if end.turn <= to {
		p.Newer = base + "?at=" + end.String()
	} else if end.turn > n {
		if p.Live = base; p.Of == 0 {
			p.Live += "?" + url.Values{"at": {begin.String()}, "live": {"1"}}.Encode()
		}
	}
	return v.show(w, r, page{Title: title}, "session", p)
}
