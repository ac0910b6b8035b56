package document

import (
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Item is a session in a list. Its JSON is a stable format: keys are added, never renamed.
type Item struct {
	ID string `json:"id"`
	// Short is what a table may have in place of the id: see [Abbreviate].
	Short string `json:"-"`
	Title string `json:"title"`
	Agent string `json:"agent"`
	// Model is the one that was active last.
	Model *session.Model `json:"model,omitempty"`
	// State is how the last run ended, if one has and reported so. It is what the session's row has: a run that
	// finished may have ended to wait for a human, and another may be under way. [Load] distinguishes these.
	State State `json:"state,omitempty"`
	// Status is what the session is doing: see [StatusOf].
	Status Activity `json:"status,omitempty"`
	// Usage is what the session used in all and Total its sum: see [session.Tokens].
	// Context is what takes room in the model's context now, and ContextTotal its sum.
	Usage        session.Usage `json:"usage"`
	Total        int64         `json:"total_tokens"`
	Context      session.Usage `json:"context"`
	ContextTotal int64         `json:"context_tokens"`
	// Turns is their number, rewound ones included. Errors counts failures, and Denied the tool calls that were denied:
	// see [session.Failures].
	Turns  int64 `json:"turns"`
	Errors int64 `json:"errors"`
	Denied int64 `json:"denied_tool_calls"`
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

// readingOf returns ReadingGeneric or "".
func readingOf(s *session.Session) string {
	if metaOf(s).Trace.Dialect == ReadingGeneric {
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
		Turns:  spent.Turns, Errors: spent.Errors, Denied: spent.Denied,
		Usage: used, Total: used.Total(), Context: s.Usage(), ContextTotal: s.Usage().Total(),
		CostUSD: cost, EstimatedCostUSD: estimated, Unpriced: unpriced, Reading: readingOf(s),
		ParentID: session.Deref(s.ParentID), WorkspaceRoot: session.Deref(s.WorkspaceRoot),
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, ArchivedAt: s.ArchivedAt,
	}
}

// Abbreviate sets the Short of items to heads of their ids that distinguish the sessions of the list, all of one
// length, without the prefix that every session has. means reports whether a head names the session of an id and no
// other, also of those that are not in the list: an id of which no head does is whole.
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
		items[i].Short = Head(bare(i), length)
		if len(bare(i)) >= maximum || !means(items[i].Short, items[i].ID) {
			items[i].Short = items[i].ID
		}
	}
}
