package document

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Items makes a list of rows of sessions, with what each of them used and the number of its notices. It also returns
// the models that have no price, as provider/model and in order.
func (r Reader) Items(ctx context.Context, rows []session.Session) (items []Item, unpriced []string, err error) {
	items, unpriced, err = r.Briefly(ctx, rows)
	for i := range items {
		if items[i].Notices == 0 {
			continue
		}
		in, err := r.Collect(ctx, items[i].ID)
		if ignoreNotFound(err) != nil {
			return nil, nil, err
		}
		if items[i].Notices = 0; err == nil {
			items[i].Notices = len(NoticesOf(in))
		}
	}
	return items, unpriced, err
}

// Briefly is [Items] without the number of notices, for which a session is read as a whole: it is 1 where there may be
// some.
func (r Reader) Briefly(ctx context.Context, rows []session.Session) (items []Item, unpriced []string, err error) {
	ids := session.IDs(rows)
	spent, err := r.Spent(ctx, ids, r.Price)
	if err != nil {
		return nil, nil, err
	}
	doubtful, err := r.MayHaveNotices(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	lacks, err := r.Missing(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	openings, err := r.openings(ctx, rows...)
	if err != nil {
		return nil, nil, err
	}
	annotations, err := r.Annotations(ctx, ids...)
	if err != nil {
		return nil, nil, err
	}
	annotated := AnnotationsBySession(inOrder(annotations))
	items = make([]Item, len(rows))
	lacking := map[string]bool{}
	now, idleTimeout := r.limits()
	for i := range rows {
		s := spent[rows[i].ID]
		t, err := r.lastTurn(ctx, rows[i].ID)
		if errors.Is(err, store.ErrNotFound) {
			t = nil // deleted since it was listed
		} else if err != nil {
			return nil, nil, err
		}
		items[i] = NewItem(&rows[i], t, &s, now, idleTimeout)
		items[i].Opening = openings[rows[i].ID]
		items[i].Annotations = annotated[rows[i].ID]
		if doubtful[rows[i].ID] {
			items[i].Notices = 1
		}
		items[i].Quality = qualityOf(&rows[i], lacks[rows[i].ID], items[i].Status)
		if _, whole := s.Cost(&rows[i]); !whole {
			for _, model := range s.Unpriced {
				lacking[model] = true
			}
		}
	}
	return items, slices.Sorted(maps.Keys(lacking)), nil
}

// openings are those of the sessions without a title.
func (r Reader) openings(ctx context.Context, rows ...session.Session) (map[string]string, error) {
	var untitled []string
	for i := range rows {
		if !isTitle(rows[i].Title) {
			untitled = append(untitled, rows[i].ID)
		}
	}
	if untitled == nil {
		return nil, nil
	}
	return r.Openings(ctx, untitled)
}

func isTitle(title string) bool { return title != "" && title != session.Untitled }

// Name is what a session is called: its title, not sanitized, or else how it opens.
func Name(title, opening string) string {
	const maxOpening = 80 // bytes
	switch line := Line(opening); {
	case isTitle(title):
		return title
	case len(line) > maxOpening:
		return strings.TrimSpace(Head(line, maxOpening)) + "…"
	default:
		return cmp.Or(line, "Untitled session")
	}
}

// Descendants adds the forks and sub-agents of each session, and theirs, to a list of ids. Each id is in it once.
func Descendants(ctx context.Context, r store.Reader, ids []string) ([]string, error) {
	seen := map[string]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	for i := 0; i < len(ids); i++ {
		for s, err := range r.Sessions(ctx, store.SessionQuery{ParentID: ids[i], Limit: -1, Archived: true}) {
			if err != nil {
				return nil, err
			}
			if !seen[s.ID] {
				seen[s.ID] = true
				ids = append(ids, s.ID)
			}
		}
	}
	return ids, nil
}

// Item is a session in a list. Its JSON is a stable format: keys are added, never renamed.
type Item struct {
	ID string `json:"id"`
	// Short is what a table may have in place of the id: see [Abbreviate].
	Short string `json:"-"`
	Title string `json:"title"`
	// Opening is how the first text of a user begins, of a session without a title.
	Opening string `json:"opening,omitempty"`
	Agent   string `json:"agent"`
	// Model is the one that was active last.
	Model *session.Model `json:"model,omitempty"`
	// State is how the last run ended, if one has and reported so. It is what the session's row has: a run that
	// finished may have ended to wait for a human, and another may be under way. [Load] distinguishes these.
	State State `json:"state,omitempty"`
	// Status is what the session is doing: see [StatusOf].
	Status Activity `json:"status,omitempty"`
	// Usage is what the session used in all and Total its sum: see [session.Tokens].
	// Context is the usage of the messages that are now in the model's context, and ContextTotal its sum.
	Usage        session.Usage `json:"usage"`
	Total        int64         `json:"total_tokens"`
	Context      session.Usage `json:"context"`
	ContextTotal int64         `json:"context_tokens"`
	// Turns is their number, rewound ones included. Errors counts failures, and Denied the tool calls that were denied:
	// see [session.Failures].
	Turns  int64 `json:"turns"`
	Errors int64 `json:"errors"`
	Denied int64 `json:"denied_tool_calls"`
	// DurationMS sums the turns that state a duration.
	DurationMS *int64 `json:"duration_ms,omitempty"`
	// CostUSD is what the source states: see [session.Tokens.Cost].
	CostUSD float64 `json:"cost_usd"`
	// EstimatedCostUSD is of the messages that state no cost, and no part of CostUSD;
	// nil unless the caller that lists the sessions estimated it.
	EstimatedCostUSD *float64 `json:"estimated_cost_usd,omitempty"`
	// Unpriced reports that a model of the session has no price: the costs are not all.
	Unpriced bool `json:"unpriced,omitempty"`
	// Reading is ReadingGeneric of a session whose client no dialect knows.
	Reading string `json:"reading,omitempty"`
	// Notices counts what is doubtful in the session: see [session.Notices].
	Notices int `json:"notices,omitempty"`
	// Quality states how much of the session is reported.
	Quality *session.Quality `json:"quality,omitempty"`
	// Annotations are the tags, notes and scores of the session, and of its turns and parts.
	Annotations []Annotation `json:"annotations,omitempty"`
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

func readingOf(s *session.Session) string {
	if gjson.Get(s.MetadataJSON, "agenttrace.dialect").String() == ReadingGeneric {
		return ReadingGeneric
	}
	return ""
}

// NewItem makes an item of a session's row, of its last turn and of what it spent. now and idleTimeout decide which
// sessions are interrupted: see [StatusOf]. The cost is estimated where it is not stated of the session as a whole.
func NewItem(s *session.Session, t *session.Transcript, spent *store.Spent, now time.Time,
	idleTimeout time.Duration) Item {
	state, _ := stateOfSession(s)
	used := session.Deref(spent.Used)
	cost, estimated, unpriced := 0.0, spent.EstimatedUSD, len(spent.Unpriced) > 0
	if usd, whole := spent.Cost(s); usd != nil {
		cost = *usd
		if whole {
			estimated, unpriced = nil, false
		}
	}
	return Item{
		ID: s.ID, Title: s.Title, Agent: s.Agent, Model: modelOf(s), State: state,
		Status: StatusOf(s, t, nil, now, idleTimeout).State,
		Turns:  spent.Turns, Errors: spent.Errors, Denied: spent.Denied, DurationMS: spent.DurationMS,
		Usage: used, Total: used.Total(), Context: s.Usage(), ContextTotal: s.Usage().Total(),
		CostUSD: cost, EstimatedCostUSD: estimated, Unpriced: unpriced, Reading: readingOf(s),
		ParentID: session.Deref(s.ParentID), WorkspaceRoot: session.Deref(s.WorkspaceRoot),
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, ArchivedAt: s.ArchivedAt,
	}
}

// Outcome is what a list shows of the session: what it is doing or, of an idle one, how its last run ended. It is one of
// [Statuses], or "".
func (s *Item) Outcome() string {
	if s.Status == ActivityIdle || s.Status == ActivityUnknown {
		return cmp.Or(string(s.State), string(s.Status))
	}
	return string(s.Status)
}

// Sum adds up what the sessions of a list used: their turns, failures, denied calls, tokens, costs and durations.
func Sum(items []Item) (sum Item) {
	for i := range items {
		s := &items[i]
		sum.Turns, sum.Errors, sum.Denied = sum.Turns+s.Turns, sum.Errors+s.Errors, sum.Denied+s.Denied
		sum.Total, sum.CostUSD, sum.Unpriced = sum.Total+s.Total, sum.CostUSD+s.CostUSD, sum.Unpriced || s.Unpriced
		addNumber(&sum.EstimatedCostUSD, s.EstimatedCostUSD)
		addNumber(&sum.DurationMS, s.DurationMS)
	}
	return sum
}

// Abbreviate sets the Short of items to heads of their ids that distinguish the sessions of the list, all of one
// length, without the prefix that every session has. means reports whether a head names the session of an id and no
// other, also of those that are not in the list: an id of which no head does is whole.
func Abbreviate(items []Item, means func(short, id string) bool) {
	const maximum = 40 // ids are 26 long; of a longer one that is not enough, all is needed
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
		items[i].Short = Head(bare(i), length)
		if !means(items[i].Short, items[i].ID) {
			items[i].Short = items[i].ID
		}
	}
}

// Statuses are what sessions can be selected by: what they do, and how their last run ended.
func Statuses() []string {
	return []string{
		string(ActivityIdle), string(ActivityBusy), string(ActivityRetrying), string(ActivityWaitingApproval),
		string(ActivityWaitingUserInput), string(ActivityInterrupted), string(StateFinished), string(StateAborted),
		string(StateError),
	}
}

// Select returns the sessions of a query that have a status, one of [Statuses], or all if it is "". A session is
// interrupted depending on the time, so the status is computed session by session: see [StatusOf]. The query's limit is
// that of the sessions that are returned.
func (r Reader) Select(ctx context.Context, q store.SessionQuery, status string) (rows []session.Session, err error) {
	if q.Sort == store.SortCost && r.Price != nil {
		return r.costliest(ctx, q, status)
	}
	for s, err := range r.selected(ctx, q, status) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, s)
	}
	return rows, nil
}

