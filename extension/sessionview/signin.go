package sessionview

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

// A browser cannot add a token to a link that somebody clicks. So where an authenticator wants one, the server asks
// its user for it, once, and the browser keeps it in a cookie that no script can read:
//
//	GET /s/ses_1 ─ 401 ─► /sign-in?to=/s/ses_1 ─ POST token ─► cookie ─► /s/ses_1
//
// The cookie is turned into the header that the authenticator reads. It decides; nothing here knows which tokens are
// valid.
//
// Without an authenticator the token is the key of the user, as of [Key]. Then "agenttrace view" opens an address that
// has it, and the browser gets the cookie for it:
//
//	GET /s/ses_1?key=KEY ─► cookie ─► /s/ses_1

const (
	signInPath  = "/sign-in"
	signOutPath = "/sign-out" // a POST makes the browser forget the token
	// keyParameter is that of an address that has the key of the user.
	keyParameter = "key"
	tokenCookie  = "agenttrace_token"
	bearer       = "Bearer"
	maxToken     = 3 << 10 // browsers keep cookies of 4 KiB
)

// signIn has the pages of signing in, in front of a handler that answers 401 without a token.
type signIn struct {
	next   http.Handler
	secure bool // the server speaks TLS
	// key is the key of the user, which next wants to see. If it is nil, next has an authenticator.
	key func() string
}

func (s *signIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch request := r.Method + " " + r.URL.Path; {
	case request == "GET "+signInPath:
		s.page(w, r, r.URL.Query().Get("to"), "", http.StatusOK)
	case request == "POST "+signInPath:
		s.take(w, r)
	case request == "POST "+signOutPath:
		http.SetCookie(w, s.cookie("", -1))
		http.Redirect(w, r, signInPath, http.StatusSeeOther)
	case s.key != nil && r.Method == http.MethodGet && r.URL.Query().Has(keyParameter):
		s.enter(w, r)
	default:
		s.pass(w, r)
	}
}

// enter keeps the key of an address in a cookie, if it is valid, and leads to the address without it.
func (s *signIn) enter(w http.ResponseWriter, r *http.Request) {
	to, query := *r.URL, r.URL.Query()
	key := query.Get(keyParameter)
	query.Del(keyParameter)
	to.RawQuery = query.Encode()
	if len(key) <= maxToken && s.valid(r, key) {
		s.keep(w, key)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, local(to.RequestURI()), http.StatusSeeOther)
}

// pass answers with next. A request without credentials has those of the cookie.
func (s *signIn) pass(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(s.cookie("", 0).Name); err == nil && r.Header.Get("Authorization") == "" {
		if token, err := base64.RawURLEncoding.DecodeString(c.Value); err == nil {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+string(token))
		}
	}
	to := r.URL.RequestURI()
	switch browser := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"); {
	case !browser || s.ask(r, r.Header.Get("Authorization")) != http.StatusUnauthorized:
		s.next.ServeHTTP(w, r)
	case s.key != nil:
		s.page(w, r, to, "", http.StatusUnauthorized)
	default:
		http.Redirect(w, r, signInPath+"?to="+url.QueryEscape(to), http.StatusSeeOther)
	}
}

// take keeps the token of the form in a cookie, if it is valid.
func (s *signIn) take(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout)) // anybody may send it
	r.Body = http.MaxBytesReader(w, r.Body, 2*maxToken)
	token, to := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("to")
	switch {
	case token == "" || len(token) > maxToken || strings.ContainsFunc(token, notPrinted):
		s.page(w, r, to, "This is not a token. Paste it as it is in the collector's configuration.",
			http.StatusBadRequest)
		return
	case !s.valid(r, token):
		s.page(w, r, to, "The collector does not accept this token.", http.StatusUnauthorized)
		return
	}
	s.keep(w, token)
	http.Redirect(w, r, local(to), http.StatusSeeOther)
}

func (s *signIn) keep(w http.ResponseWriter, token string) {
	http.SetCookie(w, s.cookie(base64.RawURLEncoding.EncodeToString([]byte(token)), 0))
}

// notPrinted reports a character that no token has.
func notPrinted(c rune) bool { return c <= ' ' || c > '~' }

func (s *signIn) valid(r *http.Request, token string) bool {
	code := s.ask(r, bearer+" "+token)
	return code != http.StatusUnauthorized && code != http.StatusForbidden
}

// ask returns how the authenticator answers a request with these credentials.
func (s *signIn) ask(r *http.Request, credentials string) (code int) {
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, AddressPath, nil)
	if err != nil {
		return http.StatusUnauthorized
	}
	ask.Host, ask.RemoteAddr, ask.TLS, ask.Header = r.Host, r.RemoteAddr, r.TLS, r.Header.Clone()
	ask.Header.Del("Authorization")
	if credentials != "" {
		ask.Header.Set("Authorization", credentials)
	}
	a := answer{header: make(http.Header)}
	s.next.ServeHTTP(&a, ask)
	return a.code
}

// answer is a ResponseWriter that keeps the status alone.
type answer struct {
	code   int
	header http.Header
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) { a.code = code }

func (a *answer) Write(b []byte) (int, error) { return len(b), nil }

// cookie is the cookie of a token. A link of another site, such as a Jaeger, may lead to a session, and so may bring
// the cookie (Lax); only GET requests do so, which change nothing. That of a key is kept for a month, and its name is
// the key's: browsers have one set of cookies for all ports of a host, where other stores may be served.
func (s *signIn) cookie(value string, maxAge int) *http.Cookie {
	c := &http.Cookie{Name: tokenCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: s.secure,
		SameSite: http.SameSiteLaxMode}
	if s.key != nil {
		sum := sha256.Sum256([]byte(s.key()))
		c.Name, c.SameSite = "agenttrace_"+hex.EncodeToString(sum[:4]), http.SameSiteStrictMode
		if value != "" {
			c.MaxAge = 30 * 24 * 3600
		}
	}
	return c
}

