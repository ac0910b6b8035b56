package recorder

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// Upstream is a server of models, as clients reach it through a proxy: at /NAME of the proxy's address, followed by the
// rest of the path.
type Upstream struct {
	// Name is the first element of the path, "" for a server whose paths are those of the proxy that are of no other.
	Name string
	// URL is the server's base URL.
	URL *url.URL
}

// Proxy returns a handler that passes requests on to servers of models by transport, and their answers back as they
// come. Methods, paths, headers, bodies, trailers and upgrades to other protocols are those of the client, except for
// the Host header and for the headers that concern one connection only. Where a server ends its connection without an
// answer, or in the middle of one, the client's connection ends too, as it would without a proxy. Where there is no
// connection to the server, the client gets 502 with an error in JSON as APIs of models have it, which says why.
//
// transport must not ask for compression by itself. A [modelhttp.Transport] records what passes.
func Proxy(upstreams []Upstream, transport http.RoundTripper) http.Handler {
	all := make(map[string]*httputil.ReverseProxy)
	for _, u := range upstreams {
		all[u.Name] = &httputil.ReverseProxy{
			Transport:     transport,
			FlushInterval: -1, // each piece at once
			ErrorHandler:  failed,
			ErrorLog:      log.New(io.Discard, "", 0),
			Rewrite:       u.rewrite,
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
		proxy, ok := all[name]
		if !ok {
			proxy, ok = all[""]
		}
		if !ok {
			http.Error(w, fmt.Sprintf("no server of models is at /%s; this proxy has /%s", name,
				strings.Join(slices.Sorted(maps.Keys(all)), ", /")), http.StatusNotFound)
			return
		}
		_ = http.NewResponseController(w).EnableFullDuplex() // an answer may come before the request has been read
		// The server adds these where an answer has none.
		w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
		proxy.ServeHTTP(w, r)
	})
}

// failed answers a request that has got no answer.
func failed(w http.ResponseWriter, r *http.Request, err error) {
	dial, ok := errors.AsType[*net.OpError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	if r.Context().Err() != nil || !untrusted && (!ok || dial.Op != "dial") {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadGateway)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": map[string]any{"type": "api_error",
		"code": http.StatusBadGateway, "message": fmt.Sprintf("agenttrace cannot reach %s: %v", r.URL.Host, err)}})
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

// NewTransport returns the transport that a proxy sends requests with: as that of net/http, and changing nothing. It also
// goes through the proxy of ALL_PROXY, and trusts the certificates in the files of NODE_EXTRA_CA_CERTS, REQUESTS_CA_BUNDLE
// and CURL_CA_BUNDLE, as the clients do whose requests it sends.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	proxies, all := httpproxy.FromEnvironment(), cmp.Or(os.Getenv("ALL_PROXY"), os.Getenv("all_proxy"))
	proxies.HTTPProxy, proxies.HTTPSProxy = cmp.Or(proxies.HTTPProxy, all), cmp.Or(proxies.HTTPSProxy, all)
	proxy := proxies.ProxyFunc()
	t.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	for _, name := range []string{"NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"} {
		certificates, err := os.ReadFile(os.Getenv(name))
		if err != nil {
			continue // it is not set, or the client reports it
		}
		if t.TLSClientConfig == nil || t.TLSClientConfig.RootCAs == nil {
			pool, err := x509.SystemCertPool()
			if err != nil {
				pool = x509.NewCertPool()
			}
			t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		}
		t.TLSClientConfig.RootCAs.AppendCertsFromPEM(certificates)
	}
	t.DisableCompression = true
	t.MaxIdleConnsPerHost = 64
	t.ExpectContinueTimeout = 0
	return t
}
