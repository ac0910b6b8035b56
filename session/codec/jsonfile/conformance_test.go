package jsonfile_test

import (
	"io"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonfile"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Name: "json", Encode: func(w io.Writer, s *codec.Session) error { return jsonfile.Encode(w, s) },
	Decode:   jsonfile.Recover,
	Complete: true, Lossless: true, Unvalidated: true, Damage: codectest.Whole,
}

func TestConformance(t *testing.T) { codectest.Run(t, format) }
