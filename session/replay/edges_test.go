package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
)

// keptOf is all that is kept and shown of an answer.
func keptOf(t *testing.T, b *Bundle, c *Client, a *Answer) string {
	t.Helper()
	changes, err := a.Changes(b, c, "ses_fork")
	testscale.Must(t, err)
	raw, err := json.Marshal([]any{changes.Sessions, changes.Messages, changes.Parts})
	testscale.Must(t, err)
	for _, p := range changes.Parts {
		raw = append(raw, p.Data...)
	}
	for _, m := range changes.Messages {
		raw = append(raw, m.Metadata...)
	}
	text := string(raw)
	if a.Err != nil {
		text += a.Err.Error()
	}
	return text + strings.Join(a.Open, " ")
}

// A server that repeats the key it was sent, in whatever notation, has it neither printed
// nor stored: its value is known, though its shape is not.
func TestEchoedKeyIsNeitherPrintedNorStored(t *testing.T) {
	const key = `unknown shape/of+a"key&<1>`
	jsonForm := quote(key)
	var unicode strings.Builder
	for _, c := range key {
		fmt.Fprintf(&unicode, `\u%04x`, c)
	}
	forms := map[string]string{
		"as it is": key, "URL": url.QueryEscape(key), "path": url.PathEscape(key),
		"JSON in text": jsonForm,
	}
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	leaked := func(text string) bool {
		for _, form := range forms {
			if strings.Contains(text, form) || strings.Contains(text, strings.Trim(quote(form), `"`)) {
				return true
			}
		}
		return strings.Contains(text, unicode.String()) || strings.Contains(text, strings.Trim(jsonForm, `"`))
	}
	for _, w := range wires {
		for name, form := range forms {
			t.Run(w.format+"/"+name, func(t *testing.T) {
				b := bundleOf(t, asked)
				s := serve(t, w.reply("you sent "+form+".", call{"id-" + form, `{"cmd":` + quote(form) + `}`}))
				c := s.client(w.format)
				c.Key, c.Redactor = key, r
				a, err := b.Run(t.Context(), c)
				testscale.Must(t, err)
				if text := keptOf(t, b, c, a); leaked(text) {
					t.Errorf("stored %s", text)
				}
				for _, status := range []int{401, 500} {
					for _, body := range []string{`{"error":{"message":` + quote("no such key: "+form) + `}}`,
						"bad key " + form,
						`{"error":` + quote(form) + `}`} {
						s = serve(t, body)
						s.status = []int{status}
						c := s.client(w.format)
						c.Key = key
						if _, err := b.Run(t.Context(), c); err == nil || leaked(err.Error()) {
							t.Errorf("error %v", err)
						}
					}
				}
			})
		}
	}
	b := bundleOf(t, asked)
	w := wires[0]
	for name, change := range map[string]func(c *Client){
		"header":    func(c *Client) { c.Key = ""; c.Header = http.Header{"Api-Key": {key}} },
		"bearer":    func(c *Client) { c.Key = ""; c.Header = http.Header{"Authorization": {"Bearer " + key}} },
		"parameter": func(c *Client) { c.Key = ""; c.Endpoint += "?key=" + url.QueryEscape(key) },
		"user": func(c *Client) {
			c.Key = ""
			c.Endpoint = strings.Replace(c.Endpoint, "://", "://me:"+url.PathEscape(key)+"@", 1)
		},
		"path": func(c *Client) { c.Endpoint += "/" + url.PathEscape(key) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, w.reply("you sent "+key))
			c := s.client(w.format)
			c.Key = key
			change(c)
			a, err := b.Run(t.Context(), c)
			testscale.Must(t, err)
			if text := keptOf(t, b, c, a); leaked(text) || !strings.Contains(text, keyMarker) {
				t.Errorf("stored %s", text)
			}
		})
	}
	// In escapes that JSON does not need, and in pieces.
	s := serve(t, `{"choices":[{"finish_reason":"stop","message":{"content":"you sent `+unicode.String()+`."}}]}`)
	c := s.client("openai-chat")
	c.Key = key
	a, err := b.Run(t.Context(), c)
	if err != nil || leaked(keptOf(t, b, c, a)) {
		t.Errorf("escaped: %v, %v", a, err)
	}
	s = serve(t, `data: {"type":"text-start","id":"t"}`+"\n\n"+
		`data: {"type":"text-delta","id":"t","delta":`+quote("it is "+key[:9])+"}\n\n"+
		`data: {"type":"text-delta","id":"t","delta":`+quote(key[9:])+"}\n\ndata: [DONE]\n")
	c = s.client("ai-sdk")
	c.Key = key
	if a, err = b.Run(t.Context(), c); err != nil || leaked(keptOf(t, b, c, a)) {
		t.Errorf("in pieces: %v, %v", a, err)
	}
	// Where the server leads elsewhere.
	redirect := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://other.example/"+url.PathEscape(key)+"?k="+url.QueryEscape(key),
			http.StatusTemporaryRedirect)
	}))
	defer redirect.Close()
	c = &Client{Format: FormatOf("openai-chat"), Endpoint: redirect.URL, Key: key}
	if _, err := b.Run(t.Context(), c); err == nil || leaked(err.Error()) || !strings.Contains(err.Error(),
		"other.example") {
		t.Errorf("redirect: %v", err)
	}
	// A short key goes as a word; others that hold its letters stay.
	s = serve(t, w.reply("hunter2 is not hunter22 (hunter2)"))
	c = s.client(w.format)
	c.Key = "hunter2"
	if a, err = b.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if text := keptOf(t, b, c, a); !strings.Contains(text, keyMarker+" is not hunter22 ("+keyMarker+")") {
		t.Errorf("stored %s", text)
	}
}

