package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// aiSDK reads Vercel's AI SDK: the ai.* spans of its versions 4, 5 and 6, which version 7 can still write, and the
// GenAI spans of version 7.
//
// Three things are not in the spans. A streamed call that was aborted leaves a root without an end state and no span of
// the model call at all; nothing is invented for either. Calls of tools in the first step of a stream are roots of
// their own traces in versions 5 and 6, which the call's id alone joins to it. And the root of a call over several
// steps holds the tokens of the last one in versions 4 and 5, which is why they are not taken for the turn's.
var aiSDK = Dialect{
	Name: "ai-sdk",
	Spans: func(s *Span) bool { // of either family: an application may pass a tracer with a scope of its own
		return s.Scope.Name() == "gen_ai" && s.Has("gen_ai") ||
			s.Has("ai") && (s.Has("gen_ai") || aiOperation(s) != "")
	},
	ReadSpan: readAISDK,
}

// aiOperations are the operations that report a session. The others, such as ai.embed, do not.
var aiOperations = meanings[fact.Kind]("ai sdk")

// aiOperation returns the operation of an ai.* span, or "". Applications and exporters add the name of a function to
// the span's name, or rename it.
func aiOperation(s *Span) string {
	a := s.Attrs()
	for _, name := range []string{a.Str("ai.operationId"), a.Str("operation.name"), s.Name()} {
		if name, _, _ = strings.Cut(name, " "); strings.HasPrefix(name, "ai.") {
			return Text(name)
		}
	}
	return ""
}

func readAISDK(s *Span, out *Emitter) {
	a, operation := s.Attrs(), aiOperation(s)
	if operation == "" {
		readGenAI(s, out)
		for i := range out.All {
			f := &out.All[i]
			// Version 7 starts the spans of steps, calls and tools below the root's.
			f.RequiresTurn = s.Scope.Name() == "gen_ai" && f.Kind != fact.Turn && f.Kind != fact.Compaction
			if f.Tool != nil && f.Tool.Output != nil && !f.Failed {
				f.Tool.Succeeded = true // it sets no status but that of an error
			}
			f.Unfinished = (f.Kind == fact.ModelCall || f.Kind == fact.Turn) && neverEnded(f)
			readAISettings(f, a)
		}
		return
	}
	kind, known := aiOperations()[operation]
	if !known {
		return
	}
	f := out.Add(kind)
	f.Agent = a.Str("gen_ai.agent.name", "ai.telemetry.functionId")
	readAISettings(f, a)
	if kind == fact.ToolCall {
		f.CallID = a.Str("ai.toolCall.id")
		input := a.JSON("ai.toolCall.args", "ai.toolCall.input")
		output := a.JSON("ai.toolCall.result", "ai.toolCall.output")
		f.Tool = &fact.Tool{Name: a.Str("ai.toolCall.name"), Input: unwrapped(input), Output: structured(output)}
		// The SDK puts every error on the span. Without an output the call succeeded where content is switched off,
		// which hides the input too; elsewhere it may have returned nothing, or have been abandoned.
		f.Tool.Succeeded = s.Status().Code() == ptrace.StatusCodeOk ||
			s.Status().Code() == ptrace.StatusCodeUnset && (output != nil || input == nil)
	} else {
		f.RequiresTurn = kind == fact.ModelCall
		readAICall(f, a, operation)
	}
	readFailure(f, s)
	f.Failed = f.Failed || f.Finish == "error"
	f.Aborted = f.Aborted || isAbort(f.Finish) ||
		f.Failed && f.ErrorType == "ResponseAborted" // Next.js, when the browser has gone
	// A stream that is aborted ends its span, if at all, without a word.
	f.Unfinished = kind != fact.ToolCall && neverEnded(f)
}

func readAICall(f *fact.Fact, a Attrs, operation string) {
	problem := func(what string, ok bool) {
		if !ok {
			f.Problems = append(f.Problems, "the "+what+" could not be read whole")
		}
	}
	f.Model = modelOf(a.Str("ai.model.provider", "gen_ai.system"), a.Str("ai.model.id", "gen_ai.request.model"))
	if raw := a.JSON("ai.prompt.messages", "ai.prompt"); raw != nil {
		messages, ok := Messages(raw)
		ReadInput(f, messages)
		problem("prompt", ok)
	}
	f.ToolCatalog = Catalog(a.JSON("ai.prompt.tools"))
	// The answer is in the order in which models give its parts.
	f.Output = appendText(nil, fact.PartReasoning, a.Str("ai.response.reasoning"))
	f.Output = appendText(f.Output, fact.PartText, a.Str("ai.response.text"))
	f.Output = appendText(f.Output, fact.PartText, a.Str("ai.response.object"))
	calls, ok := aiList(a, "ai.response.toolCalls")
	problem("tool calls", ok)
	for _, o := range calls {
		if ok || o.str("toolName", "name") != "" { // else the cut goes through it
			f.Output = appendCall(f.Output, o, o.truth("providerExecuted"))
		}
	}
	files, ok := aiList(a, "ai.response.files")
	problem("files", ok)
	for _, o := range files {
		f.Output = appendFile(f.Output, o, encode(o))
	}
	f.Finish = cmp.Or(a.Str("ai.response.finishReason"), a.Last("gen_ai.response.finish_reasons"))
	f.ResponseID = a.Str("ai.response.id", "gen_ai.response.id")
	f.ResponseModel = a.Str("ai.response.model", "gen_ai.response.model")
	if f.Kind == fact.ModelCall {
		addExtra(f, a, "ai.response.providerMetadata", "ai.response.timestamp", "ai.response.msToFirstChunk",
			"ai.response.msToFinish")
	}
	f.Usage = aiUsage(a, operation)
	f.Temperature = cmp.Or(a.Float("ai.settings.temperature"), a.Float("gen_ai.request.temperature"))
}

