package ingest_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// emitted is what an exporter makes of recorded events.
func emitted(events agenttracetest.Events) []plog.LogRecord {
	var all []plog.LogRecord
	for _, e := range events {
		r := record(e.Record, e.Time.UnixNano())
		r.SetTraceID(pcommon.TraceID(e.SpanContext.TraceID()))
		r.SetSpanID(pcommon.SpanID(e.SpanContext.SpanID()))
		all = append(all, r)
	}
	return all
}

// liveAgent is a run of the SDK that streams, calls tools that work, fail and are denied, retries, starts a sub-agent,
// waits for a human and goes on, and is stopped by its user. crash ends it in the midst of the second run.
func liveAgent(t *testing.T, crash bool) (*agenttracetest.Recorder, *agenttrace.Session) {
	t.Helper()
	now := time.UnixMilli(start)
	rec := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{
		TracerProvider: rec, LoggerProvider: rec, Now: func() time.Time {
			now = now.Add(3 * time.Millisecond)
			return now
		},
		Live: agenttrace.LiveOptions{MinInterval: -1},
		Rules: []agenttrace.Rule{{Permission: "bash", Pattern: "rm*", Action: agenttrace.ActionDeny},
			{Permission: "*", Pattern: "*", Action: agenttrace.ActionAllow}},
	})
	sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder", Title: "Fix it",
		Metadata: map[string]any{"ticket": "A-1"}})
	runCtx, run := sess.StartRun(t.Context(),
		agenttrace.RunOptions{Model: agenttrace.Model{Provider: "openai", ID: "m"}})
	ctx, turn := run.StartTurn(runCtx, agenttrace.UserMessage{Text: "why?"}, agenttrace.TurnOptions{})
	turn.SetSystemPrompt("be brief")
	callCtx, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	text := call.StreamText()
	for word := range strings.SplitAfterSeq("I will look at it, in peace.", " ") {
		_, _ = text.WriteString(word)
	}
	_ = text.Close()
	call.End(agenttrace.ModelResult{}, errors.New("overloaded"))
	turn.Retrying(1, errors.New("overloaded"))
	_, call = turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	call.Reasoning("hm")
	call.End(agenttrace.ModelResult{}, nil)
	_ = callCtx
	tool := func(name, command string, end func(*agenttrace.ToolCall)) {
		toolCtx, c := turn.StartTool(ctx, agenttrace.ToolOptions{Name: name})
		c.InputDelta(`{"command":`)
		c.InputDelta(`"` + command + `"}`)
		c.SetInput(json.RawMessage(`{"command":"` + command + `"}`))
		if d := c.Authorize(toolCtx, command); d.Allowed() {
			end(c)
		} else {
			c.Fail(d.Err())
		}
	}
	tool("bash", "ls", func(c *agenttrace.ToolCall) { c.EndText("a b") })
	tool("bash", "go test", func(c *agenttrace.ToolCall) { c.Fail(errors.New("exit status 1")) })
	tool("bash", "rm -rf /", func(c *agenttrace.ToolCall) { c.EndText("gone") })
	childCtx, child := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "task",
		Input: map[string]string{"prompt": "review"}})
	sub := tracer.NewSession(childCtx, agenttrace.SessionOptions{Agent: "reviewer"})
	subCtx, subRun := sub.StartRun(childCtx, agenttrace.RunOptions{})
	_, subTurn := subRun.StartTurn(subCtx, agenttrace.UserMessage{Text: "review"}, agenttrace.TurnOptions{})
	subTurn.Text("fine")
	subTurn.End(agenttrace.TurnResult{})
	subRun.End(nil)
	child.EndText("fine")
	_, waits := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_w", Name: "deploy",
		Input: map[string]string{"to": "production"}})
	waits.AwaitApproval("")
	turn.End(agenttrace.TurnResult{})
	run.End(nil)

	runCtx, run = sess.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn, err := run.ContinueTurn(runCtx, agenttrace.TurnOptions{})
	testscale.Must(t, err)
	_, waits, _, err = turn.ResumeTool(ctx, "call_w", agenttrace.Answer{Reply: agenttrace.ReplyOnce})
	testscale.Must(t, err)
	if crash {
		return rec, sess
	}
	waits.EndText("deployed")
	turn.Text("It is out.")
	turn.End(agenttrace.TurnResult{})
	ctx, turn = run.StartTurn(runCtx, agenttrace.UserMessage{Text: "and now?"}, agenttrace.TurnOptions{})
	_, _ = turn.StreamText().WriteString("Now I")
	_, _ = turn.StartTool(ctx, agenttrace.ToolOptions{Name: "bash", Input: map[string]string{"command": "sleep 60"}})
	delegate := func() *agenttrace.Run {
		childCtx, _ := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "task", Input: 1})
		sub = tracer.NewSession(childCtx, agenttrace.SessionOptions{Agent: "open"})
		_, subRun = sub.StartRun(childCtx, agenttrace.RunOptions{})
		return subRun
	}
	delegate()
	turn.Abort()
	ctx, turn = run.StartTurn(runCtx, agenttrace.UserMessage{Text: "again"}, agenttrace.TurnOptions{})
	defer delegate().End(nil)
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	testscale.Must(t, rec.Err())
	return rec, sess
}

