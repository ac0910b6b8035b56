// Package agenttrace instruments an agent: one set of OpenTelemetry spans that
// is a trace in Jaeger or Tempo and a session in a session store.
//
// An agent keeps a [Session] per conversation. Work on it is a [Run]; a [Turn] is one user message through to a
// finished answer; in a turn the agent calls models ([ModelCall]) and tools ([ToolCall]), and asks whether a tool
// may run ([ToolCall.Authorize]):
//
//	tracer := agenttrace.New(agenttrace.Options{
//		Rules: []agenttrace.Rule{{Permission: "bash", Pattern: "go test *", Action: agenttrace.ActionAllow}},
//	})
//	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder"})
//	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{Model: model})
//	defer run.Done(&err)
//	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: question}, agenttrace.TurnOptions{})
//	defer turn.Done(&err)
//	ctx, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
//	call.Text("Let me look.")
//	call.End(agenttrace.ModelResult{StopReason: "tool_use"}, nil)
//	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: id, Name: "bash", Input: input})
//	if d := tool.Authorize(ctx, command); d.Allowed() {
//		tool.End(output)
//	}
//
// Done ends a turn or a run with the error that its function returns. When the function panics, the panic is the
// error, of the turn and of the tool calls that are open in it, with the stack in an event of the span; the panic
// then goes on. A tool that runs in a goroutine of its own defers [ToolCall.Done] or [ToolCall.Abort].
//
// A call that several layers report, such as the loop, middleware and an HTTP client's transport, is one:
// [Turn.StartTool] with its ID returns it, and [Turn.Tool] finds it. It begins when the first layer announces it;
// its duration is that of its execution, which [ToolCall.Executing] begins where the SDK cannot know.
//
// A call that no rule matches is put to [Options.Approver]: without rules and without an approver every call is
// denied. A watchdog only narrows what rules allow.
//
// # Setting up
//
// Spans go where the tracer provider sends them. The package imports no SDK. A program that sends them to a
// collector or a session store by OTLP calls agenttrace/setup when it starts, which reads the variables OTEL_*:
//
//	shutdown, err := setup.Init(ctx) // without variables, to localhost:4317
//	if err != nil {
//		return err
//	}
//	defer func() { err = errors.Join(err, shutdown(context.WithoutCancel(ctx))) }()
//	tracer := agenttrace.New(agenttrace.Options{LoggerProvider: otel.GetLoggerProvider()})
//
// One that sets providers up itself should bound requests in bytes, by BoundSpans and BoundLogs of
// package setup: receivers refuse for good what is too large, such as a turn with many large tool
// outputs. The batcher's queue holds 2048 spans by default and silently drops what comes while it is
// full, as in a burst of tool calls; with sdktrace.WithBlocking nothing is dropped, but the agent waits
// for the collector. A program that ends without Shutdown loses what is queued.
//
// Two packages of this module need no collector. Package session/recorder writes a session store in the agent's own
// process: an export that returns is committed. Package session/spool wraps the exporters above and keeps on disk,
// through kill -9, what the collector did not take, to send it later.
//
// A sampler that decides by trace damages sessions: use SessionSampler of agenttrace/setup. A session that
// is dropped has no spans, no live events and no metrics; what decides or limits still does.
//
// A limit on the attributes of a span (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT) drops those
// last that matter least; the store reports that something was dropped.
//
// # Live events
//
// Spans exist when they end; a turn that is cut off by kill -9 has none. With a LoggerProvider the same ids are
// reported as log records while things go on: the session, the user's message before the model answers, each part
// of the answer when it begins, grows and changes, and what the session is doing (see [Session.Status]). An event
// holds all that is known of a thing and never a difference, so that it may be lost, repeated or late. No two
// events of a session have the same time; the later one holds, and the span of the finished thing above all.
// [LiveOptions] states how often a text that grows is sent: within a second, except for its last word, which may be
// the beginning of a secret and waits for the next one or for the part to be closed.
//
// While a turn or a compaction is open, the status is repeated every 15 seconds when no other event is sent: so a
// tool that runs for an hour differs from an agent that was killed, which readers show as interrupted after 45
// seconds. The clocks of the agent and of the reader must not be further apart than that.
//
// The agent reports what the SDK cannot know: [Turn.Retrying], [Turn.AwaitInput],
// [ToolCall.AwaitInput], [Session.SetStatus].
//
// Events are emitted by the goroutine that calls, and heartbeats and text that was held back by a timer's, so a
// processor must not wait for a collector: use one that batches. While one goroutine emits for a session, others
// leave their events to it, at most 1024; older ones are then dropped and counted.
//
// # Other tools
//
// Spans follow the GenAI conventions, so that backends for traces understand them too: the usage is on the spans of
// model calls only, and sums over spans count each token once. [Options].CaptureContent adds messages, prompt and
// tools. With a MeterProvider there are the conventions' metrics (duration, tokens and time to the first chunk of
// model calls, duration of tools and runs), agenttrace.loop.warnings and agenttrace.permission.denials.
//
// The conventions were renamed after their last release. Names are those of the release,
// and of the main branch with OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental.
//
// # Secrets and size
//
// Secrets are taken out of everything that is sent, by package redact unless [Options].Redact is set; a watchdog,
// an approver and [Session.State] see things as they are. Of a text that grows the last word is held back, because
// it may be the beginning of a secret. [Options].MaxPartBytes cuts what is long, a MiB or more by default.
//
// If the redactor omits prompts, reasoning, inputs or outputs of tools, only their sizes are sent. The model's answers
// and errors, titles and summaries are sent, and may repeat them:
//
//	redactor, err := redact.New(redact.Config{Omit: redact.Omit{Prompts: true, ToolOutputs: true}})
//	tracer := agenttrace.New(agenttrace.Options{Redact: redactor})
//
// # Loops and limits
//
// [Options].LoopDetection and [Options].Limits watch a run, recorded or not. Nothing is stopped by itself; an agent
// that wants to be stopped asks when a call begins:
//
//	ctx, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
//	if err := turn.Err(); err != nil { // a *LoopError or a *LimitError
//		turn.Fail(err)
//		return err
//	}
//
// # Promises
//
// Instrumentation never fails the agent and never waits for a collector. Every method may be called on a nil
// receiver, by any number of goroutines, and after the end of the thing; what comes too late is dropped, counted
// and reported to [otel.Handle]. The package starts no goroutine that stays: a session with live events has a timer
// while something is open in it.
//
// When a run's span is not recorded (no tracer provider, or sampled out) and there is nothing that decides
// permissions, calls cost a few nanoseconds and allocate nothing. Permissions do not depend on tracing: rules,
// watchdog and approver decide alike whether or not anything is recorded. What is left of a nil receiver decides
// too: a nil [ToolCall] is never allowed.
//
// # Waiting for people
//
// A turn that ends while a tool call waits for an approval, or for its user's input, is pending. Save
// [Session.State]; another process takes it up with [Tracer.ResumeSession] and [Run.ContinueTurn], and the same
// assistant message goes on. Calls that are deferred as safe nets, Done and [ToolCall.Abort], leave what waits as
// it is; a turn that fails, or that its user stops, waits no more.
//
// # Sub-agents
//
// A session that is made in the context of a turn is that of a sub-agent: it lists the turn's session as its
// parent, and its runs are in the same trace. A sub-agent in another process, or behind HTTP or MCP, is given the
// context by [Inject] and takes it by [Extract]. Whoever starts one without this package writes the id of its own
// session into the baggage, as agenttrace.session.parent_id.
//
// # Aborts and restarts
//
// [Turn.Abort], [Run.Abort], and Fail and End with [ErrAborted] or [context.Canceled], leave the truth: text where
// it stopped, tool calls in the state that they had reached, sub-agents aborted too. A cancelled context or a
// client that goes away aborts nothing by itself.
//
// A process that was killed ends nothing. Save [Session.State] as the turn goes on; [Tracer.ResumeSession] then
// ends what was open: tool calls fail with "aborted by host restart" under the ids that they had, except those that
// wait for a human, and the turn is aborted, or pending if one does.
package agenttrace
