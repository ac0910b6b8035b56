package fact

import "testing"

func TestFinishReason(t *testing.T) {
	for want, words := range map[string][]string{
		"tool-calls": {"tool-calls", "tool_calls", "tool_call", "tool_use", "TOOL_CALL", "function_call", "TOOL_EXECUTION"},
		"stop":       {"stop", "STOP", "end_turn", "completed", "stop_sequence", "FinishReason.STOP"},
		"length":     {"length", "max_tokens", "MAX_TOKENS"}, "content-filter": {"content_filter", "content-filter",
			"SAFETY",
			"refusal"}, "error": {"error"}, "Weird": {"Weird"}, "": {""},
	} {
		for _, word := range words {
			if got := FinishReason(word); got != want {
				t.Errorf("FinishReason(%q) = %q, want %q", word, got, want)
			}
		}
	}
}
