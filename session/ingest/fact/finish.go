package fact

import "strings"

// FinishReason returns the word that stands for why a model stopped: stop, tool-calls, length, content-filter, error or
// abort. Another word stays as it is.
func FinishReason(word string) string {
	w := strings.ToLower(strings.TrimSpace(word))
	switch strings.NewReplacer("_", "-", " ", "-").Replace(w) {
	case "stop", "end-turn", "endturn", "completed", "complete", "stop-sequence", "eos", "end", "finish-reason-stop":
		return "stop"
	case "tool-calls", "tool-call", "tool-use", "tooluse", "function-call", "function-calls", "tool-calls-requested":
		return "tool-calls"
	case "length", "max-tokens", "maxtokens", "max-output-tokens", "model-length", "model-context-window-exceeded",
		"incomplete", "finish-reason-max-tokens":
		return "length"
	case "content-filter", "contentfilter", "content-filtered", "safety", "refusal", "blocked", "blocklist",
		"prohibited-content", "recitation", "spii", "guardrail-intervened":
		return "content-filter"
	case "error", "failed", "other-error":
		return "error"
	case "abort", "aborted", "cancelled", "canceled", "interrupted":
		return "abort"
	}
	return word
}
