package render

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	nethtml "golang.org/x/net/html"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
)

func TestConformance(t *testing.T) {
	utf8Text := func(data []byte) error {
		if !utf8.Valid(data) {
			return errors.New("not UTF-8")
		}
		return nil
	}
	for _, f := range []struct {
		name   string
		encode func(io.Writer, *document.Document, document.Words) error
		full   bool
		check  func([]byte) error
	}{{"html", HTML, true, balanced}, {"markdown", Markdown, true, utf8Text}, {"markdown", Markdown, false, utf8Text}} {
		t.Run(f.name, func(t *testing.T) {
			codectest.Run(t, codectest.Codec{
				Name: f.name,
				Encode: func(w io.Writer, s *codec.Session) error {
					in := document.Input{Transcript: s.Transcript, Decisions: s.Decisions, Blobs: s.Blobs}
					return f.encode(w, document.Build(in), document.Words{Full: f.full})
				},
				Explain: func(s *codec.Session) []codec.Loss { return Explain(s, f.full) },
				Check:   f.check,
			})
		})
	}
}

var update = flag.Bool("update", false, "write the golden files")

func transcript(t testing.TB, encode func(io.Writer, *document.Document, document.Words) error, said string, o document.Words) string {
	t.Helper()
	var b bytes.Buffer
	testscale.Must(t, encode(&b, story(t, said), o))
	return b.String()
}

// golden compares a transcript with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		testscale.Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := testscale.ReadFile(t, file)
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("run with -update to accept (-want +got):\n%s", d)
	}
}

func TestGolden(t *testing.T) {
	o := document.Words{Files: map[string]string{"out/the <b>*test*</b>": "files/1 (a).txt"}}
	golden(t, "story.html", transcript(t, HTML, "the <b>*test*</b>", o))
	golden(t, "story.md", transcript(t, Markdown, "the <b>*test*</b>", o))
}

func TestCutAndFull(t *testing.T) {
	for _, encode := range []func(io.Writer, *document.Document, document.Words) error{HTML, Markdown} {
		if cut := transcript(t, encode, "x", document.Words{}); !strings.Contains(cut, "are left out; a full export has them") {
			t.Error("a long output is not cut")
		}
		if full := transcript(t, encode, "x", document.Words{Full: true}); strings.Contains(full, "left out") ||
			strings.Count(full, "FAIL x") != 120 {
			t.Error("a full transcript is cut")
		}
	}
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