// A server that cannot take the request now is asked again, when and as often as it makes sense.
func TestBusyServerIsAskedAgain(t *testing.T) {
	b, w, all := bundleOf(t, asked), wires[0], t
	for _, c := range []struct {
		name     string
		status   int
		header   func() http.Header
		body     string
		failures int
		requests int
		atLeast  time.Duration
		want     string // of the error
	}{
		{"rate limit", 429, func() http.Header { return http.Header{"Retry-After": {"0"}} }, "", 3, 4, 0, ""},
		{"seconds", 503, func() http.Header { return http.Header{"Retry-After": {"1"}} }, "", 1, 2, time.Second, ""},
		{"date", 503, func() http.Header {
			return http.Header{"Retry-After": {time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat)}}
		}, "", 1, 2, 500 * time.Millisecond, ""},
		{"date that is over", 502, func() http.Header {
			return http.Header{"Retry-After": {time.Unix(0, 0).UTC().Format(http.TimeFormat)}}
		}, "", 1, 2, 0, ""},
		{"milliseconds", 529, func() http.Header { return http.Header{"Retry-After-Ms": {"10"}} }, "", 1, 2, 0, ""},
		{"no header", 500, func() http.Header { return nil }, "", 1, 2, 0, ""},
		{"for ever", 500, func() http.Header { return http.Header{"Retry-After": {"0"}} }, "broken", 100, 5, 0,
			"500 Internal Server Error: broken"},
		{"longer than anybody waits", 429, func() http.Header {
			return http.Header{"Retry-After": {"3600"}}
		}, "slow down",
			100, 1, 0, "slow down; the server asks to wait 1h0m0s"},
		{"a mistake", 400, func() http.Header { return nil }, "wrong", 100, 1, 0, "400 Bad Request: wrong"},
		{"no key", 401, func() http.Header { return nil }, "key", 100, 1, 0, "401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := 0
			var bodies []string
			s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				bodies = append(bodies, string(body))
				if n++; n <= c.failures {
					for name, v := range c.header() {
						rw.Header()[name] = v
					}
					rw.WriteHeader(c.status)
					_, _ = io.WriteString(rw, c.body)
					return
				}
				_, _ = io.WriteString(rw, w.reply("here"))
			}))
			all.Cleanup(s.Close) // it closes idle connections of the others, too
			begin := time.Now()
			_, err := b.Run(t.Context(), &Client{Format: FormatOf(w.format), Endpoint: s.URL})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if n != c.requests || time.Since(begin) < c.atLeast {
				t.Errorf("%d requests in %s", n, time.Since(begin))
			}
			for _, body := range bodies {
				if body != bodies[0] || !json.Valid([]byte(body)) {
					t.Errorf("body %q", body)
				}
			}
		})
	}
}

// A connection that is reset is one that the server cannot take now.
func TestResetConnectionIsTriedAgain(t *testing.T) {
	b, w := bundleOf(t, asked), wires[0]
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if n++; n == 1 {
			conn, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
			return
		}
		_, _ = io.WriteString(rw, w.reply("here"))
	}))
	defer s.Close()
	if _, err := b.Run(t.Context(), &Client{Format: FormatOf(w.format), Endpoint: s.URL}); err != nil || n != 2 {
		t.Errorf("%d requests, %v", n, err)
	}
}

// Nobody waits for a server once the run is called off.
func TestWaitingForABusyServerCanBeCanceled(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Retry-After", "60")
		rw.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	begin := time.Now()
	_, err := bundleOf(t, asked).Run(ctx, &Client{Format: FormatOf("openai-chat"), Endpoint: s.URL})
	if !errors.Is(err, context.Canceled) || time.Since(begin) > 20*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}
