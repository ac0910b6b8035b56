package cli_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// TestCommandsThatAreNamedExist: every command that a document, the Dockerfile or the Compose
// file calls the program with is one that it has.
func TestCommandsThatAreNamedExist(t *testing.T) {
	help, _, _ := piped(nil, "help")
	commands := []string{"help", "--help", "--version", "list"}
	for _, line := range regexp.MustCompile(`(?m)^  ([a-z-]+) `).FindAllStringSubmatch(help, -1) {
		commands = append(commands, line[1])
	}
	for _, line := range regexp.MustCompile(`(?m)^  agenttrace ([a-z-]+) `).FindAllStringSubmatch(help, -1) {
		commands = append(commands, line[1]) // topics
	}
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "Dockerfile", "docker-compose.yml", "deploy/*", "Makefile",
		"*/*/README.md", "*/*.md", "session/store/sqlite/FORMAT.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		testscale.Must(t, err)
		files = append(files, found...)
	}
	// A command is what follows the program's name in code, in a shell or behind its image.
	named := regexp.MustCompile(
		"(?m)(?:`|^\\s*(?:\\$ |# *)?|&& |\\| |agenttrace )agenttrace (?:--store \\S+ )?([a-z][a-z-]*)")
	run := regexp.MustCompile(`(?m)docker run .* agenttrace ([a-z][a-z-]*)`)
	entry := regexp.MustCompile(`(?m)^(?:CMD \\["|\\s*command: \\[)([a-z][a-z-]*)`)
	checked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a directory
		}
		for _, pattern := range []*regexp.Regexp{named, run, entry} {
			for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
				if pattern == named && !strings.Contains(m[0], "`") &&
					!strings.HasPrefix(strings.TrimLeft(m[0], " $#\t"), "agenttrace ") {
					continue
				}
				checked++
				if !slices.Contains(commands, m[1]) && !strings.HasSuffix(file, "compose.yml") {
					t.Errorf("%s names a command %q, which agenttrace does not have: %q", file, m[1], m[0])
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d commands are named", checked)
	}
}

// TestREADMEHasEverySessionKey: the default that the exporter's documentation prints is the one that it has.
func TestREADMEHasEverySessionKey(t *testing.T) {
	text := testscale.ReadFile(t, "../../exporter/sessionexporter/README.md")
	if want := "| `session_keys` | `[" + strings.Join(dialect.SessionKeys(), ", ") +
		"]` |"; !strings.Contains(string(text),
		want) {
		t.Errorf("README.md of the exporter has not %s", want)
	}
}

// TestPipedListCutsNothing: a list in a pipe has titles whole, and ids that name their sessions.
func TestPipedListCutsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	title := strings.Repeat("a long title ", 40) + "to its end"
	said := func(text string) *store.Value { return &store.Value{Text: text, At: 1, Rank: store.RankFinal} }
	b := &store.Batch{}
	for _, id := range []string{"ses_1fa2bdc08000YO9dOSXjsMd9kP", "ses_1fa2bdc08000YO9dOSXjsMd9kQ",
		"1fa2bdc08000-other",
		"plain", strings.Repeat("x", 100)} {
		b.Sessions = append(b.Sessions, store.SessionChange{ID: id, Start: epoch, End: epoch, Title: said(title),
			Agent: said("an-agent-with-a-long-name")})
	}
	newStore(t, path, b)
	r := testscale.Open(t, sqlite.OpenReader, path)
	for _, columns := range []string{"", "80", "120"} {
		t.Setenv("COLUMNS", columns)
		stdout, stderr, code := piped(nil, "--store", path, "ls")
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if code != 0 || stderr != "" || len(lines) != len(b.Sessions)+2 {
			t.Fatalf("exit code %d, %s%s", code, stderr, stdout)
		}
		seen := map[string]bool{}
		for _, line := range lines[1 : len(lines)-1] {
			if !strings.Contains(line, title) || !strings.Contains(line, "an-agent-with-a-long-name") ||
				strings.Contains(line, "…") {
				t.Errorf("COLUMNS=%s: cut: %s", columns, line)
			}
			short, _, _ := strings.Cut(line, " ")
			id, err := r.Resolve(t.Context(), short)
			if err != nil || seen[id] {
				t.Errorf("COLUMNS=%s: %q names %q, %v", columns, short, id, err)
			}
			seen[id] = true
		}
	}
	if stdout, _, _ := piped(nil, "__complete", "show", "--store", path, "1fa2bdc08000Y"); !strings.Contains(
		"\n"+stdout,
		"\n1fa2bdc08000YO9dOSXjsMd9kP\t") {
		t.Errorf("what ls prints is completed as %q", stdout)
	}
	if _, stderr, code := piped(nil, "--store", path, "show", "1fa2bdc08000YO9"); code != 3 ||
		!strings.Contains(stderr,
			"ses_1fa2bdc08000YO9dOSXjsMd9kP") || !strings.Contains(stderr, "ses_1fa2bdc08000YO9dOSXjsMd9kQ") {
		t.Errorf("an ambiguous id: exit code %d, %s", code, stderr)
	}
}

// TestViewNamesAPortThatIsTaken: and does not serve on another than the one that was asked for.
func TestViewNamesAPortThatIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	newStore(t, path, fixture())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testscale.Must(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	got := commandLine("--store", path, "view", "--no-open", "--port", port)
	if want := "agenttrace: port " + port + " is taken by another program\nhint: name another with --port, or 0 for any " +
		"that is free\nexit code 2\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
