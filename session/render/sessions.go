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
	"github.com/agenttrace/agenttrace/session/printable"
)

// shortIDs are what stands for the ids of a list in a narrow table.
func shortIDs(items []document.Item) []string {
	bare := make([]string, len(items))
	if !slices.ContainsFunc(items, func(i document.Item) bool { return i.Short == "" }) {
		for i := range items {
			bare[i] = printable.Sanitize(items[i].Short)
		}
		return bare
	}
	const least, maximum = 8, 40
	longest := 0
	for i := range items {
		bare[i] = printable.Sanitize(strings.TrimPrefix(items[i].ID, "ses_"))
		longest = max(longest, len(bare[i]))
	}
	for n := least; n < min(longest, maximum); n++ {
		seen := make(map[string]bool, len(bare))
		for _, id := range bare {
			seen[printable.Head(id, n)] = true
		}
		if len(seen) == len(bare) {
			for i, id := range bare {
				bare[i] = printable.Head(id, n)
			}
			break
		}
	}
	return bare
}

// RenderSessions prints a list of sessions for a person, in the order in which
// they are given. The ids are cut as short as the list allows, unless there is room
// for whole ones besides all columns.
func Sessions(w io.Writer, items []document.Item, o Options) error {
	p := newPrinter(o)
	l := sessionList{printer: p, items: items, drop: make(map[int]bool)}
	l.fill()
	l.wholeIDs()
	l.fit()
	l.print()
	p.infoLines("", l.summary()...)
	_, err := io.WriteString(w, p.b.String())
	return err
}

// Columns of a list of sessions.
const (
	columnID = iota
	columnMark
	columnTitle
	columnAgent
	columnModel
	columnTokens
	columnContext
	columnCost
	columnAge
)

// sessionList is a list of sessions while it is laid out.
type sessionList struct {
	*printer
	items []document.Item
	rows  [][]listCell // the head first
	// drop are the columns that are left out, widths those of the others.
	drop   map[int]bool
	widths []int
}

type listCell struct {
	span
	right bool
}

// fill makes the rows, with short ids.
func (l *sessionList) fill() {
	withCost := slices.ContainsFunc(l.items, func(s document.Item) bool { return s.CostUSD != 0 || s.EstimatedCostUSD != nil })
	l.drop[columnCost] = !withCost
	head := make([]listCell, 0, columnAge+1)
	for i, name := range []string{"ID", "", "TITLE", "AGENT", "MODEL", "TOKENS", "CONTEXT", "COST", "AGE"} {
		head = append(head, listCell{span{name, l.title}, i >= columnTokens})
	}
	l.rows = append(make([][]listCell, 0, len(l.items)+1), head)
	ids := shortIDs(l.items)
	for i := range l.items {
		l.rows = append(l.rows, l.row(&l.items[i], ids[i]))
	}
}

func (l *sessionList) row(s *document.Item, id string) []listCell {
	fit, number := truncate, printable.Count
	if l.Whole {
		fit = func(text string, _ int) string { return text }
	}
	if l.Width < 100 {
		number = printable.Brief
	}
	cost := cmp.Or(summedCost(s.CostUSD, s.EstimatedCostUSD), absent)
	return []listCell{
		{span: span{id, l.accent}}, {span: l.sign(s)}, {span: span{itemName(s), l.plain}},
		{span: span{fit(printable.OneLine(s.Agent), 14), l.dim}}, {span: span{fit(printable.ModelName(s.Model), 20), l.dim}},
		{span{number(s.Total), l.plain}, true}, {span{number(s.ContextTotal), l.dim}, true}, {span{cost, l.plain}, true},
		{span{l.age(s.UpdatedAt), l.dim}, true},
	}
}

// sign is the mark of the session's status, and of its notices.
func (l *sessionList) sign(s *document.Item) (sign span) {
	switch {
	case s.Status != document.ActivityIdle && s.Status != document.ActivityUnknown:
		sign = l.activity(s.Status)
	case s.State.Bad():
		sign = l.state(s.State)
	}
	sign.text, _, _ = strings.Cut(sign.text, " ")
	if isNoticed(s) {
		if sign.text == "" {
			sign.paint = l.warn
		}
		sign.text += "!"
	}
	return sign
}

// noticed says whether the list marks the session's notices. Of an interrupted session the
// end is missing in any case: that is its notice.
func isNoticed(s *document.Item) bool {
	return s.Notices > 1 || s.Notices > 0 && s.Status != document.ActivityInterrupted
}

