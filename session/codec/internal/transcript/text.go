package transcript

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/printable"
)

// What is longer is cut, unless all is wanted.
const (
	maxLines = 80
	maxBytes = 8 << 10
)

// clip cuts a text that is long.
func (w *writer) clip(s string) Text {
	if w.o.Full {
		return Text{Body: s}
	}
	head := printable.Head(s, maxBytes)
	lines := 0
	for i := range len(head) {
		if head[i] != '\n' {
			continue
		}
		if lines++; lines == maxLines {
			head = head[:i]
			break
		}
	}
	if len(s)-len(head) <= len(s)/8 {
		return Text{Body: s} // the end is no longer than what is said of it
	}
	return Text{Body: head, Cut: fmt.Sprintf("%s of %s are left out; a full export has them", bytesOf(int64(len(s)-len(head))), bytesOf(int64(len(s))))}
}

// short is what stands in a line of a text, all of which is told elsewhere.
func short(s string) string {
	const maximum = 120
	first, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	first = line(first)
	runes := []rune(first)
	switch {
	case len(runes) > maximum:
		return string(runes[:maximum-1]) + "…"
	case strings.TrimSpace(rest) != "":
		return first + " …"
	}
	return first
}

func (w *writer) resolved(body string, known bool) Text {
	if !known {
		return Text{Cut: "the text never arrived"}
	}
	return w.clip(printable.Sanitize(body))
}

// line is a text that must not break its line.
func line(s string) string { return strings.Join(strings.Fields(printable.Sanitize(s)), " ") }

// present are the texts that say something.
func present(all ...string) []string {
	var some []string
	for _, s := range all {
		if s != "" {
			some = append(some, s)
		}
	}
	return some
}

// webLink is an address that a browser may be sent to, or "".
func webLink(url string) string {
	lower := strings.ToLower(url)
	if (strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://")) && line(url) == url {
		return url
	}
	return ""
}

func (w *writer) time(milli int64) string {
	if milli == 0 {
		return ""
	}
	zone := w.o.Zone
	if zone == nil {
		zone = time.UTC
	}
	return time.UnixMilli(milli).In(zone).Format("2006-01-02 15:04:05 MST")
}

func duration(ms *int64) string {
	if ms == nil {
		return ""
	}
	d := time.Duration(*ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}

func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func bytesOf(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

func dollars(usd float64) string { return "$" + strconv.FormatFloat(usd, 'f', 4, 64) }

func tokens(u *session.Usage) string {
	if u == nil {
		return ""
	}
	return grouped(u.Total()) + " tokens"
}

func turns(t *document.Totals) string {
	s := strconv.Itoa(t.Turns)
	if t.Hidden > 0 {
		s += fmt.Sprintf(", %d of them rewound", t.Hidden)
	}
	if t.Compactions > 0 {
		s += ", " + counted(t.Compactions, "compaction")
	}
	return s
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func calls(t *document.Totals) string {
	s := strconv.Itoa(t.ToolCalls)
	if t.Failed > 0 {
		s += fmt.Sprintf(", %d failed", t.Failed)
	}
	if t.Denied > 0 {
		s += fmt.Sprintf(", %d denied", t.Denied)
	}
	return s
}

// numbers names turns.
func numbers(turns []int) string {
	var all []string
	for i := 0; i < len(turns); i++ {
		first := i
		for i+1 < len(turns) && turns[i+1] == turns[i]+1 {
			i++
		}
		if s := strconv.Itoa(turns[first]); i == first {
			all = append(all, s)
		} else {
			all = append(all, s+"–"+strconv.Itoa(turns[i]))
		}
	}
	if len(turns) == 1 {
		return "turn " + all[0]
	}
	return "turns " + strings.Join(all, ", ")
}

// usageTable has a row per turn that was counted, and their sums.
func usageTable(tl *document.Document) [][]string {
	if tl.Totals.Usage == nil && tl.Totals.CopiedUsage == nil && tl.Totals.CostUSD == nil {
		return nil
	}
	table := [][]string{{"Turn", "Input", "Output", "Reasoning", "Cache read", "Cache write", "Total", "Cost"}}
	row := func(name string, u *session.Usage, cost *float64) {
		cells := []string{name, "", "", "", "", "", "", ""}
		if u != nil {
			for i, n := range []int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite, u.Total()} {
				cells[i+1] = grouped(n)
			}
		}
		if cost != nil {
			cells[7] = dollars(*cost)
		}
		table = append(table, cells)
	}
	for i := range tl.Turns {
		t := &tl.Turns[i]
		if t.Usage != nil || t.CostUSD != nil {
			name := strconv.Itoa(t.Number)
			if t.Hidden {
				name += " (rewound)"
			}
			if t.Copied() {
				name += " (copied)"
			}
			row(name, t.Usage, t.CostUSD)
		}
		for k := range t.Messages {
			if m := &t.Messages[k]; m.CompactionUsage() != nil {
				row("compaction", m.Usage, m.CostUSD)
			}
		}
	}
	if tl.Totals.CopiedUsage != nil {
		row("Copied from the parent", tl.Totals.CopiedUsage, nil)
	}
	row("All", tl.Totals.Usage, tl.Totals.CostUSD)
	return table
}
