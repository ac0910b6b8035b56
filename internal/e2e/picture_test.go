//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

var update = flag.Bool("update", false, "write the picture of the README, for which Jaeger must have its pages")

// sideBySide has the pages of a trace and a session.
const sideBySide = `<!doctype html><title>One run</title><style>
body { margin: 0; display: flex; gap: 1px; background: #888; }
iframe { border: 0; zoom: .9; width: calc(760px / .9); height: calc(100vh / .9); background: #fff; }
iframe + iframe { width: calc(600px / .9); }
</style><iframe src="%s"></iframe><iframe src="%s"></iframe>`

// takePicture has Chromium show a run: its trace in Jaeger, and beside it the page of its session, as b sees it. With
// -update this is the picture of the README. A Jaeger that is built of its module has no pages; AGENTTRACE_JAEGER names
// a released binary, which has them.
func (c *composed) takePicture(t *testing.T, ctx context.Context, j jaeger, b *browser, trace, sessionID string) {
	t.Helper()
	pages := &url.URL{Scheme: "http", Host: c.address("collector:4320")}
	mux := http.NewServeMux()
	mux.Handle("/", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(pages)
			for _, cookie := range b.client.Jar.Cookies(pages) {
				r.Out.AddCookie(cookie)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			// The page may be in a frame, and does not wait for what may happen next.
			r.Header.Set("Content-Security-Policy", "script-src 'none'")
			r.Header.Del("X-Frame-Options")
			return nil
		},
	})
	mux.HandleFunc("/both", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, sideBySide, j.query+"/trace/"+trace, "/s/"+sessionID+"#turn-2")
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	chromium, err := exec.LookPath("chromium")
	if err != nil {
		chromium = "google-chrome"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	file := filepath.Join(c.dir, "picture.png")
	out, err := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir="+filepath.Join(c.dir, "chromium"),
		"--window-size=1361,720", "--force-device-scale-factor=1.2", "--virtual-time-budget=10000",
		"--screenshot="+file, server.URL+"/both").CombinedOutput()
	if err != nil {
		t.Fatalf("%s, which must be installed: %v\n%s", chromium, err, out)
	}
	picture := testscale.ReadFile(t, file)
	if config, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || config.Width < 1600 {
		t.Errorf("the picture is %+v, %v", config, err)
	}
	if !*update {
		return
	}
	page, err := get(ctx, j.query+"/trace/"+trace)
	if err != nil || bytes.Contains(page, []byte("placeholder")) {
		t.Fatalf("this Jaeger has no pages: set AGENTTRACE_JAEGER to a released binary (%v)", err)
	}
	testscale.Must(t, os.WriteFile(filepath.Join(root, "docs/images/trace-and-session.png"), picture, 0o644))
}
