package agenttrace_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/semconv"
)

// inBubble runs an agent with a clock that moves when everything waits.
func inBubble(t *testing.T, live LiveOptions,
	agent func(t *testing.T, rec *agenttracetest.Recorder, ctx context.Context, turn *Turn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rec := agenttracetest.NewRecorder()
		ctx, run, turn := startTurn(t.Context(), Options{TracerProvider: rec, LoggerProvider: rec, Live: live})
		agent(t, rec, ctx, turn)
		turn.End(TurnResult{})
		run.End(nil)
		synctest.Wait() // the timer may have been at it
		if err := rec.Err(); err != nil {
			t.Error(err)
		}
		events := len(rec.Events())
		time.Sleep(24 * time.Hour)
		if more := rec.Events()[events:]; len(more) > 0 {
			t.Errorf("after the end: %q", eventLines(more))
		}
	})
}

// lastPart returns the data of the part that was sent last.
func lastPart(rec *agenttracetest.Recorder) (data string) {
	for _, e := range rec.Events() {
		if e.Name == semconv.EventPart {
			data = string(e.Record.Parts[0].Data)
		}
	}
	return data
}

func TestSlowTextIsSeenWithinASecond(t *testing.T) {
	words := strings.Fields(
		"the quick brown fox jumps over the lazy dog and runs into the woods behind the old house where nobody lives")
	for name, start := range map[string]func(ctx context.Context, turn *Turn) (write func(string), end func()){
		"text": func(_ context.Context, turn *Turn) (func(string), func()) {
			s := turn.StreamText()
			return func(text string) { s.WriteString(text) }, func() { s.Close() }
		},
		"reasoning": func(ctx context.Context, turn *Turn) (func(string), func()) {
			_, call := turn.StartModelCall(ctx, ModelCallOptions{})
			s := call.StreamReasoning()
			return func(text string) { s.Write([]byte(text)) }, func() { s.Close() }
		},
		"input of a tool": func(ctx context.Context, turn *Turn) (func(string), func()) {
			_, tool := turn.StartTool(ctx, ToolOptions{Name: "write"})
			tool.InputDelta(`{"text":" `)
			return tool.InputDelta, func() { tool.InputDelta(`"}`); tool.End("ok") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, LiveOptions{}, func(t *testing.T, rec *agenttracetest.Recorder,
				ctx context.Context, turn *Turn) {
				write, end := start(ctx, turn)
				before := len(rec.Events())
				for i, word := range words {
					write(word + " ")
					time.Sleep(250 * time.Millisecond) // four words per second
					if i >= 4 {
						if got, want := lastPart(rec), strings.Join(words[:i-3], " "); !strings.Contains(got, want) {
							t.Fatalf("after %d words a reader has %s", i+1, got)
						}
					}
				}
				time.Sleep(time.Second)
				if got := lastPart(rec); !strings.Contains(got, strings.Join(words, " ")) {
					t.Errorf("a model that pauses leaves %s", got)
				}
				sent := len(rec.Events()) - before
				if limit := len(words)/2 + 3; sent > limit {
					t.Errorf("%d events for %d words, want at most %d", sent, len(words), limit)
				}
				time.Sleep(10 * time.Second)
				if more := len(rec.Events()) - before - sent; more > 0 {
					t.Errorf("%d more events though nothing came", more)
				}
				end()
			})
		})
	}
}

func TestAToolThatRunsForAnHourIsHeardOf(t *testing.T) {
	inBubble(t, LiveOptions{}, func(t *testing.T, rec *agenttracetest.Recorder,
		ctx context.Context, turn *Turn) {
		_, tool := turn.StartTool(ctx, ToolOptions{Name: "bash", Input: map[string]any{}})
		began := time.Now()
		time.Sleep(time.Hour + time.Second)
		last, heartbeats := began, 0
		for _, e := range rec.Events() {
			if e.Name != semconv.EventStatus {
				continue
			}
			if e.Record.Heartbeat != 15000 || e.Record.Status != semconv.StatusBusy {
				t.Fatalf("status %+v", e.Record)
			}
			if gap := e.Time.Sub(last); gap > 16*time.Second {
				t.Errorf("nothing for %s", gap)
			}
			if e.Record.Since != 0 {
				heartbeats++
				if at := time.UnixMilli(e.Record.Since); at.Sub(began).Abs() > time.Second {
					t.Errorf("busy since %s, want %s", at, began)
				}
			}
			last = e.Time
		}
		if heartbeats != 240 {
			t.Errorf("%d heartbeats in an hour, want 240", heartbeats)
		}
		tool.End("ok")
		turn.End(TurnResult{})
		if end := rec.Events().Statuses(); end[len(end)-1].Status != "idle" {
			t.Errorf("in the end it is %+v", end[len(end)-1])
		}
	})
}

