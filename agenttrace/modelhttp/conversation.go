package modelhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/spans"
)

// conversation is a session, or a part of one, as its requests show it. Its turn goes
//
//	closed ── user text ──► asked ── answer with tool calls ──► waiting
//	  ▲                      │ ▲                                 │
//	  └── answer, error ─────┘ └──── results (and user text) ────┘
//
// An answer that is paused leaves the turn open without waiting for a result. User text
// without results ends a turn that waits, and begins another one.
type conversation struct {
	t        *Transport
	scope    digest
	declared string
	// external is the turn of the agent's own that the calls belong to, if there is one.
	external *agenttrace.Turn

	// The registry's mu guards these.
	evicted bool
	size    int64
	// used is when the last request began or ended, seen when the last one began.
	used, seen time.Time
	flights    int
	// history has the last messages of the conversation, as the last request has them, and the answer to it; base
	// counts those before. The last answer is at done, from where a request goes on; consumed reports that one has.
	history    []mark
	base, done int
	consumed   bool
	// remote is the provider's name of it; responses are the last ones, oldest first.
	remote    string
	responses []response
	// head is the beginning of the last answer, answerHead and askedHead have the letters of that and of the user's
	// text.
	head, answerHead, askedHead string
	// summary is that which was made of the conversation, and of which no request has made use yet.
	summary string
	// caller is the tool call of which this is the sub-agent, owner the turn of the agent's own in which it is.
	caller *openCall
	owner  *agenttrace.Turn
	// turnSize is how much of size is content of the open turn.
	turnSize int64
	awaited  []*openCall
	failed   digest    // the last request, if it failed
	held     []*flight // calls whose last attempt failed, or that were interrupted
	idle     *time.Timer
	// open reports that the turn is; work is the context of its last request, setup is how that was.
	open  bool
	work  context.Context
	setup setup

	mu      sync.Mutex // orders what is recorded; guards what follows
	session *agenttrace.Session
	ctx     context.Context // the turn's
	run     *agenttrace.Run
	turn    *agenttrace.Turn
	turns   int
	notes   map[string]any // in the turn's metadata
	waiting []waiting
	paused  bool
	// answered is the last message of the assistant that is whole.
	answered string
}

// waiting is a tool call without a result.
type waiting struct {
	id, name string
	tool     *agenttrace.ToolCall
}

// flight is a model call, from its first attempt to the end of its answer.
type flight struct {
	conv *conversation
	x    *exchange // of the last attempt; the registry's mu guards it between attempts
	side bool
	// request and scope are those of the [lookup], prefix the message that the answer goes on with, if there is one.
	request, scope digest
	prefix         *modelapi.Message
	asks           purpose

	// ctx is that of the turn.
	ctx  context.Context
	turn *agenttrace.Turn
	call *agenttrace.ModelCall
	span trace.Span
	done bool // the call has ended; conv.mu guards it
	// err is the [failure] of the last attempt, if it failed, token that by which an interrupted answer goes on; deadline
	// is until when the next one is waited for. The registry's mu guards them.
	err      error
	token    string
	deadline time.Time
	// broken is what came of the answer of the last attempt, nil if there was none, before the conversation's done
	// without that.
	broken *answer
	before int
	// earlier is the usage of the answer before it was interrupted.
	earlier *modelapi.Usage
	// superseded reports that the conversation has gone on without the call.
	superseded bool
}

