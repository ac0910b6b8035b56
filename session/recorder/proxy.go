package recorder

import (
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
)

// Upstream is a server of models, as clients reach it through a proxy: at /NAME of the proxy's address, followed by the
// rest of the path.
type Upstream struct {
	// Name is the first element of the path, "" for a server that is alone: its paths are those of the proxy.
	Name string
	// URL is the server's base URL.
	URL *url.URL
}

// Proxy returns a handler that passes requests on to servers of models by transport, and their answers back as they
// come. Methods, paths, headers, bodies, trailers and upgrades to other protocols are those of the client, except for
// the Host header and for the headers that concern one connection only. Where a server cannot be reached, or ends in
// the middle of an answer, the client's connection ends too: the client sees what it would see without a proxy, and not
// an answer of ours.
//
// transport must not ask for compression by itself. A [modelhttp.Transport] records what passes.
func Proxy(upstreams []Upstream, transport http.RoundTripper) http.Handler {
	all := make(map[string]*httputil.ReverseProxy)
	for _, u := range upstreams {
		all[u.Name] = &httputil.ReverseProxy{
			Transport:     transport,
			FlushInterval: -1, // each piece at once
			ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ErrorLog:      log.New(io.Discard, "", 0),
			Rewrite:       u.rewrite,
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
		proxy, ok := all[""]
		if !ok {
			proxy, ok = all[name]
		}
		if !ok {
			http.Error(w, fmt.Sprintf("no server of models is at /%s; this proxy has /%s", name,
				strings.Join(slices.Sorted(maps.Keys(all)), ", /")), http.StatusNotFound)
			return
		}
		// The server adds these where an answer has none.
		w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
		proxy.ServeHTTP(w, r)
	})
}

// rewrite makes the request to the server of the client's.
func (u *Upstream) rewrite(r *httputil.ProxyRequest) {
	rest := r.In.URL.EscapedPath()
	if u.Name != "" {
		rest = strings.TrimPrefix(rest, "/"+u.Name)
	}
	path := strings.TrimSuffix(u.URL.EscapedPath(), "/") + rest
	out := r.Out.URL
	out.Scheme, out.Host, r.Out.Host = u.URL.Scheme, u.URL.Host, u.URL.Host
	out.RawPath, out.RawQuery = path, r.In.URL.RawQuery // also what is no proper query
	if out.Path, _ = url.PathUnescape(path); out.Path == "" {
		out.Path = path
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	if _, ok := r.In.Header["User-Agent"]; !ok {
		r.Out.Header["User-Agent"] = []string{""} // else net/http adds its own
	}
}

// NewTransport returns the transport that a proxy sends requests with: as that of net/http, and changing nothing.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true
	t.MaxIdleConnsPerHost = 64
	t.ExpectContinueTimeout = 0
	return t
}
