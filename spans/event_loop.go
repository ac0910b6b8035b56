package spans

import "github.com/agenttrace/agenttrace/semconv"

// LoopWarning is an event on a turn's span, and the data of a data-loop-warning part: the
// agent repeated the same calls several times in a row. Its JSON has the keys of AgentDbg's LOOP_WARNING event, and
// evidence.
type LoopWarning struct {
	// Pattern is the repeated sequence of calls, oldest first, joined by " -> ".
	Pattern string `json:"pattern"`
	// Repetitions is how often the pattern occurred in a row, WindowSize the number of
	// recent calls that were examined.
	Repetitions int64 `json:"repetitions"`
	WindowSize  int64 `json:"window_size"`
	// Evidence identifies the repeated calls, oldest first: part ids of tool calls and of
	// data, span ids of model calls.
	Evidence []string `json:"evidence"`
}

// Kind returns the event's name.
func (w *LoopWarning) Kind() string { return semconv.SpanEventLoopWarning }

func (w *LoopWarning) visit(c *coder) {
	c.required(semconv.LoopPatternKey, &w.Pattern)
	c.count(semconv.LoopRepetitionsKey, &w.Repetitions)
	c.count(semconv.LoopWindowSizeKey, &w.WindowSize)
	c.strings(semconv.LoopEvidenceKey, &w.Evidence)
}

// Validate implements [SpanData].
func (w *LoopWarning) Validate() error {
	return missing(semconv.LoopPatternKey, w.Pattern)
}
