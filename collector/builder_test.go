package collector

import (
	"cmp"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/exporter/sessionexporter"
	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/processor/redactionprocessor"
)

// manifest is what the tests read of builder.yaml.
type manifest struct {
	Receivers, Processors, Exporters, Connectors, Extensions, Providers []module
}

type module struct {
	GoMod  string `yaml:"gomod"`
	Import string `yaml:"import"`
	Path   string `yaml:"path"`
}

func (m module) path() string    { p, _, _ := strings.Cut(m.GoMod, " "); return p }
func (m module) version() string { _, v, _ := strings.Cut(m.GoMod, " "); return v }

func readManifest(t *testing.T) manifest {
	t.Helper()
	b := testscale.ReadFile(t, "builder.yaml")
	var m manifest
	testscale.Must(t, yaml.Unmarshal(b, &m))
	return m
}

// The manifest makes what components.go makes: the same packages, and of each kind as many as there are.
func TestManifestEqualsComponents(t *testing.T) {
	m := readManifest(t)
	all := slices.Concat(m.Receivers, m.Processors, m.Exporters, m.Connectors, m.Extensions, m.Providers)
	var listed []string
	for _, c := range all {
		listed = append(listed, cmp.Or(c.Import, c.path()))
	}
	file, err := parser.ParseFile(token.NewFileSet(), "components.go", nil, parser.ImportsOnly)
	testscale.Must(t, err)
	var imported []string
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		testscale.Must(t, err)
		// Components are packages of their own below the packages of their kind.
		parts := strings.Split(path, "/")
		kind := slices.IndexFunc(parts, func(p string) bool {
			return slices.Contains([]string{"receiver", "processor", "exporter", "extension", "provider"}, p)
		})
		if kind >= 0 && kind < len(parts)-1 {
			imported = append(imported, path)
		}
	}
	slices.Sort(listed)
	listed = slices.Compact(listed) // a package may have an exporter and a connector
	slices.Sort(imported)
	if d := diff.Diff(imported, listed); d != "" {
		t.Errorf("builder.yaml does not list what components.go imports (-components.go +builder.yaml):\n%s", d)
	}
}

func TestManifestVersions(t *testing.T) {
	b := testscale.ReadFile(t, "../go.mod")
	required := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require ")); len(f) >= 2 {
			required[f[0]] = f[1]
		}
	}
	m := readManifest(t)
	for _, c := range slices.Concat(m.Receivers, m.Processors, m.Exporters, m.Extensions, m.Providers) {
		if c.Path != "" {
			continue // from the working tree
		}
		if got, want := c.version(), required[c.path()]; got != want {
			t.Errorf("builder.yaml has %s %s, go.mod %q", c.path(), got, want)
		}
	}
}

func TestComponents(t *testing.T) {
	f, err := Components()
	testscale.Must(t, err)
	names := func(types []component.Type) []string {
		var all []string
		for _, t := range types {
			all = append(all, t.String())
		}
		slices.Sort(all)
		return all
	}
	got := [][]string{
		names(slices.Collect(maps.Keys(f.Receivers))), names(slices.Collect(maps.Keys(f.Processors))),
		names(slices.Collect(maps.Keys(f.Exporters))), names(slices.Collect(maps.Keys(f.Connectors))),
		names(slices.Collect(maps.Keys(f.Extensions))),
	}
	want := [][]string{
		{"otlp"}, {"agent_redaction", "memory_limiter"},
		// otlp and otlphttp are former names of otlp_grpc and otlp_http.
		{"debug", "file", "nop", "otlp", "otlp_grpc", "otlp_http", "otlphttp", "session"},
		{"session"},
		{"bearertokenauth", "file_storage", "health_check", "host_check", "pprof", "session_view", "zpages"},
	}
	if d := diff.Diff(want, got); d != "" {
		t.Errorf("components (-want +got):\n%s", d)
	}
}

// TestConfigsAreAsTheCollectorWantsThem: every field of a configuration has a tag that a YAML key is found by.
func TestConfigsAreAsTheCollectorWantsThem(t *testing.T) {
	for _, config := range []component.Config{
		sessionexporter.NewFactory().CreateDefaultConfig(), redactionprocessor.NewFactory().CreateDefaultConfig(),
		hostcheckextension.NewFactory().CreateDefaultConfig(), sessionview.NewFactory().CreateDefaultConfig(),
	} {
		if err := componenttest.CheckConfigStruct(config); err != nil {
			t.Errorf("%T: %v", config, err)
		}
	}
}
