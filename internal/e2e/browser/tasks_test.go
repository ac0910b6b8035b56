package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/agenttrace/agenttrace/session/store"
)

// working is an answer that calls a tool a number of times, of which the call with the number fails.
func working(id string, calls, failing int) message {
	var parts []string
	for i := range calls {
		state, result := "output-available", `"output":"ok"`
		if i == failing {
			state, result = "output-error", `"errorText":"exit 2"`
		}
		parts = append(parts, toolPart(fmt.Sprint(id, "_", i), "bash", state, `{"command":"make"}`, result))
	}
	return assistant(append(parts, textPart("Done."))...)
}

// inTurns is a session of turns, in the middle one of which a call fails. Its prompt is another one from there on.
func inTurns(id, title string, turns, calls int) *store.Imported {
	var all []message
	for i := range turns {
		a := working(fmt.Sprint(id, i), calls, -1)
		digest := "before"
		if i >= turns/2 {
			digest = "after"
		}
		if i == turns/2 {
			a = working(fmt.Sprint(id, i), calls, calls/2)
		}
		a.metadata = `{"system_prompt_digest":"` + digest + `","agenttrace":{"end_reason":"finish"}}`
		all = append(all, user(fmt.Sprintf("Question %d of %s", i+1, title)), a)
	}
	in := conversation(id, title, "", time.Now(), all...)
	for _, digest := range []string{"before", "after"} {
		in.Blobs = append(in.Blobs, store.Blob{Kind: store.BlobSystemPrompt, Digest: digest, Body: "Be careful " + digest,
			Exact: true})
	}
	return in
}

// TestTasks states how many clicks and keys each question takes from the page on which a reader has it.
func TestTasks(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), inTurns("ses_long", "A long session", 500, 1),
		inTurns("ses_busy", "Turns of many calls", 3, 134),
		conversation("ses_waiting", "Migrate the database", "waiting_on_approval", time.Now(), user("Migrate it."),
			message{"assistant", `{"agenttrace":{"incomplete":true}}`, []string{toolPart("call_w", "bash",
				"approval-requested", `{"command":"make migrate"}`, `"approval":{"id":"per_w"}`)}}))
	inView := func(id string) string {
		return "(r => r && r.top >= 0 && r.top < innerHeight)(document.getElementById(" + quoted(id) +
			")?.getBoundingClientRect())"
	}
	for _, task := range []struct {
		question, from string
		// steps are clicks on what a selector selects, or keys; a text that is typed is one.
		steps []string
		done  string
	}{
		{"what failed first in 500 turns", "/s/ses_long", []string{"key n"}, inView("p-prt_ses_long_00501_0")},
		{"what failed first in 400 calls", "/s/ses_busy", []string{"key n"}, inView("p-prt_ses_busy_00003_67")},
		{"what failed first, by mouse", "/s/ses_busy", []string{"click #totals a.errors"},
			inView("p-prt_ses_busy_00003_67")},
		{"how two sessions differ", "/sessions", []string{"click [value=ses_long]", "click [value=ses_busy]",
			"click .sum button"}, "location.pathname === '/diff/ses_busy/ses_long' && " +
			"document.body.innerText.includes('First divergence')"},
		{"where a text is", "/sessions", []string{"click [role=search] input", "type Question 333 of", "key " + kb.Enter,
			"click .hits a"}, inView("p-prt_ses_long_00664_0")},
		{"who waits for me", "/sessions", []string{"key g", "key n", "click .group a"},
			"location.pathname === '/s/ses_waiting' && document.body.innerText.includes('make migrate')"},
		{"which sessions failed", "/sessions", []string{"click .filter[href*='errors=1']"},
			"location.search.includes('errors=1') && document.querySelectorAll('.list .row').length === 2"},
		{"which session took most turns", "/sessions", []string{"click .list [href*='sort=turns']"},
			"document.querySelector('.list .row .what a').textContent.includes('A long session')"},
		{"what changed in the prompt", "/s/ses_long/t/251", []string{"click #turn-251 .ctx"},
			"[...document.querySelectorAll('.point details[open] pre')].some(p => p.innerText.includes('after'))"},
	} {
		b := newTab(t, s)
		b.open(task.from)
		for _, step := range task.steps {
			switch verb, what, _ := strings.Cut(step, " "); verb {
			case "click":
				b.wait("document.readyState === 'complete' && document.querySelector(" + quoted(what) + ")")
				b.click(what)
			case "key":
				b.press(what)
			case "type":
				b.do(chromedp.KeyEvent(what))
			}
		}
		b.wait(task.done)
		t.Logf("%s: %d steps", task.question, len(task.steps))
	}
}