func TestAHeartbeatIsSentOnlyWhenNothingElseIs(t *testing.T) {
	inBubble(t, LiveOptions{}, func(t *testing.T, rec *agenttracetest.Recorder,
		ctx context.Context, turn *Turn) {
		for range 60 {
			turn.Text("working")
			time.Sleep(10 * time.Second)
		}
		for _, e := range rec.Events() {
			if e.Record.Since != 0 {
				t.Fatalf("a heartbeat at %s between parts", e.Time)
			}
		}
	})
}

func TestASessionThatWaitsForAnotherProcessHasNoHeartbeat(t *testing.T) {
	inBubble(t, LiveOptions{}, func(t *testing.T, rec *agenttracetest.Recorder,
		ctx context.Context, turn *Turn) {
		_, tool := turn.StartTool(ctx, ToolOptions{Name: "bash", Input: map[string]any{}})
		tool.AwaitApproval("")
		time.Sleep(50 * time.Second) // and no heartbeat is due at the end
		events := rec.Events()
		if last := events[len(events)-1].Record; last.Status != semconv.StatusWaitingApproval || last.Heartbeat == 0 ||
			last.Since == 0 {
			t.Errorf("while the process waits the status is %+v", last)
		}
		turn.End(TurnResult{})
		events = rec.Events()
		if last := events[len(events)-1].Record; last.Status != semconv.StatusWaitingApproval || last.Heartbeat != 0 ||
			last.Since == 0 {
			t.Errorf("when the turn is over the status is %+v", last)
		}
	})
}

func TestHeartbeatsCanBeTurnedOff(t *testing.T) {
	inBubble(t, LiveOptions{MinInterval: -1, Heartbeat: -1},
		func(t *testing.T, rec *agenttracetest.Recorder,
			ctx context.Context, turn *Turn) {
			s := turn.StreamText()
			s.WriteString("a few words ")
			before := len(rec.Events())
			time.Sleep(time.Hour)
			if more := rec.Events()[before:]; len(more) > 0 {
				t.Errorf("events: %q", eventLines(more))
			}
			for _, e := range rec.Events() {
				if e.Record.Heartbeat != 0 {
					t.Errorf("a status is %+v", e.Record)
				}
			}
		})
}

// A turn that nobody ends is not kept by its timer, which then stops when it has sent the text.
func TestATurnThatIsForgottenIsNotKeptByItsHeartbeat(t *testing.T) {
	gone, rec := make(chan bool), agenttracetest.NewRecorder()
	func() {
		tracer := New(Options{TracerProvider: rec, LoggerProvider: rec,
			Live: LiveOptions{Heartbeat: 5 * time.Millisecond}})
		sess := tracer.NewSession(context.Background(), SessionOptions{Agent: "coder"})
		runtime.AddCleanup(sess, func(bool) { close(gone) }, true)
		ctx, run := sess.StartRun(context.Background(), RunOptions{})
		_, turn := run.StartTurn(ctx, UserMessage{Text: "go"}, TurnOptions{})
		turn.StreamText().WriteString("a few words ")
	}()
	deadline := time.After(20 * time.Second)
	for {
		runtime.GC()
		select {
		case <-gone:
			if data := lastPart(rec); !strings.Contains(data, "a few words ") {
				t.Errorf("the session is gone with its text, after %s", data)
			}
			return
		case <-deadline:
			t.Fatal("the session is still there")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
