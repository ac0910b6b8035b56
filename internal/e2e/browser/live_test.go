package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// questions is a session of a number of finished turns.
func questions(id string, turns int, answers ...string) *store.Imported {
	var all []message
	for i := range turns {
		answer := fmt.Sprintf("Answer %d", i+1)
		if i < len(answers) {
			answer = answers[i]
		}
		all = append(all, user(fmt.Sprintf("Question %d", i+1)), assistant(reasoningPart("I think about it."),
			toolPart(fmt.Sprint("call_", id, i), "bash", "output-available", `{"command":"make test"}`,
				`"output":"ok"`),
			textPart(answer)))
	}
	now := time.Now()
	in := conversation(id, "Questions", "", now, all...)
	for i := range in.Messages { // begins at the same time, however many turns there are, and was updated now
		m := &in.Messages[i]
		at := int64(1_750_000_000_000) + int64(i)*1000
		m.Message.CreatedAt, m.Message.UpdatedAt = at, now.UnixMilli()
		for j := range m.Parts {
			m.Parts[j].CreatedAt, m.Parts[j].UpdatedAt = at, now.UnixMilli()
		}
	}
	return in
}

func TestAnOpenSessionGrows(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_grows", 8))
	b := newTab(t, s)
	b.open("/s/ses_grows")
	b.wait("document.querySelector('#turn-8')")
	eval[bool](b, "scrollTo(0, document.documentElement.scrollHeight), true")
	s.add(questions("ses_grows", 9))
	b.wait("document.querySelector('#turn-9')")
	b.wait("innerHeight + scrollY >= document.documentElement.scrollHeight - 40") // who reads the end goes on doing so
	b.wait("document.querySelector('.totals').innerText.includes('9 turns')")
	b.wait("document.querySelector('.outline a[href=\"#turn-9\"]')")

	eval[bool](b, "scrollTo(0, 0), true") // who reads the beginning is not moved
	s.add(questions("ses_grows", 10))
	b.wait("document.querySelector('#live button')?.innerText.includes('1 new')")
	if y := eval[float64](b, "scrollY"); y != 0 {
		t.Errorf("the page was scrolled to %v", y)
	}
	b.click("#live button")
	b.wait("innerHeight + scrollY >= document.documentElement.scrollHeight - 40")
	b.wait("!document.querySelector('#live button')")

	b.tolerate("404 (Not Found)")
	tag := store.Annotation{SessionID: "ses_grows", Kind: store.AnnotationTag, Name: "wanted", CreatedAt: 1, UpdatedAt: 1}
	tag.Identify()
	testscale.Must(t, s.store.SetTitle(t.Context(), "ses_grows", "Renamed", time.Now()))
	testscale.Must(t, s.store.Annotate(t.Context(), []store.Annotation{tag}))
	b.wait("document.title.startsWith('Renamed') && document.querySelector('h1').innerText === 'Renamed'")
	b.wait("document.querySelector('.session-head .chips').innerText.includes('wanted')")
	testscale.Must(t, s.store.Delete(t.Context(), "ses_grows"))
	b.wait("document.title + document.querySelector('#live').innerText === 'This session was deleted.'.repeat(2)")
}

func TestTextIsReadWhileItIsWritten(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_streams", 2))
	b := newTab(t, s)
	b.open("/s/ses_streams")
	s.add(questions("ses_streams", 2, "Answer 1", "Answer 2 goes"))
	b.text("Answer 2 goes")
	s.add(questions("ses_streams", 2, "Answer 1", "Answer 2 goes **on**"))
	b.wait("document.querySelector('#turn-2 .prose strong')?.innerText === 'on'")

	// A part that is unfolded stays so, and what has the focus is not replaced until it has left.
	b.click("#turn-2 .call summary")
	b.wait("document.querySelector('#turn-2 .call').open && document.activeElement.matches('#turn-2 .call summary')")
	s.add(questions("ses_streams", 3, "Answer 1", "Answer 2 ends"))
	b.wait("document.querySelector('#turn-3')")
	if !eval[bool](b, "document.activeElement.matches('#turn-2 .call summary') && "+
		"!document.querySelector('#turn-2').innerText.includes('ends')") {
		t.Error("what has the focus was replaced")
	}
	eval[bool](b, "document.activeElement.blur(), true")
	b.text("Answer 2 ends")
	if !eval[bool](b, "document.querySelector('#turn-2 .call').open") {
		t.Error("a part was folded by an update")
	}
}