// costliest is [Reader.Select] in the order of costs with estimates, which depend on the prices: no store knows it.
func (r Reader) costliest(ctx context.Context, q store.SessionQuery, status string) ([]session.Session, error) {
	limit, before, cost := q.Most(), q.Before, map[string]float64{}
	q.Sort, q.Limit, q.Before = store.SortUpdated, -1, nil
	rows, err := r.Select(ctx, q, status)
	if err != nil {
		return nil, err
	}
	spent, err := r.Spent(ctx, session.IDs(rows), r.Price)
	for i := range rows {
		item := NewItem(&rows[i], nil, new(spent[rows[i].ID]), time.Time{}, 0)
		cost[item.ID] = item.CostUSD + session.Deref(item.EstimatedCostUSD)
	}
	slices.SortFunc(rows, func(x, y session.Session) int {
		return cmp.Or(cmp.Compare(cost[y.ID], cost[x.ID]), cmp.Compare(y.ID, x.ID))
	})
	if before != nil {
		rows = rows[slices.IndexFunc(rows, func(s session.Session) bool { return s.ID == before.ID })+1:]
	}
	if limit < 0 {
		limit = len(rows)
	}
	return rows[:min(limit, len(rows))], err
}

func (r Reader) selected(ctx context.Context, q store.SessionQuery, status string) iter.Seq2[session.Session, error] {
	if status == "" {
		return r.Sessions(ctx, q)
	}
	return func(yield func(session.Session, error) bool) {
		limit := q.Most()
		q.Limit = -1
		now, idleTimeout := r.limits()
		if seen := now.Add(-idleTimeout); (status == string(ActivityBusy) || status == string(ActivityRetrying)) &&
			idleTimeout > 0 && q.Since.Before(seen) {
			q.Since = seen // one that was not updated since then is interrupted
		}
		for s, err := range r.Sessions(ctx, q) {
			if err != nil {
				yield(s, err)
				return
			}
			st, err := r.StatusOf(ctx, &s)
			if errors.Is(err, store.ErrNotFound) {
				continue // deleted meanwhile
			} else if err != nil {
				yield(session.Session{}, err)
				return
			}
			state, _ := stateOfSession(&s)
			if string(st.State) != status && string(state) != status {
				continue
			}
			if limit--; !yield(s, nil) || limit == 0 {
				return
			}
		}
	}
}