// begin records that a request goes on with the conversation.
func (c *conversation) begin(f *flight, r *modelapi.Request, m *match) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx := f.x.req.Context()
	if c.session == nil && c.external == nil {
		c.session = c.newSession(ctx, r, m)
	}
	tail := r.Messages[min(m.from, len(r.Messages)):]
	c.earlierResults(r.Messages[:min(m.from, len(r.Messages))])
	turn, before := c.external, c.turn
	switch {
	case turn != nil:
		c.ctx = ctx
		c.results(tail)
	case m.side:
		c.results(tail) // a summary may be asked for with them
		turn = c.turn
	default:
		c.proceed(ctx, r, m, tail)
		turn = c.turn
	}
	// What a tool of the agent asks is beside its turn, and a turn that has just begun has them. Of a chain of responses,
	// the first one may have the prompt.
	goesOn := !m.side && (turn == before || c.external != nil && agenttrace.ToolFromContext(ctx) == nil)
	if prompt := r.Instructions(); prompt != "" && goesOn {
		turn.SetSystemPrompt(prompt)
	}
	if len(r.Tools) > 0 && goesOn {
		turn.SetTools(toolsOf(r))
	}
	o := agenttrace.ModelCallOptions{
		Model: modelOf(r), Temperature: r.Temperature, Side: m.side, UsageElsewhere: countedElsewhere(ctx),
	}
	start := turn.StartModelCall
	if m.side && c.external == nil {
		start = c.session.StartSideCall
	}
	callCtx, call := start(ctx, o)
	f.call, f.span = call, trace.SpanFromContext(callCtx)
	f.ctx, f.turn = c.ctx, turn
}

// modelOf and toolsOf return what a request is made with.
func modelOf(r *modelapi.Request) agenttrace.Model {
	return agenttrace.Model{Provider: r.Provider, ID: r.Model, Variant: r.Variant}
}

func toolsOf(r *modelapi.Request) (tools []agenttrace.Tool) {
	for _, t := range r.Tools {
		tools = append(tools, agenttrace.Tool(t))
	}
	return tools
}

// filePart returns a file as a part. Of one whose bytes are in the request it has only their number.
func filePart(f modelapi.File) agenttrace.Part {
	if f.URL != "" {
		return agenttrace.FilePart(agenttrace.File{MediaType: f.MediaType, URL: f.URL, Filename: f.Name})
	}
	return agenttrace.DataPart("file", "", struct {
		MediaType string `json:"mediaType,omitempty"`
		Filename  string `json:"filename,omitempty"`
		Size      int    `json:"size"`
	}{f.MediaType, f.Name, f.Size})
}

// sessionOptions are those of the session that messages begin.
func (t *Transport) sessionOptions(messages []modelapi.Message) agenttrace.SessionOptions {
	o := t.o.Session
	o.ID, o.Agent, o.FirstPrompt = "", t.o.Agent, firstPrompt(messages)
	return o
}

// newSession returns the session of a conversation that begins.
func (c *conversation) newSession(ctx context.Context, r *modelapi.Request, m *match) *agenttrace.Session {
	t, parent, answer := c.t, m.parent, m.parentAnswer
	o := t.sessionOptions(r.Messages[turnStart(r.Messages, m.from):])
	switch {
	case c.caller != nil:
		return t.tracer.NewSession(c.caller.ctx, o)
	case parent == nil:
		return t.tracer.NewSession(ctx, o)
	}
	parent.mu.Lock()
	from := parent.session
	parent.mu.Unlock()
	if from != nil && answer != "" {
		// The parent may be at work, and then does not fork. Its state does.
		state := from.State()
		state.Open, state.Pending = nil, nil
		if copied, err := t.tracer.ResumeSession(ctx, state); err == nil {
			if child, err := copied.Fork(ctx, answer, agenttrace.ForkOptions{}); err == nil {
				return child
			}
		}
	}
	if from != nil {
		metadata := make(map[string]any, len(o.Metadata)+1)
		maps.Copy(metadata, o.Metadata)
		metadata["forked_from"], o.Metadata = from.ID(), metadata
	}
	return t.tracer.NewSession(ctx, o)
}

