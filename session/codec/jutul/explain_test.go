package jutul_test

import (
	"testing"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jutul"
)

// TestExplainCountsWithheldOutputsAsText: a withheld output is written as a text that says
// so, and is no structured output that became JSON text.
func TestExplainCountsWithheldOutputsAsText(t *testing.T) {
	for _, sample := range codectest.Corpus() {
		if sample.Name != "withheld values" {
			continue
		}
		for _, loss := range jutul.Explain(sample.Session) {
			if loss.What == "structured tool outputs, which become JSON text" && loss.Count != 1 {
				t.Errorf("%d structured outputs become text, want 1: the output that is null", loss.Count)
			}
		}
		return
	}
	t.Error("the suite has no session of withheld values")
}
