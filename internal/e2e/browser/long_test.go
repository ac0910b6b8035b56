package browser

import (
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
		if n := eval[int](b, elements); n > 3000 {
			t.Errorf("%s has %d elements", path, n)
		}
	}
	b.open("/s/ses_long")
	b.click(".outline p a") // to the first turns
	b.text("Turns 1 to 20 of 5000")
	b.press("j")
	b.wait("document.querySelector('.row.at')?.id === 'turn-1'")
	s.add(questions("ses_long", 1)) // changes a turn that is far from the end
	b.open("/s/ses_long")
	b.wait("stream && stream.readyState === EventSource.OPEN")
	s.add(questions("ses_long", 5001))
	b.wait("document.querySelector('#turn-5001')")
	if n := eval[int](b, elements); n > 3000 {
		t.Errorf("%d elements after an update", n)
	}
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
