package agenttrace_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/spans"
)

func TestTurnCarriesItsMessages(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	temperature := 0.2
	ctx, turn := h.run.StartTurn(h.ctx, UserMessage{
		Text: "fix it",
		Parts: []Part{FilePart(File{MediaType: "text/plain", Bytes: []byte("hi"),
			Filename: "a.txt"}), DataPart("mention", "m1", map[string]string{"path": "<a>"})},
		Trigger:  &Trigger{Source: "schedule", FiredAt: time.UnixMilli(5), ScheduleID: "s1"},
		Metadata: map[string]any{"client": "cli"},
	}, TurnOptions{Temperature: &temperature, SystemPrompt: "be careful"})

	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	call.Reasoning("hmm")
	s := call.StreamText()
	fmt.Fprintf(s, "Let me %s", "look")
	s.WriteString("…")
	s.Close()
	cost := 0.5
	call.End(ModelResult{
		StopReason: "tool_calls", Usage: InclusiveUsage{Input: 100, Output: 30, Reasoning: 10, CacheRead: 60,
			CacheWrite: 5}, CostUSD: &cost,
		RawUsage: json.RawMessage(`{"prompt_tokens":100}`), ResponseID: "resp_1", ResponseModel: "gpt-5-mini-2026",
	}, nil)
	_, tool := turn.StartTool(ctx, ToolOptions{ID: "call_1", Name: "bash",
		Input: map[string]string{"cmd": "ls"}, Kind: ToolExecute})
	h.clock.Advance(40 * time.Millisecond)
	tool.End("a\nb")
	turn.File(File{MediaType: "image/png", URL: "https://x/y.png"})
	turn.SourceURL(SourceURL{ID: "s", URL: "https://x", Title: "X"})
	turn.SourceDocument(SourceDocument{ID: "d", MediaType: "application/pdf", Title: "P"})
	turn.Data("artifact", "a1", map[string]any{"code": "plot()"})
	_, second := turn.StartModelCall(ctx, ModelCallOptions{})
	second.Text("Done.")
	second.End(ModelResult{StopReason: "stop", Usage: ExclusiveUsage{Input: 7, Output: 8, CacheRead: 9}}, nil)
	turn.End(TurnResult{Metadata: map[string]any{"schedule_id": "s1"}})
	h.run.End(nil)
	h.check()

	got := one(t, h.rec.All().Turns())
	if diff := cmp.Diff([]shape{
		{0, "text", "", `{"type":"text","text":"fix it"}`},
		{1, "file", "", `{"type":"file","mediaType":"text/plain","url":"data:text/plain;base64,aGk=",` +
			`"filename":"a.txt"}`},
		{2, "data-mention", "", `{"type":"data-mention","id":"m1","data":{"path":"<a>"}}`},
	}, shapes(got.User.Parts)); diff != "" {
		t.Errorf("user parts (-want +got):\n%s", diff)
	}
	if got, want := string(got.User.Metadata),
		`{"client":"cli","trigger":{"source":"schedule","fired_at":5,"schedule_id":"s1"}}`; got != want {
		t.Errorf("user metadata = %s, want %s", got, want)
	}
	if diff := cmp.Diff([]shape{
		{0, "reasoning", "", `{"type":"reasoning","text":"hmm"}`},
		{1, "text", "", `{"type":"text","text":"Let me look…"}`},
		{2, "tool-bash", "output-available", ""},
		{3, "file", "", `{"type":"file","mediaType":"image/png","url":"https://x/y.png"}`},
		{4, "source-url", "", `{"type":"source-url","sourceId":"s","url":"https://x","title":"X"}`},
		{5, "source-document", "", `{"type":"source-document","sourceId":"d","mediaType":"application/pdf",` +
			`"title":"P"}`},
		{6, "data-artifact", "", `{"type":"data-artifact","id":"a1","data":{"code":"plot()"}}`},
		{7, "step-start", "", `{"type":"step-start"}`},
		{8, "text", "", `{"type":"text","text":"Done."}`},
	}, shapes(got.Assistant.Parts)); diff != "" {
		t.Errorf("assistant parts (-want +got):\n%s", diff)
	}
	if want := (spans.Tokens{Input: 35 + 7, Output: 20 + 8, Reasoning: 10, CacheRead: 69,
		CacheWrite: 5}); *got.Usage.Tokens != want {
		t.Errorf("tokens = %+v, want %+v", *got.Usage.Tokens, want)
	}
	if got.ModelCalls != 2 || got.StopReason != "stop" || got.EndReason != "finish" || *got.Usage.CostUSD != 0.5 ||
		*got.Temperature != 0.2 || got.Usage.Raw != nil {
		t.Errorf("turn = %+v", got)
	}
	if string(got.Assistant.Metadata) != `{"schedule_id":"s1"}` {
		t.Errorf("assistant metadata = %s", got.Assistant.Metadata)
	}
	if got.User.ID >= got.Assistant.ID || got.User.CreatedAt > got.Assistant.CreatedAt {
		t.Errorf("user message %s at %d does not sort before the answer %s at %d", got.User.ID, got.User.CreatedAt,
			got.Assistant.ID, got.Assistant.CreatedAt)
	}
	for i := 1; i < len(got.Assistant.Parts); i++ {
		if got.Assistant.Parts[i-1].ID >= got.Assistant.Parts[i].ID {
			t.Errorf("part ids do not sort by index")
		}
	}

	call1 := one(t, h.rec.All().ToolCalls("bash"))
	part := got.Assistant.Parts[2]
	if call1.PartID != part.ID || *call1.PartIndex != 2 || call1.MessageID != got.Assistant.ID ||
		call1.Input != `{"cmd":"ls"}` || call1.Output != `"a\nb"` || *call1.DurationMS < 40 ||
		call1.ACPKind != "execute" || part.ToolCallID != "call_1" {
		t.Errorf("tool call = %+v, part %+v", call1, part)
	}
	calls := h.rec.All().ModelCalls()
	if len(calls) != 2 || *calls[1].Index != 1 || calls[0].MessageID != got.Assistant.ID ||
		calls[0].ResponseID != "resp_1" || string(calls[0].Usage.Raw) != `{"prompt_tokens":100}` {
		t.Errorf("model calls = %+v", calls)
	}
	// The trace: run > turn > chat, tool.
	all := h.rec.All()
	run, turnSpan := all.Named("session.run")[0], all.Named("session.turn")[0]
	if turnSpan.Parent.SpanID() != run.SpanContext.SpanID() {
		t.Error("the turn is not a child of the run")
	}
	for _, name := range []string{"tool.call", "chat gpt-5-mini"} {
		for _, s := range all.Named(name) {
			if s.Parent.SpanID() != turnSpan.SpanContext.SpanID() {
				t.Errorf("%s is not a child of the turn", name)
			}
			if want := name == "tool.call"; (s.Kind == trace.SpanKindInternal) != want ||
				(s.Kind == trace.SpanKindClient) == want {
				t.Errorf("%s has kind %v", name, s.Kind)
			}
		}
	}
}

