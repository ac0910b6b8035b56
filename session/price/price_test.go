package price_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
)

func read(t testing.TB, name string) *price.Table {
	t.Helper()
	b := testscale.ReadFile(t, "testdata/"+name+".json")
	table, err := price.Read(bytes.NewReader(b))
	testscale.Must(t, err)
	return table
}

const none = -1 // no price

// million has millions of tokens, with a different count in each bucket so that a wrong price shows.
var million = session.Usage{Input: 1e6, Output: 2e6, Reasoning: 3e6, CacheRead: 4e6, CacheWrite: 5e6}

func TestMatch(t *testing.T) {
	sonnet := 3.0 + 2*15 + 3*15 + 4*0.3 + 5*3.75
	gpt5 := 1.25 + 2*10 + 3*10 + 4*0.125 + 5*1.25 // cache writes cost as much as input
	for _, test := range []struct {
		list, provider, model string
		want                  float64
	}{
		{"modelsdev", "anthropic", "claude-sonnet-4-5", sonnet},
		{"modelsdev", "Anthropic", "Claude-Sonnet-4-5", sonnet},
		{"modelsdev", "anthropic.messages", "claude-sonnet-4-5", sonnet},
		{"modelsdev", "anthropic", "anthropic/claude-sonnet-4-5", sonnet},
		{"modelsdev", "anthropic", "claude-sonnet-4-5-20250929", sonnet}, // a date that the list omits
		{"modelsdev", "anthropic", "claude-haiku-4-5", 1 + 10 + 15 + 0.4 + 6.25},
		{"modelsdev", "anthropic", "claude-haiku-4-5-latest", 1 + 10 + 15 + 0.4 + 6.25},
		{"modelsdev", "anthropic", "claude-haiku-4-5-20990101", none},       // another date is another model
		{"modelsdev", "anthropic", "claude-3-5-sonnet", none},               // two dates with different prices
		{"modelsdev", "anthropic", "claude-sonnet-4", none},                 // not the beginning of a name
		{"modelsdev", "anthropic", "claude-sonnet-4-5-thinking", none},      // nor a longer name
		{"modelsdev", "aws.bedrock", "anthropic.claude-sonnet-4-5", sonnet}, // dated in the list
		{"modelsdev", "amazon_bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", sonnet * 1.1},
		// regions have prices of their own
		{"modelsdev", "aws.bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", none},
		{"modelsdev", "gcp.vertex_ai", "claude-sonnet-4-5@20250929", sonnet},
		{"modelsdev", "openrouter", "anthropic/claude-sonnet-4.5", sonnet},
		{"modelsdev", "", "openrouter/anthropic/claude-sonnet-4.5", sonnet},
		{"modelsdev", "openrouter", "openrouter/anthropic/claude-sonnet-4.5", sonnet},
		{"modelsdev", "openrouter", "claude-sonnet-4.5", none},
		{"modelsdev", "openai", "gpt-5", gpt5},
		{"modelsdev", "openai.responses", "gpt-5-2025-08-07", gpt5},
		{"modelsdev", "", "openai/gpt-5", gpt5},
		{"modelsdev", "", "gpt-5", gpt5},            // a provider and a subscription
		{"modelsdev", "", "gpt-5-mini", none},       // two providers with different prices
		{"modelsdev", "github_copilot", "gpt-5", 0}, // the list has 0
		{"modelsdev", "openai", "gpt-4o-2024-05-13", 5 + 30 + 45 + 20 + 25},
		{"modelsdev", "openai", "gpt-4o-2024-11-20", 2.5 + 20 + 30 + 5 + 12.5},
		{"modelsdev", "openai", "gpt-image-1", none},
		{"modelsdev", "openai", "claude-sonnet-4-5", none},
		{"modelsdev", "azure", "gpt-5", none},
		{"modelsdev", "gcp.gemini", "models/gemini-2.5-pro", 1.25 + 20 + 30 + 4*0.31 + 5*1.25},
		// two providers with the same price
		{"modelsdev", "gcp.gen_ai", "gemini-2.5-pro", 1.25 + 20 + 30 + 4*0.31 + 5*1.25},
		{"modelsdev", "perplexity", "sonar-deep-research", 2 + 16 + 9 + 8 + 10}, // reasoning has its own price
		{"modelsdev", "openai", "", none},
		{"modelsdev", "", "", none},
		{"modelsdev", "", "/", none},
		{"litellm", "anthropic", "claude-sonnet-4-5-20250929", sonnet},
		{"litellm", "aws.bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0", sonnet},
		{"litellm", "vertex_ai", "claude-sonnet-4-5@20250929", sonnet},
		{"litellm", "vertex_ai", "claude-sonnet-4-5", sonnet},
		{"litellm", "openai", "gpt-5", gpt5},
		{"litellm", "azure.ai.openai", "gpt-5", gpt5},
		{"litellm", "", "gpt-5", gpt5},
		{"litellm", "google", "gemini-2.5-flash", 0.3 + 5 + 7.5 + 0.12 + 1.5},
		{"litellm", "gcp.gen_ai", "gemini-2.5-flash", 0.3 + 5 + 7.5 + 0.12 + 1.5},
		{"litellm", "openrouter", "anthropic/claude-sonnet-4.5", 3 + 30 + 45 + 12 + 15},
		{"litellm", "qwen", "qwen-plus", none},
		{"litellm", "dashscope", "qwen-plus", 0.4 + 2.4 + 12 + 1.6 + 2},
		{"litellm", "deepseek", "deepseek-chat", none}, // the list has it twice
		{"litellm", "openai", "1024-x-1024/dall-e-2", none},
		{"litellm", "", "sample_spec", none},
	} {
		table := read(t, test.list)
		// An unknown number of requests is assumed to have no long one.
		got := float64(none)
		if rate := table.Rate(session.Model{ProviderID: test.provider, ModelID: test.model,
			Variant: "high"}); rate != nil {
			got = rate.Cost(million, 0)
		}
		if math.Abs(got-test.want) > 1e-6 {
			t.Errorf("%s: %q %q costs %v, want %v", test.list, test.provider, test.model, got, test.want)
		}
	}
}

