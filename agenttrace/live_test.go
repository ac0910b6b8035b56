package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/embedded"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
)

var permissionID = regexp.MustCompile("per_[0-9A-Za-z]+")

// eventLines writes events as lines.
func eventLines(events agenttracetest.Events) []string {
	var out []string
	for _, e := range events {
		r := e.Record
		line := strings.TrimPrefix(e.Name, "agenttrace.")
		switch line {
		case "session":
			line += " " + strings.TrimSpace(r.Session.Agent+" "+r.Session.Title)
		case "message":
			line += " " + r.Role + " " + string(r.MessageMetadata)
		case "status":
			line += " " + r.Status
			if r.Attempt != 0 {
				line += fmt.Sprint(" ", r.Attempt)
			}
			line = strings.Join(strings.Fields(line+" "+r.CallID+" "+r.Detail), " ")
		}
		for _, p := range r.Parts {
			line += fmt.Sprintf(" %d %s", p.Index, p.Data)
		}
		out = append(out, permissionID.ReplaceAllString(line, "PERM"))
	}
	return out
}

func wantStory(t *testing.T, rec *agenttracetest.Recorder, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, eventLines(rec.Events())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestEventsTellWhatGoesOn(t *testing.T) {
	approve := make(chan Answer, 1)
	h := newHarness(t, Options{
		Approver: func(context.Context, Question) (Answer, error) { return <-approve, nil },
	}, SessionOptions{Title: "Fix"})
	ctx, turn := h.run.StartTurn(h.ctx, UserMessage{Text: "hi", Metadata: map[string]any{"client": "cli"}},
		TurnOptions{})
	if st := h.sess.Status(); st.State != StatusBusy {
		t.Errorf("status = %+v", st)
	}
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	turn.Retrying(2, errors.New("overloaded"))
	s := call.StreamText()
	s.WriteString("Let me ")
	s.Close()
	_, tool := turn.StartTool(ctx, ToolOptions{ID: "c1", Name: "bash"})
	tool.SetInput(map[string]string{"cmd": "ls"})
	call.End(ModelResult{}, nil)
	approve <- Answer{Reply: ReplyOnce}
	tool.Authorize(ctx, "ls")
	tool.End("a.go")
	h.sess.SetTitle(ctx, "Fix it")
	turn.AwaitInput("Which one?")
	_, call = turn.StartModelCall(ctx, ModelCallOptions{})
	call.Text("Done.")
	call.End(ModelResult{}, nil)
	turn.End(TurnResult{})
	h.run.End(errors.New("disk full"))
	h.check()
	wantStory(t, h.rec,
		`session coder Fix`,
		`status busy`,
		`message user {"client":"cli"} 0 {"type":"text","text":"hi"}`,
		`message assistant {"agenttrace":{"turn_index":0},"model":{"provider_id":"openai","model_id":"gpt-5-mini"}}`,
		`status retrying 2 overloaded`,
		`status busy`,
		`part 0 {"type":"text","text":"","state":"streaming"}`,
		`part 0 {"type":"text","text":"Let me "}`,
		`part 1 {"type":"tool-bash","toolCallId":"c1","state":"input-streaming"}`,
		`part 1 {"type":"tool-bash","toolCallId":"c1","state":"input-available","input":{"cmd":"ls"}}`,
		`part 1 {"type":"tool-bash","toolCallId":"c1","state":"approval-requested","input":{"cmd":"ls"},`+
			`"approval":{"id":"PERM"}}`,
		`status waiting_on_approval c1 bash ls`,
		`status busy`,
		`part 1 {"type":"tool-bash","toolCallId":"c1","state":"approval-responded","input":{"cmd":"ls"},`+
			`"approval":{"id":"PERM","approved":true}}`,
		`part 1 {"type":"tool-bash","toolCallId":"c1","state":"output-available","input":{"cmd":"ls"},"output":"a.go"}`,
		`session coder Fix it`,
		`status waiting_on_user_input Which one?`,
		`status busy`,
		`part 2 {"type":"step-start"}`,
		`part 3 {"type":"text","text":"Done."}`,
		`status idle`,
		`status error disk full`,
	)
	run, turnSpan := h.rec.All().Named("session.run")[0].SpanContext, h.rec.All().Named("session.turn")[0].SpanContext
	last := time.Time{}
	for _, e := range h.rec.Events() {
		want := turnSpan
		if e.Name == "agenttrace.session" || strings.Contains(fmt.Sprint(e.Attributes), "disk full") {
			want = run
		}
		if e.SpanContext.SpanID() != want.SpanID() || e.SpanContext.TraceID() != want.TraceID() {
			t.Errorf("%s is emitted in span %v, want %v", e.Name, e.SpanContext, want)
		}
		if !e.Time.After(last) {
			t.Errorf("%s at %v comes after an event at %v", e.Name, e.Time, last)
		}
		last = e.Time
	}
}

// TestLongTextsCostLittleMoreThanTheirLength streams texts a token at a time: as slowly and as
// fast as models write, and at once. An event a second is what even the slowest may cost.
func TestLongTextsCostLittleMoreThanTheirLength(t *testing.T) {
	for _, test := range []struct {
		size int
		pace time.Duration
		// most is how many bytes all events may hold, per byte of the text.
		maximum float64
	}{{4 << 10, 20 * time.Millisecond, 20}, {256 << 10, time.Millisecond, 32}, {256 << 10, 0, 2}} {
		t.Run(fmt.Sprint(test.size, test.pace), func(t *testing.T) {
			inBubble(t, LiveOptions{}, func(t *testing.T, rec *agenttracetest.Recorder,
				ctx context.Context, turn *Turn) {
				s := turn.StreamText()
				for n := 0; n < test.size; n += 5 {
					time.Sleep(test.pace)
					s.WriteString("word ")
				}
				s.Close()
				turn.End(TurnResult{})
				sum, count, last := 0, 0, 0
				for _, e := range rec.Events().Named("agenttrace.part") {
					n := len(e.Record.Parts[0].Data)
					if n < test.size && n == last {
						t.Error("an event without more text than the one before")
					}
					sum, count, last = sum+n, count+1, n
				}
				if got := float64(sum) / float64(test.size); got > test.maximum || count < 2 {
					t.Errorf("%d events hold %.1f bytes per byte of the text, want at most %.0f", count, got, test.maximum)
				}
			})
		})
	}
}

func TestClientThatGoesAwayAbortsNothing(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	client, leave := context.WithCancel(h.ctx)
	ctx, turn := h.run.StartTurn(client, UserMessage{Text: "go"}, TurnOptions{})
	toolCtx, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "task", Input: 1})
	child := h.tracer.NewSession(toolCtx, SessionOptions{Agent: "helper"})
	childCtx, childRun := child.StartRun(toolCtx, RunOptions{})
	_, childTurn := childRun.StartTurn(childCtx, UserMessage{Text: "help"}, TurnOptions{})
	leave()
	childTurn.Text("helped")
	childTurn.End(TurnResult{})
	childRun.End(nil)
	tool.End("helped")
	h.rec.Drop(func(string) bool { return true }) // the one who listened is gone too
	turn.Text("done")
	h.end(turn)
	for _, turn := range h.rec.All().Turns() {
		if turn.EndReason != "finish" {
			t.Errorf("turn of %s ended by %s", turn.SessionID, turn.EndReason)
		}
	}
	if st := h.sess.Status(); st.State != StatusIdle {
		t.Errorf("status = %+v", st)
	}
}