// TestSDKLiveAndSpans: what the SDK reports while it works leaves no trace of its own
// when its spans are there, in whatever order all of it comes.
func TestSDKLiveAndSpans(t *testing.T) {
	rec, _ := liveAgent(t, false)
	all, events := recorded(rec.All()), emitted(rec.Events())
	if len(events) < 40 {
		t.Fatalf("only %d events", len(events))
	}
	alone := openStore(t)
	ingestAll(t, alone, traces(all...))
	want := rowsOf(t, alone)
	if n := strings.Count(dump(t, alone.Path()), "child_session_id"); n != 3 {
		t.Errorf("%d of 3 calls name their sub-agents", n)
	}
	for seed := range testscale.Rounds(3, 6) {
		r := rand.New(rand.NewPCG(uint64(seed), 8))
		var order []request
		for _, e := range events {
			if seed%3 == 0 || r.IntN(3) > 0 {
				order = append(order, request{logs: logs(e), isLogs: true})
			}
		}
		for _, s := range all {
			order = append(order, request{traces: traces(s)})
		}
		order = append(order, order[r.IntN(len(order))], order[r.IntN(len(order))])
		if seed > 0 {
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		s := openStore(t)
		if report := deliver(t, s, order); report.Malformed != 0 || report.Refused != 0 || report.Ignored != 0 {
			t.Fatalf("problems: %+v", report)
		}
		storetest.CheckSessions(t, s)
		if d := cmp.Diff(want, rowsOf(t, s)); d != "" {
			t.Fatalf("seed %d (-spans alone +with events):\n%s", seed, d)
		}
	}
}

// TestSDKLiveAlone: events give the same bytes in any order, with any of the spans missing, and what
// they give is valid.
func TestSDKLiveAlone(t *testing.T) {
	rec, _ := liveAgent(t, false)
	all, events := recorded(rec.All()), emitted(rec.Events())
	for seed := range testscale.Rounds(3, 6) {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		var kept []request
		for _, e := range events {
			kept = append(kept, request{logs: logs(e), isLogs: true})
		}
		for _, s := range all {
			if r.Float64() < float64(seed%4)/4 {
				kept = append(kept, request{traces: traces(s)})
			}
		}
		var rows [2]string
		for i := range rows {
			s := openStore(t)
			deliver(t, s, kept)
			storetest.CheckSessions(t, s)
			rows[i] = dump(t, s.Path())
			r.Shuffle(len(kept), func(i, j int) { kept[i], kept[j] = kept[j], kept[i] })
		}
		if rows[0] != rows[1] {
			t.Fatalf("seed %d: tables differ (-one order +another):\n%s", seed,
				differ(rows[0], rows[1]))
		}
	}
}

// TestSDKCrash: an agent that dies while a call runs that a human allowed leaves
// the call as it was, a session that is busy, and interrupted when it is idle.
func TestSDKCrash(t *testing.T) {
	rec, sess := liveAgent(t, true)
	s := openStore(t)
	var order []request
	for _, e := range emitted(rec.Events()) {
		order = append(order, request{logs: logs(e), isLogs: true})
	}
	for _, sp := range recorded(rec.All()) {
		order = append(order, request{traces: traces(sp)})
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	deliver(t, s, order)
	storetest.CheckSessions(t, s)
	transcript := storetest.Transcript(t, s, sess.ID())
	lastSeen := time.UnixMilli(transcript.Session.UpdatedAt)
	st := document.StatusOf(&transcript.Session, transcript, nil, lastSeen.Add(30*time.Second),
		document.DefaultIdleTimeout)
	if st.State != document.ActivityBusy || !st.Declared {
		t.Errorf("state %q, declared %v; want busy, as it declares", st.State, st.Declared)
	}
	if len(st.OpenCalls) != 1 || st.OpenCalls[0].Tool != "deploy" ||
		st.OpenCalls[0].State != session.StateApprovalResponded {
		t.Errorf("open calls %+v; want deploy, approved", st.OpenCalls)
	}
	if st = document.StatusOf(&transcript.Session, transcript, nil, lastSeen.Add(time.Minute),
		document.DefaultIdleTimeout); st.State != document.ActivityInterrupted {
		t.Errorf("a minute later the state is %q, want interrupted", st.State)
	}
}

// Each answer is that of its question, whichever of two turns that were open at once ends first; all count two turns.
func TestTwoTurnsAtOnce(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}, {0, 1, 0, 1}} {
		now := time.UnixMilli(start)
		rec := agenttracetest.NewRecorder()
		tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec,
			Now: func() time.Time { now = now.Add(time.Millisecond); return now }})
		sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
		ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
		_, first := run.StartTurn(ctx, agenttrace.UserMessage{Text: "0"}, agenttrace.TurnOptions{})
		_, second := run.StartTurn(ctx, agenttrace.UserMessage{Text: "1"}, agenttrace.TurnOptions{})
		for _, i := range order {
			_, call := []*agenttrace.Turn{first, second}[i].StartModelCall(ctx, agenttrace.ModelCallOptions{})
			call.Text(strconv.Itoa(i))
			call.End(agenttrace.ModelResult{}, nil)
		}
		first.End(agenttrace.TurnResult{})
		second.End(agenttrace.TurnResult{})
		run.End(nil)
		s := openStore(t)
		ingestAll(t, s, traces(recorded(rec.All())...))
		doc, err := document.Load(t.Context(), s, sess.ID())
		testscale.Must(t, err)
		stats, err := s.Stats(t.Context(), store.StatsQuery{})
		testscale.Must(t, err)
		items, _, err := document.Reader{Reader: s}.Items(t.Context(), []session.Session{{ID: sess.ID()}})
		testscale.Must(t, err)
		if got := []int64{int64(doc.Totals.Turns), stats.Total.Turns, items[0].Turns}; !slices.Equal(got, []int64{2, 2, 2}) {
			t.Errorf("%v: %v turns in show, stats and ls", order, got)
		}
		for _, turn := range doc.Turns {
			if q, a := turn.UserText(), turn.AnswerText(); turn.QuestionMissing || q != a[:1] {
				t.Errorf("%v: question %s is answered by %q", order, q, a)
			}
		}
	}
}
