package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/cli"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

var update = flag.Bool("update", false, "write what is printed into testdata")

// programs are what tests may run.
var programs = map[string]func(){
	"agenttrace": func() { os.Exit(cli.Main("v1.2.3", os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	"acpagent":   acpAgent,
	"acpclient":  acpClient,
}

func TestMain(m *testing.M) {
	os.Setenv("AGENTTRACE_MEMORY_MIB", "8192") // a collector in this process has all tests beside it
	os.Setenv("GOGC", "800")                   // commands in this process then leave it as testscale has it
	testscript.Main(m, programs)
}

// TestScripts runs the scripts of testdata, which run the command. They have commands of their own: "store FILE" makes
// a store with the sessions of fixture, "store FILE live" one with a session whose agent was killed at work, "damage
// FILE" overwrites all of a store but its schema, "sql DATABASE FILE" executes a script in a database, which stays open
// until the test ends, "copy DIRECTORY TO" copies all of it, such as the samples of formats below $SAMPLES, "unzip FILE
// DIR" unpacks a zip, "hold FILE" has a store open for writing until the script ends, and "status N COMMAND..." wants a
// command to end with the exit code N.
func TestScripts(t *testing.T) {
	cache := goEnv(t, "GOCACHE")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("AGENTTRACE_STORE", e.WorkDir+"/s.db")
			e.Setenv("GOCACHE", cache)
			e.Setenv("COLUMNS", "80")
			e.Setenv("TZ", "UTC")
			samples, err := filepath.Abs("../../session/codec")
			e.Setenv("SAMPLES", samples)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"store": func(ts *testscript.TestScript, _ bool, args []string) {
				switch {
				case len(args) == 1:
					ts.Check(makeStore(ts.MkAbs(args[0]), fixture()))
				case len(args) == 2 && args[1] == "live":
					ts.Check(makeStore(ts.MkAbs(args[0]), liveFixture()))
				default:
					ts.Fatalf("usage: store FILE [live]")
				}
			},
			"unzip": unzip,
			"sql": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) != 2 {
					ts.Fatalf("usage: sql DATABASE FILE")
				}
				path := ts.MkAbs(args[0])
				ts.Check(os.MkdirAll(filepath.Dir(path), 0o700))
				conn, err := zombiezen.OpenConn(path)
				ts.Check(err)
				ts.Defer(func() { ts.Check(conn.Close()) })
				ts.Check(sqlitex.ExecuteScript(conn, ts.ReadFile(args[1]), nil))
			},
			"copy": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) != 2 {
					ts.Fatalf("usage: copy DIRECTORY TO")
				}
				ts.Check(os.CopyFS(ts.MkAbs(args[1]), os.DirFS(args[0])))
			},
			// contents leaves of exports in JSONL what formats of other programs keep.
			"contents": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, name := range args {
					kept := contents([]byte(ts.ReadFile(name)))
					ts.Check(os.WriteFile(ts.MkAbs(name), []byte(kept), 0o600))
				}
			},
			"damage": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) != 1 {
					ts.Fatalf("usage: damage FILE")
				}
				ts.Check(damage(ts.MkAbs(args[0])))
			},
			"hold": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) == 0 {
					ts.Fatalf("usage: hold FILE [DURATION]")
				}
				s, err := sqlite.Open(context.Background(), ts.MkAbs(args[0]), sqlite.Options{})
				ts.Check(err)
				if len(args) == 1 {
					ts.Defer(func() { ts.Check(s.Close()) })
					return
				}
				moment, err := time.ParseDuration(args[1])
				ts.Check(err)
				time.AfterFunc(moment, func() { _ = s.Close() })
			},
			"status": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) < 2 {
					ts.Fatalf("usage: status CODE COMMAND...")
				}
				err := ts.Exec(args[1], args[2:]...)
				code := "0"
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					code = strings.TrimPrefix(exit.String(), "exit status ")
				} else if err != nil {
					ts.Fatalf("run %s: %v", args[1], err)
				}
				if code != args[0] {
					ts.Fatalf("exit code %s, want %s", code, args[0])
				}
			},
		},
	})
}

// piped runs the command in this process with what is on its standard input.
func piped(stdin []byte, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = cli.Main("v1.2.3", args, bytes.NewReader(stdin), &out, &errs)
	return out.String(), errs.String(), code
}

// command returns the standard output of the command; any other exit code than want is an error.
func command(t *testing.T, want int, args ...string) string {
	t.Helper()
	out, stderr, code := piped(nil, args...)
	if code != want {
		t.Fatalf("agenttrace %s: exit code %d, want %d\n%s", strings.Join(args, " "), code, want, stderr)
	}
	return out
}

// run is command for one that succeeds and prints nothing on standard error.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	out, stderr, code := piped(nil, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("agenttrace %v: exit code %d\n%s", args, code, stderr)
	}
	return []byte(out)
}

// commandLine returns what the command prints, and its exit code.
func commandLine(args ...string) string {
	out, stderr, code := piped(nil, args...)
	return fmt.Sprintf("%s%sexit code %d\n", out, stderr, code)
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return v
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatalf("go env %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// epoch is when the sessions of the fixture begin.
const epoch = 1795198540000

func makeStore(path string, b *store.Batch) error {
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		return err
	}
	_, err = s.Apply(context.Background(), b)
	return errors.Join(err, s.Close())
}

// newStore makes a store with what a batch has.
func newStore(t testing.TB, path string, b *store.Batch) {
	t.Helper()
	testscale.Must(t, makeStore(path, b))
}

// damage overwrites all pages of a database but the first.
func damage(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	const page = 4096
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(info.Size())-page), page)
	return err
}

// TestClosedPipe has standard output closed by its reader before all of an export is written.
func TestClosedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	newStore(t, path, fixture())
	r, w, err := os.Pipe()
	testscale.Must(t, err)
	r.Close()
	defer w.Close()
	for _, args := range [][]string{{"export", "--all"}, {"ls"}, {"show", "last"}, {"help"}} {
		cmd := exec.CommandContext(t.Context(), "agenttrace", append([]string{"--store", path}, args...)...)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = w, &stderr
		if err := cmd.Run(); err != nil || stderr.Len() > 0 {
			t.Errorf("agenttrace %v into a closed pipe: %v, standard error %q", args, err, stderr.String())
		}
	}
}

// fixture is a session with two turns, its sub-agent's, and an archived one of which the id is a trap for file names.
func fixture() *store.Batch { return batch("fixture.json") }

// liveFixture is what is left of a session whose agent was killed while a tool ran.
func liveFixture() *store.Batch { return batch("live.json") }

// batch reads the rows of a file of testdata.
func batch(name string) *store.Batch {
	raw, err := fixtures.ReadFile("testdata/" + name)
	b := new(store.Batch)
	if err = errors.Join(err, json.Unmarshal(raw, b)); err != nil {
		panic(err)
	}
	return b
}

//go:embed testdata/*.json
var fixtures embed.FS

// TestTailInterrupt: Ctrl-C is the proper end of a tail.
func TestTailInterrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	newStore(t, path, fixture())
	cmd := exec.CommandContext(t.Context(), "agenttrace", "--store", path, "tail", "last")
	out, err := cmd.StdoutPipe()
	testscale.Must(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	testscale.Must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "✓ finished") {
	}
	testscale.Must(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() {
		t.Errorf("it goes on: %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("ended with %v, standard error %q", err, stderr.String())
	}
}