func TestTiers(t *testing.T) {
	const k = 1000
	sum := func(u session.Usage, rates ...float64) float64 {
		return (float64(u.Input)*rates[0] + float64(u.Output)*rates[1] + float64(u.Reasoning)*rates[2] +
			float64(u.CacheRead)*rates[3] + float64(u.CacheWrite)*rates[4]) / 1e6
	}
	short := session.Usage{Input: 100 * k, Output: 7 * k, Reasoning: 3 * k, CacheRead: 90 * k, CacheWrite: 10 * k}
	long := session.Usage{Input: 100 * k, Output: 7 * k, Reasoning: 3 * k, CacheRead: 90 * k, CacheWrite: 10*k + 1}
	base, above := []float64{3, 15, 15, 0.3, 3.75}, []float64{6, 22.5, 22.5, 0.6, 7.5}
	for _, test := range []struct {
		list, provider, model string
		usage                 session.Usage
		requests              int64
		rates                 []float64
	}{
		{"modelsdev", "anthropic", "claude-sonnet-4-5", short, 1, base},
		{"modelsdev", "anthropic", "claude-sonnet-4-5", long, 1, above},
		{"modelsdev", "anthropic", "claude-sonnet-4-5", long, 2, base},
		{"modelsdev", "anthropic", "claude-sonnet-4-5", long, 0, base},
		{"litellm", "anthropic", "claude-sonnet-4-5", short, 1, base},
		{"litellm", "anthropic", "claude-sonnet-4-5", long, 1, above},
		// the tier is more precise about where it begins
		{"modelsdev", "openai", "gpt-5.5", long, 1, []float64{5, 30, 30, 0.5, 5}},
		{"modelsdev", "openai", "gpt-5.5", session.Usage{Input: 272*k + 1, CacheWrite: k}, 1,
			[]float64{10, 45, 45, 1, 10}},
		// the tier charges reasoning as output too
		{"litellm", "gemini", "gemini-3-pro-preview", long, 1, []float64{4, 18, 18, 0.4, 4}},
		{"litellm", "dashscope", "qwen-plus", session.Usage{Input: 300 * k, Output: k, Reasoning: k}, 1,
			[]float64{1.2, 3.6, 12, 1.2, 1.2}},
	} {
		m := session.Model{ProviderID: test.provider, ModelID: test.model}
		rate := read(t, test.list).Rate(m)
		if rate == nil {
			t.Errorf("%s: %s has no price", test.list, test.model)
			continue
		}
		if got, want := rate.Cost(test.usage, test.requests),
			sum(test.usage, test.rates...); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %s of %d requests costs %v, want %v", test.list, test.model, test.requests, got, want)
		}
	}
}