// TestAnUpdateShowsWhatThePageDoes compares the turn that was replaced with that of the page when it is loaded.
func TestAnUpdateShowsWhatThePageDoes(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	for _, path := range []string{address(g.demo), address(g.demo, "t", 4)} {
		b := newTab(t, g.site)
		b.open(path)
		b.wait("stream && stream.readyState === EventSource.OPEN")
		doc := storetest.Transcript(t, g.store, g.demo)
		var last string
		for i := range doc.Messages {
			if m := &doc.Messages[i].Message; m.Role == "user" {
				last = m.ID
			}
		}
		now := time.Now().UnixMilli()
		tag := store.Annotation{SessionID: g.demo, MessageID: last, Kind: store.AnnotationTag, Name: "later",
			CreatedAt: now,
			UpdatedAt: now}
		if b.site.URL+path == b.site.URL+address(g.demo, "t", 4) {
			tag.Name = "latest"
		}
		tag.Identify()
		if err := g.store.Annotate(t.Context(), []store.Annotation{tag}); err != nil {
			t.Fatal(err)
		}
		b.wait("document.querySelector('#turn-4').innerText.includes(" + quoted(tag.Name) + ")")
		shown := eval[string](b, "document.querySelector('#turn-4').outerHTML")
		loaded := eval[string](b, "fetch(location.href).then(r => r.text()).then(t => "+
			"new DOMParser().parseFromString(t, 'text/html').querySelector('#turn-4').outerHTML)")
		if shown != loaded {
			t.Errorf("%s shows\n%s\nand when it is loaded\n%s", path, shown, loaded)
		}
	}
}

func TestAnOpenPageSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), questions("ses_restart", 2))
	b := newTab(t, s)
	for _, expected := range []string{"ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "ERR_SOCKET", "ERR_NETWORK"} {
		b.tolerate(expected)
	}
	b.open("/s/ses_restart")
	b.wait("stream && stream.readyState === EventSource.OPEN")
	s.restart(func() {
		s.add(questions("ses_restart", 3))
		b.text("Updates are paused since")
	})
	b.wait("document.querySelector('#turn-3')")
	b.wait("!document.querySelector('#live').innerText.includes('paused')")
}

func TestListsAreUpdatedWhileTheyAreOpen(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t))
	work := func(id, title, status string, more ...string) {
		s.Helper()
		s.add(conversation(id, title, status, time.Now(), user("Work."), message{"assistant",
			`{"agenttrace":{"incomplete":true}}`, append(more, textPart("I do."))}))
	}
	list, now := newTab(t, s), newTab(t, s)
	list.open("/sessions")
	list.text("No sessions yet")
	now.open("/now")
	now.text("All quiet")

	work("ses_a", "First", "busy")
	list.text("First")
	now.wait("document.querySelector('#now h2').innerText.includes('Busy')")
	work("ses_a", "First", "waiting_on_approval")
	list.wait(`document.querySelector('[aria-label="waiting on approval"]')`)
	now.wait("document.querySelector('#now h2').innerText.includes('Waiting')")
	work("ses_b", "Second", "busy", `{"type":"data-loop-warning","data":{"tool":"bash","count":3}}`)
	now.wait("[...document.querySelectorAll('#now h2')].some(h => h.innerText.includes('loop'))")

	// The row that keys chose has the focus, and is not replaced until it is left.
	list.text("Second")
	eval[bool](list, "document.querySelector('[value=ses_b]').checked = true")
	list.press("j")
	list.press("j")
	list.wait("document.querySelector('.row.at').innerText.includes('First')")
	work("ses_c", "Third", "busy")
	list.text("There is newer")
	if eval[bool](list, "document.querySelector('#list').innerText.includes('Third')") {
		t.Error("what has the focus was replaced")
	}
	list.press(kb.Escape)
	list.wait("document.querySelector('#list').innerText.includes('Third')")
	list.wait("document.querySelector('.row.at').innerText.includes('First')") // which is the third now
	list.press("k")
	list.wait("document.querySelector('.row.at').innerText.includes('Second')")
	list.wait("document.querySelector('[value=ses_b]').checked")
}
