package assemble

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// A tool may run in the background while its turn takes a hundred further steps. Its
// call is then in one window, its result in a later one, and a message must not have
// one call twice. So a window leaves its open calls to the next one with all that
// was reported of them. Each later window writes their parts again, in the places
// that they have, from what is carried and from its own facts. A fact of a call that
// is not open any more writes no part.
//
// What is carried is bounded, because a call may never be answered.
const (
	// maxOpen is the maximum number of open calls that are carried, maxOpenSize of the
	// bytes of all, maxCallSize of those of one.
	maxOpen     = 64
	maxOpenSize = 128 << 10
	maxCallSize = 32 << 10
	// maxClosed is the maximum number of calls whose ids are remembered.
	maxClosed = 256
	// A window with more than maxWaiting calls without a result does not end before
	// maxWait facts: most results come soon, and a call that need not be carried leaves
	// room for one that runs in the background.
	maxWaiting = maxOpen / 2
	maxWait    = 1024
)

// openCall is a tool call of which a later window may report more.
type openCall struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Part, Index and CreatedAt are those of its part, CreatedAt in Unix milliseconds.
	Part      string `json:"part"`
	Index     int64  `json:"index"`
	CreatedAt int64  `json:"created_at"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	// Asked is the model's request, nil where it is not known. Facts are what
	// was reported of its execution and the decisions on it.
	Asked *fact.Part  `json:"asked,omitempty"`
	Facts []fact.Fact `json:"facts,omitempty"`
	Child string      `json:"child,omitempty"` // the session that it started
	// Again reports that the turn used the id before.
	Again bool `json:"again,omitempty"`
}

// callMark identifies the id of a call among those of one turn.
func callMark(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:8]
}

// hasMark reports whether the hash of a call's id is among the marks.
func hasMark(marks []byte, id string) bool {
	for mark := range slices.Chunk(marks, 8) {
		if bytes.Equal(mark, callMark(id)) {
			return true
		}
	}
	return false
}

// addMark adds the hash of a call's id to the marks, and drops the oldest of too many.
func addMark(marks []byte, id string) []byte {
	if id == "" || hasMark(marks, id) {
		return marks
	}
	marks = append(slices.Clip(marks), callMark(id)...)
	return marks[max(0, len(marks)-8*maxClosed):]
}

// resumeCalls returns the executions of the calls that windows before have written
// and that are open.
func (t *turn) resumeCalls() []*tool {
	if t.resumed == nil {
		return nil
	}
	var all []*tool
	for i := range t.resumed.Open {
		c := &t.resumed.Open[i]
		x := &tool{id: c.ID, name: c.Name, start: c.Start, end: c.End, asked: c.Asked, carried: c}
		for j := range c.Facts {
			f := &c.Facts[j]
			n := &node{Fact: f, begins: f.Start, record: isRecord(f), session: t.session, context: new(spine)}
			if n.Kind == fact.Permission {
				x.decisions = append(x.decisions, n)
			} else {
				x.nodes = append(x.nodes, n)
			}
		}
		all = append(all, x)
	}
	return all
}

// earlier finds the call of the windows before that a fact of this one reports,
// where it is not of a call that this window requests. Where the call is not open any
// more, it returns nil and true.
func (t *turn) earlier(n *node, asked map[string][]int64, open []*tool) (x *tool, known bool) {
	if t.resumed == nil {
		return nil, false
	}
	id := n.CallID
	if p := n.above(fact.ToolCall); p != nil && p.context != nil && p.context.Part != "" &&
		(id == "" || p.CallID == "" || p.CallID == id) {
		for _, x := range open {
			if x.carried.Part == p.context.Part {
				return x, true
			}
		}
	}
	if at := asked[id]; id == "" || len(at) > 0 && at[0] <= n.Start {
		return nil, false
	}
	for _, x := range open {
		if x.id == id {
			return x, true
		}
	}
	return nil, hasMark(t.resumed.Closed, id) || hasMark(t.resumed.Unasked, id)
}

// rewriteOpen writes the parts of the calls that windows before have written and that
// were open.
func (w *writer) rewriteOpen() {
	for _, x := range w.tools {
		if x.carried != nil {
			w.reportTool(x, x.asked)
		}
	}
	// Executions are in order of time, which need not be that of the parts.
	slices.SortFunc(w.rewritten, func(x, y session.Part) int { return cmp.Compare(x.Index, y.Index) })
}

// rewrite writes the part of a call in the place where a window before wrote it.
func (w *writer) rewrite(x *tool, p *session.UIPart) *session.Part {
	c := x.carried
	p.ToolMetadata.Trace.ChildSessionID = c.Child
	partType, data := encodePart(p.Type, p)
	w.rewritten = append(w.rewritten, session.Part{
		ID: c.Part, MessageID: w.ID, SessionID: w.SessionID, Index: c.Index, Type: partType, DataJSON: data,
		CreatedAt: c.CreatedAt, UpdatedAt: max(c.CreatedAt, x.start/1e6, x.end/1e6),
	})
	return &w.rewritten[len(w.rewritten)-1]
}

// keepCalls notes which calls the next window may report more of.
func (w *writer) keepCalls(c *turnCarry, until int64) {
	if r := w.resumed(); r != nil {
		c.Closed, c.Unasked = r.Closed, r.Unasked
	}
	size := 0
	var open []openCall
	var closed []*tool
	// The latest calls are kept where there are too many.
	slices.SortStableFunc(w.written, func(x, y *tool) int { return cmp.Compare(x.row.Index, y.row.Index) })
	for _, x := range slices.Backward(w.written) {
		o := openCall{
			ID: x.callID, Name: x.name, Part: x.row.ID, Index: x.row.Index, CreatedAt: x.row.CreatedAt, Start: x.start,
			End: x.end, Asked: x.asked,
			Again: hasMark(c.Closed, x.callID) || x.carried != nil && x.carried.Again, Child: w.children[x.row.ID],
		}
		goesOn := x.state == session.StateInputAvailable || x.state == session.StateApprovalRequested ||
			x.state == session.StateApprovalResponded
		grace := int64(0)
		if x.carried != nil {
			grace = near // a record of the result is written when the span has ended
		}
		for _, n := range slices.Concat(x.nodes, x.decisions) {
			goesOn = goesOn || n.End+grace > until
			o.Facts = append(o.Facts, fact.Fact{
				Kind: n.Kind, Dialect: n.Dialect, TraceID: n.TraceID, SpanID: n.SpanID, Source: n.Source, Name: n.Name,
				Start: n.Start, End: n.End, CallID: n.CallID, Tool: n.Tool, Decision: n.Decision, Failed: n.Failed,
				Error: n.Error, ErrorType: n.ErrorType, Aborted: n.Aborted, Problems: n.Problems,
			})
		}
		goesOn = goesOn && len(open) < maxOpen
		if goesOn {
			raw, err := json.Marshal(o)
			goesOn = err == nil && len(raw) <= maxCallSize && size+len(raw) <= maxOpenSize
			size += len(raw)
		}
		if !goesOn {
			closed = append(closed, x)
			continue
		}
		open = append(open, o)
	}
	slices.SortFunc(open, func(x, y openCall) int { return cmp.Compare(x.Index, y.Index) })
	c.Open = open
	for _, x := range slices.Backward(closed) {
		if c.Closed = addMark(c.Closed, x.callID); x.asked == nil {
			c.Unasked = addMark(c.Unasked, x.callID)
		}
	}
}

// finished reports whether the model requests a call that an earlier window has written
// without knowing its request.
func (w *writer) finished(p *fact.Part) bool {
	r := w.resumed()
	if r == nil || p.CallID == "" || w.asks[p.CallID] > 0 {
		return false
	}
	if slices.ContainsFunc(r.Open, func(c openCall) bool { return c.ID == p.CallID && c.Asked == nil }) {
		return true
	}
	return hasMark(r.Unasked, p.CallID)
}
