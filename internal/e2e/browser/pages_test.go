package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// shown is a page, and a text that it must have.
type shown struct{ name, path, text string }

// pages are all pages.
func (g *gallery) pages() []shown {
	t, err := g.store.Transcript(g.Context(), g.demo)
	if err != nil {
		g.Fatal(err)
	}
	digests := map[store.BlobKind]string{}
	blobs := map[store.BlobKind]string{store.BlobSystemPrompt: "system_prompt_digest",
		store.BlobToolCatalog: "tool_catalog_digest"}
	var edit *session.Part
	for i := range t.Messages {
		m := &t.Messages[i]
		for kind, key := range blobs {
			if _, rest, ok := strings.Cut(m.Message.MetadataJSON, `"`+key+`":"`); ok {
				digests[kind], _, _ = strings.Cut(rest, `"`)
			}
		}
		for j := range m.Parts {
			if m.Parts[j].Type == "tool-edit" {
				edit = &m.Parts[j]
			}
		}
	}
	image := address("ses_image", "p", "msg_ses_image_00000", "prt_ses_image_00000_1")
	return []shown{
		{"sessions", "/sessions", "Write the report"},
		{"sessions-filtered", "/sessions?agent=coder&errors=1&sort=title", "agent: coder"},
		{"sessions-none", "/sessions?agent=nobody", "No session matches"},
		{"search", "/sessions?q=runes", "places"},
		{"now", "/now", "Waiting for somebody"},
		{"session", address(g.demo), "The tests of this project fail"},
		{"session-child", address(g.child), "sub-agent of"},
		{"session-rewound", address(g.fork), "fork of"},
		{"session-waiting", address("ses_waiting"), "make migrate"},
		{"session-busy", address("ses_busy"), "busy"},
		{"session-failed", address("ses_failed"), "overloaded"},
		{"session-image", address("ses_image"), "A red pixel"},
		{"turn", address(g.demo, "t", 2), "Waterfall"},
		{"part", address(g.demo, "p", edit.MessageID, edit.ID), "wrap.go"},
		{"part-image", image, "red.png"},
		{"context", address(g.demo, "t", 2, "context"), "What the model had in turn 2"},
		{"tree", address(g.demo, "tree"), "compaction"},
		{"diff", "/diff/" + g.demo + "/" + g.fork, "A:"},
		{"compare", "/diff?s=" + g.demo + "&s=" + g.fork + "&s=ses_busy", "beside each other"},
		{"stats", "/stats", "Turn, median"},
		{"stats-tool", "/stats?by=tool", "bash"},
		{"experiments", "/experiments", "No experiments"},
		{"share", address(g.demo, "share"), "Download"},
		{"prompt", "/prompts/" + digests[store.BlobSystemPrompt], "System prompt"},
		{"catalog", "/catalogs/" + digests[store.BlobToolCatalog], "Tool catalog"},
		{"failure", "/s/nothing", "Not found"},
	}
}

var schemes = []string{"light", "dark"}

// TestEveryPageIsAccessible has axe judge every page with all of it unfolded, at the width of a phone and of a desktop,
// light and dark.
func TestEveryPageIsAccessible(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	pictures := os.Getenv("AGENTTRACE_SCREENSHOTS")
	empty := newSite(t, emptyStore(t))
	check := func(t *testing.T, s *site, p shown) {
		t.Parallel()
		b := newTab(t, s)
		if p.name == "failure" {
			b.tolerate("404 (Not Found)")
		}
		for _, scheme := range schemes {
			b.scheme(scheme)
			b.open(p.path)
			b.text(p.text)
			if pictures != "" {
				for _, width := range []int64{420, 1200, 1900} {
					b.size(width, 900)
					b.picture(filepath.Join(pictures, fmt.Sprintf("%s-%d-%s.png", p.name, width, scheme)))
				}
			}
			eval[bool](b, "document.querySelectorAll('details').forEach(d => { d.open = true; }), true")
			for _, width := range []int64{800, 390, 1200} {
				b.size(width, 900)
				if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > width {
					t.Errorf("%s: %d px wide in a window of %d", p.path, wide, width)
				}
				if cut := eval[string](b, `[...document.querySelectorAll('.top nav a, .list .what')].filter(e =>
					e.matches('nav *') ? e.offsetHeight > 40 : e.offsetWidth < 150).map(e => e.innerText).join()`); cut != "" {
					t.Errorf("%s: at %d px are cut: %s", p.path, width, cut)
				}
				if width == 800 {
					continue
				}
				b.accessible(fmt.Sprintf("%s at %d px, %s", p.path, width, scheme))
			}
		}
	}
	for _, p := range g.pages() {
		t.Run(p.name, func(t *testing.T) { check(t, g.site, p) })
	}
	t.Run("empty", func(t *testing.T) { check(t, empty, shown{"empty", "/sessions", "No sessions yet"}) })
	t.Run("quiet", func(t *testing.T) { check(t, empty, shown{"quiet", "/now", "All quiet"}) })
	t.Run("no-figures", func(t *testing.T) { check(t, empty, shown{"no-figures", "/stats", "Nothing to count"}) })
}

// picture writes what the tab shows into a file.
func (b *tab) picture(path string) {
	b.Helper()
	testscale.WriteFile(b, path, get(b, chromedp.FullScreenshot(100)))
}

// accessible fails the test for each violation that axe finds.
func (b *tab) accessible(where string) {
	b.Helper()
	if !eval[bool](b, "'axe' in window") {
		b.do(chromedp.Evaluate[chromedp.Void](axe))
	}
	type violation struct {
		ID, Help string
		Nodes    []struct {
			HTML           string
			FailureSummary string
		}
	}
	var found []violation
	text := eval[string](b, "axe.run().then(r => JSON.stringify(r.violations))")
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		b.Fatal(err)
	}
	for _, v := range found {
		for _, n := range v.Nodes[:min(3, len(v.Nodes))] {
			b.Errorf("%s: %s: %s (%d places): %.300s\n%s", where, v.ID, v.Help, len(v.Nodes), n.HTML, n.FailureSummary)
		}
	}
}

// TestThePictureOfASession writes docs/images/session.png, if pictures are asked for.
func TestThePictureOfASession(t *testing.T) {
	directory := os.Getenv("AGENTTRACE_SCREENSHOTS")
	if directory == "" {
		t.Skip("AGENTTRACE_SCREENSHOTS is not set")
	}
	g := newGallery(t)
	b := newTab(t, g.site)
	b.size(1200, 760)
	b.open(address(g.demo) + "#turn-2")
	b.wait("document.readyState === 'complete'")
	picture := get(b, chromedp.CaptureScreenshot())
	testscale.WriteFile(t, filepath.Join(directory, "readme.png"), picture)
}
