package dialect

import (
	"encoding/json"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Keys of counts of tokens, those of the conventions first, then older ones and
// those of clients that had a count before the conventions did.
var (
	inputTokens     = []string{"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"}
	outputTokens    = []string{"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"}
	cacheReadTokens = []string{
		"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cached_input_tokens", "gen_ai.usage.cache_read_tokens",
		"gen_ai.usage.input_tokens.cached", "gen_ai.usage.details.cache_read_tokens", "gen_ai.usage.input_token_details.cache_read",
		"llm.usage.cache_read_input_tokens", "ai.usage.inputTokenDetails.cacheReadTokens",
	}
	cacheWriteTokens = []string{
		"gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
		"gen_ai.usage.cache_write_input_tokens", "gen_ai.usage.cache_write_tokens", "gen_ai.usage.input_tokens.cache_write", "gen_ai.usage.details.cache_write_tokens",
		"gen_ai.usage.input_token_details.cache_creation", "llm.usage.cache_creation_input_tokens", "ai.usage.inputTokenDetails.cacheWriteTokens",
	}
	reasoningTokens = []string{
		"gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens", "gen_ai.usage.reasoning_output_tokens", "gen_ai.usage.output_tokens.reasoning",
		"gen_ai.usage.details.reasoning_tokens", "gen_ai.usage.output_token_details.reasoning", "llm.usage.reasoning_tokens",
		"ai.usage.outputTokenDetails.reasoningTokens",
	}
	totalTokens = []string{"gen_ai.usage.total_tokens", "llm.usage.total_tokens", "ai.usage.totalTokens"}
)

// usageBasis returns how an instrumentation counts, "" where that is not known. The
// conventions want the input to include the cache; who passes on what Anthropic and
// Bedrock answer does not.
func usageBasis(scope string, a Attrs) string {
	switch {
	case strings.HasPrefix(scope, "com.anthropic.sdk."), strings.HasPrefix(scope, "@opentelemetry/"), scope == "gen_ai", scope == "pydantic-ai",
		strings.HasPrefix(scope, "opentelemetry.instrumentation.") && !strings.Contains(scope, "bedrock"):
		return fact.Inclusive
	case strings.HasPrefix(scope, "@traceloop/instrumentation-anthropic"), strings.HasPrefix(scope, "@traceloop/instrumentation-bedrock"),
		strings.HasPrefix(scope, "@openlit/instrumentation-anthropic"), strings.HasPrefix(scope, "@openlit/instrumentation-bedrock"):
		return fact.Mixed
	case isStrands(a):
		if countsCacheApart(a.First("gen_ai.request.model", "gen_ai.response.model")) {
			return fact.Mixed
		}
		return "" // the name of a model does not always have its maker's
	}
	switch strings.ToLower(a.First("gen_ai.provider.name", "gen_ai.system")) {
	case "openai", "azure.ai.openai", "azure_openai", "openai.chat", "openai.responses", "gcp.gemini", "gcp.gen_ai", "gemini":
		return fact.Inclusive
	}
	return ""
}

// isStrands reports whether the span is of Strands, whose scope is the name of the
// service.
func isStrands(a Attrs) bool {
	_, times := a.Value("gen_ai.event.start_time")
	return times && a.Str("gen_ai.operation.name") != ""
}

// countsCacheApart reports whether the interface by which a model is called counts what
// is read from the cache beside the input: Anthropic's does, and Bedrock's, whose
// models have the name of their maker before a dot.
func countsCacheApart(model string) bool {
	model = strings.ToLower(model)
	for _, of := range []string{"claude", "anthropic.", "amazon.", "meta.", "mistral.", "cohere.", "ai21."} {
		if strings.Contains(model, of) {
			return true
		}
	}
	return false
}

// genAIUsage reads the counts of a model call or turn, nil where there are none.
// basis is how they are counted, "" where that is not known, and counter who does.
func genAIUsage(a Attrs, basis, counter string) *fact.Usage {
	count := func(keys []string) *int64 {
		if n, ok := a.FirstInt(keys...); ok {
			return &n
		}
		return nil
	}
	detail := func(keys []string, key string, members ...string) *int64 {
		if n := count(keys); n != nil {
			return n
		}
		o, _ := objectOf(a.JSON(key))
		for _, member := range members {
			if n := (*int64)(nil); o.has(member) && json.Unmarshal(o[member], &n) == nil {
				return n
			}
		}
		return nil
	}
	const inputs, outputs = "gen_ai.usage.input_token_details", "gen_ai.usage.output_token_details"
	input, output, reasoning := count(inputTokens), count(outputTokens), detail(reasoningTokens, outputs, "reasoning")
	read, write := detail(cacheReadTokens, inputs, "cache_read"), detail(cacheWriteTokens, inputs, "cache_creation")
	total := count(totalTokens)
	var u *fact.Usage
	switch basis {
	case fact.Inclusive:
		u = TotaledUsage(input, output, read, write, reasoning, total, nil)
	case fact.Mixed:
		u = MixedUsage(input, withThoughts(input, output, reasoning, total), read, write, reasoning, nil)
	default:
		u = AssumedUsage(counter, input, output, read, write, reasoning, total, nil)
	}
	if u != nil {
		u.Raw = rawNumbers(a, "gen_ai.usage.", "llm.usage.", "ai.usage.")
	}
	return u
}

// neverEnded reports whether a model call has none of what reports that it ended.
func neverEnded(f *fact.Fact) bool {
	return !f.Failed && !f.Aborted && f.Finish == "" && f.Usage == nil && f.ResponseID == "" && len(f.Output) == 0
}

// rawNumbers returns an object of the counts, and what else is short, under the
// prefixes, nil where there are none.
func rawNumbers(a Attrs, prefixes ...string) json.RawMessage {
	all := map[string]json.RawMessage{}
	for key, v := range a.All() {
		if v.Type() != pcommon.ValueTypeInt && v.Type() != pcommon.ValueTypeDouble && v.Type() != pcommon.ValueTypeStr {
			continue
		}
		for _, prefix := range prefixes {
			if strings.HasPrefix(key, prefix) && len(v.AsString()) < 64 {
				all[Text(key)] = valueJSON(v)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	raw, _ := json.Marshal(all)
	return raw
}

// genAICost reads what a source reports that a call cost, nil where it does not or
// counts in another currency.
func genAICost(a Attrs) *float64 {
	if currency := a.First("gen_ai.usage.cost.currency", "gen_ai.cost.currency"); currency != "" && !strings.EqualFold(currency, "USD") {
		return nil
	}
	for _, key := range []string{"gen_ai.usage.cost.amount", "gen_ai.usage.total_cost", "gen_ai.usage.cost", "gen_ai.cost.amount", "gen_ai.usage.cost_usd", "operation.cost"} {
		if cost := a.Float(key); cost != nil && *cost >= 0 {
			return cost
		}
	}
	return nil
}

// extras are what no field of a fact holds and a person may ask for.
var extras = []string{
	"gen_ai.request.max_tokens", "gen_ai.request.top_p", "gen_ai.request.top_k", "gen_ai.request.seed", "gen_ai.request.choice.count", "gen_ai.request.stream",
	"gen_ai.request.frequency_penalty", "gen_ai.request.presence_penalty", "gen_ai.request.reasoning.level", "gen_ai.request.previous_response.id",
	"gen_ai.response.time_to_first_chunk", "gen_ai.client.operation.time_to_first_chunk", "gen_ai.output.type", "gen_ai.prompt.name", "gen_ai.prompt.version",
	"gen_ai.agent.id", "gen_ai.agent.version", "server.address",
}

func genAIExtra(a Attrs) json.RawMessage {
	var all map[string]json.RawMessage
	for _, key := range extras {
		if v, ok := a.Value(key); ok && len(v.AsString()) <= 256 {
			if all == nil {
				all = map[string]json.RawMessage{}
			}
			all[key] = valueJSON(v)
		}
	}
	if all == nil {
		return nil
	}
	raw, _ := json.Marshal(all)
	return raw
}
