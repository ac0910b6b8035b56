package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Item is a session in a list. Its JSON is a stable format: keys are added,
// never renamed.
type Item struct {
	ID string `json:"id"`
	// Short is what a table may have in place of the id: see [Abbreviate].
	Short string `json:"-"`
	Title string `json:"title"`
	Agent string `json:"agent"`
	// Model is the one that was active last.
	Model *session.Model `json:"model,omitempty"`
	// State is how the last run ended, if one has and said so. It is what the
	// session's row says: a run that finished may have ended to wait for a human,
	// and another may be under way. [Load] tells these apart.
	State State `json:"state,omitempty"`
	// Status is what the session is doing: see [StatusOf].
	Status Activity `json:"status,omitempty"`
	// Usage is what the session used in all and Total its sum: see [session.Tokens].
	// Context is what takes room in the model's context now, and ContextTotal its sum.
	Usage        session.Usage `json:"usage"`
	Total        int64         `json:"total_tokens"`
	Context      session.Usage `json:"context"`
	ContextTotal int64         `json:"context_tokens"`
	// CostUSD is what the source states: see [session.Tokens.Cost].
	CostUSD float64 `json:"cost_usd"`
	// EstimatedCostUSD is of the messages that state no cost, and no part of CostUSD;
	// nil unless whoever lists the sessions estimated it.
	EstimatedCostUSD *float64 `json:"estimated_cost_usd,omitempty"`
	// Reading is ReadingGeneric of a session whose client no dialect knows.
	Reading string `json:"reading,omitempty"`
	// Notices counts what is doubtful in the session: see [session.Notices].
	Notices int `json:"notices,omitempty"`
	// ParentID is set on children.
	ParentID      string `json:"parent_id,omitempty"`
	WorkspaceRoot string `json:"workspace_root,omitempty"`
	CreatedAt     int64  `json:"created_at"`
	UpdatedAt     int64  `json:"updated_at"`
	ArchivedAt    *int64 `json:"archived_at,omitempty"`
}

// ReadingGeneric marks a session that was read from telemetry which no dialect knows,
// by the names of its attributes. It may be incomplete.
const ReadingGeneric = "generic"

// readingOf returns ReadingGeneric or "".
func readingOf(s *session.Session) string {
	var meta struct {
		Trace struct {
			Dialect string `json:"dialect"`
		} `json:"agenttrace"`
	}
	if json.Unmarshal([]byte(s.MetadataJSON), &meta) == nil && meta.Trace.Dialect == ReadingGeneric {
		return ReadingGeneric
	}
	return ""
}

// NewItem makes an item of a session's row, of its last turn and of what it spent. now and
// silence tell which sessions are interrupted: see [StatusOf]. The cost is estimated where
// it is not stated of the session as a whole.
func NewItem(s *session.Session, t *session.Transcript, spent *store.Spent, now time.Time, idleTimeout time.Duration) Item {
	state, _ := stateOfSession(s)
	var used session.Usage
	if spent.Used != nil {
		used = *spent.Used
	}
	cost, estimated := 0.0, spent.EstimatedUSD
	if usd, whole := spent.Cost(s); usd != nil {
		cost = *usd
		if whole {
			estimated = nil
		}
	}
	return Item{
		ID: s.ID, Title: s.Title, Agent: s.Agent, Model: modelOf(s), State: state, Status: StatusOf(s, t, nil, now, idleTimeout).State,
		Usage: used, Total: used.Total(), Context: s.Usage(), ContextTotal: s.Usage().Total(),
		CostUSD: cost, EstimatedCostUSD: estimated, Reading: readingOf(s), ParentID: deref(s.ParentID), WorkspaceRoot: deref(s.WorkspaceRoot),
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, ArchivedAt: s.ArchivedAt,
	}
}

