package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestPagesWorkWithoutJavaScript filters, pages, folds and annotates.
func TestPagesWorkWithoutJavaScript(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	g.add(questions("ses_pages", 70))
	b := newTab(t, g.site)
	b.withoutScript()

	for _, p := range g.pages() {
		if p.name == "failure" {
			b.tolerate("404 (Not Found)")
		}
		b.open(p.path)
		b.text(p.text)
	}
	if eval[bool](b, "typeof rows !== 'undefined'") {
		t.Fatal("the script of the pages runs")
	}

	b.open("/sessions")
	b.click(".filters summary")
	b.fill("[name=agent]", "coder")
	b.do(chromedp.SetValue(chromedp.CSS("[name=status]"), "error"))
	b.click(".filters button")
	b.wait("location.search.includes('agent=coder') && location.search.includes('status=error')")
	b.text("Deploy to production")
	b.wait("document.querySelectorAll('tr.row').length === 1")
	b.click(".chips a")
	b.wait("!location.search.includes('agent=coder') || !location.search.includes('status=error')")

	b.open(address("ses_pages"))
	b.text("Turns 51 to 70 of 70")
	b.click("[rel=prev]")
	b.text("Turns 31 to 50 of 70")
	b.click("[rel=next]")
	b.text("Turns 51 to 70 of 70")
	b.click("#turn-51 .call summary")
	b.wait("document.querySelector('#turn-51 .call').open")

	b.open(address("ses_pages", "t", 3))
	b.click("#turn-3 .act summary")
	b.do(chromedp.SetValue(chromedp.CSS("#turn-3 [name=kind]"), "note"))
	b.fill("#turn-3 [name=text]", "Look here")
	b.click("#turn-3 .act button")
	b.text("Look here")
	b.at(address("ses_pages", "t", 3)) // it leads back
	b.click(`[aria-label^="Take back"]`)
	b.wait("!document.body.innerText.includes('Look here')")
	all, err := g.store.Annotations(t.Context(), "ses_pages")
	if err != nil || len(all) != 1 || all[0].DeletedAt == nil || all[0].Kind != store.AnnotationNote {
		t.Errorf("annotations: %+v, %v", all, err)
	}

	b.open(address("ses_pages"))
	b.click(".act summary")
	b.fill(".act [name=text]", "A better title")
	b.click(".act button")
	b.wait("document.querySelector('h1').innerText === 'A better title'")

	page := eval[string](b, "fetch("+quoted(address(g.demo, "share", "session.html"))+").then(r => r.text())")
	if !strings.Contains(page, "The tests of this project fail") {
		t.Error("the shared file has not the session")
	}

	// On paper it has all that is folded on a screen.
	file := filepath.Join(t.TempDir(), "session.html")
	testscale.Must(t, os.WriteFile(file, []byte(page), 0o600))
	b.tolerate("request to another server: file:")
	b.do(chromedp.Navigate("file://" + file))
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	cut := eval[[]string](b, `[...document.querySelectorAll('details > *, pre')].filter(e => !e.checkVisibility() ||
		e.scrollHeight > e.clientHeight + 1 && getComputedStyle(e).overflowY !== 'visible').map(e => e.outerHTML)`)
	if len(cut) > 0 {
		t.Errorf("%d pieces are not on paper, the first is %s", len(cut), cut[0])
	}
	b.open("/sessions")
	if !eval[bool](b, "document.querySelector('.list .row').checkVisibility()") {
		t.Error("the sessions are not on paper")
	}
}