// name is the title with what the list says of the session beside it.
func itemName(s *document.Item) string {
	name := printable.OneLine(s.Title)
	if s.ParentID != "" {
		name = "↳ " + name
	}
	if s.ArchivedAt != nil {
		name += " (archived)"
	}
	if s.Reading == document.ReadingGeneric {
		name = "(generic reading) " + name
	}
	return name
}

const (
	wideTitle   = 28 // what a title should have
	narrowTitle = 20 // what it has at least before columns go that are missed
)

// wholeIDs writes the ids as they are where there is room for them beside a title.
func (l *sessionList) wholeIDs() {
	if l.Width < 100 || !l.Whole && l.Width < 120 {
		return
	}
	short := make([]string, len(l.items))
	for i := range l.items {
		short[i] = l.rows[1+i][columnID].text
		l.rows[1+i][columnID].text = printable.Sanitize(l.items[i].ID)
	}
	without := map[int]bool{columnContext: true, columnCost: l.drop[columnCost]}
	if _, room := l.measure(without); !l.Whole && room < wideTitle {
		for i := range short {
			l.rows[1+i][columnID].text = short[i]
		}
	}
}

// measure returns the widths of the columns but for the title's, and what room they leave
// to that.
func (l *sessionList) measure(drop map[int]bool) (widths []int, room int) {
	widths, room = make([]int, columnAge+1), l.Width
	for i := range widths {
		if drop[i] || i == columnTitle {
			continue
		}
		for _, r := range l.rows {
			widths[i] = max(widths[i], width(r[i].text))
		}
		room -= widths[i] + 2
	}
	return widths, room
}

// fit leaves out columns, the least missed first, until there is room for the title.
func (l *sessionList) fit() {
	room := 0
	for _, next := range []int{-1, columnContext, columnModel, columnAgent, columnCost, columnMark, columnTokens} {
		if next >= 0 {
			l.drop[next] = true
		}
		l.widths, room = l.measure(l.drop)
		if l.Whole || room >= wideTitle || l.drop[columnContext] && room >= narrowTitle {
			break
		}
	}
	for _, r := range l.rows {
		l.widths[columnTitle] = max(l.widths[columnTitle], width(r[columnTitle].text))
	}
	maximum := max(room, 8)
	if l.Whole {
		maximum = 60 // longer ones move the rest of their row
	}
	l.widths[columnTitle] = min(l.widths[columnTitle], maximum)
}

// print writes the rows.
func (l *sessionList) print() {
	screen := l.Width
	if l.Whole {
		l.Width = math.MaxInt32
	}
	for _, r := range l.rows {
		var spans []span
		for i, c := range r {
			if l.drop[i] {
				continue
			}
			if len(spans) > 0 {
				spans = append(spans, span{"  ", l.plain})
			}
			if !l.Whole {
				c.text = truncate(c.text, l.widths[i])
			}
			if c.right {
				c.text = padLeft(c.text, l.widths[i])
			} else {
				c.text = pad(c.text, l.widths[i])
			}
			spans = append(spans, c.span)
		}
		l.line(spans...)
	}
	l.Width = screen
}

// summary is the line below the list.
func (l *sessionList) summary() []string {
	stated, marked := 0.0, 0
	var estimated *float64
	for i := range l.items {
		s := &l.items[i]
		stated += s.CostUSD
		if s.EstimatedCostUSD != nil {
			sum := *s.EstimatedCostUSD + value(estimated)
			estimated = &sum
		}
		if isNoticed(s) {
			marked++
		}
	}
	sum := []string{printable.Plural(len(l.items), "session", "sessions")}
	if text := summedCost(stated, estimated); text != "" {
		sum = append(sum, text)
	}
	if marked > 0 {
		sum = append(sum, strconv.Itoa(marked)+" with notices (!): see agenttrace check ID")
	}
	return sum
}

// age is how long ago something was, in one unit.
func (p *printer) age(ms int64) string {
	if !session.Credible(ms) {
		return absent
	}
	s := p.Now.UnixMilli()/1000 - ms/1000
	switch {
	case s < 1:
		return "now"
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%dh", s/3600)
	case s < 365*86400:
		return fmt.Sprintf("%dd", s/86400)
	}
	return fmt.Sprintf("%dy", s/(365*86400))
}
