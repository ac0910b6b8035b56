package semconv

import "go.opentelemetry.io/otel/attribute"

// Type is the type of an attribute's value on the wire.
type Type string

// Types of attribute values. A JSON value is sent as a string.
const (
	String  Type = "string"
	Strings Type = "string[]"
	Int     Type = "int"
	Double  Type = "double"
	Bool    Type = "boolean"
	JSON    Type = "JSON string"
)

// Group is the origin of a key.
type Group string

// Groups of keys: those of the agent guide, of OpenTelemetry, and of agenttrace.
const (
	Floor  Group = "floor"
	Mirror Group = "mirror"
	Own    Group = "own"
)

// Attribute describes one key.
type Attribute struct {
	Key   attribute.Key
	Type  Type
	Unit  string // empty for plain text and flags
	Group Group
	// Spans are the names of the spans and events that have it.
	Spans   []string
	Example string
	Doc     string
}

const chatSpan = "chat {model}"

var (
	onAll = []string{SpanSessionRun, SpanSessionTurn, SpanToolCall, SpanCompactionRun, SpanPermissionEvaluate,
		chatSpan}
	onRun     = []string{SpanSessionRun}
	onSession = []string{SpanSessionRun, EventSession}
	onEvents  = []string{SpanSessionRun, SpanSessionTurn, SpanToolCall, SpanCompactionRun, SpanPermissionEvaluate,
		chatSpan, EventSession, EventMessage, EventPart, EventStatus}
	onMessage    = []string{EventMessage, EventPart}
	onStatus     = []string{EventStatus}
	onLoop       = []string{SpanEventLoopWarning}
	onException  = []string{SpanEventException}
	onTurn       = []string{SpanSessionTurn}
	onTool       = []string{SpanToolCall}
	onCompaction = []string{SpanCompactionRun}
	onPermission = []string{SpanPermissionEvaluate}
	onModel      = []string{SpanSessionRun, SpanSessionTurn, chatSpan, EventSession}
	onUsage      = []string{SpanSessionTurn, chatSpan}
	onFailed     = []string{SpanSessionRun, SpanSessionTurn, SpanToolCall, SpanCompactionRun, chatSpan}
	onRunTurn    = []string{SpanSessionRun, SpanSessionTurn, EventSession}
	onReplay     = []string{SpanSessionRun, SpanSessionTurn, SpanToolCall, SpanCompactionRun, SpanPermissionEvaluate}
	onTurnChat   = []string{SpanSessionTurn, chatSpan}
)

// Attributes describes every key, in the order in which CONVENTIONS.md lists
// them. The caller must not change the result.
func Attributes() []Attribute { return attributes }

