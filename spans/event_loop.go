package spans

import (
	"strconv"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/semconv"
)

// LoopWarning is an event on a turn's span, and the data of a data-loop-warning part: the
// agent repeated the same calls several times in a row.
type LoopWarning struct {
	// Pattern is the repeated sequence of calls, oldest first, joined by " -> ".
	Pattern string
	// Repetitions is how often the pattern occurred in a row, WindowSize the number of
	// recent calls that were examined.
	Repetitions, WindowSize int64
	// Evidence identifies the repeated calls, oldest first: part ids of tool calls and of
	// data, span ids of model calls.
	Evidence []string
}

// Kind returns the event's name.
func (w *LoopWarning) Kind() string { return semconv.SpanEventLoopWarning }

// AppendJSON appends the warning as a JSON object. Its keys are those of AgentDbg's LOOP_WARNING event, and evidence.
func (w *LoopWarning) AppendJSON(dst []byte) []byte {
	dst = AppendJSONMember(append(dst, '{'), "pattern", w.Pattern)
	dst = append(dst, `,"repetitions":`...)
	dst = strconv.AppendInt(dst, w.Repetitions, 10)
	dst = append(dst, `,"window_size":`...)
	dst = strconv.AppendInt(dst, w.WindowSize, 10)
	dst = append(dst, `,"evidence":[`...)
	for i, id := range w.Evidence {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendString(dst, id)
	}
	return append(dst, ']', '}')
}

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
