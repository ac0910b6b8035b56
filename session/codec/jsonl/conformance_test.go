package jsonl_test

import (
	"io"
	"iter"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// format is a transcript alone, as the strict reader takes it.
var format = codectest.Codec{
	Name:   "jsonl",
	Encode: func(w io.Writer, s *codec.Session) error { return jsonl.Encode(w, s.Transcript) },
	Decode: func(r io.Reader, _ func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return func(yield func(*codec.Session, error) bool) {
			for t, err := range jsonl.Decode(r) {
				s := &codec.Session{Transcript: t}
				if err != nil {
					s = nil
				}
				if !yield(s, err) {
					return
				}
			}
		}
	},
	Explain: codectest.ExplainRows, Losses: codectest.RowLosses,
	Lossless: true, Many: true, Unvalidated: true, Damage: codectest.Strict,
}

// recovered is the codec with the reader that goes on after damage.
func recovered() codectest.Codec {
	c := format
	c.Name, c.Decode, c.Unvalidated, c.Damage = "jsonl recovered", jsonl.Recover, true, codectest.Tolerant
	c.Encode = func(w io.Writer, s *codec.Session) error { return jsonl.NewEncoder(w).Encode(s) }
	c.Explain, c.Losses, c.Complete = nil, nil, true
	return c
}

// nestedFormat is the nested shape.
var nestedFormat = codectest.Codec{
	Name: "json", Encode: func(w io.Writer, s *codec.Session) error { return jsonl.EncodeNested(w, s) },
	Decode:   jsonl.RecoverNested,
	Complete: true, Lossless: true, Unvalidated: true, Damage: codectest.Whole,
}

func TestConformance(t *testing.T) {
	t.Run("nested", func(t *testing.T) { codectest.Run(t, nestedFormat) })
	t.Run("decode", func(t *testing.T) { codectest.Run(t, format) })
	t.Run("recover", func(t *testing.T) { codectest.Run(t, recovered()) })
}