// local is an address of this server, "/" for any other.
func local(to string) string {
	if u, err := url.Parse(to); err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		return "/"
	}
	return to
}

const signInStyle = `
.signin{max-width:24rem;margin:15vh auto;padding:0 1rem}
.signin input,.signin button{font:inherit;width:100%;box-sizing:border-box;margin:.4rem 0;padding:.5rem}
`

//go:embed signin.html
var signInText string

var signInPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("").Parse(signInText)) })

// page answers with the form, and with a way to the address that was asked for.
func (s *signIn) page(w http.ResponseWriter, r *http.Request, to, problem string, code int) {
	sum := sha256.Sum256([]byte(render.Style() + signInStyle))
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send the form without its origin
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = signInPage().Execute(w, map[string]any{ // a reader that is gone needs no answer
		"Style": template.CSS(render.Style() + signInStyle), "To": local(to), "Problem": problem, "Key": s.key != nil,
		"Again": s.again(r)})
}

// again is where a browser shall ask once more, "" for nowhere. Where a link of another site led here, it did not send
// the cookie of the key, and will when this server's own page leads there. A mark at its end, which means nothing,
// keeps the browser from asking for ever.
func (s *signIn) again(r *http.Request) string {
	site, to := r.Header.Get("Sec-Fetch-Site"), r.URL.RequestURI()
	if s.key == nil || r.Method != http.MethodGet || r.URL.Path == signInPath || site == "same-origin" ||
		site == "none" || strings.HasSuffix(to, "?") || strings.HasSuffix(to, "&") {
		return ""
	}
	if strings.Contains(to, "?") {
		return to + "&"
	}
	return to + "?"
}

// StateDir is where agenttrace keeps what belongs to the user: ${XDG_STATE_HOME:-~/.local/state}/agenttrace.
func StateDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the XDG specification has relative paths ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "agenttrace"), nil
}

// Key returns the key of the user for the store at a location, a path or an address. Every user of a machine reaches a
// port of loopback; the key, in a file that only its user reads, shows whose request it is. The file is beside the
// store, with the suffix .key. For a store that is not a file, for that of another server, "", and where the user
// cannot have one, it is key in [StateDir]. Key makes it if it is not there.
func Key(location string) (string, error) {
	if location != "" && stores.IsFile(location) {
		key, err := readKey(location + ".key")
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return key, err
		}
	}
	dir, err := StateDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the key of the pages: %w; set XDG_STATE_HOME", err)
	}
	return readKey(filepath.Join(dir, "key"))
}

// readKey returns the key in a file, which is made with a new one if it is not there.
func readKey(path string) (string, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = newKey(path); err == nil {
			info, err = os.Lstat(path)
		}
	}
	if err != nil {
		return "", fmt.Errorf("key of the pages: %w", err)
	}
	if !info.Mode().IsRegular() || !owned(info) {
		return "", fmt.Errorf("key of the pages: %s is not a file of the user's: %w", path, fs.ErrPermission)
	}
	if !private(info) {
		return "", fmt.Errorf("key of the pages: others can read %s, or could; remove it, and a new one is made", path)
	}
	b, err := os.ReadFile(path)
	key := strings.TrimSpace(string(b))
	if err == nil && (len(key) < 16 || len(key) > maxToken || strings.ContainsFunc(key, notPrinted)) {
		err = fmt.Errorf("%s has no key; remove it, and a new one is made", path)
	}
	if err != nil {
		return "", fmt.Errorf("key of the pages: %w", err)
	}
	return key, nil
}

// newKey makes a file with a key. It gets its name when it has its content, and of two programs that make one at the
// same time the key of the first remains.
func newKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Address is that of a server's pages, with the key of the user.
func Address(scheme string, at net.Addr, key string) *url.URL {
	return &url.URL{Scheme: scheme, Host: at.String(), Path: "/", RawQuery: url.Values{keyParameter: {key}}.Encode()}
}

// keyed answers requests that have the key as their bearer token with next. Without a key nobody is answered.
func keyed(key func() string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		want := key()
		if want == "" {
			web.WriteProblem(w, errNone)
			return
		}
		if strings.EqualFold(scheme, bearer) && subtle.ConstantTimeCompare([]byte(token), []byte(want)) == 1 {
			next.ServeHTTP(w, r)
			return
		}
		unauthorized(w, "send Authorization: Bearer KEY, with the key in the file beside the store that has the suffix .key",
			"the request has no key of the user whose sessions these are, or a wrong one")
	})
}

// refuse answers a request that the collector's server refused: its authenticator, or what unpacks bodies.
func refuse(w http.ResponseWriter, _ *http.Request, reason string, status int) {
	if status == http.StatusUnauthorized {
		unauthorized(w, "send Authorization: Bearer TOKEN, with a token of the collector's configuration",
			"the request has no token that is valid: "+reason)
		return
	}
	web.WriteProblem(w, web.NewProblem(web.CodeInvalid, status, "", "", reason))
}

func unauthorized(w http.ResponseWriter, remedy, what string) {
	w.Header().Set("WWW-Authenticate", bearer)
	web.WriteProblem(w, web.NewProblem("unauthorized", http.StatusUnauthorized, "Authorization", remedy, what))
}
