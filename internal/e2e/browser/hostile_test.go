package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestHostileTextsDoNothing has every text of a session, and what names it, try to be something else than text. That
// the browser reports nothing is checked for every tab.
func TestHostileTextsDoNothing(t *testing.T) {
	t.Parallel()
	attacks := append([]string{
		`<svg onload="alert(1)">`, `<img src="http://evil.test/x.png">`,
		`<link rel=stylesheet href=http://evil.test/x.css>`, `<form action=http://evil.test><button autofocus>`,
		`<base href=http://evil.test/>`, `<meta http-equiv=refresh content=0>`,
		"\u202egnp.exe\u2066\u2069\u200b", "\x1b[31mred\x1b]8;;http://evil.test\x07link\x1b]8;;\x07\x1b[2J\x9b31m",
		"\xff\xfe\xc3\x28",
		"<style>*{display:none}</style>", `" onmouseover="alert(1)`, `' onfocus='alert(1)' autofocus='`,
	}, codectest.Hostile...)
	all := strings.Join(attacks, "\n\n")
	line := strings.Repeat("x", 1<<20)
	turn := []message{}
	for i, a := range append(attacks, all, line) {
		a = strings.ToValidUTF8(a, "\ufffd") // as what a program decoded from JSON is
		id, input := fmt.Sprint("call_", i), quoted(map[string]string{"command": a, a: "x"})
		turn = append(turn, user(a), message{"assistant",
			`{"agenttrace":{"end_reason":"error","error":` + quoted(a) + `,"model_errors":[` + quoted(a) + `]}}`,
			[]string{
				reasoningPart(a), textPart(a), toolPart(id, "bash", "output-available", input, `"output":`+quoted(a)),
				toolPart(id+"e", "edit", "output-error", input, `"errorText":`+quoted(a)),
				`{"type":"file","mediaType":"text/html","url":"data:text/html;base64,PHNjcmlwdD4=","filename":` +
					quoted(a) + `}`,
				`{"type":"source-url","sourceId":"1","url":` + quoted(a) + `,"title":` + quoted(a) + `}`}})
	}
	id := `ses_<script>alert(1)</script>"'/..%2f`
	in := conversation(id, "T", "error", time.Now(), turn...)
	title := "T " + strings.ToValidUTF8(all, "\ufffd")
	in.Session.Title, in.Session.Agent, in.Session.WorkspaceRoot = title, title, &title
	s := newSite(t, emptyStore(t), in)
	now := time.Now().UnixMilli()
	var notes []store.Annotation
	for _, kind := range []store.AnnotationKind{store.AnnotationTag, store.AnnotationNote} {
		n := store.Annotation{SessionID: id, Kind: kind, CreatedAt: now, UpdatedAt: now, Author: attacks[0]}
		if kind == store.AnnotationTag {
			n.Name = strings.ToValidUTF8(attacks[1]+attacks[10], "")
		} else {
			n.Comment = strings.ReplaceAll(strings.ToValidUTF8(all, "\ufffd"), "\x00", "") // which annotations refuse
		}
		n.Identify()
		notes = append(notes, n)
	}
	if err := s.store.Annotate(t.Context(), notes); err != nil {
		t.Fatal(err)
	}
	part := func(i, j int) []any { return []any{"p", in.Messages[i].Message.ID, in.Messages[i].Parts[j].ID} }
	paths := []string{"/sessions", "/sessions?q=alert", "/sessions?agent=%3Cscript%3Ealert(1)%3C/script%3E",
		"/sessions?q=%22%3E%3Cimg+src=x%3E", "/now", "/stats?by=agent", "/stats?by=project", "/experiments",
		"/diff" + strings.Repeat(strings.TrimPrefix(address(id), "/s"), 2)}
	for _, more := range [][]any{{}, {"t", 1}, {"t", 1, "context"}, {"t", len(turn) / 2}, {"tree"}, {"share"},
		part(1, 0),
		part(1, 2), part(len(turn)-3, 1), part(len(turn)-3, 2), part(len(turn)-1, 1)} {
		paths = append(paths, address(id, more...))
	}
	for at := 1; at < len(turn)/2; at += 30 {
		paths = append(paths, fmt.Sprint(address(id), "?at=", at))
	}
	b := newTab(t, s)
	for _, path := range paths {
		b.open(path)
		eval[bool](b, "document.querySelectorAll('details').forEach(d => { d.open = true; }), true")
		bad := eval[[]string](b, `[...document.querySelectorAll('*')].flatMap(e => {
			const own = e.matches('script[src^="/assets/"],link[href^="/assets/"],meta[charset],meta[name],title');
			const bad = [...e.attributes].filter(a => a.name.startsWith('on') || a.name === 'style' ||
				['src', 'action', 'formaction', 'xlink:href'].includes(a.name) && !a.value.startsWith('/') ||
				a.name === 'href' && !/^(\/|#|https?:|mailto:|\?)/i.test(a.value));
			const elements = ['SCRIPT', 'STYLE', 'LINK', 'IFRAME', 'OBJECT', 'EMBED', 'BASE', 'META', 'TITLE'];
			if (!own && elements.includes(e.tagName)) return [e.tagName];
			return bad.map(a => e.tagName + ' ' + a.name + '=' + a.value);
		})`)
		if len(bad) > 0 {
			t.Errorf("%s has %q", path, bad)
		}
		text := eval[string](b, "document.documentElement.textContent")
		if strings.ContainsAny(text, "\x1b\x07\u202e\u2066\u200b") {
			t.Errorf("%s shows what controls a terminal or the direction of text", path)
		}
		if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > 1200 {
			t.Errorf("%s is %d px wide", path, wide)
		}
	}

	// Arabic is read from the right, and what ends a sentence is at its left, whatever is between.
	s.add(conversation("ses_rtl", "مرحبا main.go؟", "", time.Now(), user("مرحبا main.go؟"),
		assistant(textPart("مرحبا main.go؟\n\n- مرحبا"))))
	b.open(address("ses_rtl"))
	if wrong := eval[[]string](b, `[...document.querySelectorAll('h1 a, .text, .rich p')].filter(e => {
		const text = document.createTreeWalker(e, NodeFilter.SHOW_TEXT).nextNode(), left = i => {
			const r = new Range(); r.setStart(text, i); r.setEnd(text, i + 1); return r.getBoundingClientRect().left; };
		return !text || left(text.data.indexOf('؟')) > left(text.data.indexOf('m'));
	}).map(e => e.outerHTML)`); len(wrong) > 0 {
		t.Errorf("in the order of English are %q", wrong)
	}
	if eval[string](b, "getComputedStyle(document.querySelector('.rich ul')).direction") != "rtl" {
		t.Error("the marks of a list are at its end")
	}

	// A shared file is judged by itself, with the policy that is in it.
	b.tolerate("net::ERR_ABORTED")
	page := eval[string](b, "fetch("+quoted(address(id, "share", "session.html"))+").then(r => r.text())")
	if strings.Contains(page, "<script") || !strings.Contains(page, "Content-Security-Policy") {
		t.Error("the shared file has a script, or no policy")
	}
}
