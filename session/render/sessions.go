package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Columns of a list of sessions.
const (
	columnID = iota
	columnMark
	columnProject
	columnTitle
	columnAgent
	columnModel
	columnTurns
	columnErrors
	columnTokens
	columnContext
	columnCost
	columnDuration
	columnAge
)

const (
	wideTitle   = 28 // what a title should have
	narrowTitle = 20 // what it has at least before columns go that are missed
)

// Sessions prints a list of sessions for a person, in the order in which they are given. Their ids are short, see
// [document.Abbreviate], unless there is room for whole ones besides all columns. A column that is empty is left out.
func Sessions(w io.Writer, items []document.Item, o Options) error {
	p := newPrinter(o)
	g := p.sessions(items, true)
	room := func() int { return p.Width - g.width() + g.widths[columnTitle] }
	if whole := p.Whole && p.Width >= 100 || p.Width >= 120 && room() >= wideTitle; !whole {
		g = p.sessions(items, false)
	}
	// Leave out columns, the least missed first, until there is room for the title.
	for _, next := range []int{columnContext, columnTurns, columnProject, columnDuration, columnModel, columnAgent,
		columnCost, columnErrors, columnMark, columnTokens} {
		if p.Whole || room() >= wideTitle || g.drop[columnModel] && room() >= narrowTitle {
			break
		}
		g.drop[next] = true
	}
	if !p.Whole {
		g.widths[columnTitle] = min(g.widths[columnTitle], max(room(), 8))
	}
	p.grid(g)
	p.infoLines("", summary(items, p.Prices)...)
	return p.writeTo(w)
}

func (p *printer) sessions(items []document.Item, whole bool) *grid {
	g := &grid{gap: 2, left: columnTurns, drop: map[int]bool{}, whole: p.Whole}
	g.add(p.title, "ID", "", "PROJECT", "TITLE", "AGENT", "MODEL", "TURNS", "ERRORS", "TOKENS", "CONTEXT", "COST", "DURATION",
		"AGE")
	fit, number := truncate, document.Count
	if p.Whole {
		fit = func(text string, _ int) string { return text }
	}
	if p.Width < 100 && !p.Whole {
		number = document.Brief
	}
	for i := range items {
		s := &items[i]
		id := cmp.Or(s.Short, s.ID)
		if whole {
			id = s.ID
		}
		errors := span{number(s.Errors), p.dim}
		if s.Errors > 0 {
			errors.paint = p.bad
		}
		g.addSpans(span{document.Sanitize(id), p.accent}, p.sign(s), span{fit(document.Tail(s.WorkspaceRoot), 14), p.dim},
			span{itemName(s), p.plain}, span{fit(document.OneLine(s.Agent), 14), p.dim},
			span{fit(document.ModelName(s.Model), 20), p.dim}, span{number(s.Turns), p.dim}, errors,
			span{number(s.Total), p.plain}, span{number(s.ContextTotal), p.dim}, span{costOf(s), p.plain},
			span{cmp.Or(document.OptionalDuration(s.DurationMS), absent), p.dim}, span{p.age(s.UpdatedAt), p.dim})
	}
	for column, empty := range map[int]string{columnMark: "", columnProject: "", columnModel: "", columnErrors: "0",
		columnCost: absent, columnDuration: absent} {
		g.drop[column] = !(p.Whole && column == columnErrors) &&
			!slices.ContainsFunc(g.rows[1:], func(row []span) bool { return row[column].text != empty })
	}
	return g
}

// sign is the mark of the session's status and of its notices, or of what no source reports.
func (p *printer) sign(s *document.Item) (sign span) {
	switch {
	case s.Status != document.ActivityIdle && s.Status != document.ActivityUnknown:
		sign = p.did(string(s.Status))
	case s.State.Bad():
		sign = p.did(string(s.State))
	}
	sign.text, _, _ = strings.Cut(sign.text, " ")
	if isNoticed(s) {
		if sign.text == "" {
			sign.paint = p.warn
		}
		sign.text += "!"
	} else if sign.text == "" && s.Quality.String() != "" {
		sign = span{"~", p.dim}
	}
	return sign
}

// isNoticed reports whether the list marks the session's notices. Of an interrupted session the
// end is missing in any case: that is its notice.
func isNoticed(s *document.Item) bool {
	return s.Notices > 1 || s.Notices > 0 && s.Status != document.ActivityInterrupted
}

// itemName is the title with what the list has of the session beside it.
func itemName(s *document.Item) string {
	name := phrases.Text("item", s)
	var marks []string
	for i := range s.Annotations {
		if n := &s.Annotations[i]; n.MessageID == "" && n.Kind != store.AnnotationNote {
			marks = append(marks, document.OneLine(n.Short()))
		}
	}
	if len(marks) > 0 {
		name += " ⚑ " + strings.Join(marks, ", ")
	}
	return name
}

// costOf is what a session cost, absent if that is not known of all of it.
func costOf(s *document.Item) string {
	if s.Unpriced {
		return absent
	}
	return cmp.Or(document.Spent(s.CostUSD, s.EstimatedCostUSD), absent)
}

func summary(items []document.Item, prices string) []string {
	all, marked := document.Sum(items), 0
	for i := range items {
		if isNoticed(&items[i]) {
			marked++
		}
	}
	sum := []string{document.Plural(len(items), "session", "sessions")}
	if text := document.Spent(all.CostUSD, all.EstimatedCostUSD); text != "" && !all.Unpriced {
		if all.EstimatedCostUSD != nil && prices != "" {
			text += " (" + prices + ")"
		}
		sum = append(sum, text)
	}
	if marked > 0 {
		sum = append(sum, strconv.Itoa(marked)+" with notices (!): see agenttrace store check ID")
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

// Hits prints where a text was found: a heading for each session, and for each hit the turn, the place in it and what
// is around the matches, which are marked by color, or else by »guillemets«.
func Hits(w io.Writer, hits []store.Hit, o Options) error {
	p := newPrinter(o)
	previous := ""
	for i := range hits {
		h := &hits[i]
		if h.SessionID != previous {
			if previous != "" {
				p.blank()
			}
			previous = h.SessionID
			p.line(span{document.Sanitize(h.SessionID), p.accent},
				span{"  " + document.Join(document.OneLine(document.Name(h.Title, h.Opening)), document.OneLine(h.Agent)), p.title})
		}
		p.line(span{"  " + document.Join(phrases.Facts("hit", h)...), p.dim})
		for _, l := range fold(p.marked(h), p.Width-4) {
			p.line(append([]span{{"    ", p.plain}}, l...)...)
		}
	}
	return p.writeTo(w)
}

var spaces = lazy.Regexp(`\s+`)

func (p *printer) marked(h *store.Hit) []span {
	var spans []span
	add := func(text string, in paint) {
		if text != "" {
			spans = append(spans, span{text, in})
		}
	}
	if h.CutBefore {
		add("…", p.dim)
	}
	for _, piece := range document.Pieces(h) {
		switch text := spaces().ReplaceAllString(document.Sanitize(piece.Text), " "); {
		case !piece.Differs:
			add(text, p.plain)
		case p.Color:
			add(text, p.warn)
		default:
			add("»"+text+"«", p.warn)
		}
	}
	if h.CutAfter {
		add("…", p.dim)
	}
	return spans
}
