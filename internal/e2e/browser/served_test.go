package browser

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// program builds agenttrace, once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agenttrace")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "agenttrace")
	build := exec.Command("go", "build", "-o", path, "./cmd/agenttrace")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build agenttrace: %w\n%s", err, out)
	}
	return path, nil
})

// run starts agenttrace until the test ends, and returns the first line that it writes to standard output, or to
// standard error.
func (s *site) run(toStderr bool, env []string, args ...string) (line string) {
	s.Helper()
	path, err := program()
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(append(os.Environ(), "XDG_STATE_HOME="+s.TempDir()), env...)
	pipe := cmd.StdoutPipe
	if toStderr {
		pipe = cmd.StderrPipe
	}
	out, err := pipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	var reading sync.WaitGroup
	s.Cleanup(func() {
		cancel()
		reading.Wait()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	line, err = lines.ReadString('\n')
	if err != nil {
		s.Fatalf("agenttrace %q ended: %v", args, err)
	}
	reading.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	return strings.TrimSpace(line)
}

// view starts "agenttrace view" and returns the path of the address that it prints. Without that, the pages explain how
// they are opened.
func (s *site) view(env ...string) string {
	address := s.run(false, env, "view", "--no-open", "--port", "0")
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		s.Fatalf("agenttrace view prints %q", address)
	}
	s.URL = u.Scheme + "://" + u.Host
	b := newTab(s.TB, s)
	b.tolerate("401 (Unauthorized)")
	b.open("/sessions")
	b.text("agenttrace view")
	if eval[bool](b, "document.body.innerText.includes('Questions')") {
		s.Error("sessions are shown without a key")
	}
	b.fill("[name=token]", u.Query().Get("key"))
	b.click("button")
	b.at("/sessions")
	b.text("Questions")
	return strings.TrimPrefix(address, s.URL)
}

// servers are the programs that serve pages as their users start them. Each returns the path that a browser opens.
var servers = map[string]func(*site, string) (path string){
	"view": func(s *site, store string) string { return s.view("AGENTTRACE_STORE=" + store) },
	"collect": func(s *site, store string) string {
		env := []string{"AGENTTRACE_STORE=" + store, "AGENTTRACE_GRPC_ENDPOINT=" + testscale.MustAddress(),
			"AGENTTRACE_HTTP_ENDPOINT=" + testscale.MustAddress(), "AGENTTRACE_VIEW_ENDPOINT=" + testscale.MustAddress()}
		s.run(true, env, "collect")
		return s.view(env...)
	},
	"compose": func(s *site, store string) string { // and a user who has signed in
		address := testscale.MustAddress()
		s.URL = "http://" + address
		env := []string{"AGENTTRACE_STORE=" + store, "AGENTTRACE_JSONL=" + s.TempDir(),
			"AGENTTRACE_QUEUE=" + s.TempDir(),
			"AGENTTRACE_GRPC_ENDPOINT=" + testscale.MustAddress(), "AGENTTRACE_HTTP_ENDPOINT=" + testscale.MustAddress(),
			"AGENTTRACE_HEALTH_ENDPOINT=" + testscale.MustAddress(), "AGENTTRACE_VIEW_ENDPOINT=" + address,
			"AGENTTRACE_LOG_LEVEL=info"}
		s.run(true, env, "collect", "--config", "../../../deploy/collector.yaml")
		for answered := false; !answered; {
			if s.Context().Err() != nil {
				s.Fatal(s.Context().Err())
			}
			answer, err := http.Get(s.URL + "/sign-in")
			if answered = err == nil; answered {
				answer.Body.Close()
			}
		}
		b := newTab(s.TB, s)
		b.open("/sessions")
		b.tolerate("401 (Unauthorized)")
		b.fill("[name=token]", "wrong")
		b.click("button")
		b.text("does not accept this token")
		b.fill("[name=token]", "agenttrace")
		b.click("button")
		b.at("/sessions")
		b.text("Questions")
		b.click(".out button")
		b.text("Token of the collector")
		return "/sessions"
	},
}

// A session is renamed, tagged and archived in a browser, of which the pages come from the program as its users start
// it. Pages of other sites can do none of that.
func TestFormsWorkAsServed(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := emptyStore(t)
			st, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err == nil {
				_, err = st.Import(t.Context(), questions("ses_a", 2))
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			s := &site{TB: t}
			to := start(s, path)
			b := newTab(t, s)
			b.open(to)
			if name == "compose" {
				b.fill("[name=token]", "agenttrace")
				b.click("button")
			}
			b.at("/sessions")
			b.text("Questions")

			b.open("/s/ses_a")
			b.click(".act summary")
			b.fill(".act [name=text]", "A better title")
			b.click(".act button")
			b.wait("document.querySelector('h1').innerText === 'A better title'")
			b.click(".act summary")
			b.fill(".act form:nth-of-type(2) [name=text]", "good")
			b.click(".act form:nth-of-type(2) button")
			b.wait("document.querySelector('.chips').innerText.includes('good')")
			b.click(".act summary")
			b.click(".act [value=archive]")
			b.wait("document.querySelector('.act [value=unarchive]')")
			b.click(".theme button")
			b.wait("document.documentElement.className === 'dark'") // the address is the same before and after
			b.at("/s/ses_a")

			linked(b)
			attacked(b)
			b.open("/s/ses_a")
			b.wait("document.querySelector('h1').innerText === 'A better title'")
		})
	}
}