// Abbreviate sets the Short of items to heads of their ids that tell the sessions of the list
// apart, all of one length, without the prefix that every session has. means says whether a
// head names the session of an id and no other, also of those that are not in the list: an id
// of which no head does is whole.
func Abbreviate(items []Item, means func(short, id string) bool) {
	const maximum = 40 // ids are 26 long; what is longer is not shortened
	bare := func(i int) string { return strings.TrimPrefix(items[i].ID, "ses_") }
	length := 8
	for i := range items {
		id := bare(i)
		n := length
		for n < min(len(id), maximum) && !means(Head(id, n), items[i].ID) {
			n++
		}
		if n < len(id) && n < maximum {
			length = n
		}
	}
	for i := range items {
		id := bare(i)
		if len(id) >= maximum || !means(Head(id, length), items[i].ID) {
			items[i].Short = items[i].ID
		} else {
			items[i].Short = Head(id, length)
		}
	}
}

// shortIDs are what stands for the ids of a list in a narrow table.
func shortIDs(items []Item) []string {
	bare := make([]string, len(items))
	if !slices.ContainsFunc(items, func(i Item) bool { return i.Short == "" }) {
		for i := range items {
			bare[i] = Sanitize(items[i].Short)
		}
		return bare
	}
	const least, maximum = 8, 40
	longest := 0
	for i := range items {
		bare[i] = Sanitize(strings.TrimPrefix(items[i].ID, "ses_"))
		longest = max(longest, len(bare[i]))
	}
	for n := least; n < min(longest, maximum); n++ {
		seen := make(map[string]bool, len(bare))
		for _, id := range bare {
			seen[Head(id, n)] = true
		}
		if len(seen) == len(bare) {
			for i, id := range bare {
				bare[i] = Head(id, n)
			}
			break
		}
	}
	return bare
}

// RenderSessions prints a list of sessions for a person, in the order in which
// they are given. The ids are cut as short as the list allows, unless there is room
// for whole ones besides all columns.
func RenderSessions(w io.Writer, items []Item, o Options) error {
	p := newPrinter(o)
	l := sessionList{printer: p, items: items, drop: make(map[int]bool)}
	l.fill()
	l.wholeIDs()
	l.fit()
	l.print()
	p.infoLines("", l.summary()...)
	_, err := io.WriteString(w, p.b.String())
	return err
}

// Columns of a list of sessions.
const (
	columnID = iota
	columnMark
	columnTitle
	columnAgent
	columnModel
	columnTokens
	columnContext
	columnCost
	columnAge
)

// sessionList is a list of sessions while it is laid out.
type sessionList struct {
	*printer
	items []Item
	rows  [][]listCell // the head first
	// drop are the columns that are left out, widths those of the others.
	drop   map[int]bool
	widths []int
}

type listCell struct {
	span
	right bool
}

// fill makes the rows, with short ids.
func (l *sessionList) fill() {
	withCost := slices.ContainsFunc(l.items, func(s Item) bool { return s.CostUSD != 0 || s.EstimatedCostUSD != nil })
	l.drop[columnCost] = !withCost
	head := make([]listCell, 0, columnAge+1)
	for i, name := range []string{"ID", "", "TITLE", "AGENT", "MODEL", "TOKENS", "CONTEXT", "COST", "AGE"} {
		head = append(head, listCell{span{name, l.title}, i >= columnTokens})
	}
	l.rows = append(make([][]listCell, 0, len(l.items)+1), head)
	ids := shortIDs(l.items)
	for i := range l.items {
		l.rows = append(l.rows, l.row(&l.items[i], ids[i]))
	}
}

func (l *sessionList) row(s *Item, id string) []listCell {
	fit, number := truncate, count
	if l.Whole {
		fit = func(text string, _ int) string { return text }
	}
	if l.Width < 100 {
		number = brief
	}
	cost := cmp.Or(summedCost(s.CostUSD, s.EstimatedCostUSD), absent)
	return []listCell{
		{span: span{id, l.accent}}, {span: l.sign(s)}, {span: span{s.name(), l.plain}},
		{span: span{fit(oneLine(s.Agent), 14), l.dim}}, {span: span{fit(modelName(s.Model), 20), l.dim}},
		{span{number(s.Total), l.plain}, true}, {span{number(s.ContextTotal), l.dim}, true}, {span{cost, l.plain}, true},
		{span{l.age(s.UpdatedAt), l.dim}, true},
	}
}

