package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

// Options configure the pages and the API. The zero value is ready for use.
type Options struct {
	// Version is that of the program.
	Version string
	// TraceURL is where a span is shown, with {trace_id} and {span_id} in it, such as
	// https://jaeger/trace/{trace_id}?uiFind={span_id}. Empty means that spans have no links.
	TraceURL string
	// SignOut is where a form signs the user out; "" means that nobody signs in.
	SignOut string
	// Zone is that of the times; nil means UTC.
	Zone *time.Location
}

//go:embed pages assets
var files embed.FS

// view is the handler of the pages. It is safe for concurrent use.
type pages struct {
	Options
	Backend
	templates *template.Template
	assets    map[string]asset
}

// asset is a file that pages load, with the digest that is in its address.
type asset struct {
	mediaType, digest string
	body              []byte
}

// newPages returns the handler of the pages of a store. Pages of one that cannot be changed have no forms for that, and
// if its changes are not counted, pages are not updated while they are open.
func newPages(b Backend, o Options) http.Handler {
	o.Zone = cmp.Or(o.Zone, time.UTC)
	v := &pages{Options: o, Backend: b, assets: make(map[string]asset)}
	for name, mediaType := range map[string]string{"view.css": "text/css; charset=utf-8",
		"view.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		body, _ := files.ReadFile("assets/" + name) // it is embedded
		if name == "view.css" {
			body = append([]byte(render.Style()), body...)
		}
		sum := sha256.Sum256(body)
		v.assets[name] = asset{mediaType, hex.EncodeToString(sum[:6]), body}
	}
	v.templates = template.Must(render.Templates().Funcs(v.functions()).ParseFS(files, "pages/*.html"))

	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /{$}":                            v.home,
		"GET /sessions":                       v.list,
		"GET /now":                            v.now,
		"GET /stats":                          v.stats,
		"GET /experiments":                    v.experiments,
		"GET /assets/{name}":                  v.asset,
		"GET /s/{id}":                         v.session,
		"GET /s/{id}/t/{n}":                   v.turn,
		"GET /s/{id}/t/{n}/context":           v.context,
		"GET /s/{id}/outline":                 v.outlineOf,
		"GET /s/{id}/tree":                    v.tree,
		"GET /s/{id}/share":                   v.share,
		"GET /s/{id}/share/session.html":      v.download,
		"GET /s/{id}/next":                    v.next,
		"GET /changes":                        v.changes,
		"GET /s/{id}/p/{message}/{part}":      v.part,
		"GET /s/{id}/p/{message}/{part}/raw":  v.raw,
		"GET /s/{id}/p/{message}/{part}/blob": v.blob,
		"GET /prompts/{digest}":               v.digest(store.BlobSystemPrompt, "System prompt"),
		"GET /catalogs/{digest}":              v.digest(store.BlobToolCatalog, "Tool catalog"),
		"GET /trace/{trace}":                  v.trace,
		"GET /trace/{trace}/{span}":           v.trace,
		"GET /diff":                           v.diff,
		"GET /diff/{a}/{b}":                   v.diff,
		"POST /s/{id}":                        v.change,
		"POST /theme":                         v.setTheme,
		"POST /prices":                        v.updatePrices,
		"GET /":                               v.missing,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			secure(w, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
				"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
				"same-origin") // with no-referrer, browsers send forms without their origin
			w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
			if err := serve(w, r); err != nil {
				v.fail(w, r, err)
			}
		})
	}
	return mux
}

// page is what every page has. Body is the page's own template, filled in.
type page struct {
	Title string
	Body  template.HTML
	// Here is the entry of the navigation that the page is, or "".
	Here string
	// Search is what was searched for.
	Search string
	// Theme is light or dark, or "" where the system decides, and NextTheme the one after it. Self is the address of
	// the page.
	Theme, NextTheme, Self string
	status                 int // 0 is that of a success
}

// show answers with a page: body is the name of a template and data what it shows.
func (v *pages) show(w http.ResponseWriter, r *http.Request, p page, body string, data any) error {
	var b bytes.Buffer
	if err := v.templates.ExecuteTemplate(&b, body, data); err != nil {
		return fmt.Errorf("fill in page %s: %w", body, err)
	}
	p.Theme, p.NextTheme = theme(r)
	p.Self = r.URL.RequestURI()
	p.Body = template.HTML(b.String()) // what a template wrote is escaped
	b.Reset()
	if err := v.templates.ExecuteTemplate(&b, "layout", p); err != nil {
		return fmt.Errorf("fill in page %s: %w", body, err)
	}
	WriteBody(w, r, cmp.Or(p.status, http.StatusOK), "text/html; charset=utf-8", b.Bytes())
	return nil
}

// themes are the values of the cookie of that name, each before the one that the switch goes on to.
var themes = []string{"", "dark", "light"}

