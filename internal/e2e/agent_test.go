//go:build long

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/session/spool"
)

// job is the task of an agent, on its first line of input.
type job struct {
	Endpoint string
	Seed     uint64
	// Name is part of every text and id that the agent creates.
	Name  string
	Turns int
	// States are those of the sessions to resume, the agent's own first and then those of
	// its sub-agents. None means a new session.
	States []agenttrace.State
	// Answer means that a turn that waits for a person is continued first.
	Answer bool
	// Pause means that the agent waits for a line of input after it has resumed its sessions.
	Pause bool
	// Batch is the delay of the batch processor.
	Batch time.Duration
	// Spool is the directory of the spool, or empty.
	Spool string
}

// agent runs the turns of a random script.
type agent struct {
	job
	wire   *wire
	tracer *agenttrace.Tracer

	mu   sync.Mutex // guards the fields below
	rand *rand.Rand
	// sessions are those whose states the host saves.
	sessions []*agenttrace.Session
}

// runAgent runs the job on the first line of input.
func runAgent() (err error) {
	ctx := context.Background()
	in := bufio.NewReader(os.Stdin)
	text, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	a := &agent{wire: &wire{}}
	if err := json.Unmarshal(text, &a.job); err != nil {
		return err
	}
	a.rand = rand.New(rand.NewPCG(a.Seed, 1))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		a.wire.send(line{Kind: lineTrouble, Text: err.Error()})
	}))
	out, err := connect(ctx, a.Endpoint, a.Spool)
	if err != nil {
		return err
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(watchedSpans{out.spans, a.wire},
		sdktrace.WithBatchTimeout(a.Batch)))
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(watchedLogs{out.logs, a.wire})))
	a.tracer = agenttrace.New(agenttrace.Options{
		TracerProvider: tp, LoggerProvider: lp, Live: agenttrace.LiveOptions{MinInterval: -1},
		Approver: a.approve,
		Rules: []agenttrace.Rule{
			{Permission: "bash", Pattern: "rm *", Action: agenttrace.ActionDeny},
			{Permission: "bash", Pattern: "make *", Action: agenttrace.ActionAllow},
			{Permission: "task", Pattern: "*", Action: agenttrace.ActionAllow},
		},
	})
	if err := a.takeUp(ctx, tp); err != nil {
		return err
	}
	if a.Pause {
		a.wire.send(line{Kind: linePaused})
		if _, err := in.ReadBytes('\n'); err != nil {
			return err
		}
	}
	if err := a.work(ctx); err != nil {
		return err
	}
	if err := errors.Join(tp.Shutdown(ctx), lp.Shutdown(ctx), out.close(ctx)); err != nil {
		return err
	}
	a.wire.send(line{Kind: lineDone})
	return nil
}

// exporters returns exporters to a collector, directly or with a spool between.
type exporters struct {
	spans sdktrace.SpanExporter
	logs  sdklog.Exporter
	spool *spool.Exporter
}

func connect(ctx context.Context, endpoint, dir string) (e exporters, err error) {
	// Short intervals, so that a collector that stops and returns is soon noticed.
	impatient := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1,
			MaxDelay: 20 * time.Millisecond},
		MinConnectTimeout: time.Second,
	})
	spans, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(endpoint),
		otlptracegrpc.WithDialOption(impatient),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: dir == ""}))
	if err != nil {
		return e, err
	}
	logs, err := otlploggrpc.New(ctx, otlploggrpc.WithInsecure(), otlploggrpc.WithEndpoint(endpoint),
		otlploggrpc.WithDialOption(impatient),
		otlploggrpc.WithRetry(otlploggrpc.RetryConfig{Enabled: dir == ""}))
	if err != nil {
		return e, err
	}
	e.spans, e.logs = spans, logs
	if dir != "" {
		if e.spool, err = spool.Open(dir, spool.Options{Spans: spans, Logs: logs}); err != nil {
			return e, err
		}
		e.spans, e.logs = e.spool.SpanExporter(), e.spool.LogExporter()
	}
	return e, nil
}

