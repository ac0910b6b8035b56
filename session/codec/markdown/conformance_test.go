package markdown

import (
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/transcript"
)

func TestConformance(t *testing.T) {
	for name, o := range map[string]Options{"cut": {}, "full": {Full: true}} {
		t.Run(name, func(t *testing.T) {
			codectest.Run(t, codectest.Codec{
				Name: "markdown",
				Encode: func(w io.Writer, s *codec.Session) error {
					return Encode(w,
						document.Build(document.Input{Transcript: s.Transcript, Decisions: s.Decisions,
							Blobs: s.Blobs}),
						o)
				},
				Explain: func(s *codec.Session) []codec.Loss { return transcript.Explain(s, o.Full) }, Foreign: true,
				Check: func(data []byte) error {
					if !utf8.Valid(data) {
						return errors.New("not UTF-8")
					}
					return nil
				},
			})
		})
	}
}
