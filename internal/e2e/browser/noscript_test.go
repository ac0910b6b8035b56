package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

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

	page := string(get(b, chromedp.Evaluate[[]byte]("fetch("+quoted(address(g.demo, "share", "session.html"))+
		").then(r => r.text())", chromedp.EvalAwaitPromise)))
	if !strings.Contains(page, "The tests of this project fail") {
		t.Error("the shared file has not the session")
	}
}
