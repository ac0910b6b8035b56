package html

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	nethtml "golang.org/x/net/html"

	"github.com/agenttrace/agenttrace/session/codec/internal/transcript/transcripttest"
)

var update = flag.Bool("update", false, "write the golden file")

func write(t testing.TB, said string, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Encode(&b, transcripttest.Story(said), o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	got := write(t, "the <b>*test*</b>", Options{Files: map[string]string{"out/the <b>*test*</b>": "files/1 (a).txt"}})
	const file = "testdata/story.html"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("run with -update to accept (-want +got):\n%s", d)
	}
}

// outline is every element with its attributes but those that hold text of the session.
func outline(t testing.TB, page string) []string {
	t.Helper()
	z := nethtml.NewTokenizer(strings.NewReader(page))
	var all []string
	for {
		switch z.Next() {
		case nethtml.ErrorToken:
			return all
		case nethtml.StartTagToken, nethtml.EndTagToken, nethtml.SelfClosingTagToken:
			tok := z.Token()
			for _, a := range tok.Attr {
				switch a.Key {
				case "src", "srcset", "action", "background", "ping", "style", "xlink:href":
					t.Errorf("%v loads or styles something", tok)
				case "href":
					if !strings.HasPrefix(a.Val, "#turn-") && a.Val != "https://example.com/a?b=1" {
						t.Errorf("%v leads elsewhere", tok)
					}
				}
				if strings.HasPrefix(a.Key, "on") {
					t.Errorf("%v runs something", tok)
				}
			}
			all = append(all, tok.Type.String()+" "+tok.Data)
		}
	}
}

var hostile = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</pre></details></main>", "javascript:alert(1)", "{{.Title}}", "\x1b[31m\u202e\x00", "<!--", "]]>",
	"</style><style>", "&lt;script&gt;",
}

// TestNothingIsMarkup tells a story whose texts try to be something else: the page has
// the elements that it has without.
func TestNothingIsMarkup(t *testing.T) {
	want := outline(t, write(t, "x", Options{}))
	for _, name := range []string{"script", "img", "iframe", "link", "object", "form"} {
		if slices.Contains(want, "StartTag "+name) {
			t.Errorf("the page has a %s", name)
		}
	}
	for _, said := range hostile {
		page := write(t, said, Options{})
		if d := cmp.Diff(want, outline(t, page)); d != "" {
			t.Errorf("%q (-want +got):\n%s", said, d)
		}
		if strings.ContainsAny(page, "\x1b\u202e\x00") || strings.Contains(page, "ZgotmplZ") {
			t.Errorf("%q comes through, or what is there is no link", said)
		}
	}
}

func FuzzEncode(f *testing.F) {
	for _, said := range hostile {
		f.Add(said)
	}
	want := outline(f, write(f, "x", Options{Full: true}))
	f.Fuzz(func(t *testing.T, said string) {
		if strings.ContainsAny(said, "\n`~") {
			return // code in fences is an element of its own
		}
		if d := cmp.Diff(want, outline(t, write(t, said, Options{Full: true}))); d != "" {
			t.Errorf("%q changes the page (-want +got):\n%s", said, d)
		}
	})
}

func TestCutAndFull(t *testing.T) {
	if cut := write(t, "x", Options{}); !strings.Contains(cut, "are left out; a full export has them") {
		t.Error("a long output is not cut")
	}
	if full := write(t, "x", Options{Full: true}); strings.Contains(full, "left out") || strings.Count(full, "FAIL x") != 120 {
		t.Error("a full transcript is cut")
	}
}