// sink is a logger provider that calls do with each record.
type sink struct {
	embedded.LoggerProvider
	enabled bool
	do      func(log.Record)
}

func (s *sink) Logger(string, ...log.LoggerOption) log.Logger { return &sinkLogger{sink: s} }

type sinkLogger struct {
	embedded.Logger
	sink *sink
}

func (l *sinkLogger) Enabled(context.Context, log.EnabledParameters) bool { return l.sink.enabled }
func (l *sinkLogger) Emit(_ context.Context, r log.Record)                { l.sink.do(r) }

// TestEventsNeverHurtTheAgent has log processors that panic and that call back.
func TestEventsNeverHurtTheAgent(t *testing.T) {
	var turn *Turn
	var names []string
	for name, do := range map[string]func(log.Record){
		"panics": func(log.Record) { panic("disk full") },
		"calls back": func(r log.Record) {
			names = append(names, r.EventName())
			turn.Text("seen")
			turn.SetMetadata(map[string]any{"seen": len(names)})
			if len(names) > 100 {
				turn.Abort()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rec := agenttracetest.NewRecorder()
			sess := New(Options{TracerProvider: rec,
				LoggerProvider: &sink{enabled: true, do: do}}).NewSession(t.Context(), SessionOptions{Agent: "a"})
			ctx, run := sess.StartRun(t.Context(), RunOptions{})
			errs := errorsOf(func() {
				ctx, turn = run.StartTurn(ctx, UserMessage{Text: "x"}, TurnOptions{})
				turn.Text("y")
				turn.End(TurnResult{})
				run.End(nil)
			})
			if name == "panics" &&
				(len(errs) == 0 ||
					!strings.Contains(errs[0].Error(), "emit event agenttrace.status of session "+sess.ID()+
						": panic: disk full")) {
				t.Errorf("errors = %v", errs)
			}
			if got := one(t, rec.All().Turns()); len(got.Assistant.Parts) == 0 {
				t.Errorf("turn = %+v", got)
			}
		})
	}
}

