package document

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Build makes the timeline of a session. It does not change its input, and the
// result shares the input's strings. It takes time in proportion to the input.
//
// Edge cases: columns that hold no JSON, or JSON of another kind, leave unset what they would say and add a line to the
// message's Problems; a part that cannot be read is a part of kind [KindData] with its text as data.
func Build(in Input) *Document {
	t := in.Transcript.Sorted()
	b := newBuilder(in, t)
	for i := range t.Messages {
		b.add(b.read(&t.Messages[i]))
	}
	return b.finish()
}

func (b *builder) finish() *Document {
	if len(b.leading) > 0 {
		b.doc.Turns = append(b.doc.Turns, &Turn{Number: 1, Messages: b.leading})
	}
	b.closeTurns()
	b.failedCompactions()
	b.missing()
	b.unrecorded()
	b.children()
	b.annotate()
	b.totals()
	return b.doc
}

// builder holds what is needed while a timeline is made.
type builder struct {
	in         Input
	transcript *session.Transcript
	doc        *Document

	decisionsByCall, decisionsByPart map[string][]Decision
	callsByMessage                   map[string][]ModelCall
	spansByPart                      map[string]*store.SpanRef
	blobs                            map[string]*store.Blob
	prompts                          map[string]*SystemPrompt
	catalogs                         map[string]*ToolCatalog

	turns session.Turns
	// leading are the messages before the first turn.
	leading []*Message
}

// newBuilder returns a builder that has the head of the document, and by row what the input lists by session.
func newBuilder(in Input, t *session.Transcript) *builder {
	b := &builder{
		in: in, transcript: t, doc: &Document{Decisions: in.Decisions},
		decisionsByCall: map[string][]Decision{}, decisionsByPart: map[string][]Decision{},
		callsByMessage: map[string][]ModelCall{}, spansByPart: map[string]*store.SpanRef{},
		blobs: map[string]*store.Blob{}, prompts: map[string]*SystemPrompt{}, catalogs: map[string]*ToolCatalog{},
	}
	for _, d := range b.in.Decisions {
		switch {
		case d.PartID != "":
			b.decisionsByPart[d.PartID] = append(b.decisionsByPart[d.PartID], d)
		case d.ToolCallID != "":
			b.decisionsByCall[d.ToolCallID] = append(b.decisionsByCall[d.ToolCallID], d)
		}
	}
	for i := range b.in.SpanRefs {
		l := &b.in.SpanRefs[i]
		b.doc.Spans = append(b.doc.Spans, Span{
			TraceID: l.TraceID, SpanID: l.SpanID, ParentSpanID: l.ParentSpanID, Kind: l.Kind, Dialect: l.Dialect,
			MessageID: l.MessageID, PartID: l.PartID, StartNano: l.StartNano, EndNano: l.EndNano, Error: l.Error,
		})
		if l.TraceID != "" && !slices.Contains(b.doc.Traces, l.TraceID) {
			b.doc.Traces = append(b.doc.Traces, l.TraceID)
		}
		if l.PartID != "" && b.spansByPart[l.PartID] == nil {
			b.spansByPart[l.PartID] = l
		}
		if l.MessageID != "" && l.TurnStats != nil && l.TurnStats.Step {
			b.callsByMessage[l.MessageID] = append(b.callsByMessage[l.MessageID], ModelCall{
				Model: l.TurnStats.Model, Usage: l.TurnStats.Usage, StopReason: l.TurnStats.Trace.StopReason,
				Failed: l.Error, DurationMS: (l.EndNano - l.StartNano) / 1e6, StartedAt: l.StartNano / 1e6,
				TraceID: l.TraceID, SpanID: l.SpanID, Error: l.TurnStats.Trace.Error,
			})
		}
	}
	for i := range b.in.Blobs {
		blob := &b.in.Blobs[i]
		b.blobs[string(blob.Kind)+" "+blob.Digest] = blob
	}
	b.head()
	return b
}

