package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Counts are the tokens that a source states, nil where it does not state them.
type Counts struct {
	Input, Output, CacheRead, CacheWrite, Reasoning, Total *int64
	// Raw is what the source states, as it is.
	Raw json.RawMessage
}

// countsOf reads counts by their names, in the order of the fields of [Counts]. Of several names in one the first that
// has a count is read, with a plus between them their sum, and of "" nothing.
func countsOf(count func(names ...string) *int64, names ...string) Counts {
	var n [6]*int64
	for i, name := range names {
		for summand := range strings.SplitSeq(name, "+") {
			if of := strings.Fields(summand); len(of) > 0 {
				n[i] = plus(n[i], count(of...))
			}
		}
	}
	return Counts{Input: n[0], Output: n[1], CacheRead: n[2], CacheWrite: n[3], Reasoning: n[4], Total: n[5]}
}

// counts reads counts by the keys of attributes, as [countsOf] does, and keeps them under their keys.
func (a Attrs) counts(names ...string) Counts {
	c, raw := countsOf(a.IntPtr, names...), map[string]int64{}
	for key := range strings.FieldsSeq(strings.ReplaceAll(strings.Join(names, " "), "+", " ")) {
		if n := a.IntPtr(key); n != nil {
			raw[key] = *n
		}
	}
	c.Raw = encode(raw)
	return c
}

// Usage returns the usage of a source that counts these tokens apart. The GenAI conventions have none apart: input
// includes what was read from and written to the cache, output includes the reasoning. How a source counts is known
// from its dialect, its version and the provider, and is never concluded from one count: of a part that is stated to be
// more than the whole, as much is counted as there is. The usage is nil when nothing but a total is stated.
func (c Counts) Usage(apart fact.Apart) *fact.Usage {
	if cmp.Or(c.Input, c.Output, c.CacheRead, c.CacheWrite, c.Reasoning) == nil {
		return nil
	}
	u := c.stated().Usage(apart)
	u.Raw = c.Raw
	return &u
}

func (c Counts) stated() *fact.Stated {
	return &fact.Stated{Input: plus(c.Input, nil), Output: plus(c.Output, nil), CacheRead: counted(c.CacheRead),
		CacheWrite: counted(c.CacheWrite), Reasoning: counted(c.Reasoning)}
}

// Assumed returns the usage of a source of which it is not known how it counts. It is assumed to count nothing apart
// unless a count of the session proves that it does. All counts of one counter are read alike; what they state is kept
// for that. See [fact.Usage].
func (c Counts) Assumed(counter string) *fact.Usage {
	u := c.Usage(0)
	if u != nil {
		u.Stated, u.Counter = c.stated(), counter
		u.Proof = u.Stated.Proof(plus(c.Total, nil))
	}
	return u
}

// WithThoughts returns the counts with the reasoning in the output, also where the total proves that it is beside it:
// Gemini's is the sum of prompt, candidates and thoughts.
func (c Counts) WithThoughts() Counts {
	if c.Output != nil && c.Total != nil && counted(c.Reasoning) > 0 &&
		*c.Total == counted(c.Input)+counted(c.Output)+counted(c.Reasoning) {
		c.Output = plus(c.Output, c.Reasoning)
	}
	return c
}

// counterOf is who counts the tokens in the spans of a scope.
func counterOf(scope pcommon.InstrumentationScope) string {
	return Text(scope.Name()) + "@" + Text(scope.Version())
}

// counted returns a count that may be absent, and is never negative nor so large that a sum of some overflows.
func counted(n *int64) int64 { return min(max(0, session.Deref(n)), 1<<50) }

func plus(a, b *int64) *int64 {
	if a == nil && b == nil {
		return nil
	}
	return new(counted(a) + counted(b))
}

// Keys of counts of tokens.
var inputTokens, outputTokens = listOf("keys", "input_tokens"), listOf("keys", "output_tokens")

// conventionCounts reads the counts of the conventions, and of clients that had a count before the conventions did.
func (a Attrs) conventionCounts() Counts {
	count := func(of ...string) *int64 { return a.IntPtr(sections()["keys"][of[0]]...) }
	return countsOf(count, "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
		"reasoning_tokens", "total_tokens")
}