// theme is the one that the reader chose, and the next.
func theme(r *http.Request) (chosen, next string) {
	c, err := r.Cookie("theme")
	if err != nil {
		return "", themes[1]
	}
	i := max(0, slices.Index(themes, c.Value))
	return themes[i], themes[(i+1)%len(themes)]
}

// setTheme keeps the theme that a reader chooses, and leads back.
func (v *pages) setTheme(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	http.SetCookie(w, &http.Cookie{Name: "theme", Value: r.PostFormValue("theme"), Path: "/", MaxAge: 365 * 24 * 3600,
		HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, back(r, "/", "/"), http.StatusSeeOther)
	return nil
}

func notFound(format string, args ...any) error { return NotFoundf("", "", format, args...) }

func invalid(format string, args ...any) error { return Invalidf("", "", format, args...) }

// failures are the titles of the pages of errors, by their status. Forms have pages, too.
var failures = map[int]string{http.StatusNotFound: "Not found", http.StatusBadRequest: "This request is not valid",
	http.StatusConflict: "This cannot be done now", http.StatusForbidden: "This cannot be done here",
	http.StatusBadGateway: "No prices could be fetched", http.StatusServiceUnavailable: "The store cannot be used now"}

// fail answers with the page of an error.
func (v *pages) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the reader is gone
	}
	status := ProblemOf(err).Status
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "2")
	}
	p := page{Title: cmp.Or(failures[status], "This page cannot be shown"), status: status}
	if v.show(w, r, p, "failure", struct {
		Status            int
		Title, Text, Name string
	}{status, p.Title, err.Error(), v.Sessions.Name()}) != nil {
		http.Error(w, err.Error(), status)
	}
}

func (v *pages) missing(_ http.ResponseWriter, r *http.Request) error {
	return notFound("there is no page at %s", r.URL.Path)
}

func (v *pages) home(w http.ResponseWriter, r *http.Request) error {
	http.Redirect(w, r, "/sessions", http.StatusSeeOther)
	return nil
}

// asset answers with a file. Its address changes with its content, so a browser keeps it.
func (v *pages) asset(w http.ResponseWriter, r *http.Request) error {
	a, ok := v.assets[r.PathValue("name")]
	if !ok {
		return v.missing(w, r)
	}
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	WriteBody(w, r, http.StatusOK, a.mediaType, a.body)
	return nil
}

// maxForm is the size in bytes up to which a form is accepted.
const maxForm = 256 << 10