func TestTurnEnds(t *testing.T) {
	failure := errors.New("model overloaded")
	for _, test := range []struct {
		name            string
		end             func(*Turn)
		reason, errText string
		status          codes.Code
	}{
		{"end", func(t *Turn) { t.End(TurnResult{StopReason: "end_turn"}) }, "finish", "", codes.Unset},
		{"abort", (*Turn).Abort, "abort", "", codes.Unset},
		{"fail", func(t *Turn) {
			t.Fail(fmt.Errorf("call: %w", failure))
		}, "error", "call: model overloaded", codes.Error},
		{"fail with a cancelled context", func(t *Turn) { t.Fail(fmt.Errorf("call: %w", context.Canceled)) },
			"abort", "", codes.Unset},
		{"fail with nil", func(t *Turn) { t.Fail(nil) }, "finish", "", codes.Unset},
		{"first end counts", func(t *Turn) {
			t.Fail(failure)
			t.End(TurnResult{})
			t.Abort()
		}, "error", "model overloaded", codes.Error},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			_, call := turn.StartModelCall(ctx, ModelCallOptions{})
			call.StreamText().WriteString("half a sen")
			_, streaming := turn.StartTool(ctx, ToolOptions{ID: "c1", Name: "write"})
			streaming.InputDelta(`{"path":"a`)
			_, running := turn.StartTool(ctx, ToolOptions{ID: "c2", Name: "bash",
				Input: json.RawMessage(`{"cmd":"sleep"}`)})
			_ = running
			_, mcp := turn.StartTool(ctx, ToolOptions{ID: "c3", Name: "gh_pr", Dynamic: true, Input: 1})
			mcp.Abort()
			test.end(turn)
			h.run.End(nil)
			h.check()
			got := one(t, h.rec.All().Turns())
			if got.EndReason != test.reason || got.Error != test.errText || got.PendingApproval {
				t.Errorf("ended %q with %q, want %q with %q", got.EndReason, got.Error, test.reason, test.errText)
			}
			if s := h.rec.All().Named("session.turn")[0]; s.Status != test.status ||
				(test.status == codes.Error) != (got.ErrorType != "") {
				t.Errorf("status = %v, error.type = %q", s.Status, got.ErrorType)
			}
			if diff := cmp.Diff([]shape{
				{0, "text", "", `{"type":"text","text":"half a sen","state":"streaming"}`},
				{1, "tool-write", "input-streaming",
					`{"type":"tool-write","toolCallId":"c1","state":"input-streaming","input":"{\"path\":\"a"}`},
				{2, "tool-bash", "input-available",
					`{"type":"tool-bash","toolCallId":"c2","state":"input-available","input":{"cmd":"sleep"}}`},
				{3, "dynamic-tool", "input-available", ""},
			}, shapes(got.Assistant.Parts)); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			states := map[string]string{}
			for _, c := range h.rec.All().ToolCalls() {
				states[c.CallID] = c.State
			}
			if diff := cmp.Diff(map[string]string{"c1": "input-streaming", "c2": "input-available",
				"c3": "input-available"}, states); diff != "" {
				t.Errorf("states of tool spans (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunEnds(t *testing.T) {
	for _, test := range []struct {
		name          string
		err           error
		outcome, turn string
		errType       string
	}{
		{"nil", nil, "finish", "abort", ""},
		{"aborted", fmt.Errorf("ctrl-c: %w", ErrAborted), "abort", "abort", ""},
		{"cancelled", context.Canceled, "abort", "abort", ""},
		{"failed", errors.New("boom"), "error", "error", "_OTHER"},
		{"timed out", context.DeadlineExceeded, "error", "error", "timeout"},
		{"typed", fmt.Errorf("x: %w", &json.SyntaxError{}), "error", "error", "encoding/json.SyntaxError"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, Options{}, SessionOptions{})
			h.turn("left open")
			_, c := h.run.StartCompaction(h.ctx, CompactionOptions{})
			_ = c
			h.run.End(test.err)
			h.run.End(errors.New("again"))
			h.check()
			run, turn := one(t, h.rec.All().Runs()), one(t, h.rec.All().Turns())
			if run.Outcome != test.outcome || turn.EndReason != test.turn || run.ErrorType != test.errType {
				t.Errorf("run %q (%q), turn %q; want %q (%q), %q", run.Outcome, run.ErrorType, turn.EndReason,
					test.outcome, test.errType, test.turn)
			}
			if h.sess.Busy() {
				t.Error("session is busy after the run's end")
			}
		})
	}
}

func TestPromptAndToolsAreSentOncePerRun(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	prompt := strings.Repeat("be careful ", 1000)
	tools := []Tool{{Name: "bash", Description: "Run <it>",
		Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "ask"}}
	options := TurnOptions{SystemPrompt: prompt, Tools: tools}
	turnWith := func(change func(*Turn)) {
		_, turn := h.run.StartTurn(h.ctx, UserMessage{Text: "x"}, options)
		change(turn)
		turn.End(TurnResult{})
	}
	turnWith(func(*Turn) {})
	turnWith(func(*Turn) {})
	turnWith(func(turn *Turn) {
		turn.SetSystemPrompt("be bold")
		turn.SetTools(tools[:1])
		turn.SetModel(Model{Provider: "anthropic", ID: "claude", Variant: "high"})
	})
	h.run.End(nil)
	_, h.run = h.sess.StartRun(context.Background(), RunOptions{})
	turnWith(func(*Turn) {})
	h.run.End(nil)
	h.check()

	const catalog = `[{"name":"bash","description":"Run <it>","parameters":{"type":"object"}},{"name":"ask",` +
		`"description":"","parameters":{}}]`
	digest := func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }
	turns := h.rec.All().Turns()
	for i, want := range []struct{ prompt, tools, sentPrompt, sentTools, model string }{
		{prompt, catalog, prompt, catalog, "gpt-5-mini"},
		{prompt, catalog, "", "", "gpt-5-mini"},
		{"be bold", catalog[:strings.Index(catalog, `,{"name":"ask"`)] + "]", "be bold",
			catalog[:strings.Index(catalog, `,{"name":"ask"`)] + "]", "claude"},
		{prompt, catalog, prompt, catalog, "claude"},
	} {
		got := turns[i]
		if got.SystemPromptDigest != digest(want.prompt) || got.ToolCatalogDigest != digest(want.tools) {
			t.Errorf("turn %d: digests do not fit", i)
		}
		if got.SystemPrompt != want.sentPrompt || got.ToolCatalog != want.sentTools {
			t.Errorf("turn %d sent prompt %.30q and tools %q", i, got.SystemPrompt, got.ToolCatalog)
		}
		if got.Model.ModelID != want.model || *got.Index != int64(i) {
			t.Errorf("turn %d: model %q, index %d", i, got.Model.ModelID, *got.Index)
		}
	}
	all := h.rec.All().Named("session.run")
	if len(all[1].Links) != 1 || all[1].Links[0].SpanContext.SpanID() != all[0].SpanContext.SpanID() {
		t.Errorf("the second run links to %v, want the first", all[1].Links)
	}
}