// sign is the mark of the session's status, and of its notices.
func (l *sessionList) sign(s *Item) (sign span) {
	switch {
	case s.Status != ActivityIdle && s.Status != ActivityUnknown:
		sign = l.activity(s.Status)
	case s.State.bad():
		sign = l.state(s.State)
	}
	sign.text, _, _ = strings.Cut(sign.text, " ")
	if s.noticed() {
		if sign.text == "" {
			sign.paint = l.warn
		}
		sign.text += "!"
	}
	return sign
}

// noticed says whether the list marks the session's notices. Of an interrupted session the
// end is missing in any case: that is its notice.
func (s *Item) noticed() bool {
	return s.Notices > 1 || s.Notices > 0 && s.Status != ActivityInterrupted
}

// name is the title with what the list says of the session beside it.
func (s *Item) name() string {
	name := oneLine(s.Title)
	if s.ParentID != "" {
		name = "↳ " + name
	}
	if s.ArchivedAt != nil {
		name += " (archived)"
	}
	if s.Reading == ReadingGeneric {
		name = "(generic reading) " + name
	}
	return name
}

const (
	wideTitle   = 28 // what a title should have
	narrowTitle = 20 // what it has at least before columns go that are missed
)

// wholeIDs writes the ids as they are where there is room for them beside a title.
func (l *sessionList) wholeIDs() {
	if l.Width < 100 || !l.Whole && l.Width < 120 {
		return
	}
	short := make([]string, len(l.items))
	for i := range l.items {
		short[i] = l.rows[1+i][columnID].text
		l.rows[1+i][columnID].text = Sanitize(l.items[i].ID)
	}
	without := map[int]bool{columnContext: true, columnCost: l.drop[columnCost]}
	if _, room := l.measure(without); !l.Whole && room < wideTitle {
		for i := range short {
			l.rows[1+i][columnID].text = short[i]
		}
	}
}

// measure returns the widths of the columns but for the title's, and what room they leave
// to that.
func (l *sessionList) measure(drop map[int]bool) (widths []int, room int) {
	widths, room = make([]int, columnAge+1), l.Width
	for i := range widths {
		if drop[i] || i == columnTitle {
			continue
		}
		for _, r := range l.rows {
			widths[i] = max(widths[i], width(r[i].text))
		}
		room -= widths[i] + 2
	}
	return widths, room
}

// fit leaves out columns, the least missed first, until there is room for the title.
func (l *sessionList) fit() {
	room := 0
	for _, next := range []int{-1, columnContext, columnModel, columnAgent, columnCost, columnMark, columnTokens} {
		if next >= 0 {
			l.drop[next] = true
		}
		l.widths, room = l.measure(l.drop)
		if l.Whole || room >= wideTitle || l.drop[columnContext] && room >= narrowTitle {
			break
		}
	}
	for _, r := range l.rows {
		l.widths[columnTitle] = max(l.widths[columnTitle], width(r[columnTitle].text))
	}
	maximum := max(room, 8)
	if l.Whole {
		maximum = 60 // longer ones move the rest of their row
	}
	l.widths[columnTitle] = min(l.widths[columnTitle], maximum)
}

// print writes the rows.
func (l *sessionList) print() {
	screen := l.Width
	if l.Whole {
		l.Width = math.MaxInt32
	}
	for _, r := range l.rows {
		var spans []span
		for i, c := range r {
			if l.drop[i] {
				continue
			}
			if len(spans) > 0 {
				spans = append(spans, span{"  ", l.plain})
			}
			if !l.Whole {
				c.text = truncate(c.text, l.widths[i])
			}
			if c.right {
				c.text = padLeft(c.text, l.widths[i])
			} else {
				c.text = pad(c.text, l.widths[i])
			}
			spans = append(spans, c.span)
		}
		l.line(spans...)
	}
	l.Width = screen
}

// summary is the line below the list.
func (l *sessionList) summary() []string {
	stated, noticed := 0.0, 0
	var estimated *float64
	for i := range l.items {
		s := &l.items[i]
		stated += s.CostUSD
		addNumber(&estimated, s.EstimatedCostUSD)
		if s.noticed() {
			noticed++
		}
	}
	sum := []string{plural(len(l.items), "session", "sessions")}
	if text := summedCost(stated, estimated); text != "" {
		sum = append(sum, text)
	}
	if noticed > 0 {
		sum = append(sum, strconv.Itoa(noticed)+" with notices (!): see agenttrace check ID")
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
