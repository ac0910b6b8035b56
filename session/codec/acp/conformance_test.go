package acp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Name: "acp", Encode: Encode, Decode: Decode, Explain: Losses.Of, Listed: Losses,
	Foreign: true, Damage: codectest.Tolerant, Words: words,
	Native: []string{"testdata/*.ndjson", "testdata/*.json", "testdata/*.jsonl", "testdata/*.jsons"},
	Check: func(data []byte) error {
		var c complaints
		valid(&c, string(data))
		return errors.Join(c...)
	},
	Sessions: []codectest.Sample{{Name: "handmade", Session: handmade()}},
}

// words reads a trace as a client does.
func words(data []byte) (codectest.Words, error) {
	w := codectest.Words{Used: -1, Asked: []string{}, Stops: []string{}}
	withheld := map[string]bool{}
	prompts, questions := map[string]int{}, map[string]int{}
	for line := range bytes.Lines(data) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ToolCall struct{ ToolCallID string }
				Update   struct {
					SessionUpdate, ToolCallID string
					RawInput, RawOutput       json.RawMessage
				}
			}
			Result *struct {
				StopReason string
				Outcome    struct{ Outcome, OptionID string }
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			continue // what a session that was a trace had besides
		}
		id := string(m.ID)
		switch u := m.Params.Update; {
		case m.Method == "session/prompt":
			prompts[id] = len(w.Stops)
			w.Stops = append(w.Stops, "")
		case m.Method == "session/request_permission":
			questions[id] = len(w.Asked)
			w.Asked = append(w.Asked, m.Params.ToolCall.ToolCallID)
		case m.Method == "session/update":
			if text := `"` + codec.WithheldText + `"`; string(u.RawInput) == text || string(u.RawOutput) == text {
				withheld[u.ToolCallID] = true
			}
		case m.Error != nil:
			if i, ok := prompts[id]; ok {
				w.Stops[i] = "error"
			}
		case m.Result != nil:
			if i, ok := prompts[id]; ok {
				w.Stops[i] = m.Result.StopReason
			}
			if i, ok := questions[id]; ok {
				w.Asked[i] += " " + m.Result.Outcome.OptionID
			}
		}
	}
	w.Withheld = len(withheld)
	return w, nil
}

// complaints collects what is wrong with a trace.
type complaints []error

func (c *complaints) Helper()                           {}
func (c *complaints) Errorf(format string, args ...any) { *c = append(*c, fmt.Errorf(format, args...)) }

func TestConformance(t *testing.T) { codectest.Run(t, format) }