func TestCompactionSortsBetweenQuestionAndAnswer(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	ctx, turn := h.turn("go on")
	_, c := h.run.StartCompaction(ctx, CompactionOptions{Auto: true, TailStartID: "msg_t", SummarizedMessages: 12})
	c.End(CompactionResult{Summary: "## Goal", SummaryTokens: 40,
		Usage: ExclusiveUsage{Input: 10, CacheRead: 90, Output: 30, Reasoning: 5}})
	c.Fail(errors.New("late"))
	turn.Text("answer")
	turn.End(TurnResult{})
	_, failed := h.run.StartCompaction(h.ctx, CompactionOptions{})
	failed.Fail(errors.New("no summary"))
	h.run.End(nil)
	h.check()
	got, m := h.rec.All().Compactions(), one(t, h.rec.All().Turns())
	if len(got) != 2 || got[0].InputTokens != 100 || got[0].OutputTokens != 35 || got[0].Summary != "## Goal" ||
		!got[0].Auto || got[0].TailStartID != "msg_t" || got[0].SummarizedMessages != 12 {
		t.Errorf("compactions = %+v", got)
	}
	if !(m.User.ID < got[0].MessageID && got[0].MessageID < m.Assistant.ID) ||
		!(m.User.CreatedAt <= got[0].MessageCreatedAt && got[0].MessageCreatedAt <= m.Assistant.CreatedAt) {
		t.Errorf("order of messages: %s, %s, %s", m.User.ID, got[0].MessageID, m.Assistant.ID)
	}
	if got[1].Error != "no summary" || got[1].MessageID != "" {
		t.Errorf("failed compaction = %+v", got[1])
	}
}