func TestReadErrors(t *testing.T) {
	for _, test := range []struct{ input, want string }{
		{"", "no JSON object"},
		{"[]", "no JSON object"},
		{`{"a": 1}`, "of no format that is known"},
		{`{"a": {"price": 1}}`, "of no format that is known"},
		{`{"openai": {"models": {}}}`, "no model has a price"},
		{`{"openai": {"models": {"x": {"cost": {"input": -1, "output": 2}}}}}`, "no model has a price"},
		{`{"gpt-5": {"litellm_provider": "openai", "input_cost_per_token": 1e-6}}`, "no model has a price"},
		{strings.Repeat(" ", 64<<20+1), "more than 64 MiB"},
	} {
		_, err := price.Read(strings.NewReader(test.input))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), price.Formats) {
			t.Errorf("%.60q: error %v, want one of %q that names the formats", test.input, err, test.want)
		}
	}
}

// TestConcurrent checks that concurrent lookups change nothing but the cache.
func TestConcurrent(t *testing.T) {
	table := read(t, "modelsdev")
	done := make(chan float64)
	for range 8 {
		go func() {
			done <- table.Rate(session.Model{ProviderID: "openai", ModelID: "gpt-5"}).Cost(session.Usage{Input: 1e6}, 1)
		}()
	}
	for range 8 {
		if usd := <-done; usd != 1.25 {
			t.Errorf("costs %v", usd)
		}
	}
}

// FuzzRead checks that a cost is a number from zero on, for any list.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"modelsdev", "litellm"} {
		b := testscale.ReadFile(f, "testdata/"+name+".json")
		f.Add(b, "openai", "gpt-5")
	}
	f.Add([]byte(`{"a":{"models":{"b":{"cost":{"input":1,"output":2,"tiers":[{"tier":{"type":"context",`+
		`"size":-5}}]}}}}}`),
		"a", "b")
	f.Add([]byte(`{"b":{"input_cost_per_token":"1e-6","output_cost_per_token":1e308,"litellm_provider":"a|c"}}`), "a",
		"b")
	f.Fuzz(func(t *testing.T, list []byte, provider, model string) {
		table, err := price.Read(bytes.NewReader(list))
		if err != nil {
			return
		}
		if table.Len() == 0 {
			t.Error("a list without a price is read")
		}
		for _, requests := range []int64{0, 1, 3} {
			m := session.Model{ProviderID: provider, ModelID: model}
			rate := table.Rate(m)
			if rate != table.Rate(m) {
				t.Errorf("%q %q has another price when asked again", provider, model)
			}
			if rate == nil {
				continue
			}
			if usd := rate.Cost(million, requests); !(usd >= 0) || math.IsInf(usd, 0) {
				t.Errorf("%q %q costs %v", provider, model, usd)
			}
		}
	})
}