var attributes = []Attribute{
	{SessionIDKey, String, "", Mirror, onEvents, "ses_1fa2bdc08000YO9dOSXjsMd9kP",
		"The session. It is on every span and event, so they can be routed and joined without their trace."},
	{SessionIDFloorKey, String, "", Floor, []string{SpanSessionRun, SpanCompactionRun, EventSession},
		"ses_1fa2bdc08000YO9dOSXjsMd9kP",
		"The same as session.id."},
	{GenAIConversationIDKey, String, "", Mirror, onModel, "ses_1fa2bdc08000YO9dOSXjsMd9kP",
		"The same as session.id."},
	{GenAIOperationNameKey, String, "", Mirror, []string{SpanSessionRun, SpanToolCall, chatSpan}, "invoke_agent",
		"invoke_agent on session.run (absent if nothing ran), execute_tool on tool.call, chat on model calls."},
	{AgentKey, String, "", Floor, onSession, "codeagent", "The agent that the session was started with."},
	{GenAIAgentNameKey, String, "", Mirror, onRunTurn, "codeagent",
		"The same as agent. Turns have it too, because the span of their run arrives last."},
	{ModelIDKey, String, "", Floor, onSession, "gpt-5-mini", "The model that the run started with."},
	{ProviderIDKey, String, "", Floor, onSession, "openai", "The provider of that model."},
	{GenAIRequestModelKey, String, "", Mirror, onModel, "gpt-5-mini",
		"The model. On a turn, that of its last model call."},
	{GenAIProviderNameKey, String, "", Mirror, onModel, "openai", "The provider of the model."},
	{ModelVariantKey, String, "", Own, onModel, "high", "The model's variant, such as a reasoning effort."},
	{UserIDKey, String, "", Mirror, onSession, "john@example.com", "The user that the agent works for."},
	{ErrorTypeKey, String, "", Mirror, onAll, "timeout",
		"The class of the error, if the span failed. aborted: the process died or the agent was stopped " +
			"before the span ended; any other report of the same turn or call takes precedence. panic: a " +
			"panic ended it."},

	{RunOperationKey, String, "", Own, onSession, "run",
		"What the span represents; absent means run. On an event it is always update."},
	{RunOutcomeKey, String, "", Own, onRun, "finish", "How the run ended."},
	{SessionTitleKey, String, "", Own, onRunTurn, "Fix the failing test",
		"The session's title. Turns have it, and the parent below, because the span of their run arrives last."},
	{SessionFirstPromptKey, String, "", Own, onSession, "Fix the failing test",
		"What the session is called as long as nothing names it: the first line of what its user asked first."},
	{SessionCreatedAtKey, Int, "ms", Own, onSession, "1795198540808", "When the session began, Unix milliseconds."},
	{SessionWorkspaceIDKey, String, "", Own, onSession, "ws_42", "The host's id of the workspace."},
	{SessionWorkspaceRootKey, String, "", Own, onSession, "/home/john/project",
		"The directory that the agent works in."},
	{SessionModeKey, String, "", Own, onSession, "plan", "The host's permission or planning mode."},
	{SessionParentIDKey, String, "", Own, onRunTurn, "ses_1fa2bdc08000YO9dOSXjsMd9kP",
		"The session that this one was forked from or started by."},
	{SessionParentMessageIDKey, String, "", Own, onRunTurn, "msg_1fa2bdc1a000qhKajWMjBifnzj",
		"The last message that a fork copied, or the user message for which a sub-agent works."},
	{SessionRootIDKey, String, "", Own, onSession, "ses_1fa2bdc08000YO9dOSXjsMd9kP",
		"The session at the top of the parents, if there are any. It is set when the span begins, so that a " +
			"sampler can keep or drop a session with its sub-agents and forks as a whole."},
	{SessionPermissionsKey, JSON, "", Own, onSession,
		`[{"permission":"bash","pattern":"git *","action":"allow","source":"session"}]`,
		"The permission rules of session scope."},
	{SessionMetadataKey, JSON, "", Own, onSession, `{"ticket":"A-1"}`, "Further metadata of the session, an object."},
	{SessionTargetMessageIDKey, String, "", Own, onRun, "msg_1fa2bdc1a000qhKajWMjBifnzj",
		"The message that a rewind goes back to or undoes."},
	{SessionTargetAtKey, Int, "ms", Own, onRun, "1795198540888",
		"The time of a fork or a rewind, Unix milliseconds; on unrewind, that of the rewind that it undoes."},

	{TurnIndexKey, Int, "", Floor, onTurn, "0", "Counts the session's turns from 0."},
	{TokensKey, Int, "{token}", Floor, onTurn, "1834", "The sum of the five buckets."},
	{DurationMSKey, Int, "ms", Floor, []string{SpanSessionTurn, SpanToolCall}, "5120",
		"The duration; that of a tool call is the duration of its execution."},
	{StopReasonKey, String, "", Floor, onTurn, "end_turn",
		"The stop reason of the last model call, as the provider reported it."},
	{GenAIResponseFinishReasonsKey, Strings, "", Mirror, onTurnChat, `["stop"]`, "The same as stop_reason."},
	{GenAIResponseModelKey, String, "", Mirror, []string{chatSpan}, "gpt-5-mini-2026-08-07",
		"The model that generated the response."},
	{GenAIResponseIDKey, String, "", Mirror, []string{chatSpan}, "resp_68af", "The provider's id of the response."},
	{GenAIResponseFirstChunkKey, Double, "s", Mirror, []string{chatSpan}, "0.42",
		"The time from the request to the first part of a streamed response."},
	{GenAISystemInstructionsKey, JSON, "", Mirror, []string{chatSpan}, `[{"type":"text","content":"You are careful."}]`,
		"The system prompt, if content is captured."},
	{GenAIInputMessagesKey, JSON, "", Mirror, []string{chatSpan},
		`[{"role":"user","parts":[{"type":"text","content":"hi"}]}]`,
		"The messages of the turn before the call, if content is captured. Stores of sessions do not read it."},
	{GenAIOutputMessagesKey, JSON, "", Mirror, []string{chatSpan},
		`[{"role":"assistant","parts":[{"type":"text","content":"hello"}]}]`,
		"What the call added to the turn, if content is captured. Stores of sessions do not read it."},
	{GenAIToolDefinitionsKey, JSON, "", Mirror, []string{chatSpan}, `[{"type":"function","name":"bash"}]`,
		"The tools that the model could call, if content is captured."},
	{GenAIRequestTemperatureKey, Double, "1", Mirror, onTurnChat, "0.2", "The sampling temperature."},
	{TurnEndReasonKey, String, "", Own, onTurn, "finish", "How the turn ended."},
	{TurnPendingApprovalKey, Bool, "", Own, onTurn, "true",
		"The turn ended to wait for a person and will be continued."},
	{TurnModelCallsKey, Int, "{call}", Own, onTurn, "3", "The number of model calls of the turn."},
	{GenAIUsageInputTokensKey, Int, "{token}", Mirror, onUsage, "1634",
		"Input tokens, cache included. The SDK reports the gen_ai.usage counts of model calls only, " +
			"so that sums over " +
			"spans count once."},
	{GenAIUsageOutputTokensKey, Int, "{token}", Mirror, onUsage, "200", "Output tokens, reasoning included."},
	{GenAIUsageCacheReadKey, Int, "{token}", Mirror, onUsage, "1024", "Input tokens read from the cache."},
	{GenAIUsageCacheWriteKey, Int, "{token}", Mirror, onUsage, "0",
		"Input tokens written to the cache. Without OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental the SDK " +
			"reports them under the former name, gen_ai.usage.cache_creation.input_tokens."},
	{GenAIUsageReasoningKey, Int, "{token}", Mirror, onUsage, "64", "Output tokens of reasoning."},
	{UsageInputKey, Int, "{token}", Own, onUsage, "610",
		"Input tokens that were neither read from nor written to a cache."},
	{UsageOutputKey, Int, "{token}", Own, onUsage, "136", "Output tokens without reasoning."},
	{UsageReasoningKey, Int, "{token}", Own, onUsage, "64", "Reasoning tokens."},
	{UsageCacheReadKey, Int, "{token}", Own, onUsage, "1024", "Tokens read from the cache."},
	{UsageCacheWriteKey, Int, "{token}", Own, onUsage, "0", "Tokens written to the cache."},
	{UsageBasisKey, String, "", Own, onUsage, "inclusive", "How the provider counted."},
	{ReplayKey, JSON, "", Own, onReplay, `{"session":{"id":"ses_…"}}`,
		"The stored rows that the span represents, if it was exported from a store. Ingest uses these rows."},
	{UsageRawKey, JSON, "", Own, onUsage, `{"prompt_tokens":1634,"completion_tokens":200}`,
		"The counts as the provider reported them."},
	{CostUSDKey, Double, "USD", Own, onUsage, "0.0042", "The cost, if the provider or the host reports it."},
	{UserMessageIDKey, String, "", Own, onTurn, "msg_1fa2bdc1a000qhKajWMjBifnzj",
		"The user message that began the turn."},
	{UserMessageCreatedAtKey, Int, "ms", Own, onTurn, "1795198540826", "When it was created, Unix milliseconds."},
	{UserMessageMetadataKey, JSON, "", Own, onTurn, `{"trigger":{"source":"schedule"}}`, "Its metadata, an object."},
	{UserMessagePartsKey, Strings, "", Own, onTurn,
		`["{\"id\":\"prt_…\",\"data\":{\"type\":\"text\",\"text\":\"hi\"}}"]`,
		"Its parts, one JSON object each."},
	{AssistantMessageIDKey, String, "", Own, onTurn, "msg_1fa2bdc3a000E3zylBGoxJLMPz",
		"The assistant message that answers it."},
	{AssistantMessageCreatedAtKey, Int, "ms", Own, onTurn, "1795198540840",
		"When it was created, Unix milliseconds."},
	{AssistantMessageMetadataKey, JSON, "", Own, onTurn, `{"schedule_id":"s1"}`, "Its further metadata, an object."},
	{AssistantMessagePartsKey, Strings, "", Own, onTurn,
		`["{\"id\":\"prt_…\",\"index\":1,\"type\":\"tool-bash\",` +
			`\"tool_call_id\":\"call_1\",\"tool_state\":\"output-available\"}"]`,
		"Its parts, one JSON object each. A tool call that has a tool.call span is listed without its data."},
	{SystemPromptDigestKey, String, "", Own, onTurn,
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"SHA-256 of the assembled system prompt, lower-case hex."},
	{SystemPromptTextKey, String, "", Own, onTurn, "You are a careful engineer…",
		"The text of the prompt, if this run has not sent it yet."},
	{ToolCatalogDigestKey, String, "", Own, onTurn,
		"60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
		"SHA-256 of the tool catalog's JSON, lower-case hex."},
	{ToolCatalogJSONKey, JSON, "", Own, onTurn, `[{"name":"bash","description":"…","parameters":{}}]`,
		"The tools that the model could call, if this run has not sent them yet."},

	{ToolIDKey, String, "", Floor, []string{SpanToolCall, SpanPermissionEvaluate}, "bash", "The tool."},
	{ToolCallIDKey, String, "", Floor, []string{SpanToolCall, SpanPermissionEvaluate, EventStatus}, "call_1",
		"The model's id of the call. On a status, the call that waits."},
	{TruncatedKey, Bool, "", Floor, onTool, "false", "The output was truncated."},
	{ErrorKey, String, "", Floor, onFailed, "exit status 1",
		"The text of the error, if the span failed. On a tool call, the text that the model got."},
	{GenAIToolNameKey, String, "", Mirror, onTool, "bash", "The same as tool_id."},
	{GenAIToolTypeKey, String, "", Mirror, onTool, "function", "function, extension or datastore."},
	{GenAIToolDescriptionKey, String, "", Mirror, onTool, "Run a command", "What the tool does."},
	{GenAIToolCallIDKey, String, "", Mirror, onTool, "call_1", "The same as tool_call_id."},
	{GenAIToolCallArgumentsKey, JSON, "", Mirror, onTool, `{"cmd":"ls"}`, "The input."},
	{GenAIToolCallResultKey, JSON, "", Mirror, onTool, `{"stdout":"a\nb"}`,
		"The output that the model got, unless it was redacted or truncated here."},
	{MessageIDKey, String, "", Own, []string{
		SpanToolCall, SpanCompactionRun, SpanPermissionEvaluate, chatSpan, EventMessage, EventPart},
		"msg_1fa2bdc3a000E3zylBGoxJLMPz",
		"The message that the span belongs to, or that the event describes."},
	{MessageRoleKey, String, "", Own, onMessage, "assistant", "The author."},
	{MessageMetadataKey, JSON, "", Own, []string{EventMessage},
		`{"model":{"provider_id":"openai","model_id":"gpt-5-mini"}}`,
		"The metadata of the message so far, an object."},
	{MessagePartsKey, Strings, "", Own, onMessage,
		`["{\"id\":\"prt_…\",\"index\":0,\"type\":\"text\",` +
			`\"data\":{\"type\":\"text\",\"text\":\"Let\",\"state\":\"streaming\"}}"]`,
		"Whole parts in their current state, one JSON object each, always with data: all parts of a user " +
			"message, or the one that the event describes."},
	{MessageCreatedAtKey, Int, "ms", Own, []string{SpanCompactionRun, EventMessage, EventPart}, "1795198540864",
		"When that message was created, Unix milliseconds."},
	{PartIDKey, String, "", Own, []string{SpanToolCall, SpanCompactionRun, SpanPermissionEvaluate},
		"prt_1fa2bdc2c000iHVPMl2EoqsZlh",
		"The part that the span describes."},
	{PartIndexKey, Int, "", Own, onTool, "1", "The index of the part in its message."},
	{StepIndexKey, Int, "", Own, []string{chatSpan}, "0", "Counts the turn's model calls from 0."},
	{StepLateKey, Bool, "", Own, []string{chatSpan}, "true",
		"The call is beside the turn and ended after it, such as one for a title. The turn does not count it."},
	{StepRetriesKey, Strings, "", Own, []string{chatSpan}, `["429 Too Many Requests, tried again after 1.5s"]`,
		"The attempts of the call that failed before the last one, in their order, and how long each time the client waited."},
	{ToolStateKey, String, "", Own, onTool, "output-available", "The last state that the call reached."},
	{ToolKindKey, String, "", Own, onTool, "execute",
		"The kind of tool, with the values of the Agent Client Protocol."},
	{ToolDynamicKey, Bool, "", Own, onTool, "true",
		"The tool was not known when the agent was built, such as an MCP tool."},
	{ToolProviderExecutedKey, Bool, "", Own, onTool, "true", "The provider ran the tool, not the agent."},
	{ToolDeniedKey, Bool, "", Own, onTool, "true", "Permission was denied; the tool did not run."},
	{ToolInferredKey, Bool, "", Own, onTool, "true",
		"The times are inferred: from the end of the answer that requested the call to the request with its result."},
	{ToolStartedAtKey, Int, "ms", Own, onTool, "1795198540870",
		"When its execution began, Unix milliseconds; absent if it began with the span. The span begins when " +
			"the call is announced."},
	{ToolOutputPathKey, String, "", Own, onTool, ".agent/output/call_1.txt",
		"Where the whole output is, if it was truncated."},
	{ToolOutputSizeKey, Int, "By", Own, onTool, "2097152", "The size of the whole output, if it was truncated."},
	{ToolOutputSHA256Key, String, "", Own, onTool,
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"SHA-256 of the whole output, if it was truncated."},
	{ToolChildSessionIDKey, String, "", Own, onTool, "ses_1fa2bdc57000q3WDAeVveBG0kP",
		"The session of the sub-agent that the call started."},

	{SummarizedMessageCountKey, Int, "{message}", Floor, onCompaction, "12",
		"The number of messages that the summary replaces."},
	{CompactionInputTokensKey, Int, "{token}", Floor, onCompaction, "8200",
		"Input tokens of the call that made the summary."},
	{CompactionOutputTokensKey, Int, "{token}", Floor, onCompaction, "412", "Output tokens of that call."},
	{GenAIConversationCompactedKey, Bool, "", Mirror, onCompaction, "true", "Always true."},
	{CompactionSummaryKey, String, "", Own, onCompaction, "## Goal\nFix the test", "The summary."},
	{CompactionSummaryTokensKey, Int, "{token}", Own, onCompaction, "390",
		"The size of the summary in the following context."},
	{CompactionAutoKey, Bool, "", Own, onCompaction, "true", "The agent compacted on its own; nobody requested it."},
	{CompactionTailStartIDKey, String, "", Own, onCompaction, "msg_1fa2bdc3a000E3zylBGoxJLMPz",
		"The first message that stays in the context verbatim."},

	{PermissionPatternKey, String, "", Floor, onPermission, "git *", "The pattern of the rule that matched."},
	{PermissionActionKey, String, "", Floor, onPermission, "ask", "The action of the rule or watchdog."},
	{PermissionSourceKey, String, "", Floor, onPermission, "session", "Where the rule comes from."},
	{PermissionIDKey, String, "", Own, []string{SpanPermissionEvaluate, SpanToolCall},
		"per_1fa2bdc2c0014kUq0pQb1gX0Zs",
		"The decision; on tool.call, the one that the call waits for or waited for."},
	{PermissionOutcomeKey, String, "", Own, onPermission, "allowed", "The result of the decision."},
	{PermissionReplyKey, String, "", Own, onPermission, "once", "A person's answer."},
	{PermissionReasonKey, String, "", Own, onPermission, "writes outside the workspace", "The reason."},
	{PermissionWaitedMSKey, Int, "ms", Own, onPermission, "2300", "How long the answer took."},

	{StatusKey, String, "", Own, onStatus, "retrying", "What the session is doing now."},
	{StatusAttemptKey, Int, "{attempt}", Own, onStatus, "2", "The number of the retry, from 1."},
	{StatusHeartbeatKey, Int, "ms", Own, onStatus, "15000",
		"The interval at which the status is repeated if no other event is sent. An agent without an " +
			"update for three intervals has died or lost its connection. Absent if the status is not " +
			"repeated."},
	{StatusSinceKey, Int, "ms", Own, onStatus, "1795198540808",
		"When the status began, Unix milliseconds, on an event that repeats it."},
	{StatusDetailKey, String, "", Own, onStatus, "model overloaded", "What is retried or awaited, or the error."},

	{LoopPatternKey, String, "", Own, onLoop, "LLM_CALL:gpt-5-mini -> TOOL_CALL:bash",
		"The repeated pattern, oldest call first."},
	{LoopRepetitionsKey, Int, "", Own, onLoop, "3", "How often the pattern occurred in a row before the warning."},
	{LoopWindowSizeKey, Int, "", Own, onLoop, "8", "The number of recent calls that were examined."},
	{LoopEvidenceKey, Strings, "", Own, onLoop, `["4bf92f3577b34da6","prt_1fa2bdc2c000iHVPMl2EoqsZlh"]`,
		"The repeated calls, oldest first: part ids of tool calls, span ids of model calls."},

	{ExceptionTypeKey, String, "", Mirror, onException, "runtime.boundsError",
		"The type of the panic value; panic if it is not known."},
	{ExceptionMessageKey, String, "", Mirror, onException, "panic: index out of range [3] with length 3",
		"The text of the panic, as in agenttrace.error."},
	{ExceptionStacktraceKey, String, "", Mirror, onException, "goroutine 1 [running]:",
		"The stack of the goroutine that panicked, at most 32 KiB."},
}