// usageBasis returns how an instrumentation counts, "" where that is not known. The conventions want the input to
// include the cache; an instrumentation that passes on what Anthropic and Bedrock answer does not.
func usageBasis(scope string, a Attrs) string {
	switch {
	case hasPrefix(scope, "com.anthropic.sdk.", "com.anthropic.claude-platform", "@opentelemetry/"),
		scope == "gen_ai", scope == "pydantic-ai",
		hasPrefix(scope, "opentelemetry.instrumentation.") && !strings.Contains(scope, "bedrock"):
		return fact.Inclusive
	case hasPrefix(scope, "@traceloop/instrumentation-anthropic", "@traceloop/instrumentation-bedrock",
		"@openlit/instrumentation-anthropic", "@openlit/instrumentation-bedrock"):
		return fact.Mixed
	case isStrands(a):
		// The interface by which a model is called counts what is read from the cache beside the input: Anthropic's
		// does, and Bedrock's, whose models have the name of their maker before a dot, but not always.
		model := strings.ToLower(a.Str("gen_ai.request.model", "gen_ai.response.model"))
		for _, maker := range []string{"claude", "anthropic.", "amazon.", "meta.", "mistral.", "cohere.", "ai21."} {
			if strings.Contains(model, maker) {
				return fact.Mixed
			}
		}
		return ""
	}
	switch strings.ToLower(a.Str("gen_ai.provider.name", "gen_ai.system")) {
	case "openai", "azure.ai.openai", "azure_openai", "openai.chat", "openai.responses", "gcp.gemini", "gcp.gen_ai",
		"gemini":
		return fact.Inclusive
	}
	return ""
}

// isStrands reports whether the span is of Strands, whose scope is the name of the service.
func isStrands(a Attrs) bool {
	return a.Any("gen_ai.event.start_time") && a.Str("gen_ai.operation.name") != ""
}

// genAIUsage reads the counts of a model call or turn, nil if there are none. basis is how they are counted, "" where
// that is not known, and counter who does.
func genAIUsage(a Attrs, basis, counter string) *fact.Usage {
	c := a.conventionCounts()
	in, out := a.object("gen_ai.usage.input_token_details"), a.object("gen_ai.usage.output_token_details")
	c.CacheRead = cmp.Or(c.CacheRead, in.count("cache_read"))
	c.CacheWrite = cmp.Or(c.CacheWrite, in.count("cache_creation"))
	c.Reasoning = cmp.Or(c.Reasoning, out.count("reasoning"))
	c.Raw = rawNumbers(a, "gen_ai.usage.", "llm.usage.", "ai.usage.")
	switch basis {
	case fact.Inclusive:
		return c.WithThoughts().Usage(0)
	case fact.Mixed:
		return c.WithThoughts().Usage(fact.CacheApart)
	}
	return c.Assumed(counter)
}

// rawNumbers returns an object of the counts, and what else is short, under the prefixes, nil if there are none.
func rawNumbers(a Attrs, prefixes ...string) json.RawMessage {
	all := object{}
	for key, v := range a.All() {
		switch v.Type() {
		case pcommon.ValueTypeInt, pcommon.ValueTypeDouble, pcommon.ValueTypeStr:
			if hasPrefix(key, prefixes...) && len(v.AsString()) < 64 {
				all[Text(key)] = valueJSON(v)
			}
		}
	}
	return encode(all)
}

// genAICost reads what a source reports that a call cost, nil where it does not or counts in another currency.
func genAICost(a Attrs) *float64 {
	if c := a.Str("gen_ai.usage.cost.currency", "gen_ai.cost.currency"); c != "" && !strings.EqualFold(c, "USD") {
		return nil
	}
	for _, key := range sections()["keys"]["costs"] {
		if cost := a.Float(key); cost != nil && *cost >= 0 {
			return cost
		}
	}
	return nil
}

// count returns the first of the members that is a number, as a count.
func (o object) count(keys ...string) *int64 {
	for _, key := range keys {
		if n := countOf(o[key]); n != nil {
			return n
		}
	}
	return nil
}

func countOf(raw json.RawMessage) *int64 {
	var n *float64
	switch {
	case json.Unmarshal(raw, &n) != nil || n == nil:
		return nil
	case *n < 0 || *n >= 1e15:
		return new(int64) // not a count
	}
	return new(int64(*n))
}

