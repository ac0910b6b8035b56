package csvfile_test

import (
	"bytes"
	"encoding/csv"
	"io"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/csvfile"
)

func TestConformance(t *testing.T) {
	codectest.Run(t, codectest.Codec{
		Name:   "csv",
		Encode: func(w io.Writer, s *codec.Session) error { return csvfile.Encode(w, s.Transcript) },
		Check: func(data []byte) error {
			_, err := csv.NewReader(bytes.NewReader(data)).ReadAll() // rows of one length
			return err
		},
	})
}