// proceed records the results and the user's text of a request, and begins a turn if none goes on.
func (c *conversation) proceed(ctx context.Context, r *modelapi.Request, m *match, tail []modelapi.Message) {
	matched := c.results(tail)
	said := userItems(tail)
	if m.summary != "" {
		said = withoutSummary(said, m.summary, c.turn != nil)
		if c.turn != nil {
			c.compact(c.ctx, m)
			c.paused = true // what the user adds, such as that the work shall go on, begins no turn
		}
	}
	if c.turn != nil && matched == 0 && len(said) > 0 && !c.paused {
		c.endTurn(nil) // the agent did not send the results, or never will: a forced tool has none
	}
	c.paused = false
	if c.turn != nil {
		for _, i := range said {
			if i.Kind == modelapi.Text {
				c.turn.Data("steering", "", map[string]string{"text": i.Text})
			} else {
				c.turn.Data("file", "", map[string]string{"mediaType": i.File.MediaType, "filename": i.File.Name})
			}
		}
		return
	}
	first := m.from
	if len(said) == 0 && m.summary == "" { // the results of a turn that is not known, or the same request again
		first = turnStart(r.Messages, first)
		said = userItems(r.Messages[first:min(first+1, len(r.Messages))])
	}
	c.startTurn(ctx, r, m, said)
	if m.ambiguous {
		c.note("ambiguous", true)
	}
	if c.turns == 1 && m.parent == nil && first > 0 {
		c.note("history", historyOf(r.Messages[:min(first, len(r.Messages))]))
	}
	if first < m.from && (c.turns == 1 || m.parent != nil) {
		c.replay(r.Messages[first+1:])
	}
}

// compact records that a summary replaces the history.
func (c *conversation) compact(ctx context.Context, m *match) {
	_, compaction := c.run.StartCompaction(ctx, agenttrace.CompactionOptions{
		Auto: true, SummarizedMessages: m.summarized,
	})
	compaction.End(agenttrace.CompactionResult{Summary: m.summary})
}

func (c *conversation) startTurn(ctx context.Context, r *modelapi.Request, m *match, said []modelapi.Item) {
	message := agenttrace.UserMessage{}
	for _, i := range said {
		part := agenttrace.TextPart(i.Text)
		if i.Kind != modelapi.Text {
			part = filePart(i.File)
		}
		message.Parts = append(message.Parts, part)
	}
	c.turns++
	c.notes = make(map[string]any)
	if c.caller != nil && agenttrace.TurnFromContext(ctx) == nil {
		ctx = c.caller.ctx // the sub-agent runs in the call
	}
	c.ctx, c.run = c.session.StartRun(ctx, agenttrace.RunOptions{Model: modelOf(r), Inferred: true})
	if m.summary != "" {
		c.compact(c.ctx, m)
	}
	c.ctx, c.turn = c.run.StartTurn(c.ctx, message, agenttrace.TurnOptions{
		Model: modelOf(r), Temperature: r.Temperature, SystemPrompt: r.Instructions(), Tools: toolsOf(r),
	})
}

// results ends the tool calls whose results are in the messages, and returns how many.
func (c *conversation) results(messages []modelapi.Message) (n int) {
	for _, m := range messages {
		for k := range m.Items {
			it := &m.Items[k]
			if it.Kind != modelapi.Result {
				continue
			}
			at := slices.IndexFunc(c.waiting, func(w waiting) bool {
				if it.ID != "" && w.id != "" {
					return w.id == it.ID
				}
				return w.name == it.Name // of several the first: results are in the order of the calls
			})
			if at < 0 {
				continue
			}
			endTool(c.waiting[at].tool, it.Value, it.Failed)
			c.waiting = slices.Delete(c.waiting, at, at+1)
			n++
		}
	}
	return n
}

// replay records the steps of a turn that a request has in its history: those of a
// conversation that began elsewhere, or that forks in the middle of a turn.
func (c *conversation) replay(messages []modelapi.Message) {
	for _, m := range messages {
		if m.Role == modelapi.User {
			c.results([]modelapi.Message{m})
			continue
		}
		for _, i := range m.Items {
			switch i.Kind {
			case modelapi.Text:
				c.turn.Text(i.Text)
			case modelapi.Call:
				c.await(c.ctx, c.turn, i.ID, i.Name, cmp.Or(string(i.Value), "{}"))
			}
		}
	}
}

// note states in the metadata of the turn what is not known of it. The caller holds mu.
func (c *conversation) note(key string, value any) {
	c.notes[key] = value
	c.turn.SetMetadata(map[string]any{"modelhttp": c.notes})
}

// endTurn ends the turn and its run. Tool calls without results end as they are.
func (c *conversation) endTurn(err error) {
	if c.turn == nil {
		return
	}
	c.answered = c.turn.AssistantMessageID()
	c.turn.Fail(err)
	c.run.End(err)
	c.turn, c.run, c.ctx, c.waiting, c.paused = nil, nil, nil, nil, false
}