// ResponseUsage reads the counts of a provider's response as its interface has them: OpenAI's two, Anthropic's,
// Gemini's and Bedrock's. The names of the counts show which one it is. It is nil if there are none.
func ResponseUsage(response object) *fact.Usage {
	u := response.inner("usage", "usageMetadata", "usage_metadata")
	var c Counts
	var apart fact.Apart
	switch {
	case !u.has("prompt_tokens") && u.has("cache_read_input_tokens", "cache_creation_input_tokens"),
		u.has("inputTokens") && response.has("output"):
		apart = fact.CacheApart
		c = countsOf(u.count, "input_tokens inputTokens", "output_tokens outputTokens",
			"cache_read_input_tokens cacheReadInputTokens", "cache_creation_input_tokens cacheWriteInputTokens")
	case u.has("prompt_tokens", "input_tokens"):
		c = countsOf(u.count, "prompt_tokens input_tokens", "completion_tokens output_tokens")
		c.CacheRead = u.inner("prompt_tokens_details", "input_tokens_details").count("cached_tokens")
		c.Reasoning = u.inner("completion_tokens_details", "output_tokens_details").count("reasoning_tokens")
	case u.has("promptTokenCount", "candidatesTokenCount"):
		c = geminiCounts(u)
	}
	c.Raw, _ = json.Marshal(u)
	return c.Usage(apart)
}

// geminiCounts reads the counts of Gemini's interface, whose members may be in snake case: the output excludes the
// thoughts, and the input the results of its own tools.
func geminiCounts(u object) Counts {
	count := func(snake ...string) *int64 { return countOf(adkField(u, snake[0])) }
	return countsOf(count, "prompt_token_count+tool_use_prompt_token_count",
		"candidates_token_count+thoughts_token_count", "cached_content_token_count", "", "thoughts_token_count")
}

// readResponse adds what a provider's own response reports beyond what a framework made of it: parts that it lacks,
// which model answered, and counts that separate more where they come to the same.
func readResponse(f *fact.Fact, raw json.RawMessage) {
	response, ok := objectOf(raw)
	if !ok {
		return
	}
	if parts, _, ok := Output(raw); ok && partsKnown(parts) > partsKnown(f.Output) {
		f.Output = parts
	}
	u := ResponseUsage(response)
	if f.Usage == nil || u != nil && u.Tokens.Total() == f.Usage.Tokens.Total() &&
		u.Tokens.Buckets() > f.Usage.Tokens.Buckets() {
		f.Usage = u
	}
	f.ResponseModel = cmp.Or(f.ResponseModel, response.str("model", "modelVersion", "model_version"))
	f.ResponseID = cmp.Or(f.ResponseID, response.str("id", "responseId", "response_id"))
}

// tally is counts of tokens by what their names mean, of one source. Of those of one field the first counts.
type tally map[string]*int64

// tokenFields are the fields that are counts, in the order of [countsOf].
var tokenFields = []string{"input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning_tokens",
	"total_tokens"}

func (t tally) add(f string, n int64) bool {
	if n < 0 || t[f] != nil || !slices.Contains(tokenFields, f) {
		return false
	}
	t[f] = &n
	return true
}

// object adds the counts of an object, as a provider or a client writes them, with the details that are in objects of
// it.
func (t tally) object(o object, depth int) {
	keys := sortedKeys(o)
	for _, key := range keys {
		var n float64
		if json.Unmarshal(o[key], &n) == nil && !isNull(o[key]) && n < 1<<53 {
			t.add(fieldOf("usage."+key), int64(n))
		}
	}
	for _, key := range keys {
		if in, ok := objectOf(o[key]); ok && depth > 0 {
			t.object(in, depth-1)
		}
	}
}

func (t tally) counts(raw json.RawMessage) Counts {
	c := countsOf(func(names ...string) *int64 { return t[names[0]] }, tokenFields...)
	c.Raw = raw
	return c
}

// usage reads counts of which it is not known what they include. A stated total may prove it.
func (t tally) usage(counter string, raw json.RawMessage) *fact.Usage {
	if t["input_tokens"] == nil && t["output_tokens"] == nil {
		return nil
	}
	return t.counts(raw).Assumed(counter)
}

// neverEnded reports whether a model call has none of what reports that it ended.
func neverEnded(f *fact.Fact) bool {
	return !f.Failed && !f.Aborted && f.Finish == "" && f.Usage == nil && f.ResponseID == "" && len(f.Output) == 0
}
