package collector

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/confmap"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
)

// hostCheck is the extension that a loopback server is given.
const hostCheck = "host_check"

// loopbackServers are the places in a configuration where an HTTP server is, by type of component, with the endpoint
// that it has when none is configured. They are those whose component calls middlewares: healthcheckextension does not.
var loopbackServers = []struct{ kind, component, path, endpoint string }{
	{"receivers", "otlp", "protocols::http", defaultHTTP},
	{"extensions", "zpages", "", "localhost:55679"},
}

// loopbackConverter gives each HTTP server that listens on loopback the extension host_check, unless the configuration
// does: what is reachable from this machine only is reachable from every page in its browser. It adds the extension
// where it is not configured; one that is keeps what it reports. Origins that a server's cors allows are allowed by the
// extension too. Servers that listen elsewhere are left alone.
type loopbackConverter struct{}

// Convert implements [confmap.Converter].
func (loopbackConverter) Convert(_ context.Context, conf *confmap.Conf) error {
	var origins []any
	checked := false
	for _, s := range loopbackServers {
		components, _ := conf.Get(s.kind).(map[string]any)
		for id := range components {
			name, _, _ := strings.Cut(id, "/")
			at := s.kind + "::" + id
			if s.path != "" {
				at += "::" + s.path
			}
			if name != s.component || !conf.IsSet(at) {
				continue
			}
			server, _ := conf.Get(at).(map[string]any)
			endpoint, _ := server["endpoint"].(string)
			if !hostcheckextension.OnLoopback(cmp.Or(endpoint, s.endpoint)) {
				continue
			}
			middlewares, _ := server["middlewares"].([]any)
			if !slices.ContainsFunc(middlewares, isHostCheck) {
				list := append([]any{map[string]any{"id": hostCheck}}, middlewares...)
				if err := conf.Merge(nested(at+"::middlewares", list)); err != nil {
					return err
				}
				checked = true
			}
			if cors, ok := server["cors"].(map[string]any); ok {
				allowed, _ := cors["allowed_origins"].([]any)
				origins = append(origins, allowed...)
			}
		}
	}
	if !checked {
		return nil
	}
	config, _ := conf.Get("extensions::" + hostCheck).(map[string]any)
	merged := map[string]any{}
	if _, ok := config["allowed_origins"]; !ok && len(origins) > 0 {
		merged["allowed_origins"] = origins
	}
	if err := conf.Merge(nested("extensions::"+hostCheck, merged)); err != nil {
		return err
	}
	started, _ := conf.Get("service::extensions").([]any)
	if !slices.Contains(started, any(hostCheck)) {
		return conf.Merge(nested("service::extensions", append([]any{hostCheck}, started...)))
	}
	return nil
}

func isHostCheck(middleware any) bool {
	m, _ := middleware.(map[string]any)
	id, _ := m["id"].(string)
	name, _, _ := strings.Cut(id, "/")
	return name == hostCheck
}

// nested is a configuration with one value.
func nested(path string, value any) *confmap.Conf {
	keys := strings.Split(path, confmap.KeyDelimiter)
	for _, key := range slices.Backward(keys) {
		value = map[string]any{key: value}
	}
	return confmap.NewFromStringMap(value.(map[string]any))
}
