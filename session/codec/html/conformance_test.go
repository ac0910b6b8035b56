package html

import (
	"bytes"
	"errors"
	"io"
	"testing"

	nethtml "golang.org/x/net/html"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/transcript"
)

func TestConformance(t *testing.T) {
	codectest.Run(t, codectest.Codec{
		Name: "html",
		Encode: func(w io.Writer, s *codec.Session) error {
			return Encode(w,
				document.Build(document.Input{Transcript: s.Transcript, Decisions: s.Decisions, Blobs: s.Blobs}),
				Options{Full: true})
		},
		Explain: func(s *codec.Session) []codec.Loss { return transcript.Explain(s, true) }, Foreign: true,
		Check: balanced,
	})
}

// balanced wants every element that is opened closed, in order.
func balanced(page []byte) error {
	z := nethtml.NewTokenizer(bytes.NewReader(page))
	var open []string
	for {
		switch z.Next() {
		case nethtml.ErrorToken:
			if len(open) > 0 {
				return errors.New("<" + open[len(open)-1] + "> is not closed")
			}
			if err := z.Err(); !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		case nethtml.StartTagToken:
			name, _ := z.TagName()
			switch string(name) {
			case "meta", "br", "img", "link", "hr", "input", "wbr", "col": // have no end
			default:
				open = append(open, string(name))
			}
		case nethtml.EndTagToken:
			name, _ := z.TagName()
			if len(open) == 0 || open[len(open)-1] != string(name) {
				return errors.New("</" + string(name) + "> closes nothing")
			}
			open = open[:len(open)-1]
		}
	}
}