func TestEventsOfAStuckProcessorAreDroppedAndCounted(t *testing.T) {
	stuck, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	emitted := 0
	sess, turn := func() (*Session, *Turn) {
		rec := agenttracetest.NewRecorder()
		tracer := New(Options{TracerProvider: rec, LoggerProvider: &sink{enabled: true, do: func(r log.Record) {
			emitted++
			if r.EventName() == "agenttrace.part" {
				once.Do(func() { close(stuck); <-release })
			}
		}}})
		sess := tracer.NewSession(t.Context(), SessionOptions{Agent: "a"})
		ctx, run := sess.StartRun(t.Context(), RunOptions{})
		_, turn := run.StartTurn(ctx, UserMessage{Text: "x"}, TurnOptions{})
		t.Cleanup(func() {
			if tracer.Dropped() != 3000-1024 {
				t.Errorf("%d dropped", tracer.Dropped())
			}
		})
		return sess, turn
	}()
	done := make(chan struct{})
	go func() { defer close(done); turn.Text("the first") }()
	<-stuck
	errs := errorsOf(func() {
		for range 3000 {
			turn.Text("another") // does not wait
		}
	})
	close(release)
	<-done
	if len(errs) == 0 || emitted > 1100 || sess.Status().State != StatusBusy {
		t.Errorf("%d emitted, reported %v", emitted, errs)
	}
}

// TestAnySequenceOfCallsIsToldAsItsSpansSay calls what an agent may call, in any
// order.
func TestAnySequenceOfCallsIsToldAsItsSpansSay(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		o := Options{
			Approver: func(_ context.Context, q Question) (Answer, error) {
				switch r.IntN(4) {
				case 0:
					return Answer{Reply: ReplyOnce}, nil
				case 1:
					return Answer{Reply: ReplyLater}, nil
				case 2:
					return Answer{}, errors.New("nobody")
				}
				return Answer{Reply: ReplyReject, Reason: "no: sk-ant-api03-" + strings.Repeat("aB3", 20)}, nil
			},
			Live:          LiveOptions{MinInterval: time.Duration(-r.IntN(2))},
			LoopDetection: &LoopDetection{},
		}
		if r.IntN(3) == 0 {
			o.MaxPartBytes = 120
		}
		o.DisableRedaction = r.IntN(4) == 0
		h := newHarness(t, o, SessionOptions{Metadata: map[string]any{"password": "hunter22"}})
		if r.IntN(4) == 0 {
			h.rec.Drop(func(name string) bool { return name == "tool.call" })
		}
		words := []string{"", "a", "é世界 ", "two words ", "key sk-ant-api03-" + strings.Repeat("aB3", 20),
			"password=hunter2222 ", strings.Repeat("long ", 60), "{\"a\":", "1}", "\xff"}
		word := func() string { return words[r.IntN(len(words))] }
		errorsOf(func() {
			for range 1 + r.IntN(3) {
				randomTurn(h, r, word)
			}
			h.run.End([]error{nil, errors.New(word()), context.Canceled}[r.IntN(3)])
		})
		h.check()
		if !o.DisableRedaction {
			noSecrets(t, h.rec)
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(eventLines(h.rec.Events()), "\n"))
		}
	}
}

// noSecrets fails the test where the key among the words has got through.
func noSecrets(t *testing.T, rec *agenttracetest.Recorder) {
	t.Helper()
	search := func(what string, attrs []attribute.KeyValue) {
		for _, kv := range attrs {
			if text := kv.Value.String(); strings.Contains(text, "sk-ant-api03-") {
				t.Errorf("%s: %s holds a secret: %s", what, kv.Key, text)
			}
		}
	}
	for _, s := range rec.All() {
		search(s.Name, s.Attributes)
		if strings.Contains(s.StatusText, "sk-ant-api03-") {
			t.Errorf("the status of %s holds a secret: %s", s.Name, s.StatusText)
		}
	}
	for _, e := range rec.Events() {
		search(e.Name, e.Attributes)
	}
}

