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
	for _, run := range d.Runs() {
		p.blank()
		if len(run[0].Changes) == 0 {
			label := RunLabel(run)
			if d.A.SessionID == d.B.SessionID {
				label = strings.TrimSuffix(label, ", copied")
			}
			p.line(span{"= " + label, p.dim})
		} else {
			dp.turn(&run[0])
		}
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

// Runs cuts the turns into runs of equal ones, copied or not, and single ones that
// differ. It shares the turns.
func (d *Diff) Runs() [][]TurnDiff {
	var runs [][]TurnDiff
	for i := 0; i < len(d.Turns); {
		end := i + 1
		if len(d.Turns[i].Changes) == 0 {
			for end < len(d.Turns) && len(d.Turns[end].Changes) == 0 && d.Turns[end].Copied == d.Turns[i].Copied {
				end++
			}
		}
		runs = append(runs, d.Turns[i:end:end])
		i = end
	}
	return runs
}

type diffPrinter struct {
	*printer
	unified bool
}

func (p *diffPrinter) compared(label string, c *Compared, in paint) {
	facts := []string{Sanitize(c.SessionID), oneLine(c.Title), oneLine(c.Agent), modelName(c.Model), plural(c.Turns, "turn", "turns")}
	if c.ToolCalls > 0 {
		facts = append(facts, plural(c.ToolCalls, "tool call", "tool calls"))
	}
	facts = append(facts, spent(c.Usage, c.CostUSD, nil))
	if c.DurationMS != nil {
		facts = append(facts, duration(*c.DurationMS))
	}
	if c.ForkOf {
		facts = append(facts, "fork of the other")
	}
	p.block(span{label + "  ", in}, span{"   ", p.plain}, joined(facts), p.plain, 2)
}

func (p *diffPrinter) first(f *Divergence) {
	p.block(span{"≠ ", p.warn}, span{"  ", p.plain}, f.String(), p.title, 0)
}

// String says where the sessions part ways.
func (f *Divergence) String() string {
	if f.Aspect == AspectUsage {
		return "only tokens differ, first in " + TurnPair(f.A, f.B)
	}
	return "first divergence: " + TurnPair(f.A, f.B) + ", " + f.Label()
}

// TurnPair names a turn of both sessions by its numbers; 0 where only the other
// session has it.
func TurnPair(a, b int) string {
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

// RunLabel names a run of turns that are equal.
func RunLabel(turns []TurnDiff) string {
	how := "equal"
	if turns[0].Copied {
		how = "equal, copied"
	}
	first, last := &turns[0], &turns[len(turns)-1]
	what := TurnPair(first.A, first.B)
	if len(turns) > 1 {
		what = "turns " + strconv.Itoa(first.A) + "–" + strconv.Itoa(last.A)
		if first.A != first.B || last.A != last.B {
			what += " of A and " + strconv.Itoa(first.B) + "–" + strconv.Itoa(last.B) + " of B"
		}
	}
	return what + ": " + how
}

func (p *diffPrinter) turn(t *TurnDiff) {
	name := TurnPair(t.A, t.B)
	p.header("─", span{"T" + name[1:], p.title}, span{}, plural(len(t.Changes), "difference", "differences"))
	for i := range t.Changes {
		p.change(&t.Changes[i])
	}
}

var aspectLabels = map[string]string{
	AspectTurn: "only here", AspectUser: "user", AspectRewound: "rewound", AspectSystemPrompt: "system prompt", AspectModel: "model",
	AspectTools: "tools available", AspectReasoning: "reasoning", AspectCall: "only here", AspectInput: "input", AspectOutcome: "outcome",
	AspectOutput: "output", AspectAssistant: "assistant", AspectCompaction: "compaction", AspectEnd: "end", AspectUsage: "tokens",
}

// Label says in one line what differs.
func (c *Change) Label() string {
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
	label := c.Label()
	a, b := Sanitize(deref(c.A)), Sanitize(deref(c.B))
	switch {
	case c.Aspect == AspectSystemPrompt:
		label += " " + cmp.Or(Sanitize(short(c.DigestA)), absent) + " → " + cmp.Or(Sanitize(short(c.DigestB)), absent)
		if c.A == nil && c.B == nil {
			p.block(span{"  ", p.plain}, span{"    ", p.plain}, label+" (their texts are not both stored)", p.accent, 0)
			return
		}
	case c.Aspect == AspectTurn || c.Aspect == AspectCall:
	case c.Aspect == AspectUsage && p.usage(label, a, b):
		return
	case a == b:
		p.block(span{"  ", p.plain}, span{"    ", p.plain}, label+": the same but for characters that are not printed", p.accent, 0)
		return
	case !strings.Contains(a+b, "\n") && width(label)+width(a)+width(b)+10 <= p.Width:
		p.line(span{"  " + label + ": ", p.accent}, span{cmp.Or(a, absent), p.bad}, span{" → ", p.dim}, span{cmp.Or(b, absent), p.good})
		return
	}
	p.line(span{"  " + label, p.accent})
	p.lines(CompareTexts(a, b))
}

// lines prints the lines of two texts: those that differ up to a number of them, and of
// those that do not what stands beside one that does.
func (p *diffPrinter) lines(rows []TextRow) {
	shown, left := 0, 0
	for i := 0; i < len(rows); {
		end := i
		for end < len(rows) && rows[end].Same == rows[i].Same {
			end++
		}
		if rows[i].Same {
			p.alike(rows, i, end)
			i = end
			continue
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

// alike prints the lines from begin to end, which are the same in both texts.
func (p *diffPrinter) alike(rows []TextRow, begin, end int) {
	from, to := begin, end // what is left out
	if begin > 0 {
		from += diffContext
	}
	if end < len(rows) {
		to -= diffContext
	}
	for k := begin; k < end; k++ {
		switch {
		case p.Full || to-from <= 1 || k < from || k >= to:
			p.rows(rows[k : k+1])
		case k == from:
			p.line(span{"    ⋯ " + plural(to-from, "line", "lines") + " alike", p.dim})
		}
	}
}

// usage prints those counts of tokens that differ, as many to a line as there is
// room for. It prints nothing and returns false where only one session has any.
func (p *diffPrinter) usage(label, a, b string) bool {
	inA, inB := strings.Split(a, ", "), strings.Split(b, ", ")
	if a == "" || len(inA) != len(inB) {
		return false
	}
	lead := span{"  " + label + ": ", p.accent}
	line, used := []span{lead}, width(lead.text)
	for i := range inA {
		at := strings.LastIndexByte(inA[i], ' ') + 1
		if inA[i] == inB[i] || !strings.HasPrefix(inB[i], inA[i][:at]) {
			continue
		}
		fact := []span{{inA[i][:at], p.plain}, {inA[i][at:], p.bad}, {" → ", p.dim}, {inB[i][at:], p.good}}
		room := width(inA[i]) + len(" → ") - 2 + width(inB[i][at:])
		switch {
		case used == width(lead.text):
		case used+len(" · ")-1+room > p.Width:
			p.line(line...)
			line, used = []span{{strings.Repeat(" ", width(lead.text)), p.plain}}, width(lead.text)
		default:
			line, used = append(line, span{" · ", p.dim}), used+len(" · ")-1
		}
		line, used = append(line, fact...), used+room
	}
	p.line(line...)
	return true
}

// painted is a line of one of two texts; nil where only the other has it.
func painted(line []TextPiece, in paint) []span {
	if line == nil {
		return nil
	}
	spans := make([]span, len(line))
	for i, piece := range line {
		if spans[i].text = piece.Text; piece.Differs {
			spans[i].paint = in
		}
	}
	return spans
}

// rows prints a run of rows that are all equal or all not.
func (p *diffPrinter) rows(run []TextRow) {
	if p.unified {
		for i := range run {
			if run[i].Same {
				p.prefixed(span{"      ", p.plain}, painted(run[i].A, p.bad))
			} else if run[i].A != nil {
				p.prefixed(span{"    - ", p.bad}, painted(run[i].A, p.bad))
			}
		}
		for i := range run {
			if !run[i].Same && run[i].B != nil {
				p.prefixed(span{"    + ", p.good}, painted(run[i].B, p.good))
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
		case r.Same:
		case r.B == nil:
			mark = span{" < ", p.bad}
		case r.A == nil:
			mark = span{" > ", p.good}
		default:
			mark = span{" ≠ ", p.warn}
		}
		left, right := fold(painted(r.A, p.bad), half), fold(painted(r.B, p.good), half)
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
