package price_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
)

const (
	modelsDev = `{"openai":{"id":"openai","models":{"gpt-a":{"id":"gpt-a","cost":{"input":2,"output":4}}}}}`
	liteLLM   = `{"gpt-a":{"litellm_provider":"openai","input_cost_per_token":1.0,"output_cost_per_token":1.0},` +
		`"gpt-b":{"litellm_provider":"openai","input_cost_per_token":0.000001,"output_cost_per_token":0.000003}}`
)

// publisher serves lists, and counts the requests.
type publisher struct {
	*httptest.Server
	bodies map[string]string // by path
	asked  []*http.Request
}

func publish(t *testing.T) *publisher {
	t.Helper()
	p := &publisher{bodies: map[string]string{"/api.json": modelsDev, "/litellm.json": liteLLM}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked = append(p.asked, r)
		body, ok := p.bodies[r.URL.Path]
		if !ok {
			http.Error(w, "no such list", http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) sources() []price.Source {
	all := price.Sources()
	all[0].URL, all[1].URL = p.URL+"/api.json", p.URL+"/litellm.json"
	return all
}

func (p *publisher) update(t *testing.T, dir string, at time.Time) ([]price.List, error) {
	t.Helper()
	return price.Update(t.Context(), dir, price.UpdateOptions{
		Sources: p.sources(), UserAgent: "agenttrace/test", Now: func() time.Time { return at },
	})
}

var (
	monday  = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	tuesday = monday.AddDate(0, 0, 1)
)

func cost(t *testing.T, dir, model string) string {
	t.Helper()
	p, err := price.Open(dir)
	testscale.Must(t, err)
	if p == nil {
		return "no lists"
	}
	rate := p.Rate(session.Model{ProviderID: "openai", ModelID: model})
	if err := p.Err(); err != nil {
		return err.Error()
	}
	if rate == nil {
		return "no price"
	}
	return fmt.Sprintf("%.2f of %s", rate.Cost(session.Usage{Input: 1e6}, 1), p.Date().Format(time.DateOnly))
}

// TestUpdateKeepsBothLists: a price is of the first list that has one, and its date is that of the update.
func TestUpdateKeepsBothLists(t *testing.T) {
	p, dir := publish(t), filepath.Join(t.TempDir(), "agenttrace", "prices")
	if got := cost(t, dir, "gpt-a"); got != "no lists" {
		t.Errorf("before: %s", got)
	}
	lists, err := p.update(t, dir, monday)
	if err != nil || len(lists) != 2 || lists[0].Models != 1 || lists[1].Models != 2 {
		t.Fatalf("%+v, %v", lists, err)
	}
	for model, want := range map[string]string{
		"gpt-a": "2.00 of 2026-11-16", "gpt-b": "1.00 of 2026-11-16", "gpt-c": "no price",
	} {
		if got := cost(t, dir, model); got != want {
			t.Errorf("%s: %s, want %s", model, got, want)
		}
	}
	if got := p.asked[0].UserAgent(); got != "agenttrace/test" {
		t.Errorf("user agent %q", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

// TestUpdateThatFailsLeavesTheListsThatAreKept, and updates the other.
func TestUpdateThatFailsLeavesTheListsThatAreKept(t *testing.T) {
	for name, tt := range map[string]struct{ body, reason string }{
		"gone":       {"", "the server answers 404 Not Found"},
		"no list":    {"<html>busy</html>", "is not its list of prices: no JSON object"},
		"other list": {liteLLM, "it is a list of LiteLLM"},
		"no prices":  {`{"openai":{"models":{}}}`, "no model has a price"},
		"huge":       {strings.Repeat(" ", price.MaxBytes+1), "more than 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			p, dir := publish(t), t.TempDir()
			if _, err := p.update(t, dir, monday); err != nil {
				t.Fatal(err)
			}
			p.bodies["/api.json"], p.bodies["/litellm.json"] = tt.body, liteLLM+"\n"
			if tt.body == "" {
				delete(p.bodies, "/api.json")
			}
			lists, err := p.update(t, dir, tuesday)
			if err == nil || !strings.Contains(err.Error(), tt.reason) || !strings.Contains(err.Error(), "models.dev") {
				t.Errorf("error %v, want %q", err, tt.reason)
			}
			if len(lists) != 1 || lists[0].Name != price.LiteLLM {
				t.Errorf("updated %+v", lists)
			}
			if got := cost(t, dir, "gpt-a"); got != "2.00 of 2026-11-16" {
				t.Errorf("what is kept: %s", got)
			}
		})
	}
}

// TestUpdateOffline: without a network the error names what was tried, and the lists stay.
// A server that does not answer is not waited for forever.
func TestUpdateOffline(t *testing.T) {
	p, dir := publish(t), t.TempDir()
	if _, err := p.update(t, dir, monday); err != nil {
		t.Fatal(err)
	}
	sources := p.sources()
	p.Close()
	_, err := price.Update(t.Context(), dir, price.UpdateOptions{Sources: sources})
	if err == nil || !strings.Contains(err.Error(), "models.dev") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
	if got := cost(t, dir, "gpt-b"); got != "1.00 of 2026-11-16" {
		t.Error(got)
	}
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	defer close(release)
	sources[0].URL, sources[1].URL = slow.URL, slow.URL
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := price.Update(ctx, dir, price.UpdateOptions{Sources: sources}); err == nil {
		t.Error("no error of a server that does not answer")
	}
}

// TestUpdateThroughAProxy: the proxy that the environment names is asked.
func TestUpdateThroughAProxy(t *testing.T) {
	p := publish(t)
	proxy, err := url.Parse(p.URL)
	testscale.Must(t, err)
	sources := p.sources()
	sources[0].URL, sources[1].URL = "http://lists.invalid/api.json", "http://lists.invalid/litellm.json"
	lists, err := price.Update(t.Context(), t.TempDir(), price.UpdateOptions{
		Sources: sources, Client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}},
	})
	if err != nil || len(lists) != 2 || p.asked[0].Host != "lists.invalid" {
		t.Errorf("%+v, %v", lists, err)
	}
}

// TestImportOfFiles: on a machine without a network lists come from files, of whatever name,
// and are of the date of these.
func TestImportOfFiles(t *testing.T) {
	dir, files := filepath.Join(t.TempDir(), "prices"), t.TempDir()
	for name, body := range map[string]string{"a.json": liteLLM, "b.json": modelsDev} {
		path := filepath.Join(files, name)
		testscale.WriteFile(t, path, body)
		testscale.Must(t, os.Chtimes(path, monday, monday))
		if _, err := price.Import(dir, path); err != nil {
			t.Fatal(err)
		}
	}
	for model, want := range map[string]string{"gpt-a": "2.00 of 2026-11-16", "gpt-b": "1.00 of 2026-11-16"} {
		if got := cost(t, dir, model); got != want {
			t.Errorf("%s: %s, want %s", model, got, want)
		}
	}
	// The network has a newer one, which is fetched whole.
	p := publish(t)
	if lists, err := p.update(t, dir, tuesday); err != nil {
		t.Errorf("%+v, %v", lists, err)
	}
	if _, err := price.Import(dir, filepath.Join(files, "none.json")); err == nil {
		t.Error("a file that is not there gives no error")
	}
}

// TestDamagedLists: a list that cannot be read is an error, and no price of another.
func TestDamagedLists(t *testing.T) {
	p, dir := publish(t), t.TempDir()
	lists, err := p.update(t, dir, monday)
	testscale.Must(t, err)
	testscale.WriteFile(t, lists[0].Path, "{")
	if got := cost(t, dir, "gpt-a"); !strings.Contains(got, "read prices from "+lists[0].Path) {
		t.Error(got)
	}
	testscale.WriteFile(t, filepath.Join(dir, "lists.json"), "{")
	if _, err := price.Open(dir); err == nil {
		t.Error("no error of an index that is damaged")
	}
	if _, err := p.update(t, dir, tuesday); err != nil {
		t.Errorf("an update does not mend the index: %v", err)
	}
}