func randomTurn(h *harness, r *rand.Rand, word func() string) {
	var ctx context.Context
	var turn *Turn
	var err error
	if ctx, turn, err = h.run.ContinueTurn(h.ctx, TurnOptions{}); err != nil {
		ctx, turn = h.run.StartTurn(h.ctx,
			UserMessage{Text: word(), Parts: []Part{DataPart("x", "", word())},
				Metadata: map[string]any{"w": word()}}, TurnOptions{SystemPrompt: word()})
	}
	var tools []*ToolCall
	var streams []*TextStream
	var call *ModelCall
	pick := func() *ToolCall {
		if len(tools) == 0 {
			return nil
		}
		return tools[r.IntN(len(tools))]
	}
	for range r.IntN(40) {
		switch r.IntN(20) {
		case 0:
			_, call = turn.StartModelCall(ctx, ModelCallOptions{Model: Model{ID: string(rune('a' + r.IntN(2)))}})
		case 1:
			call.End(ModelResult{StopReason: "stop", Usage: InclusiveUsage{Input: 1}}, nil)
		case 2:
			turn.Text(word())
		case 3:
			turn.Reasoning(word())
		case 4:
			streams = append(streams, turn.StreamText())
		case 5:
			streams = append(streams, turn.StreamReasoning())
		case 6, 7, 8:
			if len(streams) > 0 {
				streams[r.IntN(len(streams))].WriteString(word())
			}
		case 9:
			if len(streams) > 0 {
				s := streams[r.IntN(len(streams))]
				s.SetProviderMetadata(map[string]any{"p": word()})
				s.Close()
			}
		case 10:
			_, c := turn.StartTool(ctx, ToolOptions{Name: "bash", Dynamic: r.IntN(3) == 0,
				ProviderExecuted: r.IntN(3) == 0})
			tools = append(tools, c)
		case 11:
			_, c := turn.StartTool(ctx, ToolOptions{ID: fmt.Sprint("call_", r.Int()), Name: "edit",
				RawInput: json.RawMessage(word())})
			tools = append(tools, c)
		case 12:
			pick().InputDelta(word())
		case 13:
			pick().SetInput([]any{nil, word(), map[string]any{"token": word()}}[r.IntN(3)])
		case 14:
			pick().Authorize(ctx, word())
		case 15:
			pick().AwaitInput(word())
		case 16:
			c := pick()
			[]func(){func() { c.End(word()) }, func() { c.EndRaw(json.RawMessage(word())) }, func() {
				c.Fail(errors.New(word()))
			}, c.Abort, func() { c.EndTruncated(word(), Truncated{Size: 1}) }}[r.IntN(5)]()
		case 17:
			turn.SetMetadata(map[string]any{"m": word()})
			h.sess.SetTitle(ctx, word())
		case 18:
			turn.Data("state", "", word())
			turn.SourceURL(SourceURL{URL: word()})
		case 19:
			for _, p := range turn.PendingTools() {
				_, c, _, err := turn.ResumeTool(ctx, p.CallID, Answer{Reply: ReplyOnce})
				if err == nil {
					tools = append(tools, c)
				}
			}
		}
	}
	[]func(){func() { turn.End(TurnResult{}) }, turn.Abort, func() {
		turn.Fail(errors.New(word()))
	}, func() { turn.End(TurnResult{}) }, func() {}}[r.IntN(5)]()
}

func TestStatusesBySetStatusAndOfWaitingCalls(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	_, a := turn.StartTool(ctx, ToolOptions{ID: "a", Name: "x", Input: 1})
	_, b := turn.StartTool(ctx, ToolOptions{ID: "b", Name: "y", Input: 1})
	a.AwaitApproval("")
	b.AwaitInput("?")
	b.End("!")
	h.sess.SetStatus(ctx, Status{State: StatusRetrying, Attempt: 1})
	turn.End(TurnResult{})
	if turn.End(TurnResult{}); h.sess.Busy() {
		t.Error("busy")
	}
	h.run.End(nil)
	h.check()
	var got []string
	for _, st := range h.rec.Events().Statuses() {
		got = append(got, strings.TrimSpace(st.Status+" "+st.CallID))
	}
	want := []string{"busy", "waiting_on_approval a", "waiting_on_user_input b", "waiting_on_approval a", "retrying",
		"waiting_on_approval a"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if st := h.sess.Status(); st != (Status{State: StatusWaitingApproval, CallID: "a", Detail: "x"}) {
		t.Errorf("status = %+v", st)
	}
	h.sess.SetStatus(ctx, Status{})
	if st := h.sess.Status(); st.State != StatusIdle {
		t.Errorf("status = %+v", st)
	}
}
