package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestALongSessionIsReadInPieces opens one of 5,000 turns.
func TestALongSessionIsReadInPieces(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_long", 5000))
	b := newTab(t, s)
	const elements = "document.querySelectorAll('*').length"
	for path, text := range map[string]string{"/s/ses_long": "Question 5000", "/s/ses_long?at=2500": "Question 2510",
		"/s/ses_long/t/4999": "Answer 4999", "/s/ses_long/tree": "No forks"} {
		b.open(path)
		b.text(text)
		if n := eval[int](b, elements); n > 4000 {
			t.Errorf("%s has %d elements", path, n)
		}
	}
	b.open("/s/ses_long")
	b.click(".outline .o-turns a") // to the first turns
	b.text("Turns 1 to 20 of 5000")
	b.press("j")
	b.wait("document.querySelector('.row.at')?.id === 'turn-1'")
	s.add(questions("ses_long", 1)) // changes a turn that is far from the end
	b.open("/s/ses_long")
	b.wait("stream && stream.readyState === EventSource.OPEN")
	s.add(questions("ses_long", 5001))
	b.wait("document.querySelector('#turn-5001')")
	if n := eval[int](b, elements); n > 4000 {
		t.Errorf("%d elements after an update", n)
	}
}

// TestATurnOfManyCallsIsReadInPieces reads a session of 3 turns with 400 calls, of which two failed: no page is long,
// each failure is two keys or clicks away, and the outline has every call.
func TestATurnOfManyCallsIsReadInPieces(t *testing.T) {
	t.Parallel()
	var all []message
	for turn := range 3 {
		parts := []string{}
		for i := range 134 {
			id := fmt.Sprintf("call_%d_%d", turn, i)
			parts = append(parts, `{"type":"step-start"}`, textPart(fmt.Sprintf("I look at file %d.", i)))
			if i == 99 && turn > 0 {
				parts = append(parts, toolPart(id, "bash", "output-error", `{"command":"make"}`, `"errorText":"exit 2"`))
				continue
			}
			input := fmt.Sprintf(`{"path":"file_%d.go","content":"package a\n\nfunc f() {}\n"}`, i)
			parts = append(parts, toolPart(id, "write", "output-available", input,
				`"output":{"ok":true,"text":"`+strings.Repeat("word ", 300)+`"}`))
		}
		all = append(all, user(fmt.Sprintf("Question %d", turn+1)), assistant(parts...))
	}
	s := newSite(t, emptyStore(t), conversation("ses_a", "Long turns", "", time.Now(), all...))
	b := newTab(t, s)
	for _, path := range []string{"/s/ses_a", "/s/ses_a?at=1", "/s/ses_a/t/2", "/s/ses_a/outline",
		"/s/ses_a/outline?turn=2"} {
		b.open(path)
		if n := eval[int](b, "fetch(location.href).then(r => r.text()).then(t => t.length)"); n > 200_000 {
			t.Errorf("%s has %d bytes", path, n)
		}
	}
	failed := func(turn int) string {
		return fmt.Sprintf("location.hash === '#p-prt_ses_a_%05d_299' && (r => r.top >= 0 && r.top < innerHeight)("+
			"document.querySelector(decodeURIComponent(location.hash)).getBoundingClientRect())", turn*2-1)
	}
	b.open("/s/ses_a")
	b.click("#totals a.errors")
	b.wait(failed(2))
	b.text("failure 1 of 2")
	b.press("n")
	b.wait(failed(3))
	b.text("failure 2 of 2")
	b.press("N")
	b.wait(failed(2))
	b.open("/s/ses_a") // the end of turn 3
	b.press("n")
	b.wait(failed(3))
	b.open("/s/ses_a")
	b.click("[name=only]")
	b.wait("document.querySelectorAll('#entries .o-tool').length === 2")
	b.click(".o-tool a")
	b.wait(failed(2))

	b.wait("document.readyState === 'complete'")
	eval[bool](b, "(q => { q.value = 'file_77'; q.dispatchEvent(new Event('input', { bubbles: true })); return true; })("+
		"document.querySelector('.narrow [name=q]'))")
	b.wait("document.querySelectorAll('#entries .o-hit').length === 3")
	b.click("[data-turn='3'] .o-hit a")
	b.wait("document.querySelector('.part:target')?.textContent.includes('file_77.go')")
	b.wait("document.querySelector('.part:target .values pre .hk')?.textContent.startsWith('package')")

	b.open("/s/ses_a?at=1")
	b.text("Turn 1 of 3, up to part")
	for range 3 { // what follows is read as one scrolls
		n := eval[int](b, "document.querySelectorAll('#turns .part').length")
		b.wait(fmt.Sprintf("scrollTo(0, document.documentElement.scrollHeight), "+
			"document.querySelectorAll('#turns .part').length > %d", n))
	}
	b.wait("[...document.querySelectorAll('#turn-1 .part')].every((p, i, all) => " +
		"!i || +p.id.split('_').at(-1) === +all[i - 1].id.split('_').at(-1) + 1 || i === 1)")
	b.accessible("a long turn")
}

func TestTheMapOfASessionLeadsToItsTurns(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_long", 2000), conversation("ses_a", "Eventful", "", time.Now(),
		eventful()...))
	b := newTab(t, s)
	b.open("/s/ses_long")
	b.wait("document.querySelectorAll('.map a').length === 250")
	b.do(chromedp.MouseClickXY(eval[float64](b, "document.querySelector('.map').getBoundingClientRect().x + 2"),
		eval[float64](b, "document.querySelector('.map').getBoundingClientRect().bottom - 2")))
	b.text("Turns 1 to 20 of 2000")
	b.open("/s/ses_a")
	b.wait("document.querySelector('.map a:nth-of-type(2) .failed')")
	b.wait("document.querySelector('.map a:nth-of-type(6) .compaction')")
	b.accessible("the map")
}
