package ingest_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/codes"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// recorded is what an exporter makes of recorded spans.
func recorded(recording agenttracetest.Recording) []ptrace.Span {
	var all []ptrace.Span
	for _, s := range recording {
		sp := ptrace.NewTraces().ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		sp.SetName(s.Name)
		sp.SetTraceID(pcommon.TraceID(s.SpanContext.TraceID()))
		sp.SetSpanID(pcommon.SpanID(s.SpanContext.SpanID()))
		sp.SetParentSpanID(pcommon.SpanID(s.Parent.SpanID()))
		sp.SetStartTimestamp(pcommon.NewTimestampFromTime(s.Start))
		sp.SetEndTimestamp(pcommon.NewTimestampFromTime(s.End))
		if s.Status == codes.Error {
			sp.Status().SetCode(ptrace.StatusCodeError)
			sp.Status().SetMessage(s.StatusText)
		}
		otlpfile.PutAttributes(sp.Attributes(), s.Attributes)
		all = append(all, sp)
	}
	return all
}

// transcripts ingests spans, each in a delivery of its own, and returns the sessions.
func transcripts(t *testing.T, all []ptrace.Span, ids ...string) []*session.Transcript {
	t.Helper()
	s := openStore(t)
	for _, sp := range all {
		ingestAll(t, s, traces(sp))
	}
	storetest.CheckSessions(t, s)
	var out []*session.Transcript
	for _, id := range ids {
		transcript := storetest.Transcript(t, s, id)
		out = append(out, transcript)
	}
	return out
}

// visible returns the texts of the messages that are not hidden.
func visible(tr *session.Transcript) []string {
	var texts []string
	for _, m := range tr.Messages {
		if m.Message.HiddenAt != nil {
			continue
		}
		for _, p := range m.Parts {
			if i := strings.Index(p.DataJSON, `"text":"`); i >= 0 {
				text, _, _ := strings.Cut(p.DataJSON[i+len(`"text":"`):], `"`)
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// TestRewindAndForkInOneMillisecond stores a session that goes on in another process and whose clock stops, steps back or
// is that of the tracer provider: what came after a rewind is not hidden by it, what came after a fork is not copied.
func TestRewindAndForkInOneMillisecond(t *testing.T) {
	for name, step := range map[string]time.Duration{"the clock stops": 0, "the clock steps back": -time.Second,
		"that of the tracer provider": time.Hour} {
		t.Run(name, func(t *testing.T) {
			now := time.UnixMilli(start)
			rec := agenttracetest.NewRecorder()
			o := agenttrace.Options{TracerProvider: rec, Now: func() time.Time { return now }}
			if step > 0 { // in the millisecond of a rewind its spans would begin before the messages
				o.Now = nil
			}
			tracer := agenttrace.New(o)
			sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
			turnOf := func(sess *agenttrace.Session, question, answer string) *agenttrace.Turn {
				ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{Model: agenttrace.Model{ID: "m"}})
				ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: question}, agenttrace.TurnOptions{})
				_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
				call.Text(answer)
				call.End(agenttrace.ModelResult{}, nil)
				turn.End(agenttrace.TurnResult{})
				run.End(nil)
				now = now.Add(step)
				return turn
			}
			must := func(err error) {
				t.Helper()
				testscale.Must(t, err)
			}
			first := turnOf(sess, "q0", "a0").UserMessageID()
			must(sess.Rewind(t.Context(), first))
			turnOf(sess, "q1", "a1")
			must(sess.Rewind(t.Context(), first))
			must(sess.Unrewind(t.Context()))
			must(sess.Rewind(t.Context(), first))
			sess, err := tracer.ResumeSession(t.Context(), sess.State())
			must(err)
			last := turnOf(sess, "q2", "a2")
			child, err := sess.Fork(t.Context(), last.AssistantMessageID(), agenttrace.ForkOptions{})
			must(err)
			turnOf(sess, "q3", "a3")
			turnOf(child, "q4", "a4")

			all := recorded(rec.All())
			for seed := range testscale.Rounds(2, 6) {
				r := rand.New(rand.NewPCG(uint64(seed), 5))
				got := transcripts(t, shuffled(r, all), sess.ID(), child.ID())
				if d := cmp.Diff([]string{"q0", "q2", "a2", "q3", "a3"}, visible(got[0])); d != "" {
					t.Fatalf("session (-want +got):\n%s", d)
				}
				if d := cmp.Diff([]string{"q0", "q2", "a2", "q4", "a4"}, visible(got[1])); d != "" {
					t.Fatalf("fork (-want +got):\n%s", d)
				}
			}

			// The turn's own span is lost: its calls alone date the answer.
			turns := 0
			all = slices.DeleteFunc(all, func(s ptrace.Span) bool {
				if s.Name() == "session.turn" {
					turns++
				}
				return s.Name() == "session.turn" && turns == 3
			})
			got := transcripts(t, all, sess.ID())[0]
			for _, m := range got.Messages {
				if m.Message.ID == last.AssistantMessageID() && m.Message.HiddenAt != nil {
					t.Error("the answer whose turn is lost is hidden")
				}
			}
		})
	}
}

// TestErrorsAreInTheStore fails a model call that the turn gets over, and a
// compaction. Either is built in words, also when the turn's span is lost.
func TestErrorsAreInTheStore(t *testing.T) {
	now := time.UnixMilli(start)
	rec := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec,
		Now: func() time.Time { now = now.Add(time.Millisecond); return now }})
	sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
	ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{Model: agenttrace.Model{ID: "m"}})
	_, compaction := run.StartCompaction(ctx, agenttrace.CompactionOptions{})
	compaction.Fail(errors.New("the summary is empty"))
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "q"}, agenttrace.TurnOptions{})
	for i, err := range []error{errors.New("first"), errors.New("overloaded"), nil} {
		_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
		call.End(agenttrace.ModelResult{ResponseID: []string{"", "", "resp_1"}[i],
			ResponseModel: []string{"", "", "m-2"}[i]},
			err)
	}
	turn.End(agenttrace.TurnResult{})
	run.End(nil)

	all := recorded(rec.All())
	lost := slices.DeleteFunc(slices.Clone(all), func(s ptrace.Span) bool { return s.Name() == "session.turn" })
	for seed := range testscale.Rounds(3, 8) {
		r := rand.New(rand.NewPCG(uint64(seed), 6))
		for _, scenario := range [][]ptrace.Span{all, lost} {
			var metadata session.MessageMetadata
			for _, m := range transcripts(t, shuffled(r, scenario), sess.ID())[0].Messages {
				if m.Message.ID == turn.AssistantMessageID() {
					testscale.Must(t, json.Unmarshal([]byte(m.Message.MetadataJSON), &metadata))
				}
			}
			if d := cmp.Diff([]string{"first", "overloaded"}, metadata.Trace.ModelErrors); d != "" {
				t.Fatalf("errors of model calls (-want +got):\n%s", d)
			}
			if metadata.Trace.Error != "" {
				t.Errorf("the turn ended with %q, though the last call worked", metadata.Trace.Error)
			}
		}
	}

	s := openStore(t)
	ingestAll(t, s, traces(all...))
	links, err := s.SpanRefs(t.Context(), sess.ID())
	testscale.Must(t, err)
	var built []string
	for _, l := range links {
		if l.TurnStats != nil && l.TurnStats.Step {
			built = append(built, strings.Join([]string{l.Kind, l.TurnStats.Trace.Error, l.TurnStats.Trace.ResponseID,
				l.TurnStats.Trace.ResponseModel}, "|"))
		}
	}
	slices.Sort(built)
	if d := cmp.Diff([]string{"chat|first||", "chat|overloaded||", "chat||resp_1|m-2",
		"compaction.run|the summary is empty||"}, built); d != "" {
		t.Errorf("facts of spans (-want +got):\n%s", d)
	}
}