func (b *builder) head() {
	s := &b.transcript.Session
	h := Session{
		ID: s.ID, Title: s.Title, Opening: b.in.Opening, Agent: s.Agent, Model: modelOf(s), Mode: session.Deref(s.Mode),
		WorkspaceID: session.Deref(s.WorkspaceID), WorkspaceRoot: session.Deref(s.WorkspaceRoot),
		Reading: readingOf(s), CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, ArchivedAt: s.ArchivedAt,
	}
	_ = json.Unmarshal([]byte(s.PermissionsJSON), &h.Rules) // what is no list of rules lists none; Check reports it
	_ = json.Unmarshal([]byte(s.MetadataJSON), &h.Metadata)
	delete(h.Metadata, "agenttrace")
	var st Status
	if st.declare(s); st.Declared {
		delete(h.Metadata, "status") // which is what the agent reports that it does, and not something else of that name
	}
	if len(h.Metadata) == 0 {
		h.Metadata = nil
	}
	if id := session.Deref(s.ParentID); id != "" {
		h.Origin = &Origin{SessionID: id, MessageID: session.Deref(s.ParentMessageID)}
		if b.in.Parent != nil {
			h.Origin.Title = b.in.Parent.Title
		}
		if len(b.transcript.Messages) > 0 {
			h.Origin.Fork = b.transcript.Messages[0].Message.CreatedAt < s.CreatedAt
		}
		h.Origin.Fork = h.Origin.Fork || session.TranscriptTraceOf(s.MetadataJSON).Forked
	}
	b.doc.Session = h
}

// add puts the next message into its turn.
func (b *builder) add(m *Message) {
	if m.Role == session.RoleUser && m.QueuedAt != nil && len(b.callsByMessage[m.ID]) == 0 {
		b.doc.Queued = append(b.doc.Queued, m)
		return
	}
	begins, lost := b.turns.Next(session.TurnMessage{
		Role: m.Role, Compaction: m.Compaction != nil, Hidden: m.HiddenAt != nil,
		Trace: &session.MessageTrace{
			TurnIndex: m.TurnIndex, Incomplete: m.State == StateIncomplete, PendingApproval: m.State == StateWaiting,
			EndReason: m.EndReason,
		},
	})
	if begins {
		b.doc.Turns = append(b.doc.Turns,
			&Turn{Number: len(b.doc.Turns) + 1, QuestionMissing: lost, Messages: b.leading})
		b.leading = nil
	}
	if len(b.doc.Turns) == 0 {
		b.leading = append(b.leading, m) // what a program writes before the first turn is shown with it
		return
	}
	turn := b.doc.Turns[len(b.doc.Turns)-1]
	turn.Messages = append(turn.Messages, m)
	if n, first := b.turns.Together(); n > 0 && m.answers() {
		together(b.doc.Turns[len(b.doc.Turns)-n:], first)
	}
}

// together puts the answers of turns that were open at once into those of their index.
func together(turns []*Turn, first int64) {
	for at, t := range turns {
		t.Messages = slices.DeleteFunc(t.Messages, func(m *Message) bool {
			if !m.answers() || m.TurnIndex == nil || *m.TurnIndex-first == int64(at) {
				return false
			}
			to := turns[*m.TurnIndex-first]
			to.Messages = append(to.Messages, m)
			return true
		})
	}
}

// failedCompactions puts the errors of compactions without a message at the turns before them.
func (b *builder) failedCompactions() {
	for i := range b.in.SpanRefs {
		l := &b.in.SpanRefs[i]
		before := func(t *Turn) bool { return t.Messages[0].CreatedAt <= l.StartNano/1e6 || t.Number == 1 }
		if l.Kind == semconv.SpanCompactionRun && l.MessageID == "" && l.TurnStats != nil && len(b.doc.Turns) > 0 {
			t := lastOf(b.doc.Turns, before)
			t.FailedCompactions = append(t.FailedCompactions, l.TurnStats.Trace.Error)
		}
	}
}

// TurnNumbers returns for the id of each message the number of its turn in the timeline;
// messages that wait in the queue have none.
func TurnNumbers(t *session.Transcript) map[string]int {
	numbers := make(map[string]int, len(t.Messages))
	for turn, m := range Build(Input{Transcript: t}).Messages() {
		numbers[m.ID] = turn.Number
	}
	return numbers
}

