package sts_test

import (
	"testing"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/sts"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Encode: sts.Encode, Decode: sts.Decode, Losses: sts.Losses,
	Native: []string{"testdata/*.jsonl"},
}

func TestConformance(t *testing.T) { codectest.Run(t, format) }

func FuzzDecode(f *testing.F) { codectest.Fuzz(f, format) }
