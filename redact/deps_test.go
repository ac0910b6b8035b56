package redact

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestImportsTheStandardLibraryOnly guards what agent authors were promised: the SDK
// imports this package, and brings nothing but OpenTelemetry.
func TestImportsTheStandardLibraryOnly(t *testing.T) {
	const self = "github.com/agenttrace/agenttrace/redact"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", self).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", self, err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if dep != self && dep != "github.com/agenttrace/agenttrace/internal/jsonscan" {
			t.Errorf("redact imports %s: it may import the standard library and internal/jsonscan only", dep)
		}
	}
	std, err := exec.Command("go", "list", "-deps", self).Output()
	testscale.Must(t, err)
	for _, dep := range strings.Fields(string(std)) {
		if dep == "encoding/json" || dep == "net/http" {
			t.Errorf("redact imports %s: too slow or too large for what runs in every span", dep)
		}
	}
}

func init() { load() } // tests look into the tables, too
