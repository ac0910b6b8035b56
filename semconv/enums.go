package semconv

// Values of agenttrace.run.operation. Absent means OperationRun.
const (
	// RunOperationRun is the agent at work; the span lasts as long as it does.
	RunOperationRun = "run"
	// RunOperationUpdate and the operations below change the session at one
	// moment, and nothing ran.
	RunOperationUpdate    = "update"
	RunOperationFork      = "fork"
	RunOperationRewind    = "rewind"
	RunOperationUnrewind  = "unrewind"
	RunOperationArchive   = "archive"
	RunOperationUnarchive = "unarchive"
)

// Values of agenttrace.run.outcome and agenttrace.turn.end_reason.
const (
	EndFinish = "finish"
	EndAbort  = "abort"
	EndError  = "error"
)

// Values of agenttrace.usage.basis: how the source counted before the buckets
// were made disjoint.
const (
	// BasisInclusive: input includes what was read from and written to the cache,
	// output includes reasoning.
	BasisInclusive = "inclusive"
	// BasisExclusive: the five counts were disjoint to begin with.
	BasisExclusive = "exclusive"
)

// Values of action (permission.evaluate).
const (
	ActionAllow = "allow"
	ActionDeny  = "deny"
	ActionAsk   = "ask"
)

// Values of source (permission.evaluate).
const (
	SourceManifest = "manifest"
	SourceSession  = "session"
	SourceProject  = "project"
)

// Values of agenttrace.permission.outcome.
const (
	OutcomeAllowed = "allowed"
	OutcomeDenied  = "denied"
	OutcomePending = "pending"
)

// Values of agenttrace.permission.reply.
const (
	ReplyOnce   = "once"
	ReplyAlways = "always"
	ReplyReject = "reject"
)

// Values of agenttrace.status: what a session is doing now.
const (
	StatusIdle             = "idle"
	StatusBusy             = "busy"
	StatusRetrying         = "retrying"
	StatusWaitingApproval  = "waiting_on_approval"
	StatusWaitingUserInput = "waiting_on_user_input"
	StatusError            = "error"
)

// Values of agenttrace.message.role that the SDK emits.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// ErrorTypeAborted is the error.type of what did not come to its end because its
// process died or the agent that it worked for was stopped.
const ErrorTypeAborted = "aborted"

// AbortedByRestart is the error of a turn, and what the model is told of its tool
// calls, that a later process ended because its own had died. The words are the agent
// guide's.
const AbortedByRestart = "aborted by host restart"

// ErrorTypePanic is the error.type of what a panic ended.
const ErrorTypePanic = "panic"

// Values of agenttrace.tool.kind, those of the Agent Client Protocol.
const (
	ToolKindRead    = "read"
	ToolKindEdit    = "edit"
	ToolKindDelete  = "delete"
	ToolKindMove    = "move"
	ToolKindSearch  = "search"
	ToolKindExecute = "execute"
	ToolKindThink   = "think"
	ToolKindFetch   = "fetch"
	ToolKindOther   = "other"
)

// Enum is an attribute with a closed set of values.
type Enum struct {
	Key    string
	Values []string
	Doc    string
}

// Enums lists every attribute with a closed set of values.
func Enums() []Enum {
	return []Enum{
		{string(RunOperationKey), []string{RunOperationRun, RunOperationUpdate, RunOperationFork, RunOperationRewind, RunOperationUnrewind, RunOperationArchive, RunOperationUnarchive}, "What the span stands for. All but run are moments that change the session."},
		{string(RunOutcomeKey), []string{EndFinish, EndAbort, EndError}, "How the run ended."},
		{string(TurnEndReasonKey), []string{EndFinish, EndAbort, EndError}, "How the turn ended."},
		{string(UsageBasisKey), []string{BasisInclusive, BasisExclusive}, "How the provider counted before the buckets were made disjoint."},
		{string(MessageRoleKey), []string{RoleUser, RoleAssistant}, "Who speaks."},
		{string(StatusKey), []string{StatusIdle, StatusBusy, StatusRetrying, StatusWaitingApproval, StatusWaitingUserInput, StatusError}, "What the session is doing."},
		{string(ToolStateKey), []string{"input-streaming", "input-available", "approval-requested", "approval-responded", "output-available", "output-error", "output-denied"}, "The last state that the call reached."},
		{string(ToolKindKey), []string{ToolKindRead, ToolKindEdit, ToolKindDelete, ToolKindMove, ToolKindSearch, ToolKindExecute, ToolKindThink, ToolKindFetch, ToolKindOther}, "What the tool does, in the words of the Agent Client Protocol."},
		{string(PermissionActionKey), []string{ActionAllow, ActionDeny, ActionAsk}, "What the rule or the watchdog said."},
		{string(PermissionSourceKey), []string{SourceManifest, SourceSession, SourceProject}, "Where the rule comes from."},
		{string(PermissionOutcomeKey), []string{OutcomeAllowed, OutcomeDenied, OutcomePending}, "What became of the call."},
		{string(PermissionReplyKey), []string{ReplyOnce, ReplyAlways, ReplyReject}, "What a human answered."},
	}
}
