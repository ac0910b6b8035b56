package document

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// News is one thing that is new in a session. Its JSON is a line of "agenttrace tail --json", a stable format: events
// and keys are added, never renamed. What an event has no use for is absent. Times are in Unix milliseconds.
type News struct {
	// Event is one of News…
	Event     string `json:"event"`
	SessionID string `json:"session_id"`
	// At is when it happened, as the agent's clock has it.
	At int64 `json:"at"`

	Title    string `json:"title,omitempty"`
	Agent    string `json:"agent,omitempty"`
	ParentID string `json:"parent_id,omitempty"`

	Status *Status `json:"status,omitempty"`

	MessageID string `json:"message_id,omitempty"`
	Role      string `json:"role,omitempty"`
	PartID    string `json:"part_id,omitempty"`
	// Kind is that of the part.
	Kind Kind `json:"kind,omitempty"`

	// Delta is what a text has grown by. Where Replaced is set, it is the whole text, and replaces what was reported of
	// it before. Done reports that it will not grow any more, as far as is known.
	Delta    string `json:"delta,omitempty"`
	Replaced bool   `json:"replaced,omitempty"`
	Done     bool   `json:"done,omitempty"`

	Tool     *ToolCall       `json:"tool,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	File     *File           `json:"file,omitempty"`
	Source   *Source         `json:"source,omitempty"`
	Decision *Decision       `json:"decision,omitempty"`

	// State, Usage, DurationMS, StopReason and Error report how an answer ended.
	State      State          `json:"state,omitempty"`
	Usage      *session.Usage `json:"usage,omitempty"`
	DurationMS *int64         `json:"duration_ms,omitempty"`
	StopReason string         `json:"stop_reason,omitempty"`
	Error      string         `json:"error,omitempty"`

	Part *Part `json:"-"`
}

// Events of [News].
const (
	// NewsSession: a session appeared, or has another title or agent.
	NewsSession = "session"
	// NewsStatus: it does something else than before.
	NewsStatus = "status"
	// NewsMessage: a message began. NewsMessageEnd: an answer is over.
	NewsMessage    = "message"
	NewsMessageEnd = "message_end"
	// NewsText: a text or reasoning part began, or has grown.
	NewsText = "text"
	// NewsTool: a tool call began, or is in another state.
	NewsTool = "tool"
	// NewsPart: a part of another kind.
	NewsPart = "part"
	// NewsDecision: a permission was evaluated, or a human has answered.
	NewsDecision = "decision"
	// NewsHidden: a rewind hid a message. NewsShown: it is there again.
	NewsHidden = "message_hidden"
	NewsShown  = "message_shown"
)

// Follower reports what is new in sessions that are read again and again. Its memory
// is that of the messages that it was shown last. It is used by one goroutine.
type Follower struct {
	// IdleTimeout is when a session counts as interrupted: see [StatusOf].
	IdleTimeout time.Duration
	sessions    map[string]*followed
}

// followed is what was reported of one session.
type followed struct {
	head      session.Session
	status    Status
	messages  map[string]*Message
	decisions map[string]Decision
}

// Read takes the end of a session as it is now, and returns what is new in it. It
// reports everything of a session that it has not seen before, and of messages that
// it has not. Messages that were there before and are not any more are forgotten.
func (f *Follower) Read(t *session.Transcript, decisions []store.Decision, now time.Time) []News {
	s := &t.Session
	old := f.sessions[s.ID]
	next := &followed{head: *s, messages: make(map[string]*Message), decisions: make(map[string]Decision)}
	var news []News
	if old == nil || old.head.Title != s.Title || old.head.Agent != s.Agent {
		news = append(news, News{Event: NewsSession, At: s.UpdatedAt, Title: s.Title, Agent: s.Agent,
			ParentID: session.Deref(s.ParentID)})
		if old == nil {
			news[0].At = s.CreatedAt
			old = new(followed)
		}
	}
	b := newBuilder(Input{Transcript: t, Decisions: decisions}, t)
	for i := range t.Messages {
		m := b.read(&t.Messages[i])
		next.messages[m.ID] = m
		news = m.news(news, old.messages[m.ID])
	}
	for _, d := range decisions {
		next.decisions[d.ID] = d
		if before, known := old.decisions[d.ID]; !known || before.Outcome != d.Outcome || before.Reply != d.Reply {
			// It is reported before what the call came to.
			at := slices.IndexFunc(news, func(n News) bool {
				return n.Tool != nil && n.Tool.CallID == d.ToolCallID && !n.Tool.Open()
			})
			if at < 0 {
				at = len(news)
			}
			news = slices.Insert(news, at, News{
				Event: NewsDecision, At: d.DecidedAt, MessageID: d.MessageID, PartID: d.PartID, Decision: &d,
			})
		}
	}
	next.status = StatusOf(s, t, decisions, now, f.IdleTimeout)
	if reported, ok := changed(&old.status, &next.status); ok {
		news = append(news, reported)
	}
	for i := range news {
		news[i].SessionID = s.ID
	}
	if f.sessions == nil {
		f.sessions = make(map[string]*followed)
	}
	f.sessions[s.ID] = next
	return news
}

// Idle returns the news of sessions that have become interrupted, by their id.
func (f *Follower) Idle(now time.Time) []News {
	var news []News
	for id, s := range f.sessions {
		before := s.status
		s.status.interrupt(now, f.IdleTimeout)
		if reported, ok := changed(&before, &s.status); ok {
			reported.SessionID = id
			news = append(news, reported)
		}
	}
	slices.SortFunc(news, func(x, y News) int { return strings.Compare(x.SessionID, y.SessionID) })
	return news
}

// Prune forgets the sessions that are not kept, except those at work, and returns their ids.
func (f *Follower) Prune(kept map[string]bool) []string {
	var gone []string
	for id, s := range f.sessions {
		if !kept[id] && !s.status.atWork() {
			gone = append(gone, id)
			delete(f.sessions, id)
		}
	}
	return gone
}

// Forget forgets a session.
func (f *Follower) Forget(id string) { delete(f.sessions, id) }

func changed(before, after *Status) (News, bool) {
	if after.State == before.State && after.Attempt == before.Attempt && after.Detail == before.Detail &&
		after.ToolCallID == before.ToolCallID && after.Was == before.Was {
		return News{}, false
	}
	if before.State == ActivityUnknown && after.State == ActivityIdle && !after.Declared {
		return News{}, false // of a session that never declared a status
	}
	st := *after
	st.LastMessage = nil
	at := st.Since
	if at == 0 {
		at = st.UpdatedAt
	}
	return News{Event: NewsStatus, At: at, Status: &st}, true
}

// news adds what is new in the message since it was old, which is nil if it was not there.
func (m *Message) news(all []News, old *Message) []News {
	if old == nil {
		all = append(all, News{Event: NewsMessage, At: m.CreatedAt, MessageID: m.ID, Role: m.Role})
		old = new(Message)
	}
	if (m.HiddenAt != nil) != (old.HiddenAt != nil) {
		n := News{Event: NewsShown, At: m.UpdatedAt, MessageID: m.ID, Role: m.Role}
		if m.HiddenAt != nil {
			n.Event, n.At = NewsHidden, *m.HiddenAt
		}
		all = append(all, n)
	}
	before := make(map[string]*Part, len(old.Parts))
	for _, p := range old.Parts {
		before[p.ID] = p
	}
	for _, p := range m.Parts {
		if n, isNew := p.news(before[p.ID]); isNew {
			n.MessageID, n.Role, n.PartID, n.Kind, n.Part = m.ID, m.Role, p.ID, p.Kind, p
			all = append(all, n)
		}
	}
	if m.over() && !old.over() {
		all = append(all, News{
			Event: NewsMessageEnd, At: m.UpdatedAt, MessageID: m.ID, Role: m.Role, State: m.State, Usage: m.Usage,
			DurationMS: m.DurationMS, StopReason: m.StopReason, Error: m.Error,
		})
	}
	return all
}

// over reports that the message is an answer that has ended.
func (m *Message) over() bool {
	return m.answers() && m.State != StateIncomplete && m.State != StateUnknown
}

func (p *Part) news(old *Part) (n News, isNew bool) {
	first := old == nil
	if first {
		old = new(Part)
	}
	n.At = p.UpdatedAt
	switch p.Kind {
	case KindText, KindReasoning:
		n.Event, n.Done = NewsText, !p.Streaming
		var grew bool
		if n.Delta, grew = strings.CutPrefix(p.Text, old.Text); !grew {
			n.Delta, n.Replaced = p.Text, true
		}
		return n, first || n.Delta != "" || n.Replaced || p.Streaming != old.Streaming
	case KindTool:
		n.Event, n.Tool = NewsTool, p.Tool
		return n, old.Tool == nil || p.Tool.State != old.Tool.State
	case KindStep:
		return n, false
	}
	n.Event, n.Data, n.File, n.Source = NewsPart, p.Data, p.File, p.Source
	return n, first || p.File == nil && p.Source == nil && !bytes.Equal(p.Data, old.Data)
}
