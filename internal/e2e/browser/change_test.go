package browser

import (
	"testing"
	"time"
)

func TestASessionIsForkedAndRewoundFromATurn(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_a", 3), conversation("ses_busy", "Busy", "busy", time.Now(),
		user("Work."), assistant(textPart("I do."))))
	b := newTab(t, s)
	b.open("/s/ses_a/t/2")
	b.click("#turn-2 .act summary")
	b.fill("#turn-2 [placeholder]", "Another way")
	b.click("#turn-2 .act form:nth-of-type(2) button")
	b.wait("document.querySelector('h1').innerText === 'Another way'")
	b.wait("document.querySelector('#turn-2') && !document.querySelector('#turn-3')")
	b.click(".crumbs a")
	b.at("/s/ses_a")

	b.open("/s/ses_a/t/2")
	b.click("#turn-2 .act summary")
	b.click("#turn-2 .act form:nth-of-type(3) button")
	b.at("/s/ses_a")
	b.wait("document.querySelector('#turn-3.hidden') && !document.querySelector('#turn-2.hidden')")
	b.open("/s/ses_a/tree")
	b.click("[value=unrewind]")
	b.at("/s/ses_a/tree")
	b.wait("!document.querySelector('[value=unrewind]')")
	b.open("/s/ses_a")
	b.wait("document.querySelector('#turn-3') && !document.querySelector('.turn.hidden')")

	b.open("/s/ses_busy/t/1")
	b.tolerate("409 (Conflict)")
	b.click("#turn-1 .act summary")
	b.click("#turn-1 .act form:nth-of-type(2) button")
	b.text("wait until it is idle")
}

func TestAPartIsAnnotated(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_a", 1))
	b := newTab(t, s)
	b.open("/s/ses_a/t/1")
	b.click("#turn-1 .call summary")
	b.click("#turn-1 .call .links a")
	b.click("section .act summary")
	b.fill("section .act [name=text]", "wrong")
	b.click("section .act button")
	b.wait("document.querySelector('section .chips').innerText.includes('wrong')")
	b.open("/s/ses_a")
	b.wait("document.querySelector('#turn-1').innerText.includes('wrong')")
	b.open("/sessions?tag=wrong")
	b.text("Questions")
}

func TestTheThemeIsSwitched(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_a", 1))
	b := newTab(t, s)
	b.withoutScript()
	b.scheme("light")
	b.open("/s/ses_a?at=1")
	color := "getComputedStyle(document.body).backgroundColor"
	light := eval[string](b, color)
	b.click(".theme button")
	b.wait(color + " !== " + quoted(light))
	b.at("/s/ses_a?at=1")
	b.scheme("dark")
	b.open("/sessions") // the choice holds for every page
	b.click(".theme button")
	b.wait(color + " === " + quoted(light))
	b.click(".theme button")
	b.wait(color + " !== " + quoted(light)) // as the system has it
}
