//go:build long

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestAReleaseIsInstalledByNpm makes packages of a binary, as `make release` does, installs those of this platform in an
// empty directory, and runs the program. It needs npm.
func TestAReleaseIsInstalledByNpm(t *testing.T) {
	dist, project := t.TempDir(), t.TempDir()
	run := func(dir, name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	host := runtime.GOOS + "_" + runtime.GOARCH
	run("..", "go", "build", "-ldflags", "-s -w -X main.version=v1.2.3", "-o", dist+"/agenttrace_v1.2.3_"+host,
		"./cmd/agenttrace")
	for _, platform := range []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64.exe"} {
		if platform != host {
			err := os.WriteFile(dist+"/agenttrace_v1.2.3_"+platform, []byte(platform), 0o644)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	run(".", "./package", dist, "v1.2.3")
	packages, err := filepath.Glob(dist + "/agenttrace-*.tgz")
	if err != nil || len(packages) != 6 {
		t.Fatalf("packages %q, %v", packages, err)
	}
	platform := run(".", "node", "-p", "process.platform + '-' + process.arch")
	run(project, "npm", "install", "--offline", dist+"/agenttrace-"+strings.TrimSpace(platform)+"-1.2.3.tgz",
		dist+"/agenttrace-1.2.3.tgz")
	if got := run(project, "npx", "agenttrace", "version"); !strings.HasPrefix(got, "agenttrace v1.2.3 ") {
		t.Errorf("npx agenttrace version prints %q", got)
	}
	formula, err := os.ReadFile(dist + "/agenttrace.rb")
	sums := strings.Fields(run(dist, "sha256sum", "-c", "SHA256SUMS"))
	if err != nil || !strings.Contains(string(formula), `version "1.2.3"`) || len(sums) != 10 {
		t.Errorf("the formula is %s, %v; checksums are %q", formula, err, sums)
	}
	text, _ := os.ReadFile(dist + "/SHA256SUMS")
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(line, "  ")
		if !strings.Contains(string(formula), sum) && !strings.Contains(name, "windows") {
			t.Errorf("the formula has no checksum of %s", name)
		}
	}
}