// TestTurnTellsOfItsSession drops every session.run span, as of agents that are
// still running or were killed; a run that ends has the last word.
func TestTurnTellsOfItsSession(t *testing.T) {
	now := time.UnixMilli(start)
	rec := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec,
		Now: func() time.Time { now = now.Add(time.Millisecond); return now }})
	parent := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder", Title: "Fix the test"})
	ctx, run := parent.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "q"}, agenttrace.TurnOptions{})
	child := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "finder"})
	childCtx, childRun := child.StartRun(ctx, agenttrace.RunOptions{})
	_, childTurn := childRun.StartTurn(childCtx, agenttrace.UserMessage{Text: "q"}, agenttrace.TurnOptions{})
	childTurn.End(agenttrace.TurnResult{})
	childRun.End(nil)
	turn.End(agenttrace.TurnResult{})
	parent.SetTitle(ctx, "Fix the other test")
	run.End(nil)

	all := recorded(rec.All())
	running := slices.DeleteFunc(slices.Clone(all), func(s ptrace.Span) bool { return s.Name() == "session.run" })
	for seed := range 4 {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		for want, scenario := range map[string][]ptrace.Span{"Fix the test": running, "Fix the other test": all} {
			got := transcripts(t, shuffled(r, scenario), parent.ID(), child.ID())
			if title := got[0].Session.Title; title != want {
				t.Errorf("title = %q, want %q", title, want)
			}
			if s := got[1].Session; s.ParentID == nil || *s.ParentID != parent.ID() || s.ParentMessageID == nil ||
				*s.ParentMessageID != turn.UserMessageID() {
				t.Errorf("the sub-agent's session = %+v", s)
			}
		}
	}
}
