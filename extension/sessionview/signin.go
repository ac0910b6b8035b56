package sessionview

import (
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec/html"
)

// A browser cannot add a token to a link that somebody clicks. So where an authenticator wants one, the server asks
// its user for it, once, and the browser keeps it in a cookie that no script can read:
//
//	GET /s/ses_1 ─ 401 ─► /sign-in?to=/s/ses_1 ─ POST token ─► cookie ─► /s/ses_1
//
// The cookie is turned into the header that the authenticator reads. It decides; nothing here knows which tokens are
// valid.

const (
	signInPath  = "/sign-in"
	signOutPath = "/sign-out" // a POST makes the browser forget the token
	tokenCookie = "agenttrace_token"
	maxToken    = 3 << 10 // browsers keep cookies of 4 KiB
)

// signIn has the pages of signing in, in front of a handler that answers 401 without a token.
type signIn struct {
	next   http.Handler
	secure bool // the server speaks TLS
}

// newSignIn returns next with the pages of signing in.
func newSignIn(next http.Handler, secure bool) http.Handler {
	s := &signIn{next: next, secure: secure}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+signInPath, func(w http.ResponseWriter, r *http.Request) {
		s.page(w, r.URL.Query().Get("to"), "", http.StatusOK)
	})
	mux.HandleFunc("POST "+signInPath, s.take)
	mux.HandleFunc("POST "+signOutPath, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, s.cookie("", -1))
		http.Redirect(w, r, signInPath, http.StatusSeeOther)
	})
	mux.HandleFunc("/", s.pass)
	return mux
}

// pass answers with next. A request without credentials has those of the cookie.
func (s *signIn) pass(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(tokenCookie); err == nil && r.Header.Get("Authorization") == "" {
		if token, err := base64.RawURLEncoding.DecodeString(c.Value); err == nil {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+string(token))
		}
	}
	if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
		w = &asking{ResponseWriter: w, request: r}
	}
	s.next.ServeHTTP(w, r)
}

// asking leads to the page of signing in where the answer is that credentials are missing.
type asking struct {
	http.ResponseWriter
	request *http.Request
	asked   bool
}

// WriteHeader implements [http.ResponseWriter].
func (a *asking) WriteHeader(status int) {
	// Of a scheme that a browser knows it asks by itself.
	if status == http.StatusUnauthorized && a.Header().Get("WWW-Authenticate") == "" {
		a.asked = true
		http.Redirect(a.ResponseWriter, a.request, signInPath+"?to="+url.QueryEscape(a.request.URL.RequestURI()),
			http.StatusSeeOther)
		return
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *asking) Write(b []byte) (int, error) {
	if a.asked {
		return len(b), nil
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (a *asking) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// take keeps the token of the form in a cookie, if it is valid.
func (s *signIn) take(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 2*maxToken)
	token, to := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("to")
	switch {
	case token == "" || len(token) > maxToken || strings.ContainsFunc(token, notPrinted):
		s.page(w, to, "This is not a token. Paste it as it is in the collector's configuration.", http.StatusBadRequest)
		return
	case !s.valid(r, token):
		s.page(w, to, "The collector does not accept this token.", http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, s.cookie(base64.RawURLEncoding.EncodeToString([]byte(token)), 0))
	http.Redirect(w, r, local(to), http.StatusSeeOther)
}

// notPrinted reports a character that no token has.
func notPrinted(c rune) bool { return c <= ' ' || c > '~' }

// valid asks the authenticator.
func (s *signIn) valid(r *http.Request, token string) bool {
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, AddressPath, nil)
	if err != nil {
		return false
	}
	ask.Host, ask.RemoteAddr, ask.TLS = r.Host, r.RemoteAddr, r.TLS
	ask.Header.Set("Authorization", "Bearer "+token)
	var answer status
	s.next.ServeHTTP(&answer, ask)
	return answer != http.StatusUnauthorized && answer != http.StatusForbidden
}

// status is a ResponseWriter that keeps the status alone.
type status int

// Header implements [http.ResponseWriter].
func (s *status) Header() http.Header { return make(http.Header) }

// WriteHeader implements [http.ResponseWriter].
func (s *status) WriteHeader(code int) { *s = status(code) }

// Write implements [http.ResponseWriter].
func (s *status) Write(b []byte) (int, error) { return len(b), nil }

// cookie is the cookie of a token. A link of another site, such as a Jaeger, may lead to a session, and so may bring
// the cookie (Lax); only GET requests do so, which change nothing.
func (s *signIn) cookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: tokenCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: s.secure,
		SameSite: http.SameSiteLaxMode}
}

// local is an address of this server, "/" for any other.
func local(to string) string {
	if u, err := url.Parse(to); err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		return "/"
	}
	return to
}

var signInStyle = html.Style() + `
.signin{max-width:24rem;margin:15vh auto;padding:0 1rem}
.signin input,.signin button{font:inherit;width:100%;box-sizing:border-box;margin:.4rem 0;padding:.5rem}
`

var signInPage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign in · agenttrace</title>
<style>{{.Style}}</style>
</head>
<body>
<main class="signin"><h1>agenttrace</h1>
{{with .Problem}}<p role="alert">{{.}}</p>{{end}}
<form method="post" action="/sign-in">
<input type="hidden" name="to" value="{{.To}}">
<label>Token of the collector
<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>Sign in</button>
</form>
<p>It is the one that <code>session_view</code> is configured with.</p>
</main>
</body>
</html>
`))

// page answers with the form.
func (s *signIn) page(w http.ResponseWriter, to, problem string, code int) {
	sum := sha256.Sum256([]byte(signInStyle))
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send the form without its origin
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = signInPage.Execute(w, map[string]any{ // a reader that is gone needs no answer
		"Style": template.CSS(signInStyle), "To": local(to), "Problem": problem})
}
