// Package browser reads the pages of sessions in Chromium, as a person does: it looks, clicks and presses keys.
//
// It needs Chromium or Chrome, and npm for axe-core, which judges accessibility. All tests share one browser; each has
// tabs with cookies of their own. A test fails if a page logs an error, breaks its own Content-Security-Policy, throws,
// opens a dialog or asks another server for anything, whatever else the test is about.
//
// With AGENTTRACE_SCREENSHOTS=DIR the suite writes a picture of every page into DIR.
package browser

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/agenttrace/agenttrace/internal/e2e"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

//go:embed package.json package-lock.json
var project embed.FS

var (
	// browser is the context of the browser, of which those of the tabs are made.
	browser context.Context
	// axe is the source of axe-core.
	axe string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	p, err := e2e.InstallProject(context.Background(), project, dir)
	if err != nil {
		return failed(err)
	}
	source, err := os.ReadFile(filepath.Join(p.Dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		return failed(err)
	}
	axe = string(source)

	// A name that an attacker has lead to this machine.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("host-resolver-rules",
		"MAP evil.example 127.0.0.1"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which does not work for root
	}
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var cancel context.CancelFunc
	browser, cancel = chromedp.NewContext(allocated)
	defer cancel()
	if err := chromedp.Do(browser); err != nil {
		return failed(fmt.Errorf("start Chromium, which must be in PATH: %w", err))
	}
	return m.Run()
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// tab shows pages of a site. Its methods end the test if they fail.
type tab struct {
	testing.TB
	ctx  context.Context
	site *site

	mu sync.Mutex
	// complaints are what the browser reported. Those that contain one of tolerated do not count.
	complaints, tolerated []string
}

// newTab opens a tab, which may see the pages of the site.
func newTab(t testing.TB, s *site) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{TB: t, ctx: ctx, site: s}
	t.Cleanup(func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.complaints {
			t.Errorf("the browser reports: %s", c)
		}
	})
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	call(b, audits.Enable, cdp.Empty{})
	// A tab in the background would count as hidden, and get no updates.
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.size(1200, 800)
	if s.key != "" {
		b.open("/now?key=" + s.key)
		b.wait("location.search === ''")
	}
	return b
}

// tolerate has the browser's reports that contain a text not fail the test.
func (b *tab) tolerate(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tolerated = append(b.tolerated, text)
}

// listen collects what no page may cause.
func (b *tab) listen(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.complain("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		b.complain("exception: %s", exceptionText(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.complain("console.%s: %v", e.Type, e.Args)
	case *page.EventJavascriptDialogOpening:
		b.complain("a dialog opens: %s", e.Message)
		go func() { // an event must not wait for the browser
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	case *audits.EventIssueAdded:
		if details := e.Issue.Details; details != nil && details.ContentSecurityPolicyIssueDetails != nil {
			text, _ := json.Marshal(details.ContentSecurityPolicyIssueDetails)
			b.complain("the policy is broken: %s", text)
		}
	case *network.EventRequestWillBeSent:
		// The browser's own controls have pictures in data: addresses.
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme+"://"+u.Host != b.site.URL && u.Scheme != "about" && u.Scheme != "data" {
			b.complain("request to another server: %.200s", e.Request.URL)
		}
	}
}

func (b *tab) complain(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tolerated {
		if strings.Contains(text, t) {
			return
		}
	}
	b.complaints = append(b.complaints, text)
}

// do runs actions.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.fail("%v", err)
	}
}

// fail ends the test with what the tab shows.
func (b *tab) fail(format string, args ...any) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Second)
	defer cancel()
	shown, _ := chromedp.Run(ctx,
		chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText.slice(0, 3000)"))
	b.Fatalf("%s\nThe tab shows %s", fmt.Sprintf(format, args...), shown)
}

// get runs an action for its result.
func get[T any](b *tab, action chromedp.Action[T]) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.fail("%v", err)
	}
	return v
}

// call sends a command of the protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	r, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.Fatalf("%s: %v", command.Method, err)
	}
	return r
}

// open shows the page at a path.
func (b *tab) open(path string) {
	b.Helper()
	b.do(chromedp.Navigate(b.site.URL + path))
}

// eval returns the value of an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	return get(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// wait waits until an expression is true, in the page that is there by then.
func (b *tab) wait(expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		// While a page is being replaced there is nothing to evaluate in.
		if ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")")); err == nil && ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.fail("never true: %s", expression)
		}
	}
}

// text waits until the page shows a text.
func (b *tab) text(text string) {
	b.Helper()
	b.wait("document.body.innerText.includes(" + quoted(text) + ")")
}

// at waits until the address is a path, with the query if there is one, and its page is loaded.
func (b *tab) at(path string) {
	b.Helper()
	b.wait("document.readyState === 'complete' && location.pathname + location.search === " + quoted(path))
}

// click clicks on the first element that a selector selects.
func (b *tab) click(selector string) {
	b.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// press presses keys, one after the other, once the page is loaded: keys that come before its script do nothing.
func (b *tab) press(keys string) {
	b.Helper()
	b.wait("document.readyState === 'complete'")
	b.do(chromedp.KeyEvent(keys))
}

// fill enters a text in a field instead of what it has.
func (b *tab) fill(selector, text string) {
	b.Helper()
	b.do(chromedp.SetValue(chromedp.CSS(selector), text))
}

// size sets the size of the tab.
func (b *tab) size(width, height int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// scheme has the system prefer dark or light.
func (b *tab) scheme(name string) {
	b.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// withoutScript has pages run no script from the next one on.
func (b *tab) withoutScript() {
	b.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

func quoted(v any) string {
	b, _ := json.Marshal(v) // of texts
	return string(b)
}

// exceptionText is what was thrown, with the place of it.
func exceptionText(e *runtime.ExceptionDetails) string {
	text := e.Text
	if e.Exception != nil {
		text += " " + e.Exception.Description
	}
	return fmt.Sprintf("%s (%s:%d)", text, e.URL, e.LineNumber+1)
}
