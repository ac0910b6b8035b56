package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// functions are those of the templates.
func (v *pages) functions() template.FuncMap {
	words := document.Words{Zone: v.Zone}
	return template.FuncMap{
		"at":      Address,
		"asset":   func(name string) string { return "/assets/" + name + "?" + v.assets[name].digest },
		"changes": func() bool { return v.Change != nil },
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
		"value":   func(keys map[store.StatsBy]string, by string) string { return keys[store.StatsBy(by)] },
		"tail":    tail,
		"status":  statusText,
		"buckets": document.UsageCells,
		"target":  func(session, message, part, back string) target { return target{session, message, part, back} },
		"pair":    func(a, b any) pair { return pair{a, b} },
		"percent": percent,
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

// pathOf is an element of the path of a request.
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

// tail is the last element of a path.
func tail(path string) string {
	path = strings.TrimRight(path, "/")
	return document.Line(path[strings.LastIndexByte(path, '/')+1:])
}

// statusText is what a session is doing, in words.
func statusText(a document.Activity) string {
	return cmp.Or(strings.ReplaceAll(string(a), "_", " "), "unknown")
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