// change does what a form asks for, and leads back to its page.
func (v *pages) change(w http.ResponseWriter, r *http.Request) error {
	if v.Change == nil {
		return NewProblem("read-only", http.StatusForbidden, "", "",
			"sessions cannot be changed here: the pages are for reading only")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return invalid("the form cannot be read: %v", err)
	}
	id, now, text := pathOf(r, "id"), time.Now(), field(r, "text")
	of, to := sessionPath{id}, back(r, "/s/", Address("s", id))
	err := v.Change(r.Context(), func(ctx context.Context, s store.Service) (err error) {
		switch do := r.PostFormValue("do"); do {
		case "title":
			_, err = v.update(ctx, s, of, sessionChange{Title: &text})
			return err
		case "archive", "unarchive":
			return s.Archive(ctx, id, do == "archive", now)
		case "remove":
			_, err = v.removeAnnotation(ctx, s, annotationPath{of, r.PostFormValue("annotation")}, none{})
			return err
		case "annotate":
			n, err := v.annotation(r)
			if err == nil {
				_, err = AddAnnotation(ctx, s, id, n)
			}
			return err
		case "unrewind":
			to = Address("s", id, "tree")
			_, err = v.unrewind(ctx, s, of, none{})
			return err
		case "fork", "rewind":
			turn, err := turnNumber("", r.PostFormValue("turn"))
			if err != nil {
				return err
			}
			at := Place{Turn: &turn}
			if to = Address("s", id); do == "rewind" {
				_, err = v.rewind(ctx, s, of, at)
				return err
			}
			forked, err := v.fork(ctx, s, of, newFork{at, text})
			if err == nil {
				to = Address("s", forked.SessionID)
			}
			return err
		}
		return invalid("the form asks for nothing that is known")
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// back is the page that has the form, which must be below a path, or the page that is given instead. Only a path of
// this server is one: a form of another page leads nowhere else.
func back(r *http.Request, below, instead string) string {
	to, err := url.Parse(r.PostFormValue("back"))
	if err != nil || to.IsAbs() || to.Host != "" || strings.HasPrefix(to.Path, "//") ||
		!strings.HasPrefix(to.Path, below) {
		return instead
	}
	return to.String()
}

func field(r *http.Request, name string) string {
	return strings.ToValidUTF8(strings.TrimSpace(r.PostFormValue(name)), "\uFFFD")
}

// annotation is the annotation that a form asks for. Of a message it is the turn's.
func (v *pages) annotation(r *http.Request) (n store.Annotation, err error) {
	n = store.Annotation{MessageID: r.PostFormValue("message"), PartID: r.PostFormValue("part"),
		Kind: r.PostFormValue("kind"), Name: field(r, "text"), Author: v.Author}
	switch n.Kind {
	case store.AnnotationNote:
		n.Name, n.Comment = "", n.Name
	case store.AnnotationScore:
		value, err := strconv.ParseFloat(strings.TrimSpace(r.PostFormValue("value")), 64)
		if n.Value = &value; err != nil {
			return n, invalid("the score %q is not a number", r.PostFormValue("value"))
		}
	}
	return n, err
}

func (v *pages) functions() template.FuncMap {
	words := document.Words{Zone: v.Zone}
	return template.FuncMap{
		"at":      Address,
		"asset":   func(name string) string { return "/assets/" + name + "?" + v.assets[name].digest },
		"changes": func() bool { return v.Change != nil },
		"fetches": func() bool { return v.Change != nil && v.UpdatePrices != nil },
		"signOut": func() string { return v.SignOut },
		"span":    v.spanURL,
		"ago":     func(milli int64) string { return ago(time.Since(time.UnixMilli(milli))) },
		"iso":     func(milli int64) string { return time.UnixMilli(milli).UTC().Format(time.RFC3339) },
		"time":    words.Time,
		"title":   title,
		"queued":  func(d *document.Document) []document.MessageWords { return words.Messages(d.Queued) },
		"decision": func(d document.Decision) string {
			text, _ := document.DecisionText(&d)
			return document.Line(text)
		},
		"value":  func(keys map[store.StatsBy]string, by string) string { return keys[store.StatsBy(by)] },
		"tail":   document.Tail,
		"status": func(of any) string { return cmp.Or(strings.ReplaceAll(fmt.Sprint(of), "_", " "), "unknown") },
		"sign": func(outcome string) string {
			sign, _ := document.OutcomeWords(outcome)
			return cmp.Or(sign, "·")
		},
		"buckets": document.UsageCells,
		"target":  func(session, message, part, back string) target { return target{session, message, part, back} },
		"pair":    func(a, b any) pair { return pair{a, b} },
		"percent": percent,
		"experiment": func(name string) string {
			return "/sessions?" + url.Values{"tag": {gate.TagExperiment + name}, "children": {"1"}}.Encode()
		},
		"weekday": func(day int) time.Weekday { return time.Weekday((day + 1) % 7) }, // from Monday on
		"last":    func(all []statsPoint) statsPoint { return all[len(all)-1] },
		"clip":    func(s string) string { return document.Head(s, headProse) },
		"marked":  func(h store.Hit) []document.Piece { return document.Pieces(&h) },
		"short1":  func(a document.Annotation) string { return document.Line(a.Short()) },
		"text1":   func(a document.Annotation) string { return document.Line(a.Text()) },
	}
}

// Address is the path of a page with these elements, each escaped. An element that a browser would resolve, "." or
// "..", gets a tilde, and so does one that begins with a tilde: see [element].
func Address(elements ...any) string {
	var b strings.Builder
	for _, e := range elements {
		s := fmt.Sprint(e)
		if s == "." || s == ".." || strings.HasPrefix(s, "~") {
			s = "~" + s
		}
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// element is what Address made an element of a path of.
func element(s string) string { return strings.TrimPrefix(s, "~") }

func pathOf(r *http.Request, name string) string { return element(r.PathValue(name)) }

// CheckTraceURL returns an error for what is no template as of [Options.TraceURL]. An empty one is one.
func CheckTraceURL(template string) error {
	if template == "" {
		return nil
	}
	u, err := url.Parse(strings.NewReplacer("{", "", "}", "").Replace(template))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		!strings.Contains(template, "{trace_id}") {
		return fmt.Errorf("%q is not the address of a trace; write one such as "+
			"https://jaeger.example/trace/{trace_id}?uiFind={span_id}", template)
	}
	return nil
}

// spanURL is where a span is shown, or "".
func (v *pages) spanURL(traceID, spanID string) string {
	if v.TraceURL == "" || traceID == "" {
		return ""
	}
	return strings.NewReplacer("{trace_id}", url.QueryEscape(traceID), "{span_id}", url.QueryEscape(spanID)).
		Replace(v.TraceURL)
}

// ago is a time in the past, in one unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	}
	return fmt.Sprintf("%d days ago", d/(24*time.Hour))
}

// pair is two values for a template that takes one.
type pair struct{ A, B any }

// percent is a share, or "" where it is not known.
func percent(share *float64) string {
	if share == nil {
		return ""
	}
	return fmt.Sprintf("%.0f %%", *share*100)
}
