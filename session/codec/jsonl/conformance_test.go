package jsonl_test

import (
	"io"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// lines is the format of a line per row.
var lines = codectest.Codec{
	Encode: func(w io.Writer, s *codec.Session) error { return jsonl.NewEncoder(w).Encode(s) },
	Decode: jsonl.Recover, Many: true, Rows: true,
}

// nestedFormat is the nested shape.
var nestedFormat = codectest.Codec{
	Encode: func(w io.Writer, s *codec.Session) error { return jsonl.EncodeNested(w, s) },
	Decode: jsonl.DecodeNestedFile,
	Rows:   true, Whole: true,
}

func TestConformance(t *testing.T) {
	t.Run("nested", func(t *testing.T) { codectest.Run(t, nestedFormat) })
	t.Run("lines", func(t *testing.T) { codectest.Run(t, lines) })
}
