package web

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// maxLandmarks is how many landmarks a group of the outline shows that is folded.
const maxLandmarks = 6

// outline leads to the turns: to all of the group that is open, and of others to the landmarks.
func outline(turns []*document.Turn, open int) []outlineGroup {
	var groups []outlineGroup
	for _, t := range turns {
		if (t.Number-1)%groupTurns == 0 {
			groups = append(groups, outlineGroup{First: t.Number})
		}
		g := &groups[len(groups)-1]
		g.Last = t.Number
		g.Open = g.Open || t.Number == open || len(turns) <= groupTurns
	}
	for i := range groups {
		g := &groups[i]
		for _, t := range turns[g.First-1 : g.Last] {
			marks := marks(t)
			if !g.Open && (marks == nil || marks[0] == "rewound" || len(g.Turns) == maxLandmarks) {
				continue
			}
			g.Turns = append(g.Turns, outlineTurn{Number: t.Number, Marks: marks})
		}
	}
	return groups
}

// numbers are those of the turns that an outline leads to.
func numbers(groups []outlineGroup) (all []int) {
	for i := range groups {
		for _, t := range groups[i].Turns {
			all = append(all, t.Number)
		}
	}
	return all
}

// texts fills in what the turns of the outline begin with.
func (p *sessionPage) texts() {
	for i := range p.Outline {
		for k := range p.Outline[i].Turns {
			to := &p.Outline[i].Turns[k]
			t := p.Doc.Turns[to.Number-1]
			text := []rune(document.OneLine(cmp.Or(t.UserText(), t.SummaryText(), t.AnswerText())))
			if len(text) > 60 {
				text = append(text[:59], '…')
			}
			to.Text = string(text)
		}
	}
}

// mapBar is a few turns in the map of a session: its place and size, in a picture that is mapHeight high and has a unit
// of width for each turn.
type mapBar struct {
	First, Last, Height int
	// Class is the most severe of the marks of its turns, and Marks are all.
	Class, Marks string
}

// A map has at most mapBars bars, and none for a session that is shorter than minMap.
const (
	mapBars   = 250
	minMap    = 8
	mapHeight = 28
)

// Count is the number of turns of the bar.
func (b mapBar) Count() int { return b.Last - b.First + 1 }

// minimap draws how many tokens turns used, and where something is remarkable.
func minimap(turns []*document.Turn) (bars []mapBar) {
	if len(turns) < minMap {
		return nil
	}
	each := (len(turns) + mapBars - 1) / mapBars
	most, used := 1.0, []float64{}
	for part := range slices.Chunk(turns, each) {
		b, tokens := mapBar{First: part[0].Number, Last: part[len(part)-1].Number}, int64(0)
		seen := make(map[string]bool)
		for _, t := range part {
			if t.Usage != nil {
				tokens = max(tokens, t.Usage.Total())
			}
			for _, mark := range marks(t) {
				seen[mark] = true
			}
		}
		all := slices.DeleteFunc(slices.Clone(severity), func(mark string) bool { return !seen[mark] })
		if b.Marks = strings.Join(all, ", "); all != nil {
			b.Class, _, _ = strings.Cut(b.Marks, ",")
		}
		bars = append(bars, b)
		used = append(used, math.Sqrt(float64(tokens))) // so that short turns are seen beside long ones
		most = max(most, used[len(used)-1])
	}
	for i := range bars {
		bars[i].Height = 4 + int(used[i]/most*(mapHeight-4))
	}
	return bars
}

// severity are the marks that turns can have, the most severe first.
var severity = []string{"error", "failed", "denied", "waiting", "compaction", "rewound"}

// marks are all that is remarkable in a turn, in the order of [severity]. One that was rewound begins with that.
func marks(t *document.Turn) (all []string) {
	if t.Hidden {
		all = append(all, "rewound")
	}
	seen := map[string]bool{"error": t.State == document.StateError, "waiting": t.State == document.StateWaiting}
	for _, s := range stopsOf(t) {
		seen[s.mark] = true
	}
	for _, mark := range severity {
		if seen[mark] {
			all = append(all, mark)
		}
	}
	return all
}

// stop is a place of a turn that something remarkable is at: an element of its page.
type stop struct {
	turn     int
	mark, id string
}

// stopsOf are those of a turn, in the order of its page. There is one for each failure and for each denied call, as
// [session.Failures] counts them.
func stopsOf(t *document.Turn) (all []stop) {
	add := func(mark, id string) { all = append(all, stop{t.Number, mark, id}) }
	for _, m := range t.Messages {
		if m.Compaction != nil {
			add("compaction", messageID(m))
		}
		for p, c := range m.ToolCalls() {
			switch {
			case c.Denied:
				add("denied", partID(p.ID))
			case c.Failed():
				add("failed", partID(p.ID))
			case c.State == session.StateApprovalRequested:
				add("waiting", partID(p.ID))
			}
		}
		mark := "failed"
		if m.State == document.StateError {
			mark = "error"
		}
		for i := range m.Failures() {
			id := messageID(m)
			if i < len(m.ModelErrors) || m.Error != "" {
				id = errorID(m, i)
			}
			add(mark, id)
		}
	}
	return all
}

// messageID is the id of the element of a message, and errorID that of one of its errors.
func messageID(m *document.Message) string { return "m-" + m.ID }

func errorID(m *document.Message, i int) string { return "e-" + m.ID + "-" + strconv.Itoa(i) }

// waterfallRow is a model call or a tool call of a turn. X and Width are in thousandths of the turn's time.
type waterfallRow struct {
	Kind, Name, Class, Link string
	X, Width                int
	DurationMS              int64
	TraceID, SpanID         string
}

// waterfall has the calls of a turn in order of their start, as far as times are known.
func waterfall(t *document.Turn) []waterfallRow {
	type bar struct {
		waterfallRow
		start int64
	}
	var bars []bar
	for _, m := range t.Messages {
		for _, c := range m.Calls {
			b := bar{waterfallRow{Kind: "model", Name: cmp.Or(document.ModelName(c.Model), "model call"),
				DurationMS: c.DurationMS, TraceID: c.TraceID, SpanID: c.SpanID}, c.StartedAt}
			if c.Failed {
				b.Class = document.OutcomeFailed
			}
			bars = append(bars, b)
		}
		for p, c := range m.ToolCalls() {
			if c.DurationMS == nil {
				continue
			}
			row := waterfallRow{Kind: "tool", Name: document.Line(cmp.Or(c.Name, document.Unnamed)),
				Class: c.Outcome(), Link: "#" + partID(p.ID), DurationMS: *c.DurationMS}
			bars = append(bars, bar{row, cmp.Or(c.StartedAt, p.CreatedAt)})
		}
	}
	if len(bars) < 2 {
		return nil
	}
	slices.SortStableFunc(bars, func(x, y bar) int { return cmp.Compare(x.start, y.start) })
	begin, end := bars[0].start, int64(0)
	for i := range bars {
		end = max(end, bars[i].start+bars[i].DurationMS)
	}
	rows := make([]waterfallRow, len(bars))
	for i := range bars {
		rows[i] = bars[i].waterfallRow
		span := max(1, end-begin)
		rows[i].X = int((bars[i].start - begin) * 1000 / span)
		rows[i].Width = max(4, int(bars[i].DurationMS*1000/span))
	}
	return rows
}
