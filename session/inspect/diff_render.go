package inspect

import (
	"cmp"
	"io"
	"strconv"
	"strings"
)

// SideBySide is the least width at which [Diff.Render] puts two sessions beside
// each other.
const SideBySide = 100

const (
	// diffContext is how many equal lines stand before and after what differs.
	diffContext = 2
	// diffLines is how many lines of one change are shown, unless all shall be.
	diffLines = 40
)

// Render prints the diff for a person: side by side where there is room, unless
// unified is wanted. Turns that are equal are told in one line.
func (d *Diff) Render(w io.Writer, o Options, unified bool) error {
	p := newPrinter(o)
	dp := &diffPrinter{printer: p, unified: unified || p.Width < SideBySide}
	dp.compared("A", &d.A, p.bad)
	dp.compared("B", &d.B, p.good)
	p.blank()
	if d.First == nil {
		p.line(span{"= no differences", p.good})
	} else {
		dp.first(d.First)
	}
	for i := 0; i < len(d.Turns); i++ {
		if len(d.Turns[i].Changes) == 0 {
			end := i
			for end+1 < len(d.Turns) && len(d.Turns[end+1].Changes) == 0 && d.Turns[end+1].Copied == d.Turns[i].Copied {
				end++
			}
			p.blank()
			dp.alike(d.Turns[i : end+1])
			i = end
			continue
		}
		p.blank()
		dp.turn(&d.Turns[i])
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

type diffPrinter struct {
	*printer
	unified bool
}

func (p *diffPrinter) compared(label string, c *Compared, in paint) {
	facts := []string{Sanitize(c.SessionID), oneLine(c.Title), oneLine(c.Agent), modelName(c.Model), plural(c.Turns, "turn", "turns")}
	if c.ForkOf {
		facts = append(facts, "fork of the other")
	}
	p.block(span{label + "  ", in}, span{"   ", p.plain}, joined(facts), p.plain, 2)
}

func (p *diffPrinter) first(f *Divergence) {
	text := "first divergence: " + turnPair(f.A, f.B) + ", " + changeLabel(&f.Change)
	if f.Aspect == AspectUsage {
		text = "only tokens differ, first in " + turnPair(f.A, f.B)
	}
	p.block(span{"≠ ", p.warn}, span{"  ", p.plain}, text, p.title, 0)
}

// turnPair names a turn of both sessions.
func turnPair(a, b int) string {
	switch {
	case a == 0:
		return "turn " + strconv.Itoa(b) + " of B"
	case b == 0:
		return "turn " + strconv.Itoa(a) + " of A"
	case a == b:
		return "turn " + strconv.Itoa(a)
	}
	return "turn " + strconv.Itoa(a) + " of A and " + strconv.Itoa(b) + " of B"
}

func (p *diffPrinter) alike(turns []TurnDiff) {
	how := "equal"
	if turns[0].Copied {
		how = "equal, copied"
	}
	first, last := &turns[0], &turns[len(turns)-1]
	what := turnPair(first.A, first.B)
	if len(turns) > 1 {
		what = "turns " + strconv.Itoa(first.A) + "–" + strconv.Itoa(last.A)
		if first.A != first.B || last.A != last.B {
			what += " of A and " + strconv.Itoa(first.B) + "–" + strconv.Itoa(last.B) + " of B"
		}
	}
	p.line(span{"= " + what + ": " + how, p.dim})
}

func (p *diffPrinter) turn(t *TurnDiff) {
	name := turnPair(t.A, t.B)
	p.header("─", span{"T" + name[1:], p.title}, span{}, plural(len(t.Changes), "difference", "differences"))
	for i := range t.Changes {
		p.change(&t.Changes[i])
	}
}

var aspectLabels = map[string]string{
	AspectTurn: "only here", AspectUser: "user", AspectRewound: "rewound", AspectSystemPrompt: "system prompt", AspectModel: "model",
	AspectTools: "tools available", AspectReasoning: "reasoning", AspectCall: "only here", AspectInput: "input", AspectOutcome: "outcome",
	AspectOutput: "output", AspectAssistant: "assistant", AspectEnd: "end", AspectUsage: "tokens",
}

// changeLabel says in one line what differs.
func changeLabel(c *Change) string {
	label := aspectLabels[c.Aspect]
	if c.Aspect == AspectTurn || c.Aspect == AspectCall {
		label = "only in A"
		if c.A == nil {
			label = "only in B"
		}
	}
	if c.CallA == 0 && c.CallB == 0 {
		return label
	}
	place := "call " + strconv.Itoa(cmp.Or(c.CallA, c.CallB))
	if c.CallA != 0 && c.CallB != 0 && c.CallA != c.CallB {
		place = "call " + strconv.Itoa(c.CallA) + "/" + strconv.Itoa(c.CallB)
	}
	return place + " " + cmp.Or(oneLine(c.Tool), unnamed) + ", " + label
}

func (p *diffPrinter) change(c *Change) {
	label := changeLabel(c)
	a, b := Sanitize(deref(c.A)), Sanitize(deref(c.B))
	switch {
	case c.Aspect == AspectSystemPrompt:
		label += " " + cmp.Or(Sanitize(short(c.DigestA)), absent) + " → " + cmp.Or(Sanitize(short(c.DigestB)), absent)
		if c.A == nil && c.B == nil {
			p.block(span{"  ", p.plain}, span{"    ", p.plain}, label+" (their texts are not both stored)", p.accent, 0)
			return
		}
	case c.Aspect == AspectTurn || c.Aspect == AspectCall:
	case a == b:
		p.block(span{"  ", p.plain}, span{"    ", p.plain}, label+": the same but for characters that are not printed", p.accent, 0)
		return
	case !strings.Contains(a+b, "\n") && width(label)+width(a)+width(b)+10 <= p.Width:
		p.line(span{"  " + label + ": ", p.accent}, span{cmp.Or(a, absent), p.bad}, span{" → ", p.dim}, span{cmp.Or(b, absent), p.good})
		return
	}
	p.line(span{"  " + label, p.accent})
	rows := textRows(a, b, p.bad, p.good)
	for i := range rows {
		if !rows[i].same {
			paintWhole(rows[i].a, p.bad)
			paintWhole(rows[i].b, p.good)
		}
	}
	shown, left := 0, 0
	for i := 0; i < len(rows); {
		if rows[i].same {
			end := i
			for end < len(rows) && rows[end].same {
				end++
			}
			from, to := i, end // what is left out
			if i > 0 {
				from += diffContext
			}
			if end < len(rows) {
				to -= diffContext
			}
			for k := i; k < end; k++ {
				if !p.Full && to-from > 1 && k >= from && k < to {
					if k == from {
						p.line(span{"    ⋯ " + plural(to-from, "line", "lines") + " alike", p.dim})
					}
					continue
				}
				p.rows(rows[k : k+1])
			}
			i = end
			continue
		}
		end := i
		for end < len(rows) && !rows[end].same {
			end++
		}
		run := rows[i:end]
		if room := max(diffLines-shown, 0); !p.Full && len(run) > room+1 {
			left += len(run) - room
			run = run[:room]
		}
		shown += len(run)
		p.rows(run)
		i = end
	}
	if left > 0 {
		p.line(span{"    … " + plural(left, "more line differs", "more lines differ") + " (--full)", p.dim})
	}
}

// paintWhole paints a line of which no word is marked.
func paintWhole(line []span, in paint) {
	for i := range line {
		if line[i].paint != (paint{}) {
			return
		}
	}
	for i := range line {
		line[i].paint = in
	}
}

// rows prints a run of rows that are all equal or all not.
func (p *diffPrinter) rows(run []textRow) {
	if p.unified {
		for i := range run {
			if run[i].same {
				p.prefixed(span{"      ", p.plain}, run[i].a)
			} else if run[i].a != nil {
				p.prefixed(span{"    - ", p.bad}, run[i].a)
			}
		}
		for i := range run {
			if !run[i].same && run[i].b != nil {
				p.prefixed(span{"    + ", p.good}, run[i].b)
			}
		}
		return
	}
	const indent = "    "
	half := (p.Width - len(indent) - 3) / 2
	for i := range run {
		r := &run[i]
		mark := span{" │ ", p.rule}
		switch {
		case r.same:
		case r.b == nil:
			mark = span{" < ", p.bad}
		case r.a == nil:
			mark = span{" > ", p.good}
		default:
			mark = span{" ≠ ", p.warn}
		}
		left, right := fold(r.a, half), fold(r.b, half)
		for k := range max(len(left), len(right)) {
			line := []span{{indent, p.plain}}
			used := 0
			if k < len(left) {
				for _, s := range left[k] {
					used += width(s.text)
				}
				line = append(line, left[k]...)
			}
			line = append(line, span{strings.Repeat(" ", max(half-used, 0)), p.plain}, mark)
			if k < len(right) {
				line = append(line, right[k]...)
			}
			p.line(line...)
		}
	}
}

func (p *diffPrinter) prefixed(lead span, line []span) {
	for i, l := range fold(line, p.Width-width(lead.text)) {
		if i > 0 {
			lead.text = strings.Repeat(" ", width(lead.text))
		}
		p.line(append([]span{lead}, l...)...)
	}
}
