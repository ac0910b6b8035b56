package hostcheckextension

import (
	"fmt"
	"net"
	"strings"

	"go.opentelemetry.io/collector/component"
)

// Config configures the extension. Its zero value allows this machine's loopback only:
// localhost, 127.0.0.0/8 and [::1], with any port.
type Config struct {
	// AllowedHosts are names that clients may call the server by besides, without a
	// port: "collector.internal". "*.example.com" is any name below example.com.
	AllowedHosts []string `mapstructure:"allowed_hosts"`
	// AllowedOrigins are the origins of pages that may send requests besides those of this machine:
	// "https://app.example.com", with a port where it is not that of the scheme. One "*" stands for anything, as in
	// "https://*.example.com". Browsers want the server's cors configured besides.
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
