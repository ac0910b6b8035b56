package jsonfile_test

import (
	"bytes"
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
	Encode: func(w io.Writer, s *codec.Session) error { return jsonfile.Encode(w, s) },
	Decode: func(r io.Reader, _ func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return func(yield func(*codec.Session, error) bool) {
			yield(jsonfile.Decode(r))
		}
	},
	Complete: true, Lossless: true, Exact: true, Unvalidated: true, Damage: codectest.Whole,
}

// recovered is the codec with the reader that goes on after damage.
func recovered() codectest.Codec {
	c := format
	c.Name, c.Decode, c.Damage = "json recovered", jsonfile.Recover, codectest.Tolerant
	c.Head = func(line []byte) bool { return !bytes.HasPrefix(line, []byte(`{"id":`)) }
	return c
}

func TestConformance(t *testing.T) {
	t.Run("decode", func(t *testing.T) { codectest.Run(t, format) })
	t.Run("recover", func(t *testing.T) { codectest.Run(t, recovered()) })
}
