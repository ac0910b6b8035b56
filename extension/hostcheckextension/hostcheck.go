// Package hostcheckextension is the collector extension "host_check": an HTTP server that listens on this machine's
// loopback answers only those who meant it. A page in a browser can have the name of its own server resolve to
// 127.0.0.1, and then reads from and writes to what listens there as if it were its own (DNS rebinding). Its requests
// name that server in the header Host, or in Origin, and are refused with 403.
package hostcheckextension

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensionmiddleware"
)

// hostCheck is a middleware of HTTP servers.
type hostCheck struct {
	component.StartFunc
	component.ShutdownFunc
	hosts   []string // in lower case
	origins []string
}

var (
	_ extension.Extension            = (*hostCheck)(nil)
	_ extensionmiddleware.HTTPServer = (*hostCheck)(nil)
)

// newHostCheck makes one of a valid configuration.
func newHostCheck(c *Config) *hostCheck {
	h := new(hostCheck)
	for _, name := range c.AllowedHosts {
		h.hosts = append(h.hosts, strings.Trim(strings.ToLower(name), "[]"))
	}
	for _, origin := range c.AllowedOrigins {
		h.origins = append(h.origins, strings.ToLower(origin))
	}
	return h
}

// GetHTTPHandler implements [extensionmiddleware.HTTPServer].
func (h *hostCheck) GetHTTPHandler(context.Context) (extensionmiddleware.WrapHTTPHandlerFunc, error) {
	return func(_ context.Context, next http.Handler) (http.Handler, error) { return h.handler(next), nil }, nil
}

// Handler is next for the requests that a valid configuration allows.
func Handler(c *Config, next http.Handler) http.Handler { return newHostCheck(c).handler(next) }

func (h *hostCheck) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := h.refusal(r, w.Header().Get("Access-Control-Allow-Origin")); reason != "" {
			http.Error(w, reason, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refusal is why a request is refused; empty means that it is not. The answer to it may have shared already what cors,
// which comes before middlewares, allows: one origin, or "*".
func (h *hostCheck) refusal(r *http.Request, shared string) string {
	host := hostname(r.Host)
	if !loopback(host) && !slices.ContainsFunc(h.hosts, func(allowed string) bool { return matches(allowed, host) }) {
		return fmt.Sprintf("host %q is not allowed: this server is for programs on its own machine; "+
			"call it by localhost or 127.0.0.1, or add the name to allowed_hosts of the server "+
			"or of the extension host_check", r.Host)
	}
	// A request has one origin; a client that sends several is no browser, and each counts.
	for _, origin := range r.Header.Values("Origin") {
		if shared != "*" && shared != origin && !h.allowsOrigin(origin, r.Host) {
			return fmt.Sprintf("origin %q is not allowed: this server is for programs on its own machine; "+
				"add the origin to allowed_origins of the server or of the extension host_check", origin)
		}
	}
	return ""
}

// hostname is the host of "host", "host:port" or "[host]:port" in lower case, without the dot of the root.
func hostname(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// allowsOrigin reports whether a page may send requests to the server, which it calls by a host that is allowed.
func (h *hostCheck) allowsOrigin(origin, host string) bool {
	origin = strings.ToLower(origin)
	// Of another scheme than these, or "null", are files and extensions of the browser.
	u, err := url.Parse(origin)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") &&
		(loopback(hostname(u.Host)) || u.Host == strings.ToLower(host)) {
		return true
	}
	return slices.ContainsFunc(h.origins, func(allowed string) bool { return matches(allowed, origin) })
}

// matches reports whether s is what allowed is, in which one "*" stands for anything.
func matches(allowed, s string) bool {
	head, tail, wild := strings.Cut(allowed, "*")
	if !wild {
		return s == allowed
	}
	return len(s) > len(head)+len(tail) && strings.HasPrefix(s, head) && strings.HasSuffix(s, tail)
}

// CheckAddress returns why a text is not "host:port".
func CheckAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil || port == "" {
		return fmt.Errorf("%q is not host:port, such as localhost:4317", text)
	} else if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%q: %w; use one up to 65535", text, err)
	}
	return nil
}

// OnLoopback reports whether an endpoint, "host:port", is of this machine's loopback.
func OnLoopback(endpoint string) bool {
	host, _, err := net.SplitHostPort(endpoint)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// loopback reports whether a name can mean this machine only. What the resolver makes
// of another name does not count: that is the attack.
func loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

var componentType = component.MustNewType("host_check")

// NewFactory returns the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(
		componentType,
		func() component.Config { return new(Config) },
		func(_ context.Context, _ extension.Settings, c component.Config) (extension.Extension, error) {
			return newHostCheck(c.(*Config)), nil
		},
		component.StabilityLevelAlpha,
	)
}

// Config configures the extension. Its zero value allows this machine's loopback only:
// localhost, 127.0.0.0/8 and [::1], with any port.
type Config struct {
	// AllowedHosts are names that clients may call the server by besides, without a
	// port: "collector.internal". "*.example.com" is any name below example.com.
	AllowedHosts []string `mapstructure:"allowed_hosts"`
	// AllowedOrigins are the origins of pages that may send requests besides those of this machine:
	// "https://app.example.com", with a port where it is not that of the scheme. One "*" stands for anything, as in
	// "https://*.example.com". Browsers want the server's cors configured besides, which is enough.
	AllowedOrigins []string `mapstructure:"allowed_origins"`

	_ struct{} // no unkeyed literals
}

var _ component.Config = (*Config)(nil)

// Validate implements the collector's check of configurations.
func (c *Config) Validate() error {
	for _, h := range c.AllowedHosts {
		if name := strings.TrimPrefix(h, "*."); name == "" || strings.ContainsAny(name, "*/@ ") ||
			strings.Contains(name, ":") && net.ParseIP(strings.Trim(name, "[]")) == nil {
			return fmt.Errorf(
				"allowed_hosts: %q is not the name of a host without a port, "+
					"such as collector.internal or *.example.com", h)
		}
	}
	for _, o := range c.AllowedOrigins {
		scheme, host, ok := strings.Cut(o, "://")
		if o != "*" && (!ok || scheme == "" || host == "" || strings.ContainsAny(host, "/@? ") ||
			strings.Count(o, "*") > 1) {
			return fmt.Errorf("allowed_origins: %q is not an origin, "+
				"such as https://app.example.com or https://*.example.com",
				o)
		}
	}
	return nil
}