// close returns when the spool is empty.
func (e exporters) close(ctx context.Context) error {
	if e.spool == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		if err := e.spool.ForceFlush(ctx); err != nil {
			return err
		}
		if left, err := filepath.Glob(filepath.Join(e.spool.Dir(), "*.pb")); err != nil ||
			len(left) == 0 {
			return errors.Join(err, e.spool.Close(ctx))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%+v: %w", e.spool.Stats(), ctx.Err())
		case <-again.C:
		}
	}
}

// takeUp resumes the sessions of other processes, or starts a session.
func (a *agent) takeUp(ctx context.Context, tp *sdktrace.TracerProvider) error {
	for _, state := range a.States {
		s, err := a.tracer.ResumeSession(ctx, state)
		if err != nil {
			return err
		}
		a.sessions = append(a.sessions, s)
		a.save(s)
		a.wire.send(line{Kind: lineResumed, Session: s.ID(), Text: string(s.Status().State)})
	}
	if len(a.States) == 0 {
		s := a.tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder", Title: "Fix it"})
		a.sessions = append(a.sessions, s)
		a.save(s)
	}
	return tp.ForceFlush(ctx)
}

func (a *agent) work(ctx context.Context) error {
	s := a.sessions[0]
	ctx, run := s.StartRun(ctx, agenttrace.RunOptions{Model: agenttrace.Model{Provider: "openai", ID: "gpt-5-mini"}})
	a.save(s)
	if a.Answer && s.State().Pending != nil {
		if err := a.answer(ctx, run, a.Name+".again"); err != nil {
			return err
		}
	}
	for n := range a.Turns {
		if err := a.turn(ctx, run, fmt.Sprintf("%s.%d", a.Name, n)); err != nil {
			return err
		}
	}
	run.End(nil)
	return nil
}

// turn runs one question, with everything that may happen until it is answered.
func (a *agent) turn(ctx context.Context, run *agenttrace.Run, tag string) error {
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "question " + tag},
		agenttrace.TurnOptions{SystemPrompt: "You are careful."})
	if a.chance(2) {
		a.save(run.Session())
	}
	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	if a.chance(3) {
		a.stream(call.StreamReasoning(), tag+".thought", 3)
	}
	var side sync.WaitGroup
	for i := range 2 {
		side.Go(func() { a.bash(ctx, turn, fmt.Sprintf("%s.bash%d", tag, i)) })
	}
	a.stream(call.StreamText(), tag+".text", 6+a.n(6))
	side.Wait()
	call.End(usage, nil)
	if a.chance(2) {
		a.bash(ctx, turn, tag+".asked") // needs approval
	}
	if a.chance(2) {
		a.delegate(ctx, turn, tag+".task")
	}
	if a.chance(3) {
		_, c := turn.StartTool(ctx, agenttrace.ToolOptions{ID: tag + ".later", Name: "deploy",
			Input: map[string]string{"to": tag}})
		if a.chance(2) {
			c.AwaitApproval("")
		} else {
			c.AwaitInput("Where to?")
		}
		a.save(run.Session())
		turn.End(agenttrace.TurnResult{StopReason: "tool_use"})
		a.save(run.Session())
		return a.answer(ctx, run, tag+".answer")
	}
	_, call = turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	a.stream(call.StreamText(), tag+".end", 3)
	call.End(usage, nil)
	turn.End(agenttrace.TurnResult{StopReason: "stop"})
	a.save(run.Session())
	return nil
}

var usage = agenttrace.ModelResult{StopReason: "stop", Usage: agenttrace.InclusiveUsage{Input: 100, Output: 20}}

// answer continues the turn that waits for a person.
func (a *agent) answer(ctx context.Context, run *agenttrace.Run, tag string) error {
	ctx, turn, err := run.ContinueTurn(ctx, agenttrace.TurnOptions{})
	if err != nil {
		return err
	}
	for _, p := range turn.PendingTools() {
		_, c, _, err := turn.ResumeTool(ctx, p.CallID, agenttrace.Answer{Reply: agenttrace.ReplyOnce})
		if err != nil {
			return err
		}
		a.maybeSave()
		c.EndText("done " + tag + " " + p.CallID)
	}
	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	a.stream(call.StreamText(), tag, 3)
	call.End(usage, nil)
	turn.End(agenttrace.TurnResult{StopReason: "stop"})
	a.save(run.Session())
	return nil
}

