package pi_test

import (
	"bytes"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/pi"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Name: "pi", Encode: pi.Encode, Decode: pi.Decode, Explain: pi.Explain, Listed: pi.Losses,
	Foreign: true, Damage: codectest.Tolerant, Native: []string{"testdata/*.jsonl"},
	Head: func(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"type":"session"`)) },
}

func TestConformance(t *testing.T) { codectest.Run(t, format) }

func FuzzDecode(f *testing.F) { codectest.Fuzz(f, format) }
