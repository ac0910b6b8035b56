//go:build long

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestAReleaseIsInstalledByNpm makes packages of a binary, as `make release` does, installs those of this platform in
// an empty directory, and runs the program. It needs npm.
func TestAReleaseIsInstalledByNpm(t *testing.T) {
	dist, project, host := t.TempDir(), t.TempDir(), runtime.GOOS+"_"+runtime.GOARCH
	run := func(dir, name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("..", "go", "build", "-ldflags", "-s -w -X main.version=v1.2.3", "-o", dist+"/agenttrace_v1.2.3_"+host,
		"./cmd/agenttrace")
	for _, platform := range []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64.exe"} {
		if platform != host {
			run(dist, "touch", "agenttrace_v1.2.3_"+platform)
		}
	}
	run(".", "./package", dist, "v1.2.3")
	platform := run(".", "node", "-p", "process.platform + '-' + process.arch")
	run(project, "npm", "install", "--offline", dist+"/agenttrace-"+strings.TrimSpace(platform)+"-1.2.3.tgz",
		dist+"/agenttrace-1.2.3.tgz")
	if got := run(project, "npx", "agenttrace", "version"); !strings.HasPrefix(got, "agenttrace v1.2.3 ") {
		t.Errorf("npx agenttrace version prints %q", got)
	}
	packages, _ := filepath.Glob(dist + "/agenttrace-*.tgz")
	formula, err := os.ReadFile(dist + "/agenttrace.rb")
	sums := regexp.MustCompile(`\n *sha256 "[0-9a-f]{64}"`).FindAll(formula, -1)
	if err != nil || len(packages) != 6 || len(sums) != 4 || !strings.Contains(string(formula), `version "1.2.3"`) {
		t.Errorf("there are %d packages, and the formula is %s, %v", len(packages), formula, err)
	}
}
