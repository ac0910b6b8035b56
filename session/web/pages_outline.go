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

const (
	// groupTurns are the turns that a group of the outline leads to, and maxLandmarks how many landmarks it shows when
	// it is folded.
	groupTurns   = 100
	maxLandmarks = 6
	// A map has at most mapBars bars, and none for a session that is shorter than minMap.
	mapBars   = 250
	minMap    = 8
	mapHeight = 28
)

// outlineGroup is a group of the outline. Turns are all of the group that is open, and landmarks of others.
type outlineGroup struct {
	First, Last int
	Turns       []outlineTurn
}

// outlineTurn leads to a turn.
type outlineTurn struct {
	Number int
	Text   string
	Marks  []string
}

// outline leads to the turns, with an open group. It returns the numbers of those that it leads to as well.
func outline(turns []*document.Turn, open int) (groups []outlineGroup, numbers []int) {
	for group := range slices.Chunk(turns, groupTurns) {
		g := outlineGroup{First: group[0].Number, Last: group[len(group)-1].Number}
		folded := (open < g.First || open > g.Last) && len(turns) > groupTurns
		for _, t := range group {
			marks := marks(t)
			if folded && (marks == nil || marks[0] == "rewound" || len(g.Turns) == maxLandmarks) {
				continue
			}
			g.Turns = append(g.Turns, outlineTurn{Number: t.Number, Marks: marks})
			numbers = append(numbers, t.Number)
		}
		groups = append(groups, g)
	}
	return groups, numbers
}

// beginning is what a turn begins with, in a line of the outline.
func beginning(t *document.Turn) string {
	text := []rune(document.OneLine(cmp.Or(t.UserText(), t.SummaryText(), t.AnswerText())))
	if len(text) > 60 {
		text = append(text[:59], '…')
	}
	return string(text)
}

// mapBar is a few turns in the map of a session: its place and size, in a picture that is mapHeight high and has a unit
// of width for each turn.
type mapBar struct {
	First, Last, Height int
	// Class is the most severe of the marks of its turns, and Marks are all.
	Class, Marks string
}

// Count is the number of turns of the bar.
func (b mapBar) Count() int { return b.Last - b.First + 1 }

// minimap draws how many tokens turns used, and where something is remarkable.
func minimap(turns []*document.Turn) (bars []mapBar) {
	if len(turns) < minMap {
		return nil
	}
	most, used := 1.0, []float64{}
	for part := range slices.Chunk(turns, (len(turns)+mapBars-1)/mapBars) {
		tokens, seen := int64(0), make(map[string]bool)
		for _, t := range part {
			if t.Usage != nil {
				tokens = max(tokens, t.Usage.Total())
			}
			for _, mark := range marks(t) {
				seen[mark] = true
			}
		}
		b := mapBar{First: part[0].Number, Last: part[len(part)-1].Number, Marks: strings.Join(bySeverity(seen), ", ")}
		b.Class, _, _ = strings.Cut(b.Marks, ",")
		bars, used = append(bars, b), append(used, math.Sqrt(float64(tokens))) // short turns are seen beside long ones
		most = max(most, used[len(used)-1])
	}
	for i := range bars {
		bars[i].Height = 4 + int(used[i]/most*(mapHeight-4))
	}
	return bars
}

// bySeverity are the marks that were seen of those that turns can have, the most severe first.
func bySeverity(seen map[string]bool) (all []string) {
	for _, mark := range []string{"error", "failed", "denied", "waiting", "compaction", "rewound"} {
		if seen[mark] {
			all = append(all, mark)
		}
	}
	return all
}

// marks are all that is remarkable in a turn, by severity. One that was rewound begins with that.
func marks(t *document.Turn) []string {
	seen := map[string]bool{"error": t.State == document.StateError, "waiting": t.State == document.StateWaiting}
	for _, s := range stopsOf(t) {
		seen[s.mark] = true
	}
	all := bySeverity(seen)
	if t.Hidden {
		all = slices.Insert(all, 0, "rewound")
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

// messageID is the id of the element of a message, errorID that of one of its errors, and partID that of a part.
func messageID(m *document.Message) string { return "m-" + m.ID }

func errorID(m *document.Message, i int) string { return "e-" + m.ID + "-" + strconv.Itoa(i) }

func partID(id string) string { return "p-" + id }

// waterfallRow is a model call or a tool call of a turn. X and Width are in thousandths of the turn's time.
type waterfallRow struct {
	Kind, Name, Class, Link string
	X, Width                int
	start, DurationMS       int64
	TraceID, SpanID         string
}

// waterfall has the calls of a turn in order of their start, as far as times are known.
func waterfall(t *document.Turn) (rows []waterfallRow) {
	for _, m := range t.Messages {
		for _, c := range m.Calls {
			row := waterfallRow{Kind: "model", Name: cmp.Or(document.ModelName(c.Model), "model call"),
				start: c.StartedAt, DurationMS: c.DurationMS, TraceID: c.TraceID, SpanID: c.SpanID}
			if c.Failed {
				row.Class = document.OutcomeFailed
			}
			rows = append(rows, row)
		}
		for p, c := range m.ToolCalls() {
			if c.DurationMS != nil {
				rows = append(rows, waterfallRow{Kind: "tool", Name: document.Line(cmp.Or(c.Name, document.Unnamed)),
					Class: c.Outcome(), Link: "#" + partID(p.ID), start: cmp.Or(c.StartedAt, p.CreatedAt),
					DurationMS: *c.DurationMS})
			}
		}
	}
	if len(rows) < 2 {
		return nil
	}
	slices.SortStableFunc(rows, func(x, y waterfallRow) int { return cmp.Compare(x.start, y.start) })
	begin, end := rows[0].start, int64(0)
	for i := range rows {
		end = max(end, rows[i].start+rows[i].DurationMS)
	}
	span := max(1, end-begin)
	for i := range rows {
		rows[i].X = int((rows[i].start - begin) * 1000 / span)
		rows[i].Width = max(4, int(rows[i].DurationMS*1000/span))
	}
	return rows
}
