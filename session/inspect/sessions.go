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
func NewItem(s *session.Session, t *session.Transcript, spent *store.Spent, now time.Time, silence time.Duration) Item {
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
		ID: s.ID, Title: s.Title, Agent: s.Agent, Model: modelOf(s), State: state, Status: StatusOf(s, t, nil, now, silence).State,
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
	const most = 40 // ids are 26 long; what is longer is not shortened
	bare := func(i int) string { return strings.TrimPrefix(items[i].ID, "ses_") }
	length := 8
	for i := range items {
		id := bare(i)
		n := length
		for n < min(len(id), most) && !means(Head(id, n), items[i].ID) {
			n++
		}
		if n < len(id) && n < most {
			length = n
		}
	}
	for i := range items {
		id := bare(i)
		if len(id) >= most || !means(Head(id, length), items[i].ID) {
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
	const least, most = 8, 40
	longest := 0
	for i := range items {
		bare[i] = Sanitize(strings.TrimPrefix(items[i].ID, "ses_"))
		longest = max(longest, len(bare[i]))
	}
	for n := least; n < min(longest, most); n++ {
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
	ids := shortIDs(items)
	withCost := false
	var cost struct {
		stated    float64
		estimated *float64
	}
	for i := range items {
		withCost = withCost || items[i].CostUSD != 0 || items[i].EstimatedCostUSD != nil
		cost.stated += items[i].CostUSD
		addNumber(&cost.estimated, items[i].EstimatedCostUSD)
	}
	type cell struct {
		span
		right bool
	}
	const mark, title, agent, model, tokens, context, costColumn = 1, 2, 3, 4, 5, 6, 7
	fit := truncate
	if p.Whole {
		fit = func(text string, _ int) string { return text }
	}
	noticed := 0
	rows := make([][]cell, 0, len(items)+1)
	head := []cell{{span: span{"ID", p.title}}, {span: span{"", p.title}}, {span: span{"TITLE", p.title}}, {span: span{"AGENT", p.title}},
		{span: span{"MODEL", p.title}}, {span{"TOKENS", p.title}, true}, {span{"CONTEXT", p.title}, true}, {span{"COST", p.title}, true}, {span{"AGE", p.title}, true}}
	rows = append(rows, head)
	for i := range items {
		s := &items[i]
		var sign span
		switch {
		case s.Status != ActivityIdle && s.Status != ActivityUnknown:
			sign = p.activity(s.Status)
		case s.State.bad():
			sign = p.state(s.State)
		}
		sign.text, _, _ = strings.Cut(sign.text, " ")
		// Of an interrupted session the end is missing in any case: that is its notice.
		if s.Notices > 1 || s.Notices > 0 && s.Status != ActivityInterrupted {
			if sign.text == "" {
				sign.paint = p.warn
			}
			sign.text += "!"
			noticed++
		}
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
		number := count
		if p.Width < 100 {
			number = brief
		}
		rows = append(rows, []cell{
			{span: span{ids[i], p.accent}}, {span: sign}, {span: span{name, p.plain}}, {span: span{fit(oneLine(s.Agent), 14), p.dim}},
			{span: span{fit(modelName(s.Model), 20), p.dim}}, {span{number(s.Total), p.plain}, true}, {span{number(s.ContextTotal), p.dim}, true}, {span{cmp.Or(summedCost(s.CostUSD, s.EstimatedCostUSD), absent), p.plain}, true},
			{span{p.age(s.UpdatedAt), p.dim}, true},
		})
	}
	if p.Whole && p.Width >= 100 {
		for i := range items {
			rows[1+i][0].text = Sanitize(items[i].ID)
		}
	} else if p.Width >= 120 {
		room := p.Width
		for i := range head {
			if i == title || i == context || i == costColumn && !withCost {
				continue
			}
			w := 0
			for k, r := range rows {
				if i == 0 && k > 0 {
					w = max(w, width(Sanitize(items[k-1].ID)))
				} else {
					w = max(w, width(r[i].text))
				}
			}
			room -= w + 2
		}
		if room >= 28 {
			for i := range items {
				rows[1+i][0].text = Sanitize(items[i].ID)
			}
		}
	}
	// What is least missed goes first where there is no room for a title.
	drop := map[int]bool{costColumn: !withCost}
	var widths []int
	room := 0
	for _, next := range []int{-1, context, model, agent, costColumn, mark, tokens} {
		if next >= 0 {
			drop[next] = true
		}
		widths = make([]int, len(head))
		room = p.Width
		for i := range head {
			if drop[i] || i == title {
				continue
			}
			for _, r := range rows {
				widths[i] = max(widths[i], width(r[i].text))
			}
			room -= widths[i] + 2
		}
		if p.Whole || room >= 28 || drop[context] && room >= 20 {
			break
		}
	}
	for _, r := range rows {
		widths[title] = max(widths[title], width(r[title].text))
	}
	if p.Whole {
		widths[title] = min(widths[title], 60) // longer ones move the rest of their row
	} else {
		widths[title] = min(widths[title], max(room, 8))
	}
	screen := p.Width
	if p.Whole {
		p.Width = math.MaxInt32
	}
	for _, r := range rows {
		var spans []span
		for i, c := range r {
			if drop[i] {
				continue
			}
			if len(spans) > 0 {
				spans = append(spans, span{"  ", p.plain})
			}
			if !p.Whole {
				c.text = truncate(c.text, widths[i])
			}
			if c.right {
				c.text = padLeft(c.text, widths[i])
			} else {
				c.text = pad(c.text, widths[i])
			}
			spans = append(spans, c.span)
		}
		p.line(spans...)
	}
	p.Width = screen
	sum := []string{plural(len(items), "session", "sessions")}
	if text := summedCost(cost.stated, cost.estimated); text != "" {
		sum = append(sum, text)
	}
	if noticed > 0 {
		sum = append(sum, strconv.Itoa(noticed)+" with notices (!): see agenttrace check ID")
	}
	p.facts("", sum...)
	_, err := io.WriteString(w, p.b.String())
	return err
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