func TestLateCallsAreCountedAndReported(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	_, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1})
	stream := turn.StreamText()
	tool.End("x")
	turn.End(TurnResult{})
	errs := errorsOf(func() {
		turn.Text("late")
		tool.End("again")
		stream.WriteString("late")
		turn.StartTool(ctx, ToolOptions{ID: "d", Name: "bash"})
		turn.StartModelCall(ctx, ModelCallOptions{})
		turn.SetModel(benchModel)
		tool.SetInput(2)
		turn.Abort() // a safe net is no news
		tool.Abort()
	})
	if h.tracer.Dropped() != 7 || len(errs) != 3 {
		t.Errorf("%d dropped, %d reported (%v); want 7, and 3: the first, the second and the fourth",
			h.tracer.Dropped(), len(errs), errs)
	}
	h.run.End(nil)
	h.run.StartTurn(h.ctx, UserMessage{Text: "too late"}, TurnOptions{})
	h.check()
	if n := len(h.rec.All().Turns()); n != 1 {
		t.Errorf("%d turns recorded, want 1", n)
	}
}

func TestContextReuseKeepsTheTree(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	// The agent goes on with whatever context it was last given.
	ctx, call := turn.StartModelCall(ctx, ModelCallOptions{})
	call.End(ModelResult{}, nil)
	ctx, first := turn.StartTool(ctx, ToolOptions{ID: "first", Name: "bash", Input: 1})
	first.End(nil)
	ctx, outer := turn.StartTool(ctx, ToolOptions{ID: "outer", Name: "batch", Input: 1})
	innerCtx, inner := StartTool(ctx, ToolOptions{ID: "inner", Name: "bash", Input: 1})
	if ToolFromContext(innerCtx) != inner || TurnFromContext(innerCtx) != turn ||
		SessionFromContext(innerCtx) != h.sess || RunFromContext(innerCtx) != h.run {
		t.Error("the context does not know where it is")
	}
	inner.End(nil)
	outer.End(nil)
	_, orphan := turn.StartTool(context.Background(), ToolOptions{ID: "orphan", Name: "bash", Input: 1})
	orphan.End(nil)
	h.end(turn)
	parents := map[string]string{}
	names := map[trace.SpanID]string{}
	for _, s := range h.rec.All() {
		names[s.SpanContext.SpanID()] = s.Name
		if c, ok := s.Record.(*spans.ToolCall); ok {
			names[s.SpanContext.SpanID()] = c.CallID
		}
	}
	for _, s := range h.rec.All() {
		parents[names[s.SpanContext.SpanID()]] = names[s.Parent.SpanID()]
	}
	if diff := cmp.Diff(map[string]string{
		"session.run": "", "session.turn": "session.run", "chat gpt-5-mini": "session.turn", "first": "session.turn",
		"outer": "session.turn", "inner": "outer", "orphan": "session.turn",
	}, parents); diff != "" {
		t.Errorf("parents (-want +got):\n%s", diff)
	}
}

