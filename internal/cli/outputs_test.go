package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// telemetry are files of it.
func telemetry(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../session/ingest/testdata/captures/*/*/*-traces.json")
	if err != nil || len(all) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	return all[:min(40, len(all))]
}

// importing imports telemetry of other agents, and a file of sessions, and reads the result.
func importing(t *testing.T) []string {
	t.Helper()
	files := strings.Join(telemetry(t), " ")
	return []string{"import --json " + files, "import " + files, "import ../../session/codec/testdata/reference.jsonl",
		"ls --all --json", "stats --json", "search the", "store check"}
}

// place is where commands are run.
type place struct {
	name string
	// env are the environment variables that name the store.
	env map[string]string
	// names replaces the names of the store in what is printed.
	names *strings.Replacer
}

// run runs a command in this process; in one of its own where a certificate is to be trusted, which are read once.
func (p *place) run(t *testing.T, args []string) (stdout, stderr string, code int) {
	t.Helper()
	if p.env["SSL_CERT_FILE"] != "" {
		cmd := exec.CommandContext(t.Context(), "agenttrace", args...)
		cmd.Env = append(os.Environ(), "COLUMNS=100")
		for name, value := range p.env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	t.Setenv("COLUMNS", "100")
	for _, name := range []string{"AGENTTRACE_STORE", "AGENTTRACE_REMOTE", "AGENTTRACE_TOKEN_FILE"} {
		t.Setenv(name, p.env[name])
		if p.env[name] == "" {
			os.Unsetenv(name)
		}
	}
	return piped(nil, args...)
}

// compareOutputs runs the commands in each place, one after the other, and compares what they print and how they end
// with the first.
func compareOutputs(t *testing.T, commands []string, places ...place) {
	t.Helper()
	for _, command := range commands {
		out := make([]string, len(places))
		for i, at := range places {
			stdout, stderr, code := at.run(t, strings.Fields(command))
			out[i] = fmt.Sprintf("%s%sexit %d\n", at.names.Replace(stdout), at.names.Replace(stderr), code)
			out[i] = changing.ReplaceAllString(out[i], "…")
			if strings.HasPrefix(command, "search") { // what was stored last comes first, as each engine knows it
				lines := strings.Split(out[i], "\n")
				slices.Sort(lines)
				out[i] = strings.Join(lines, "\n")
			}
		}
		for i := range places[1:] {
			if diff := cmp.Diff(strings.Split(out[0], "\n"), strings.Split(out[i+1], "\n")); diff != "" {
				t.Errorf("agenttrace %.200s: %s differs from %s (-%s +%s):\n%.3000s", command, places[i+1].name,
					places[0].name,
					places[0].name, places[i+1].name, diff)
			}
		}
	}
}

// changing is what differs from one run to the next: ages and durations in words, the dates that ages come to, and when
// a rewind was made.
var changing = regexp.MustCompile(`\b\d+(\.\d+)?(ms|s) ` +
	`?(ago)?|"took[^,]*|\\"at\\":\d{13}|(rewound|messages ·) \d\d:\d\d:\d\d|before [-0-9]+ [:0-9]+`)

const main = "ses_1fa2bdc08000YO9dOSXjsMd9kP" // a session of the fixture

// Commands of a store that has the fixture's sessions.
var (
	reading = []string{
		"ls", "ls --all", "ls --all --json", "ls -n 1", "ls --agent coder", "ls --limit 1",
		"show last", "show " + main + " --prompt --tools --permissions --raw", "show last --json", "show nothing",
		"show " + main[:12],
		"status last", "status last --json", "search test", "search é --json", "search prompt", "search nowhere",
		"stats", "stats --by model", "stats --by tool", "stats --by day", "stats --by agent --json", "store check",
		"store check --rules", "export " + main + " --format jsonl", "export --all --format csv",
		"export " + main + " --format otlp-json", "export " + main + " --format markdown",
		"export " + main + " --format atif --explain", "diff " + main + " last", "replay last", "tail last --no-follow",
		"tail " + main + " --since 1h --no-follow",
	}
	changes = []string{
		"edit " + main + " --title titled", "ls", "edit --archive " + main, "ls --all", "edit --unarchive " + main,
		"store gc --dry-run", "store gc", "store gc --json", "rm --older-than 36500d --dry-run",
		"rm --older-than 1h --dry-run --json",
	}
	rewinding = []string{
		"rewind last --turn 1", "show last", "rewind last --undo", "show last",
		"edit " + main + " --tag good --score quality=0.5 --author ann --comment é",
		"edit " + main + " --turn 1 --tag x --author b", "edit " + main + " --list", "ls --tag good",
		"ls --all --score quality>=0.5 --agent codeagent", "ls --tag bad --tool bash", "ls --all --status finished",
		"ls --all --model gpt-5-mini --text test", "ls --all --tool bash --errors", "ls --denials",
		"ls --all --provider openai --sort title", "ls --all --sort cost --after " + main, "stats --tag good",
		"stats --errors --by tool", "export --tag good --format markdown", "rm --tag good --dry-run",
		"edit " + main + " --untag good --author ann", "ls --tag good", "rm " + main + " --yes", "ls --all", "store gc",
		"export --all --format jsonl", "store check",
	}
)
