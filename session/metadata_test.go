package session_test

import (
	"encoding/json"
	"testing"

	"github.com/agenttrace/agenttrace/session"
)

// UsageOf counts what encoding/json reads of the metadata, however it is spelled.
func FuzzUsageOf(f *testing.F) {
	for _, text := range []string{
		`{"usage":{"input":3,"output":4},"agenttrace":{"steps":[{"usage":{"input":9}}],"cost_usd":0.25}}`,
		`{"model":{"providerID":"x"},"usage":{"input":-3,"cache_read":1.5,"cache_write":7}}`, `{"agenttrace":{}}`,
		`{"agenttrace":null,"usage":null}`, `{"agenttrace":7,"usage":"x"}`,
		`{"usage":{"input":1},"usage":{"output":2}}`, `{"Usage":{"input":1},"AGENTTRACE":{"Cost_USD":2}}`,
		`{"u\u0073age":{"input":1}}`, `{"uſage":{"input":1}}`, `{"agenttrace":{"cost_usd":"x","Cost_usd":3}}`,
		`{"agenttrace":{"cost_usd":1},"agenttrace":{"x":1}}`, `{"usage":{"input":1}`, `[]`, ``, `{}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want struct {
			Usage session.Usage `json:"usage"`
			Trace struct {
				CostUSD float64 `json:"cost_usd"`
			} `json:"agenttrace"`
		}
		_ = json.Unmarshal([]byte(text), &want)
		u := &want.Usage
		for _, n := range []*int64{&u.Input, &u.Output, &u.Reasoning, &u.CacheRead, &u.CacheWrite} {
			*n = max(*n, 0)
		}
		if usage, cost := session.UsageOf(text); usage != *u || cost != want.Trace.CostUSD {
			t.Errorf("%s: %+v, %v, want %+v", text, usage, cost, want)
		}
	})
}