// missing finds the turns that the source counted and that never arrived. Copies
// in a fork are passed over: what its parent rewound was not copied.
func (b *builder) missing() {
	var arrived []int64 // of which some may be out of place: the clock of an agent may go back
	for _, m := range b.doc.Messages() {
		if m.TurnIndex != nil && m.HiddenAt == nil {
			arrived = append(arrived, *m.TurnIndex)
		}
	}
	slices.Sort(arrived)
	arrived = slices.Compact(arrived)
	known, last, unreported := false, int64(0), int64(0)
	origin := b.doc.Session.Origin
	for _, t := range b.doc.Turns {
		if origin != nil && origin.Fork && t.Messages[0].CreatedAt <= b.doc.Session.CreatedAt {
			continue
		}
		var indexes []int64
		for _, m := range t.Messages {
			if m.TurnIndex != nil {
				indexes = append(indexes, *m.TurnIndex)
			}
		}
		if indexes == nil {
			unreported++
			continue
		}
		low, high := slices.Min(indexes), slices.Max(indexes)
		if !known && (origin == nil || !origin.Fork) {
			last = -1 // sources count from 0
		}
		from, _ := slices.BinarySearch(arrived, last+1)
		to, _ := slices.BinarySearch(arrived, low)
		if n := low - last - 1 - unreported - int64(to-from); low > last && n > 0 && (known || last < 0) {
			t.MissingBefore = &MissingTurns{Count: n, First: last + 1, Last: low - 1}
		}
		known, last, unreported = true, high, 0
	}
}

// unrecorded finds what requests repeat of a conversation that the session does not have.
// After a compaction, and after a rewind, requests repeat other things than the session has.
func (b *builder) unrecorded() {
	var asked, known int64 // what the user has reported so far, and what of it is known to be missing
	for _, t := range b.doc.Turns {
		var history *session.History
		answered := false
		for _, m := range t.Messages {
			if m.Compaction != nil || m.HiddenAt != nil {
				return
			}
			if !answered { // later requests repeat the turn itself
				history = m.history
			}
			answered = answered || m.Role == session.RoleAssistant
		}
		if history != nil {
			switch more := history.Turns - asked - known; {
			case asked == 0 && known == 0:
				t.Unrecorded = &Unrecorded{Messages: history.Messages, Turns: history.Turns}
			case more > 0:
				t.Unrecorded = &Unrecorded{Turns: more}
			}
			known = max(known, history.Turns-asked)
		}
		if t.Question() != nil {
			asked++
		}
	}
}

// closeTurns fills in what turns report of their messages as a whole.
func (b *builder) closeTurns() {
	previous := ""
	for _, t := range b.doc.Turns {
		t.Hidden = !slices.ContainsFunc(t.Messages, func(m *Message) bool { return m.HiddenAt == nil })
		var last *Message
		called := map[string]*Called{}
		for _, m := range t.Messages {
			if m.Role != session.RoleAssistant {
				continue
			}
			if !m.Marker {
				t.Usage = session.Sum(t.Usage, m.Usage, session.Usage.Add)
				addNumber(&t.CostUSD, m.CostUSD)
			}
			if m.Compaction != nil {
				later := func(p *Part) bool { return p.Kind == KindStep && p.CreatedAt > m.CreatedAt }
				m.Compaction.BeforeStep = session.Deref(find(session.Deref(last).Parts, later)).Step
				continue
			}
			if last == nil || m.HiddenAt == nil || t.Hidden {
				last = m
			}
			for _, call := range m.ToolCalls() {
				c := called[call.Name]
				if c == nil {
					c = &Called{Name: call.Name}
					called[call.Name], t.Tools.Called = c, append(t.Tools.Called, c)
				}
				c.Calls++
				c.provided = c.provided || call.ProviderExecuted
				if call.Failed() {
					c.Failed++
				}
			}
		}
		if last == nil {
			continue
		}
		m := last
		t.State, t.Model, t.Temperature, t.DurationMS, t.ModelCalls = m.State, m.Model, m.Temperature, m.DurationMS,
			m.ModelCalls
		t.StopReason, t.EndReason, t.Error = m.StopReason, m.EndReason, m.Error
		t.SystemPromptDigest = m.SystemPromptDigest
		t.PromptChanged = previous != "" && m.SystemPromptDigest != "" && m.SystemPromptDigest != previous
		previous = cmp.Or(m.SystemPromptDigest, previous)
		t.Index = m.TurnIndex
		b.prompt(t, m.SystemPromptDigest)
		b.catalog(t, m.ToolCatalogDigest)
	}
}

// Names reports whether the digest of a blob is that of its body. Of one that is not exact it need not be.
func Names(b *store.Blob) bool {
	return session.Digest(b.Body) == b.Digest
}

