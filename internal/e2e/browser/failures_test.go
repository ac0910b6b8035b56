package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// troubled is a session of 45 turns, which is three pages. In turn 2 a compaction, two calls that failed and one that
// was denied come together, and turn 30 ended in an error after its calls.
func troubled() []message {
	failing := func(id string) string {
		return toolPart(id, "bash", "output-error", `{"command":"false"}`, `"errorText":"exit 1"`)
	}
	long := textPart(strings.Repeat("A long answer.\n\n", 60))
	var all []message
	for i := 1; i <= 45; i++ {
		answer := assistant(textPart(fmt.Sprintf("Answer %d", i)))
		switch i {
		case 2:
			answer = assistant(long, failing("call_a"), long, failing("call_b"), long,
				toolPart("call_c", "bash", "output-error", `{"command":"rm"}`,
					`"errorText":"denied","toolMetadata":{"agenttrace":{"denied":true}}`), long)
		case 30:
			answer = assistant(long, toolPart("call_d", "bash", "output-available", `{"command":"true"}`, `"output":"ok"`))
			answer.metadata = `{"agenttrace":{"end_reason":"error","error":"the model is overloaded"}}`
		}
		all = append(all, user(fmt.Sprintf("Question %d", i)), answer)
		if i == 2 {
			all = append(all, message{"assistant", `{"compaction":true}`, []string{
				`{"type":"data-compaction","data":{"summary":"So far.","tail_start_id":null,"auto":true}}`}})
		}
	}
	return all
}

// TestAKeyLeadsToEachFailureInOrder: e shows each call or answer that failed or was denied, also the second one of a
// turn, and E leads back.
func TestAKeyLeadsToEachFailureInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), conversation("ses_a", "Troubled", "", time.Now(), troubled()...))
	places := []string{"/t/2#p-prt_ses_a_00003_1", "/t/2#p-prt_ses_a_00003_3", "/t/2#p-prt_ses_a_00003_5",
		"/t/30#e-msg_ses_a_00060-0"}
	for _, width := range []int64{1280, 390} {
		b := newTab(t, s)
		b.size(width, 800)
		seen := func(place string) {
			t.Helper()
			_, id, _ := strings.Cut(place, "#")
			b.wait("document.readyState === 'complete' && location.pathname + location.hash === " +
				quoted("/s/ses_a"+place))
			b.wait("(r => r.top >= 0 && r.top < innerHeight - 20)(document.getElementById(" + quoted(id) +
				").getBoundingClientRect())")
		}
		b.open("/s/ses_a")
		b.text("3 failed, 1 denied")
		b.click("#totals a.errors")
		seen(places[0])
		for _, place := range append(places[1:], places[0]) {
			b.press("e")
			seen(place)
		}
		b.press("E")
		seen(places[3])
		b.press("E")
		seen(places[2])
		b.press("a") // it is the only denied call
		seen(places[2])
		b.open("/s/ses_a?at=1")
		b.press("j")
		b.press("j")
		b.press("e") // from the head of turn 2, of which nothing is skipped
		seen(places[0])
		b.click("#" + strings.Split(places[0], "#")[1] + " .links a:nth-of-type(3)")
		seen(places[1])
	}
}

// TestATurnShowsAllItsMarks: a compaction hides neither failures nor denials of its turn.
func TestATurnShowsAllItsMarks(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), conversation("ses_a", "Troubled", "", time.Now(), troubled()...))
	b := newTab(t, s)
	b.open("/s/ses_a?at=1")
	marks := "[...document.querySelectorAll('#outline li[data-turn=\"%d\"] > .line .outcome')].map(e => e.textContent).join()"
	for n, want := range map[int]string{2: "failed,denied,compaction", 30: "error", 1: ""} {
		if got := eval[string](b, fmt.Sprintf(marks, n)); got != want {
			t.Errorf("turn %d has the marks %q, want %q", n, got, want)
		}
	}
}

// TestALongSessionBeginsWithItsTitleOnAPhone: the outline of 5,000 turns is folded there, and beside the session on a
// wide screen.
func TestALongSessionBeginsWithItsTitleOnAPhone(t *testing.T) {
	t.Parallel()
	var all []message
	for i := range 5000 {
		all = append(all, user(fmt.Sprintf("Question %d", i)), assistant(textPart("Answer")))
	}
	s := newSite(t, emptyStore(t), conversation("ses_long", "Long", "", time.Now(), all...))
	b := newTab(t, s)
	top := "document.querySelector('.session-head h1').getBoundingClientRect().top + scrollY"
	b.size(390, 844)
	b.open("/s/ses_long")
	b.wait("!document.querySelector('#outline').open")
	if got := eval[float64](b, top); got > 300 {
		t.Errorf("the title is %.0f px down", got)
	}
	b.click("#outline > summary")
	b.wait("document.querySelector('#outline').open")
	if got := eval[float64](b, top); got > 844 {
		t.Errorf("with the outline open, the title is %.0f px down", got)
	}
	b.size(1280, 800)
	b.open("/s/ses_long")
	b.wait("document.querySelector('#outline').open")
	if got := eval[float64](b, top); got > 300 {
		t.Errorf("on a wide screen, the title is %.0f px down", got)
	}
}

// TestNothingIsNewerInAStoreThatNobodyWrites: what a reader has unfolded, marked and selected is no news when the server
// sends again what the page has.
func TestNothingIsNewerInAStoreThatNobodyWrites(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), conversation("ses_a", "Eventful", "", time.Now().Add(-time.Hour), eventful()...))
	b := newTab(t, s)
	for _, path := range []string{"/s/ses_a", "/s/ses_a/t/12", "/sessions"} {
		b.open(path)
		for range 12 {
			b.press("j")
		}
		b.press("x")
		eval[bool](b, "document.querySelectorAll('details').forEach(d => { d.open = !d.open; }), true")
		eval[bool](b, "close(), open(), stream.addEventListener('change', () => { window.sent = true; }), true")
		b.wait("window.sent && !reading")
		eval[bool](b, "getSelection().selectAllChildren(document.querySelector('.row.at')), true")
		eval[bool](b, "window.sent = false, close(), open(), "+
			"stream.addEventListener('change', () => { window.sent = true; }), true")
		b.wait("window.sent && !reading")
		if got := eval[string](b, "document.querySelector('#live').textContent"); got != "" {
			t.Errorf("%s: the page says %q", path, got)
		}
	}
}

// TestTheContextNamesTheRulesThatDecided, also those that are the agent's and not the session's.
func TestTheContextNamesTheRulesThatDecided(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	b := newTab(t, g.site)
	b.open(address(g.demo, "t", 1, "context"))
	b.text("3. Permission rules")
	rules := eval[string](b, "document.querySelectorAll('.point')[2].innerText")
	decisions := eval[float64](b, "document.querySelectorAll('.point')[3].querySelectorAll('li').length")
	if decisions == 0 || strings.Contains(rules, "no rule") || !strings.Contains(rules, "allow") {
		t.Errorf("beside %.0f decisions: %s", decisions, rules)
	}
}