// close ends what nobody goes on with, or what goes on, too.
func (c *conversation) close(all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.reg.mu.Lock()
	busy := c.flights > 0 // a request has come meanwhile
	c.t.reg.mu.Unlock()
	if c.turn == nil || busy && !all {
		return
	}
	c.note("unfinished", true)
	var err error
	if busy { // the rest of the answer is not recorded
		err = context.Canceled
	}
	c.endTurn(err)
}

// newAnswer returns what the answer of an attempt is decoded into.
func (f *flight) newAnswer() *answer {
	a := &answer{
		flight: f, headSize: 1 << 10, streams: make(map[*modelapi.Block]*agenttrace.TextStream),
		served: make(map[string]*agenttrace.ToolCall),
	}
	a.Sink, a.Budget = a, f.x.t.o.MaxBodyBytes
	if f.asks == summary {
		a.headSize = 64 << 10
	}
	if f.prefix != nil {
		a.content = *contentOf(f.prefix)
		a.content.full = false
	}
	return a
}

// hold waits for the client to try again. Until then a request may go on with what came of an answer, which may be nil.
func (f *flight) hold(a *answer, err error, attempt int, wait time.Duration) {
	c := f.conv
	if f.turn != nil && !f.side {
		f.turn.Retrying(attempt, err)
	}
	c.t.reg.mu.Lock()
	defer c.t.reg.mu.Unlock()
	f.err, f.broken, f.before = failure{err, c.t.o.Now()}, a, c.done
	c.flights--
	c.used = time.Now()
	if !f.side {
		c.settle(f, cmp.Or(a, f.newAnswer()), nil, c.open, "", true)
	}
	f.wait(wait)
}

// forget has the conversation be where it was before an answer that broke off. The caller holds the registry's mu.
func (f *flight) forget() {
	if c := f.conv; f.broken != nil && !f.side && !f.superseded && c.done != f.before {
		c.history, c.done = c.history[:max(0, len(c.history)-1)], f.before
	}
}

// wait has the call end if nothing goes on with it. The caller holds the registry's mu.
func (f *flight) wait(long time.Duration) {
	c := f.conv
	f.deadline = time.Now().Add(long)
	c.held = append(c.held, f)
	time.AfterFunc(long, func() {
		defer recovered()
		c.t.reg.mu.Lock()
		n := len(c.held)
		c.held = slices.DeleteFunc(c.held, func(o *flight) bool { return o == f && !f.deadline.After(time.Now()) })
		isOver := len(c.held) < n
		c.t.reg.mu.Unlock()
		if isOver {
			f.expire()
		}
	})
}

// describe replaces the error of the last attempt by one that has more of it.
func (f *flight) describe(err error) {
	f.conv.t.reg.mu.Lock()
	defer f.conv.t.reg.mu.Unlock()
	if last, ok := errors.AsType[failure](f.err); ok {
		f.err = failure{err, last.at}
	}
}

// resume goes on after an attempt that failed, or with an answer that was interrupted.
func (f *flight) resume() {
	g := &f.conv.t.reg
	g.mu.Lock()
	last, _ := errors.AsType[failure](f.err)
	f.err, f.token = nil, ""
	g.mu.Unlock()
	f.call.Retried(last.error, f.conv.t.o.Now().Sub(last.at))
}

// failure is the error of an attempt, with its time: what waits for another one is not a part of the call.
type failure struct {
	error
	at time.Time
}

func (e failure) FailedAt() time.Time { return e.at }
func (e failure) Unwrap() error       { return e.error }
func (e failure) ErrorType() string   { return spans.ErrorType(e.error) }

// expire ends a call that was not tried again.
func (f *flight) expire() {
	g := &f.conv.t.reg
	g.mu.Lock()
	err := f.err
	f.conv.flights++ // finish takes it out again
	f.forget()       // what finish notes for good
	g.mu.Unlock()
	f.finish(cmp.Or(f.broken, f.newAnswer()), err)
}

// unparsed ends a call whose answer cannot be read.
func (f *flight) unparsed(why string) {
	if f.conv.mu.Lock(); f.turn != nil && f.turn == f.conv.turn {
		f.conv.note("unparsed", why)
	}
	f.conv.mu.Unlock()
	f.finish(&answer{}, nil)
}

