package render

import (
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

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
				span{"  " + document.Join(document.OneLine(h.Title), document.OneLine(h.Agent)), p.title})
		}
		p.line(span{"  " + document.Join(phrases.Facts("hit", h)...), p.dim})
		for _, l := range fold(p.marked(h), p.Width-4) {
			p.line(append([]span{{"    ", p.plain}}, l...)...)
		}
	}
	return p.writeTo(w)
}

// marked is the context of a hit in one line.
func (p *printer) marked(h *store.Hit) []span {
	flat := func(s string) string {
		line := " " + document.Line(s) + " "
		if s == "" || !strings.ContainsRune(" \t\r\n", rune(s[0])) {
			line = line[1:]
		}
		if !strings.HasSuffix(s, " ") && !strings.HasSuffix(s, "\n") && !strings.HasSuffix(s, "\t") {
			line = strings.TrimSuffix(line, " ")
		}
		return line
	}
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
		switch text := flat(piece.Text); {
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
