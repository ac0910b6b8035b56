package atif_test

import (
	"errors"
	"io"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/atif"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Encode: encodeAlone, Decode: atif.Decode, Losses: atif.Losses,
	Whole: true, Native: []string{"testdata/*.json"},
	Check: func(data []byte) error { return errors.Join(broken(data)...) },
}

func encodeAlone(w io.Writer, s *codec.Session) error { return atif.Encode(w, s) }

func TestConformance(t *testing.T) { codectest.Run(t, format) }

func FuzzDecode(f *testing.F) { codectest.Fuzz(f, format) }
