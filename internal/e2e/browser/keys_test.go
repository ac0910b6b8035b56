package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// eventful is a session with one turn of every kind that keys lead to: 2 failed, 4 was denied a call, 6 is a
// compaction, 8 failed again, 10 compacted and 12 was denied again.
func eventful() []message {
	var all []message
	for i := 1; i <= 12; i++ {
		parts := []string{textPart(fmt.Sprintf("Answer %d", i))}
		switch i {
		case 2, 8:
			parts = append(parts, toolPart(fmt.Sprint("call_", i), "bash", "output-error", `{"command":"false"}`,
				`"errorText":"exit 1"`))
		case 4, 12:
			parts = append(parts, toolPart(fmt.Sprint("call_", i), "bash", "output-error", `{"command":"rm"}`,
				`"errorText":"denied","toolMetadata":{"agenttrace":{"denied":true}}`))
		case 1:
			parts = append(parts, reasoningPart("First."),
				toolPart("call_1", "bash", "output-available", `{"command":"true"}`, `"output":"ok"`))
		}
		all = append(all, user(fmt.Sprintf("Question %d", i)), assistant(parts...))
		if i == 6 || i == 10 {
			all = append(all, message{"assistant", `{"compaction":true,"agenttrace":{"summarized_message_count":2}}`,
				[]string{`{"type":"data-compaction","data":{"summary":"So far so good.","tail_start_id":null,` +
					`"auto":true}}`}})
		}
	}
	return all
}

func TestKeys(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newSite(t, emptyStore(t), conversation("ses_a", "Eventful", "", now, eventful()...),
		conversation("ses_b", "Second", "", now.Add(-time.Hour), eventful()...))
	b := newTab(t, s)
	at := func(n int) string { return fmt.Sprintf("/s/ses_a/t/%d", n) }
	marked := func(selector string) string {
		return "document.querySelectorAll('.row.at').length === 1 && document.querySelector('.row.at').matches(" +
			quoted(selector) + ")"
	}

	b.open("/sessions")
	b.press("j")
	b.wait(marked("tr:has([value=ses_a])"))
	b.press("j")
	b.wait(marked("tr:has([value=ses_b])"))
	b.press("k")
	b.wait(marked("tr:has([value=ses_a])"))
	b.press(kb.Enter)
	b.at("/s/ses_a")
	b.press("u")
	b.at("/sessions")
	for key, path := range map[string]string{"n": "/now", "t": "/stats", "s": "/sessions"} {
		b.press("g")
		b.press(key)
		b.at(path)
	}
	b.press("/")
	b.wait("document.activeElement.type === 'search'")

	b.open("/s/ses_a?at=1")
	for _, jump := range []struct {
		key  string
		turn int
	}{{"e", 2}, {"e", 4}, {"e", 8}, {"e", 12}, {"e", 2}, {"E", 12}, {"a", 4}, {"a", 12}, {"A", 4}, {"c", 6}, {"c", 10},
		{"C", 6}} {
		b.press(jump.key)
		b.wait("document.readyState === 'complete' && location.pathname === " + quoted(at(jump.turn)))
	}
	b.press("u")
	b.at("/s/ses_a")

	b.open("/s/ses_a?at=1")
	b.press("j")
	b.wait(marked("#turn-1"))
	b.wait("!document.querySelector('#turn-1 .call').open")
	b.press("x")
	b.wait("document.querySelector('#turn-1 .call').open && document.querySelector('#turn-1 details.reasoning').open")
	b.press("x")
	b.wait("!document.querySelector('#turn-1 .call').open && document.querySelector('#turn-2 .call').open")
	b.press("X")
	b.wait("[...document.querySelectorAll('.part details')].every(d => d.open)")
	b.press("X")
	b.wait("[...document.querySelectorAll('.part details')].every(d => !d.open)")
	eval[bool](b, "navigator.clipboard.writeText = async text => { window.copied = String(text); }, true")
	b.press("y")
	b.wait("window.copied === location.origin + '/s/ses_a/t/1'")
	b.text("The link is copied.")
	b.press(".")
	b.wait("innerHeight + scrollY >= document.documentElement.scrollHeight - 40")
	b.press("i")
	b.at("/s/ses_a/t/1/context")

	b.press("?")
	b.wait("document.querySelector('#help').open")
	b.press("u") // which does nothing while the dialog is open
	b.press(kb.Escape)
	b.wait("!document.querySelector('#help').open")
	b.at("/s/ses_a/t/1/context")
}