// stream records text as a model generates it.
func (a *agent) stream(s *agenttrace.TextStream, tag string, words int) {
	text := ""
	for word := range strings.SplitAfterSeq(speech(tag, words), " ") {
		text += word
		a.wire.send(line{Kind: lineRecorded, Tag: tag, Size: len(text)})
		_, _ = s.WriteString(word)
	}
	_ = s.Close()
}

// speech returns a text that begins with its tag. It is long enough for any number of
// words; a text of fewer words is its beginning.
func speech(tag string, words int) string {
	lexicon := strings.Fields(
		"look at the file and see why it fails when nobody is there to run all of the tests in peace")
	text := "[" + tag + "]"
	for i := range words {
		text += " " + lexicon[(i*7+len(tag))%len(lexicon)]
	}
	return text
}

// bash calls a tool with streaming input that fails sometimes.
func (a *agent) bash(ctx context.Context, turn *agenttrace.Turn, id string) {
	ctx, c := turn.StartTool(ctx, agenttrace.ToolOptions{ID: id, Name: "bash", Kind: agenttrace.ToolExecute})
	a.maybeSave()
	command := "make " + id
	if strings.HasSuffix(id, ".asked") {
		command = "curl " + id
	}
	c.InputDelta(`{"command":`)
	a.maybeSave()
	c.InputDelta(`"` + command + `"}`)
	c.SetInput(nil)
	a.maybeSave()
	if d := c.Authorize(ctx, command); !d.Allowed() {
		return
	}
	a.maybeSave()
	if a.chance(4) {
		c.Fail(errors.New("exit status 1 of " + id))
	} else {
		c.EndText("output of " + id)
	}
	a.maybeSave()
}

// approve is a person who takes a moment to answer. The host saves the state that contains the question.
func (a *agent) approve(ctx context.Context, _ agenttrace.Question) (agenttrace.Answer, error) {
	a.save(agenttrace.SessionFromContext(ctx))
	<-time.After(time.Duration(a.n(8)) * time.Millisecond)
	a.maybeSave()
	return agenttrace.Answer{Reply: []agenttrace.Reply{agenttrace.ReplyOnce, agenttrace.ReplyReject}[a.n(2)]}, nil
}

// delegate runs a sub-agent.
func (a *agent) delegate(ctx context.Context, turn *agenttrace.Turn, id string) {
	ctx, c := turn.StartTool(ctx, agenttrace.ToolOptions{ID: id, Name: "task", Input: map[string]string{"prompt": id}})
	child := a.tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "reviewer"})
	a.mu.Lock()
	a.sessions = append(a.sessions, child)
	a.mu.Unlock()
	a.maybeSave()
	childCtx, run := child.StartRun(ctx, agenttrace.RunOptions{})
	childCtx, childTurn := run.StartTurn(childCtx, agenttrace.UserMessage{Text: "question " + id},
		agenttrace.TurnOptions{})
	a.save(child)
	a.maybeSave()
	_, call := childTurn.StartModelCall(childCtx, agenttrace.ModelCallOptions{})
	a.stream(call.StreamText(), id+".text", 4)
	a.bash(childCtx, childTurn, id+".bash")
	call.End(usage, nil)
	childTurn.End(agenttrace.TurnResult{StopReason: "stop"})
	run.End(nil)
	a.save(child)
	c.EndText("reviewed " + id)
	a.maybeSave()
}

// save prints the state of a session. The watching test stores it.
func (a *agent) save(s *agenttrace.Session) {
	state := s.State()
	a.wire.send(line{Kind: lineState, State: &state})
}

// maybeSave saves one of the sessions at random.
func (a *agent) maybeSave() {
	if !a.chance(3) {
		return
	}
	a.mu.Lock()
	s := a.sessions[a.rand.IntN(len(a.sessions))]
	a.mu.Unlock()
	a.save(s)
}

func (a *agent) chance(of int) bool { return a.n(of) == 0 }

func (a *agent) n(below int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rand.IntN(below)
}