// aiList reads an attribute that is a list of objects in JSON. It is not ok when it is not a list, or was cut short.
func aiList(a Attrs, key string) (list []object, ok bool) {
	raw := a.JSON(key)
	if isNull(raw) {
		return nil, true
	}
	s := text(raw)
	if s != "" {
		raw = closeCut(json.RawMessage(s))
	}
	err := json.Unmarshal(raw, &list)
	return list, err == nil && s == ""
}

// aiUsage reads the tokens of a call, nil where they are not the call's.
func aiUsage(a Attrs, operation string) *fact.Usage {
	c := countsOf(a.IntPtr, "ai.usage.inputTokens", "ai.usage.outputTokens",
		"ai.usage.inputTokenDetails.cacheReadTokens ai.usage.cachedInputTokens gen_ai.usage.cache_read.input_tokens",
		`ai.usage.inputTokenDetails.cacheWriteTokens gen_ai.usage.cache_write.input_tokens
		gen_ai.usage.cache_creation.input_tokens`,
		"ai.usage.outputTokenDetails.reasoningTokens ai.usage.reasoningTokens",
		"ai.usage.totalTokens gen_ai.usage.total_tokens")
	if c.Input == nil && c.Output == nil {
		if operation == "ai.generateText" || operation == "ai.streamText" {
			return nil // promptTokens and completionTokens of a root are those of its last step
		}
		c.Input = a.IntPtr("ai.usage.promptTokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
		c.Output = a.IntPtr("ai.usage.completionTokens", "gen_ai.usage.output_tokens",
			"gen_ai.usage.completion_tokens")
	}
	c.Raw = rawNumbers(a, "ai.usage.", "gen_ai.usage.")
	provider := strings.ToLower(a.Str("ai.model.provider", "gen_ai.system"))
	passesOn := hasPrefix(provider, "anthropic", "amazon-bedrock")
	fresh := a.IntPtr("ai.usage.inputTokenDetails.noCacheTokens")
	// Up to version 5 the SDK passes on what the provider answers, and reports no details.
	switch {
	case fresh != nil:
	case passesOn && a.IntPtr("ai.usage.inputTokens") != nil && a.IntPtr("ai.usage.inputTokenDetails.cacheReadTokens",
		"ai.usage.outputTokenDetails.reasoningTokens") == nil:
		return c.Usage(fact.CacheApart)
	case passesOn, hasPrefix(provider, "openai", "azure", "google", "vertex", "xai", "mistral", "groq", "deepseek"):
		return c.WithThoughts().Usage(0)
	}
	u := c.Assumed(provider)
	if fresh != nil && c.Input != nil && *fresh == *c.Input && counted(c.CacheRead)+counted(c.CacheWrite) > 0 {
		u.Proof |= fact.CacheApart
	}
	return u
}

// readAISettings reads what an application reports of itself: the metadata of versions up to 6, the runtime context of
// version 7.
func readAISettings(f *fact.Fact, a Attrs) {
	var keys []string
	for key := range a.All() {
		name, ok := strings.CutPrefix(key, "ai.telemetry.metadata.")
		if !ok {
			name, ok = strings.CutPrefix(key, "ai.settings.context.")
		}
		switch {
		case !ok || slices.Contains(SessionKeys(), key):
		case name == "userId" || name == "user_id" || name == "user.id":
			setUser(f, a.Str(key))
		default:
			keys = append(keys, key)
		}
	}
	if f.Kind == fact.Turn || f.Kind == fact.ModelCall {
		keys = append(keys, "ai.settings.maxOutputTokens", "ai.settings.maxTokens", "ai.settings.topP",
			"ai.settings.topK", "ai.settings.seed", "ai.schema.name")
	}
	addExtra(f, a, keys...)
}