// SelectIDs returns the ids of the sessions that a filter and a status select, archived ones and children included.
// They are read first: the store goes on changing, and a listing that is used slowly would hold back its log.
func (r Reader) SelectIDs(ctx context.Context, f store.SessionFilter, status string) ([]string, error) {
	ids := []string{} // nil would be all of them, as a filter
	q := store.SessionQuery{SessionFilter: f, Limit: -1, Children: true, Archived: true}
	for s, err := range r.selected(ctx, q, status) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, s.ID)
	}
	return ids, nil
}

// Exclusion is a filter of a query that selects nothing.
type Exclusion struct {
	// Filter is the name of the filter and Value what it selects by, empty for one that is on or off.
	Filter string `json:"filter"`
	Value  string `json:"value,omitempty"`
	// Without is the number of sessions that match without this filter; [MaxExcluded] stands for more, too.
	Without int `json:"sessions_without"`
}

// MaxExcluded bounds how many sessions are counted to explain why there are none.
const MaxExcluded = 1000

// Exclusions explain why a query and a status select no session: for each filter that is set, how many there are
// without it. others reports that archived sessions or children match.
func (r Reader) Exclusions(ctx context.Context, q store.SessionQuery, status string) (all []Exclusion, others bool,
	err error) {
	count := func(q store.SessionQuery, status string, limit int) (n int, err error) {
		q.Limit, q.Before = limit, nil
		for _, err := range r.selected(ctx, q, status) {
			if err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	}
	exclude := func(name, value string, f store.SessionFilter, status string) error {
		without := q
		without.SessionFilter = f
		n, err := count(without, status, MaxExcluded)
		all = append(all, Exclusion{name, value, n})
		return err
	}
	for _, f := range q.Set() {
		if err := exclude(f.Name, f.Value, f.Without, status); err != nil {
			return nil, false, err
		}
	}
	if status != "" {
		if err := exclude("status", status, q.SessionFilter, ""); err != nil {
			return nil, false, err
		}
	}
	if !q.Children || !q.Archived {
		q.Children, q.Archived = true, true
		n, err := count(q, status, 1)
		return all, n > 0, err
	}
	return all, false, nil
}
