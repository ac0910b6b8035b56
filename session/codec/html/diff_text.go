package html

import (
	"slices"

	"github.com/agenttrace/agenttrace/session/codec/internal/transcript"
	"github.com/agenttrace/agenttrace/session/document/diff"
	"github.com/agenttrace/agenttrace/session/printable"
)

// What is longer is cut, unless all is wanted.
const (
	context  = 3   // lines alike beside one that differs
	maxFold  = 400 // lines alike that are folded and not left out
	maxLines = 400 // lines that differ, of one text
	maxLine  = 4 << 10
)

// diffRun is a run of rows. Fold is the label that they are folded under; Left says
// what is left out in their place.
type diffRun struct {
	Same       bool
	Prose      bool
	Fold, Left string
	Rows       []diff.Row
}

// Marked reports whether the words of a row are worth a mark: a line that differs as a
// whole needs none.
func (r diffRun) Marked(line []diff.Piece) bool { return len(line) > 1 }

func (c *comparer) clipped(text string) *transcript.Text {
	clipped := transcript.Text{Body: printable.Sanitize(text)}
	if !c.o.Full && len(clipped.Body) > maxLine {
		clipped.Body = printable.Head(clipped.Body, maxLine)
		clipped.Cut = "the rest is the same too"
	}
	return &clipped
}

// runs compares two texts and cuts the rows into runs that differ and that are alike;
// of the latter, what is not beside a difference is folded.
func (c *comparer) runs(a, b string, prose bool) []diffRun {
	rows := diff.Texts(printable.Sanitize(a), printable.Sanitize(b))
	var runs []diffRun
	room := maxLines
	for _, h := range diff.Hunks(rows, context, 3) {
		n := len(h.Rows)
		run := diffRun{Same: h.Same, Prose: prose, Rows: c.cut(h.Rows)}
		switch {
		case h.Apart && n > maxFold && !c.o.Full:
			run.Left, run.Rows = printable.Plural(n, "line", "lines")+" alike are left out; --full has them", nil
		case h.Apart:
			run.Fold = printable.Plural(n, "line", "lines") + " alike"
		case !h.Same && n > room && !c.o.Full:
			if run.Rows = run.Rows[:room]; room > 0 {
				runs = append(runs, run)
			}
			run.Left, run.Rows = printable.Plural(n-room, "line", "lines")+" more that differ are left out; --full has them", nil
		}
		if !h.Same {
			room = max(room-n, 0)
		}
		runs = append(runs, run)
	}
	return runs
}

// cut shortens lines that are very long.
func (c *comparer) cut(rows []diff.Row) []diff.Row {
	if c.o.Full {
		return rows
	}
	short := func(line []diff.Piece) []diff.Piece {
		room := maxLine
		for i := range line {
			if len(line[i].Text) > room {
				cut := slices.Clone(line[:i+1])
				cut[i].Text = printable.Head(cut[i].Text, room) + " …"
				return cut
			}
			room -= len(line[i].Text)
		}
		return line
	}
	out := make([]diff.Row, len(rows))
	for i, r := range rows {
		out[i] = diff.Row{A: short(r.A), B: short(r.B), Same: r.Same}
	}
	return out
}