func TestTheWaterfallIsUnfoldedByAKey(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	b := newTab(t, g.site)
	b.open(address(g.demo))
	b.wait("document.querySelector('.waterfall').open")
	b.press("w")
	b.wait("!document.querySelector('.waterfall').open")
	b.press("w")
	b.wait("document.querySelector('.waterfall').open")
}

func TestKeysAreTextInFields(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), conversation("ses_a", "Eventful", "", time.Now(), eventful()...))
	b := newTab(t, s)
	b.open("/s/ses_a")
	eval[bool](b, "document.querySelectorAll('.act').forEach(d => { d.open = true; }), window.here = true")
	const all = "jku/eEaAcCxXymwi.?gsgngt[]nNt"
	for _, field := range []string{"[type=search]", ".act input[name=text]", ".act input[name=value]"} {
		b.do(chromedp.Focus(chromedp.CSS(field)))
		eval[bool](b, "document.activeElement.value = '', true")
		b.press(all)
		b.wait("document.querySelector(" + quoted(field) + ").value === " + quoted(all))
	}
	b.do(chromedp.Focus(chromedp.CSS(".act select")))
	b.press("xue")
	b.do(chromedp.Focus(chromedp.CSS(".tabs a")))
	b.do(chromedp.KeyEvent("e", chromedp.KeyModifiers(kb.ModifierCtrl)),
		chromedp.KeyEvent("e", chromedp.KeyModifiers(kb.ModifierAlt)))
	if !eval[bool](b, "window.here && !document.querySelector('.row.at') && !document.querySelector('#help').open") {
		t.Error("a key of a field or with a modifier did something")
	}
}

func TestKeysCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), conversation("ses_a", "Eventful", "", time.Now(), eventful()...))
	b := newTab(t, s)
	b.open("/s/ses_a")
	b.press("?")
	b.click("#keys")
	b.wait("!document.querySelector('#keys').checked")
	b.press(kb.Escape)
	b.wait("!document.querySelector('#help').open && document.activeElement === document.body")
	for range 2 { // also when the page is loaded again
		b.press("jeu")
		if !eval[bool](b, "location.pathname === '/s/ses_a' && !document.querySelector('.row.at')") {
			t.Error("a key that is switched off did something")
		}
		b.open("/s/ses_a")
	}
	b.press("?")
	b.click("#keys")
	b.wait("document.querySelector('#keys').checked")
	b.press(kb.Escape)
	b.wait("!document.querySelector('#help').open && document.activeElement === document.body")
	b.press("j")
	b.wait("document.querySelector('.row.at')")
}

func TestKeysLeadThroughThePlacesOfAText(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_a", 6, "Answer 1", "The socks and Socks", "Answer 3",
		"Answer 4", "socks"), questions("ses_other", 4, "", "", "", "socks"))
	b := newTab(t, s)
	b.open("/s/ses_a")
	b.press("n") // nothing was searched for yet
	b.text("Nothing failed or was denied.")
	b.fill(".find input[type=search]", "socks")
	eval[bool](b, "document.querySelector('.find [type=search]').focus(), true")
	b.press(kb.Enter)
	b.wait("document.querySelectorAll('.hits li').length === 2")
	b.click(".hits li:nth-child(2) a")
	b.wait("location.pathname === '/s/ses_a/t/2' && CSS.highlights.get('hits').size === 2")
	b.press("n")
	b.wait("[...CSS.highlights.get('hit')][0].toString() === 'socks'")
	b.press("n")
	b.wait("[...CSS.highlights.get('hit')][0].toString() === 'Socks'")
	b.press("n")
	b.at("/s/ses_a/t/5?find=socks")
	b.press("N")
	b.wait("CSS.highlights.has('hit')")
	b.press("N")
	b.at("/s/ses_a/t/2?find=socks")
}