// finish ends the call with its answer. err is [context.Canceled] if the caller did not want the rest.
func (f *flight) finish(a *answer, err error) {
	c := f.conv
	c.mu.Lock()
	ended := f.done
	f.done = true
	if ended {
		c.mu.Unlock()
		return
	}
	calls := a.calls()
	hop := a.Paused && a.Continuation != "" && err == nil
	if hop {
		f.done = false
		f.earlier = f.earlier.Add(a.Usage)
	} else {
		f.call.End(a.result(f.earlier), err)
		if f.asks == title && err == nil && c.external == nil {
			c.session.SetTitle(f.x.req.Context(), titleOf(a.head))
		}
		if !f.side {
			c.follow(f, a, calls, err)
		}
	}
	open, answered := c.turn != nil || c.external != nil, c.answered
	c.mu.Unlock()

	g := &c.t.reg
	g.mu.Lock()
	defer g.mu.Unlock()
	c.flights--
	c.used = time.Now()
	if f.asks == summary && err == nil && !c.evicted {
		c.summary = string(a.head)
	}
	defer g.resize(c)
	defer g.await(c)
	if hop {
		f.token = a.Continuation
		f.wait(c.t.o.IdleTimeout)
		return
	}
	if c.evicted || f.side || f.superseded {
		return
	}
	if c.turnSize += int64(a.Size); !open {
		c.turnSize = 0
	}
	c.settle(f, a, calls, open, answered, err != nil)
}

// await begins a tool call that an answer requests, and whose result is to come. The caller holds mu.
func (c *conversation) await(ctx context.Context, turn *agenttrace.Turn, id, name, input string) context.Context {
	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{
		ID: id, Name: name, RawInput: json.RawMessage(input), Inferred: true,
	})
	c.waiting = append(c.waiting, waiting{id, name, tool})
	return ctx
}

// follow records what comes of an answer. The caller holds mu.
func (c *conversation) follow(f *flight, a *answer, calls []*openCall, err error) {
	if f.turn == nil || c.external == nil && f.turn != c.turn {
		return
	}
	for _, o := range calls {
		o.ctx = c.await(f.ctx, f.turn, o.id, o.name, o.input)
	}
	for _, b := range a.Blocks { // what the stream ended in the middle of
		if b.Kind == modelapi.Call && b.Open && b.Name != "" {
			_, tool := f.turn.StartTool(f.ctx, agenttrace.ToolOptions{ID: b.ID, Name: b.Name, Inferred: true})
			tool.InputDelta(b.Content())
			tool.Abort()
		}
	}
	switch {
	case c.external != nil:
	case errors.Is(err, context.Canceled):
		c.endTurn(agenttrace.ErrAborted)
	case err != nil && (!errors.Is(err, errTruncated) || len(calls) == 0):
		c.endTurn(err)
	case len(calls) > 0:
	case a.Paused:
		c.paused = true
	default:
		c.endTurn(nil)
	}
}

// settle notes by what a next request is recognized, when a call has ended, and perhaps failed: whether the turn is
// open, and the last whole message. The caller holds the registry's mu.
func (c *conversation) settle(f *flight, a *answer, calls []*openCall, open bool, answered string, failed bool) {
	c.open = open
	if !open && !failed && a.content.full {
		c.work = nil
	}
	if c.failed = (digest{}); failed {
		c.failed = f.request
	}
	c.consumed = c.consumed && !failed
	if !a.content.full && a.ID == "" {
		return
	}
	c.consumed = false
	c.head = string(a.head)
	c.answerHead = lettersOf(c.head, maxHead)
	c.setHistory(c.base, append(slices.Clone(c.history), mark{a.content.after(f.scope, modelapi.Assistant), answered}))
	c.done = c.base + len(c.history)
	if a.ID != "" {
		c.responses = lastOf(append(c.responses, response{a.ID, c.done}), maxResponses)
	}
	c.awaited = append(c.awaited, calls...)
}

// lastOf returns the last elements of a list, a number at most.
func lastOf[E any](all []E, most int) []E { return slices.Delete(all, 0, max(0, len(all)-most)) }
