package agenttrace_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestAgentAuthorsGainNothingElse guards the layering: a program that imports
// agenttrace gets the OpenTelemetry API and nothing more.
func TestAgentAuthorsGainNothingElse(t *testing.T) {
	const module = "github.com/agenttrace/agenttrace/"
	allowed := []string{
		"go.opentelemetry.io/otel", // with what the API itself needs, below
		"github.com/cespare/xxhash/v2", "github.com/go-logr/logr", "github.com/go-logr/stdr",
		"go.opentelemetry.io/auto/sdk",
	}
	forbidden := map[string]string{
		"go.opentelemetry.io/otel/sdk":       "an agent picks its own SDK, or none",
		"go.opentelemetry.io/otel/exporters": "an agent picks its own exporter, or none",
		"go.opentelemetry.io/proto":          "the wire format is the exporter's",
	}
	ours := map[string][]string{
		"agenttrace":           {"agenttrace", "spans", "semconv", "redact"},
		"redact":               {"redact"},
		"spans":                {"spans", "semconv"},
		"semconv":              {"semconv"},
		"agenttrace/modelhttp": {"agenttrace/modelhttp", "agenttrace", "spans", "semconv", "redact", "internal/modelapi"},
	}
	for pkg, mine := range ours {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
			module+pkg).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", pkg, err)
		}
		for _, dep := range strings.Fields(string(out)) {
			for prefix, why := range forbidden {
				if within(dep, prefix) {
					t.Errorf("%s imports %s: %s", pkg, dep, why)
				}
			}
			ok := false
			for _, prefix := range allowed {
				ok = ok || within(dep, prefix)
			}
			for _, name := range append(mine, "internal/jsonscan", "internal/lazy") { // which import nothing
				ok = ok || dep == module+name
			}
			if !ok {
				t.Errorf("%s imports %s: it may import the standard library and the OpenTelemetry API", pkg, dep)
			}
		}
	}
}

func within(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
