package session

// What ended badly in a session is one of two things, and never both:
//
//   - A denied call is a tool call that a rule or a person refused. It did not run.
//   - A failure is a tool call that ended in an error and was not denied, a model call that ended in an error, or a turn
//     that did. An agent may have recovered from the first two. A turn mostly ends because of its last model call, so
//     the two count once.
//
// Whatever counts errors counts failures; denied calls have a count of their own. The functions below are the only
// definition: lists, figures, documents, pages and exports use them.

// CallDenied reports whether a tool call was denied: by its state, and by the mark in its metadata.
func CallDenied(state string, marked bool) bool {
	return state == StateOutputDenied || marked && state != StateOutputAvailable
}

// CallFailed reports whether a tool call failed. It is not both denied and failed.
func CallFailed(state string, marked bool) bool { return state == StateOutputError && !marked }

// Failures counts the failures of an answer or compaction besides those of its tool calls: those of its model calls, of
// which the last few are known, and of its turn.
func Failures(endReason string, modelErrors []string) int {
	if endReason == "error" {
		return max(1, len(modelErrors))
	}
	return len(modelErrors)
}
