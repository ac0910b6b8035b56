package html

import (
	"slices"
	"strconv"

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

// Marked says whether the words of a row are worth a mark: a line that differs as a
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
	for i := 0; i < len(rows); {
		end := i + 1
		for end < len(rows) && rows[end].Same == rows[i].Same {
			end++
		}
		run := rows[i:end]
		add := func(rows []diff.Row, fold, left string) {
			if len(rows) > 0 || left != "" {
				runs = append(runs, diffRun{Same: run[0].Same, Prose: prose, Fold: fold, Left: left, Rows: c.cut(rows)})
			}
		}
		switch {
		case !run[0].Same:
			if c.o.Full || len(run) <= room {
				add(run, "", "")
			} else {
				add(run[:room], "", "")
				add(nil, "", lines(len(run)-room)+" more that differ are left out; --full has them")
			}
			room = max(room-len(run), 0)
		default:
			before, after := context, context
			if i == 0 {
				before = 0
			}
			if end == len(rows) {
				after = 0
			}
			folded := len(run) - before - after
			switch {
			case folded < 3:
				add(run, "", "")
			case folded > maxFold && !c.o.Full:
				add(run[:before], "", "")
				add(nil, "", lines(folded)+" alike are left out; --full has them")
				add(run[len(run)-after:], "", "")
			default:
				add(run[:before], "", "")
				add(run[before:len(run)-after], lines(folded)+" alike", "")
				add(run[len(run)-after:], "", "")
			}
		}
		i = end
	}
	return runs
}

func lines(n int) string {
	if n == 1 {
		return "1 line"
	}
	return strconv.Itoa(n) + " lines"
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
