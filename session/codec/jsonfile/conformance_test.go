package jsonfile_test

import (
	"io"
	"iter"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonfile"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Name:   "json",
	Encode: func(w io.Writer, s *codec.Session) error { return jsonfile.Encode(w, s.Transcript) },
	Decode: func(r io.Reader, _ func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return func(yield func(*codec.Session, error) bool) {
			t, err := jsonfile.Decode(r)
			if err != nil {
				yield(nil, err)
				return
			}
			yield(&codec.Session{Transcript: t}, nil)
		}
	},
	Explain: codectest.ExplainRows, Losses: codectest.RowLosses,
	Lossless: true, Exact: true, AsIs: true, Damage: codectest.Whole,
}

func TestConformance(t *testing.T) { codectest.Run(t, format) }