// linked follows a link from another site to a page, which the browser opens without being asked for anything.
func linked(b *tab) {
	b.Helper()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<a href='%s/s/ses_a?at=1'>session</a>", b.site.URL)
	}))
	b.Cleanup(other.Close)
	b.tolerate("request to another server")
	b.tolerate("favicon")
	b.tolerate("401 (Unauthorized)")
	_, port, _ := strings.Cut(other.Listener.Addr().String(), ":")
	b.do(chromedp.Navigate("http://evil.example:" + port))
	b.click("a")
	b.wait("document.querySelector('h1')?.innerText === 'A better title'")
}

// attacked has pages of another site, which the user of the tab opens, change a session: by a form, by one in a frame
// without an origin, and by the name of its own server, which leads to this machine.
func attacked(b *tab) {
	b.Helper()
	form := `<form method="post" action="` + b.site.URL + `/s/ses_a"><input name="do" value="title">` +
		`<input name="text" value="evil"></form>`
	const submit = "<script>onload = () => setTimeout(() => document.forms[0].submit())</script>"
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/form":
			fmt.Fprint(w, form, submit)
		case "/frame":
			fmt.Fprintf(w, "<script>loaded = 0</script><iframe onload='loaded++' sandbox='allow-forms allow-scripts' "+
				"srcdoc='%s'></iframe>", form+submit)
		}
	}))
	b.Cleanup(evil.Close)
	_, port, _ := strings.Cut(evil.Listener.Addr().String(), ":")
	for _, expected := range []string{"request to another server", "403", "violates", "sandbox", "favicon", "refused to"} {
		b.tolerate(expected)
	}
	b.do(chromedp.Navigate("http://evil.example:" + port + "/form"))
	b.text("cross-origin request")
	b.do(chromedp.Navigate("http://evil.example:" + port + "/frame"))
	b.wait("loaded >= 2")
	_, port, _ = strings.Cut(strings.TrimPrefix(b.site.URL, "http://"), ":")
	b.do(chromedp.Navigate("http://evil.example:" + port + "/s/ses_a"))
	b.text("not allowed")
}

// The file that "agenttrace view" has a browser open leads to the pages, and nobody else reads it. The arguments of the
// browser, which others see, have no key.
func TestViewOpensABrowser(t *testing.T) {
	t.Parallel()
	bin, given, state := t.TempDir(), filepath.Join(t.TempDir(), "given"), t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >" + given + ".new && mv " + given + ".new " + given
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	path := emptyStore(t)
	st, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err == nil {
		_, err = st.Import(t.Context(), questions("ses_a", 2))
	}
	if err != nil || st.Close() != nil {
		t.Fatal(err)
	}
	s := &site{TB: t}
	address, err := url.Parse(s.run(false, []string{"AGENTTRACE_STORE=" + path, "XDG_STATE_HOME=" + state,
		"PATH=" + bin + ":" + os.Getenv("PATH")}, "view", "--port", "0", "ses_a"))
	if err != nil {
		t.Fatal(err)
	}
	s.URL = "http://" + address.Host
	var argument []byte
	for argument == nil && t.Context().Err() == nil {
		argument, _ = os.ReadFile(given)
	}
	u, err := url.Parse(strings.TrimSpace(string(argument)))
	if err != nil || u.Scheme != "file" || strings.Contains(string(argument), address.Query().Get("key")) {
		t.Fatalf("the browser is given %s, %v", argument, err)
	}
	if info, err := os.Stat(u.Path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	b := newTab(t, s)
	b.tolerate("request to another server: file:")
	b.tolerate("401 (Unauthorized)")
	b.do(chromedp.Navigate(u.String()))
	b.wait("location.pathname === '/s/ses_a' && !location.search.includes('key') && " +
		"document.querySelector('h1')?.innerText === 'Questions'")
}
