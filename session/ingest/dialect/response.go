package dialect

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// ResponseUsage reads the counts of a provider's response as its interface has
// them: OpenAI's two, Anthropic's, Gemini's and Bedrock's. Which one it is shows in
// the names of the counts. It is nil where there are none.
func ResponseUsage(response object) *fact.Usage {
	u := response.inner("usage", "usageMetadata", "usage_metadata")
	if u == nil {
		return nil
	}
	count := func(of object, keys ...string) *int64 {
		for _, key := range keys {
			if n := (*float64)(nil); of.has(key) && json.Unmarshal(of[key], &n) == nil && n != nil {
				whole := int64(min(max(*n, 0), 1<<50))
				return &whole
			}
		}
		return nil
	}
	raw, _ := json.Marshal(u)
	asked, answered := u.inner("prompt_tokens_details", "input_tokens_details"), u.inner("completion_tokens_details", "output_tokens_details")
	switch {
	case u.has("prompt_tokens"):
		return InclusiveUsage(count(u, "prompt_tokens"), count(u, "completion_tokens"), count(asked, "cached_tokens"), nil, count(answered, "reasoning_tokens"), raw)
	case u.has("cache_read_input_tokens"), u.has("cache_creation_input_tokens"):
		return MixedUsage(count(u, "input_tokens"), count(u, "output_tokens"), count(u, "cache_read_input_tokens"), count(u, "cache_creation_input_tokens"), nil, raw)
	case u.has("input_tokens"):
		return InclusiveUsage(count(u, "input_tokens"), count(u, "output_tokens"), count(asked, "cached_tokens"), nil, count(answered, "reasoning_tokens"), raw)
	case u.has("promptTokenCount"), u.has("candidatesTokenCount"):
		thoughts := count(u, "thoughtsTokenCount")
		return InclusiveUsage(plus(count(u, "promptTokenCount"), count(u, "toolUsePromptTokenCount")), plus(count(u, "candidatesTokenCount"), thoughts),
			count(u, "cachedContentTokenCount"), nil, thoughts, raw)
	case u.has("inputTokens") && response.has("output"):
		return MixedUsage(count(u, "inputTokens"), count(u, "outputTokens"), count(u, "cacheReadInputTokens"), count(u, "cacheWriteInputTokens"), nil, raw)
	}
	return nil
}

// finer returns the one of two accounts of a usage that reports more apart, where they
// come to the same, and else the first that is there.
func finer(u, other *fact.Usage) *fact.Usage {
	if u == nil || other != nil && u.Tokens.Total() == other.Tokens.Total() && other.Tokens.Buckets() > u.Tokens.Buckets() {
		return other
	}
	return u
}

// readResponse adds what a provider's own response tells beyond what a framework
// made of it: parts that got lost, counts told apart, which model answered.
func readResponse(f *fact.Fact, raw json.RawMessage) {
	response, ok := objectOf(raw)
	if !ok {
		return
	}
	if parts, _, ok := output(raw); ok && partsKnown(parts) > partsKnown(f.Output) {
		f.Output = parts
	}
	f.Usage = finer(f.Usage, ResponseUsage(response))
	if f.ResponseModel == "" {
		f.ResponseModel = response.str("model", "modelVersion", "model_version")
	}
	if f.ResponseID == "" {
		f.ResponseID = response.str("id", "responseId", "response_id")
	}
}
