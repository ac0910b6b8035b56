//go:build e2e

package agents_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

var (
	sdk      *Suite
	others   *Suite
	programs *Suite
	genkit   *Program
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run installs and builds the programs once for all tests.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "agents")
	if err == nil {
		defer os.RemoveAll(dir)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		var errs [5]error
		var wg sync.WaitGroup
		wg.Go(func() {
			sdk, errs[0] = install(ctx, dir, "npm")
			others, errs[1] = install(ctx, dir, "clients")
			programs, errs[2] = install(ctx, dir, "programs", "clients/program.mjs", "clients/model.mjs")
		})
		wg.Go(func() {
			genkit, errs[3] = Build(ctx, "genkit", dir)
			_, errs[4] = Build(ctx, "adk", dir)
		})
		wg.Wait()
		err = errors.Join(errs[:]...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// install installs an npm project in a directory of its own below dir, with files of others.
func install(ctx context.Context, dir, name string, shared ...string) (*Suite, error) {
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return InstallSuite(ctx, name, dir, shared...)
}

// collect runs the programs at the same time against one collector and returns
// what each saw, and the path of the store.
func collect(t *testing.T, programs map[string]*Program) (map[string][]Turn, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	running, err := collector.Start(ctx, collector.Options{Store: filepath.Join(t.TempDir(), "sessions.db")})
	testscale.Must(t, err)
	var mu sync.Mutex
	saw := make(map[string][]Turn)
	var wg sync.WaitGroup
	for name, program := range programs {
		wg.Go(func() {
			turns, err := program.Run(ctx, "http://"+running.HTTPEndpoint())
			mu.Lock()
			defer mu.Unlock()
			if saw[name] = turns; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	if err := running.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	return saw, running.Store()
}

// TestAISDK: what a program on the AI SDK saw is what the store holds, in every version of the SDK and every shape of
// its telemetry; and of equal runs every version leaves equal sessions.
func TestAISDK(t *testing.T) {
	programs := make(map[string]*Program)
	variants := []string{"v5", "v6", "v7", "v7-legacy", "v6-openinference", "v7-openinference"}
	for _, name := range variants {
		programs[name] = sdk.Variant(name)
	}
	saw, path := collect(t, programs)
	reader := testscale.Open(t, sqlite.OpenReader, path)
	sessions := make(map[string]map[string]outline)
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			sessions[variant] = make(map[string]outline)
			names, byName := runs(saw[variant])
			for _, name := range names {
				t.Run(name, func(t *testing.T) {
					id := resolve(t, reader, byName[name])
					want, got := expect(byName[name], "assistant"), stored(t, reader, id)
					withoutUnreported(variant, name, &want)
					if want.ID == "" {
						want.ID = id
					}
					if d := cmp.Diff(want, got); d != "" {
						t.Errorf("session (-seen +stored):\n%s", d)
					}
					sessions[variant][name] = got
				})
			}
		})
	}
	if t.Failed() {
		return
	}
	if have, want := len(storetest.Sessions(t, reader)), len(variants)*len(sessions["v6"]); have != want {
		t.Errorf("the store holds %d sessions, the programs made %d", have, want)
	}
	t.Run("equal", func(t *testing.T) {
		if got := len(sessions["v6"]); got < 15 {
			t.Errorf("compared %d runs; the program has more", got)
		}
		for _, variant := range variants {
			for name, want := range sessions["v6"] {
				got := sessions[variant][name]
				if d := cmp.Diff(common(want), common(got)); d != "" {
					t.Errorf("%s of v6 and %s differ (-v6 +%[2]s):\n%s", name, variant, d)
				}
			}
		}
	})
}

// withoutUnreported takes out of a session what the telemetry of the variant does not report,
// of which the store must then have nothing.
func withoutUnreported(variant, run string, s *outline) {
	last := &s.Messages[len(s.Messages)-1]
	version := variant[:2]
	for i := range s.Messages {
		m := &s.Messages[i]
		if version == "v5" {
			// It has no attribute for reasoning, which only the request of a next step repeats, and except for streams
			// none for the tokens of reasoning and of the cache, which the totals contain.
			repeated := 0
			if strings.HasSuffix(run, "steps") {
				for i, p := range m.Parts {
					if p.Type == "step-start" {
						repeated = i
					}
				}
			}
			m.Parts = append(m.Parts[:repeated:repeated],
				slices.DeleteFunc(slices.Clone(m.Parts[repeated:]), func(p part) bool {
					return p.Type == "reasoning"
				})...)
			if u := m.Usage; u != nil && !strings.HasPrefix(run, "stream") && !strings.HasPrefix(run, "abort") {
				m.Usage = &session.Usage{Input: u.Input + u.CacheRead + u.CacheWrite, Output: u.Output + u.Reasoning}
			}
		}
	}
	s.sum()
	switch run {
	case "abort", "abort-step":
		if version != "v7" {
			// The call that was aborted has no span. The model's last word is then that of the call before.
			last.Calls--
			if last.Calls > 0 {
				last.Stop = "tool-calls"
			}
		}
	case "retry":
		if version == "v7" {
			last.Calls, last.Failures = 1, 0 // both attempts are one span
		}
	case "object":
		if version == "v7" {
			s.ID = "" // its calls for objects take no context, so that nothing names the session
		}
	}
}

// common leaves of a session what every version reports.
func common(s outline) outline {
	s.ID = ""
	s.Rollup = session.Usage{Input: s.Rollup.Total()}
	s.Messages = slices.Clone(s.Messages)
	for i := range s.Messages {
		m := &s.Messages[i]
		if m.Usage != nil {
			m.Usage = &session.Usage{Input: m.Usage.Total()}
		}
		if m.End == "" {
			m.Stop = ""
		}
		m.Calls, m.Failures = 0, 0
		m.Parts = slices.DeleteFunc(slices.Clone(m.Parts), func(p part) bool { return p.Type == "reasoning" })
	}
	return s
}

// TestGenkit: the same for a program on Genkit for Go, whose sessions are named by the application's own spans.
func TestGenkit(t *testing.T) {
	saw, path := collect(t, map[string]*Program{"genkit": genkit})
	compareGenkit(t, saw["genkit"], testscale.Open(t, sqlite.OpenReader, path))
}

// TestGenkitInProcess: the same where the program itself writes the store, without a collector.
func TestGenkitInProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "sessions.db")
	saw, err := genkit.Run(ctx, path)
	testscale.Must(t, err)
	compareGenkit(t, saw, testscale.Open(t, sqlite.OpenReader, path))
}

func compareGenkit(t *testing.T, saw []Turn, reader store.Reader) {
	t.Helper()
	names, byName := runs(saw)
	if len(names) < 8 {
		t.Errorf("compared %d runs; the program has more", len(names))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			id := resolve(t, reader, byName[name])
			agent := "assistant"
			if strings.HasPrefix(name, "stream") {
				agent = "streaming-assistant"
			}
			want, got := expect(byName[name], agent), stored(t, reader, id)
			if want.ID == "" {
				want.ID = id
			}
			if last := &want.Messages[len(want.Messages)-1]; name == "tool-error" {
				last.Stop = "stop" // the model had asked for the tool before the flow failed
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("session (-seen +stored):\n%s", d)
			}
		})
	}
}
