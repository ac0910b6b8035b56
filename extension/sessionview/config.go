package sessionview

import (
	"context"
	"fmt"
	"net"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/extension"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/session/web"
)

// DefaultEndpoint is where the extension listens by default.
const DefaultEndpoint = "localhost:4320"

// Config configures the extension.
type Config struct {
	// Server is not embedded: Config would have its method Unmarshal, which reads nothing else.
	Server confighttp.ServerConfig `mapstructure:",squash"`

	// Allowed has the names that clients may call the server by, and the pages that may send requests, besides those
	// of this machine.
	Allowed hostcheckextension.Config `mapstructure:",squash"`

	// NoSocket leaves out the Unix socket beside the store. Then commands of agenttrace cannot change sessions while
	// the collector runs unless they are given its address.
	NoSocket bool `mapstructure:"no_socket"`

	// TraceURL is where the pages link spans to, with {trace_id} and {span_id} in it, such as
	// https://jaeger.example/trace/{trace_id}?uiFind={span_id}. Without it spans have no links.
	TraceURL string `mapstructure:"trace_url"`

	_ struct{} // no unkeyed literals
}

var _ component.Config = (*Config)(nil)

func createDefaultConfig() component.Config {
	server := confighttp.NewDefaultServerConfig()
	server.NetAddr.Endpoint = DefaultEndpoint
	server.ReadHeaderTimeout = headerTimeout
	server.MaxRequestBodySize = 256 << 20 // a session that is imported is one request
	return &Config{Server: server}
}

// Validate implements the collector's check of configurations.
func (c *Config) Validate() error {
	if err := c.Allowed.Validate(); err != nil {
		return err
	}
	if err := web.CheckTraceURL(c.TraceURL); err != nil {
		return fmt.Errorf("trace_url: %w", err)
	}
	if _, _, err := net.SplitHostPort(c.Server.NetAddr.Endpoint); err != nil {
		return fmt.Errorf("endpoint: %q is not host:port, such as %s", c.Server.NetAddr.Endpoint, DefaultEndpoint)
	}
	if hostcheckextension.OnLoopback(c.Server.NetAddr.Endpoint) || c.Server.Auth.HasValue() {
		return nil
	}
	return fmt.Errorf(`endpoint: %q is reached from other machines, `+
		`and anyone who reaches it could read every session; `+
		`listen on localhost, or configure an authenticator, such as
extensions:
  bearertokenauth: {filename: /etc/agenttrace/token}
  session_view:
    endpoint: %q
    auth: {authenticator: bearertokenauth}
service:
  extensions: [bearertokenauth, session_view]`, c.Server.NetAddr.Endpoint, c.Server.NetAddr.Endpoint)
}

var componentType = component.MustNewType("session_view")

// NewFactory returns the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(componentType, createDefaultConfig,
		func(_ context.Context, set extension.Settings, c component.Config) (extension.Extension, error) {
			return newView(c.(*Config), set), nil
		}, component.StabilityLevelAlpha)
}
