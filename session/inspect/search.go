package inspect

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session/store"
)

// NumberTurns sets the Turn of each hit to the number that the session's timeline
// gives the turn. It reads each session of a hit once. A session that is gone
// meanwhile has no numbers.
func NumberTurns(ctx context.Context, r store.Reader, hits []store.Hit) error {
	sessions := map[string]map[string]int{}
	for i := range hits {
		h := &hits[i]
		turns, known := sessions[h.SessionID]
		if !known {
			t, err := r.Transcript(ctx, h.SessionID)
			if ignoreNotFound(err) != nil {
				return err
			}
			turns = map[string]int{}
			if t != nil {
				tl := Build(Input{Transcript: t})
				for k := range tl.Turns {
					for m := range tl.Turns[k].Messages {
						turns[tl.Turns[k].Messages[m].ID] = tl.Turns[k].Number
					}
				}
			}
			sessions[h.SessionID] = turns
		}
		h.Turn = turns[h.MessageID]
	}
	return nil
}

// RenderHits prints where a text was found: a heading for each session, and for
// each hit the turn, the place in it and what stands around the matches, which are
// marked by color, or else by »guillemets«.
func RenderHits(w io.Writer, hits []store.Hit, o Options) error {
	p := newPrinter(o)
	previous := ""
	for i := range hits {
		h := &hits[i]
		if h.SessionID != previous {
			if previous != "" {
				p.blank()
			}
			previous = h.SessionID
			p.line(span{Sanitize(h.SessionID), p.accent}, span{"  " + joined([]string{oneLine(h.Title), oneLine(h.Agent)}), p.title})
		}
		where := []string{h.Role}
		if h.Turn > 0 {
			where = []string{"turn " + strconv.Itoa(h.Turn), h.Role}
		}
		if h.Hidden {
			where[len(where)-1] += " (rewound)"
		}
		if h.Tool != "" {
			where = append(where, oneLine(h.Tool))
		}
		if h.Field != "text" {
			where = append(where, oneLine(h.Field))
		}
		if h.Type == "reasoning" {
			where = append(where, "reasoning")
		}
		if h.Matches > 1 {
			where = append(where, strconv.Itoa(h.Matches)+" matches")
		}
		p.line(span{"  " + joined(where), p.dim})
		for _, l := range fold(p.marked(h), p.Width-4) {
			p.line(append([]span{{"    ", p.plain}}, l...)...)
		}
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

// marked is the context of a hit in one line.
func (p *printer) marked(h *store.Hit) []span {
	flat := func(s string) string {
		if s == "" {
			return ""
		}
		var b strings.Builder
		for i, word := range strings.FieldsFunc(Sanitize(s), func(r rune) bool { return r == ' ' || r == '\n' }) {
			if i > 0 || s[0] == ' ' || s[0] == '\n' || s[0] == '\t' || s[0] == '\r' {
				b.WriteByte(' ')
			}
			b.WriteString(word)
		}
		if strings.HasSuffix(s, " ") || strings.HasSuffix(s, "\n") || strings.HasSuffix(s, "\t") {
			b.WriteByte(' ')
		}
		return b.String()
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
	at := 0
	for _, m := range h.Marks {
		if m[0] < at || m[1] > len(h.Context) {
			continue
		}
		add(flat(h.Context[at:m[0]]), p.plain)
		if p.Color {
			add(flat(h.Context[m[0]:m[1]]), p.warn)
		} else {
			add("»"+flat(h.Context[m[0]:m[1]])+"«", p.warn)
		}
		at = m[1]
	}
	add(flat(h.Context[at:]), p.plain)
	if h.CutAfter {
		add("…", p.dim)
	}
	return spans
}
