package acp

import (
	"errors"
	"fmt"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Encode: Encode, Decode: Decode, Losses: Losses,

	Native: []string{"testdata/*.ndjson", "testdata/*.json", "testdata/*.jsonl", "testdata/*.jsons"},
	Check: func(data []byte) error {
		var c complaints
		valid(&c, string(data))
		return errors.Join(c...)
	},
}

// complaints collects what is wrong with a trace.
type complaints []error

func (c *complaints) Helper()                           {}
func (c *complaints) Errorf(format string, args ...any) { *c = append(*c, fmt.Errorf(format, args...)) }

func TestConformance(t *testing.T) { codectest.Run(t, format) }
