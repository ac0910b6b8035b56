package cli_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// What is exported is a copy of the store: whatever the format and the umask, nobody else may read it.
func TestNoExportIsMoreReadableThanTheStore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "s.db")
	newStore(t, store, fixture())
	run := func(args ...string) string {
		t.Helper()
		agenttrace, err := exec.LookPath("agenttrace")
		testscale.Must(t, err)
		cmd := exec.CommandContext(t.Context(), "sh",
			append([]string{"-c", `umask 0; exec "$0" "$@"`, agenttrace, "--store", store}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState.ExitCode() != 1 {
			t.Fatalf("agenttrace %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	help := run("export", "--help")
	formats := regexp.MustCompile(`(?m)^  ([a-z-]+) {2,}\S`).FindAllStringSubmatch(help[:strings.Index(help, "Flags:")],
		-1)
	if len(formats) < 10 {
		t.Fatalf("formats %q in\n%s", formats, help)
	}
	out := filepath.Join(dir, "out")
	for _, format := range formats {
		name := format[1]
		run("export", "last", "--format", name, "--output", out+"-"+name+"/")
		for _, ext := range []string{"", ".sqlite", ".db", ".jsonl", ".json"}[:testscale.Rounds(1, 5)] {
			run("export", "last", "--format", name, "--output", filepath.Join(dir, name+ext), "--force")
		}
	}
	run("export", "last", "--format", "markdown", "--bundle", filepath.Join(dir, "bundle.zip"))
	run("replay", "last", "--turn", "1", "--force", "--output", filepath.Join(dir, "replay")+"/")
	run("replay", "last", "--turn", "1", "--force", "--format", "bundle", "--output", filepath.Join(dir, "bundle.json"))
	run("diff", "last", "last", "--format", "html", "--output", filepath.Join(dir, "diff.html"))
	run("store", "backup", filepath.Join(dir, "backup.db"))
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if files++; info.Mode().Perm()&^os.FileMode(0o700) != 0 {
			t.Errorf("%s is %s", strings.TrimPrefix(path, dir), info.Mode())
		}
		return nil
	})
	if err != nil || files < 40 {
		t.Errorf("%d files: %v", files, err)
	}
}