func TestToolCallThatIsNotSampledTravelsWithItsTurn(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	h.rec.Drop(func(name string) bool { return name == "tool.call" })
	ctx, turn := h.turn("go")
	_, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: json.RawMessage(`{"cmd":"ls"}`)})
	tool.End(json.RawMessage(`{"stdout":""}`))
	h.end(turn)
	got := one(t, h.rec.All().Turns())
	if want := `{"type":"tool-bash","toolCallId":"c","state":"output-available","input":{"cmd":"ls"},` +
		`"output":{"stdout":""}}`; string(got.Assistant.Parts[0].Data) != want {
		t.Errorf("part = %s, want %s", got.Assistant.Parts[0].Data, want)
	}
}

func TestFailedModelCallSaysWhy(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	for _, err := range []error{errors.New("overloaded"), context.Canceled, nil} {
		_, call := turn.StartModelCall(ctx, ModelCallOptions{})
		call.End(ModelResult{}, err)
	}
	h.end(turn)
	for i, want := range []string{"overloaded", "", ""} {
		if got := h.rec.All().ModelCalls()[i]; got.Error != want {
			t.Errorf("error of call %d = %q, want %q", i, got.Error, want)
		}
	}
}

func TestTurnNamesItsSession(t *testing.T) {
	h, _, turn := begin(t, Options{})
	turn.End(TurnResult{})
	_, turn = h.turn("y")
	h.sess.SetTitle(h.ctx, "Fix it")
	h.end(turn)
	for i, want := range []string{"", "Fix it"} {
		if got := h.rec.All().Turns()[i]; got.Title != want || got.ParentID != "" {
			t.Errorf("turn %d names the session %q, child of %q, want %q", i, got.Title, got.ParentID, want)
		}
	}
}