func (b *builder) prompt(t *Turn, digest string) {
	if digest == "" {
		return
	}
	p := b.prompts[digest]
	if p == nil {
		p = &SystemPrompt{Digest: digest}
		p.Body, p.Resolved, p.Damaged = b.blob(store.BlobSystemPrompt, digest)
		b.prompts[digest], b.doc.SystemPrompts = p, append(b.doc.SystemPrompts, p)
	}
	p.Turns = append(p.Turns, t.Number)
}

func (b *builder) blob(kind store.BlobKind, digest string) (body string, resolved, damaged bool) {
	if blob := b.blobs[string(kind)+" "+digest]; blob != nil {
		return blob.Body, true, !blob.Exact || !Names(blob)
	}
	return "", false, false
}

func (b *builder) catalog(t *Turn, digest string) {
	t.Tools.CatalogDigest = digest
	if digest == "" {
		return
	}
	c := b.catalogs[digest]
	if c == nil {
		c = &ToolCatalog{Digest: digest}
		if c.Body, c.Resolved, c.Damaged = b.blob(store.BlobToolCatalog, digest); c.Resolved {
			c.Tools = parseCatalog(c.Body)
		}
		b.catalogs[digest], b.doc.ToolCatalogs = c, append(b.doc.ToolCatalogs, c)
	}
	c.Turns = append(c.Turns, t.Number)
	if !c.Resolved {
		return
	}
	t.Tools.Available = make([]string, len(c.Tools))
	for i := range c.Tools {
		t.Tools.Available[i] = c.Tools[i].Name
	}
	for _, called := range t.Tools.Called {
		called.Unlisted = !c.Damaged && len(c.Tools) > 0 && !called.provided &&
			!slices.Contains(t.Tools.Available, called.Name)
	}
}

func (b *builder) children() {
	callOf := map[string]string{}
	for c := range b.doc.ToolCalls() {
		callOf[c.ChildSessionID] = c.CallID
	}
	for i := range b.in.Children {
		s := &b.in.Children[i]
		state, _ := stateOfSession(s)
		b.doc.Children = append(b.doc.Children, Child{
			SessionID: s.ID, MessageID: session.Deref(s.ParentMessageID), Title: s.Title, Agent: s.Agent, State: state,
			ToolCallID:  callOf[s.ID],
			TotalTokens: session.Deref(b.in.ChildTokens[s.ID].Used).Total(), CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
			Archived: s.ArchivedAt != nil,
		})
	}
	b.doc.Children = session.SortedRows(b.doc.Children, func(x, y *Child) int {
		return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(x.SessionID, y.SessionID))
	})
}

func (b *builder) totals() {
	tot := &b.doc.Totals
	s := &b.transcript.Session
	tot.Context = s.Usage()
	var tokens session.Tokens
	for _, t := range b.doc.Turns {
		if len(b.leading) == 0 {
			tot.Turns++ // else there is nothing but what precedes a turn
		}
		if t.Hidden {
			tot.Hidden++
		}
		addNumber(&tot.DurationMS, t.DurationMS)
	}
	for _, m := range b.doc.Messages() {
		tokens.Add(s, m.CreatedAt, m.counted)
		tot.Errors += m.Failures()
		if m.Compaction != nil {
			tot.Compactions++
		}
	}
	for c := range b.doc.ToolCalls() {
		tot.ToolCalls++
		switch {
		case c.Denied:
			tot.Denied++
		case c.Failed():
			tot.Failed++
		}
	}
	tot.Errors += tot.Failed
	tot.Usage, tot.CopiedUsage = tokens.Used, tokens.Copied
	tot.CostUSD, b.doc.costOfWhole = tokens.Cost(s)
	b.doc.Session.State, b.doc.Session.Error = b.doc.state(s)
	b.doc.Status = statusOf(s, b.doc, b.in.Now, b.in.IdleTimeout)
}

func addNumber[T int64 | float64](sum **T, v *T) {
	*sum = session.Sum(*sum, v, func(a, b T) T { return a + b })
}

// modelOf reads a session's model; the reference program also writes a tier,
// which is its choice of model and reports nothing of the one that ran.
func modelOf(s *session.Session) *session.Model {
	if s.ModelJSON == nil {
		return nil
	}
	var m session.Model
	if json.Unmarshal([]byte(*s.ModelJSON), &m) != nil || m == (session.Model{}) {
		return nil
	}
	return &m
}
