package codeagent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// newWorkspace opens a workspace with the file a.txt. The file secret.txt is next to it,
// outside of the workspace.
func newWorkspace(t *testing.T, content string) *workspace {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "work")
	testscale.Must(t, os.Mkdir(dir, 0o755))
	for name, text := range map[string]string{"a.txt": content, "../secret.txt": "secret"} {
		testscale.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	w, err := openWorkspace(dir)
	testscale.Must(t, err)
	t.Cleanup(func() { w.root.Close() })
	return w
}

func TestPathsStayInside(t *testing.T) {
	w := newWorkspace(t, "a")
	testscale.Must(t, os.Symlink("../secret.txt", filepath.Join(w.dir, "link")))
	for _, name := range []string{"../secret.txt", "b/../../secret.txt", "/etc/hosts", "link"} {
		if got, err := read(w, name, 0); err == nil {
			t.Errorf("read %s = %q, want an error", name, got)
		}
		if _, err := edit(w, name, "secret", "public"); err == nil {
			t.Errorf("edit %s succeeded, want an error", name)
		}
	}
	secret, err := os.ReadFile(filepath.Join(w.dir, "../secret.txt"))
	if err != nil || string(secret) != "secret" {
		t.Errorf("secret = %q, %v; want it untouched", secret, err)
	}
	if got, err := grep(w, "secret"); err != nil || got != "no line matches\n" {
		t.Errorf("grep followed the link: %q, %v", got, err)
	}
}

func TestRead(t *testing.T) {
	w := newWorkspace(t, "one\ntwo\nthree\n")
	for _, test := range []struct {
		from int
		want string
	}{{0, "one\ntwo\nthree\n"}, {1, "one\ntwo\nthree\n"}, {3, "three\n"}} {
		if got, err := read(w, "./a.txt", test.from); err != nil || got != test.want {
			t.Errorf("read from %d = %q, %v; want %q", test.from, got, err, test.want)
		}
	}
	if _, err := read(w, "a.txt", 9); err == nil {
		t.Error("read past the end succeeded")
	}
	if _, err := read(w, "missing.txt", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read a missing file: %v, want %v", err, fs.ErrNotExist)
	}
}

func TestListAndGrepSkipHidden(t *testing.T) {
	w := newWorkspace(t, "one\ntwo\n")
	if _, err := w.save("output", "x", ".txt", "two"); err != nil {
		t.Fatal(err)
	}
	if got, err := list(w); err != nil || got != "     8 a.txt\n" {
		t.Errorf("list = %q, %v", got, err)
	}
	if got, err := grep(w, "^t"); err != nil || got != "a.txt:2: two\n" {
		t.Errorf("grep = %q, %v", got, err)
	}
	if _, err := grep(w, "("); err == nil {
		t.Error("grep took a broken pattern")
	}
}

func TestEdit(t *testing.T) {
	const before = "one\ntwo\ntwo\nlast"
	for _, test := range []struct {
		name, old, new string
		want, patch    string
		err            string
	}{
		{name: "word", old: "one", new: "1", want: "1\ntwo\ntwo\nlast",
			patch: "@@ -1,4 +1,4 @@\n-one\n+1\n two\n two\n last\n\\ No newline at end of file\n"},
		{name: "lines", old: "one\ntwo\n", new: "", want: "two\nlast",
			patch: "@@ -1,4 +1,2 @@\n-one\n-two\n two\n last\n\\ No newline at end of file\n"},
		{name: "no newline", old: "last", new: "end\n", want: "one\ntwo\ntwo\nend\n",
			patch: "@@ -1,4 +1,4 @@\n one\n two\n two\n-last\n\\ No newline at end of file\n+end\n"},
		{name: "not found", old: "three", err: "does not occur"},
		{name: "ambiguous", old: "two", err: "occurs 2 times"},
		{name: "empty", old: "", err: "empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorkspace(t, before)
			patch, err := edit(w, "a.txt", test.old, test.new)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error = %v, want one that contains %q", err, test.err)
				}
				test.want = before
			} else if err != nil {
				t.Fatal(err)
			}
			_, patch, _ = strings.Cut(patch, "+++ b/a.txt\n")
			if diff := cmp.Diff(test.patch, patch); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if got, err := read(w, "a.txt", 0); err != nil || got != test.want {
				t.Errorf("file = %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestClip(t *testing.T) {
	w := newWorkspace(t, "")
	if text, truncated, err := w.clip("short", "abc"); text != "abc" || truncated != nil || err != nil {
		t.Errorf("clip a short text = %q, %+v, %v", text, truncated, err)
	}

	long := strings.Repeat("x", outputLimit-1) + "é and more"
	text, got, err := w.clip("call_1", long)
	testscale.Must(t, err)
	sum := sha256.Sum256([]byte(long))
	want := agenttrace.Truncated{Path: ".agent/output/call_1.txt", Size: int64(len(long)),
		SHA256: hex.EncodeToString(sum[:])}
	if *got != want || text != strings.Repeat("x", outputLimit-1)+
		"\n[2047 of 2058 bytes; read .agent/output/call_1.txt for all of it]" {
		t.Errorf("clip = %q, %+v\nwant %+v", text, got, want)
	}
	if _, got, err := w.clip("../../../a", long); err != nil || got.Path != ".agent/output/..%2F..%2F..%2Fa.txt" {
		t.Errorf("clip for a strange call id: %+v, %v", got, err)
	}
	if whole, err := read(w, got.Path, 0); err != nil || whole != long {
		t.Errorf("the whole is not in %s: %v", got.Path, err)
	}
}

func TestRunCommand(t *testing.T) {
	w := newWorkspace(t, "")
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	out, err := w.run(t.Context(), "env")
	if err != nil || strings.Contains(out, "sk-secret") || !strings.Contains(out, "PATH=") {
		t.Errorf("a command's environment is %q, %v", out, err)
	}
	if out, err := w.run(t.Context(), "go no-such-command; go version"); err == nil {
		t.Errorf("a shell ran: %q", out)
	}
	if _, err := w.run(t.Context(), " "); err == nil {
		t.Error("an empty command ran")
	}
}
