package sessionexporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

const quiet = 5 * time.Second

func jsonlConfig(t *testing.T) (*Config, string) {
	c := bubbleConfig(t)
	dir := filepath.Join(t.TempDir(), "out")
	c.JSONL = configoptional.Some(JSONLConfig{Directory: dir, QuietPeriod: quiet})
	return c, dir
}

// listing returns the names and contents of a directory.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testscale.Must(t, err)
	all := make(map[string]string)
	for _, e := range entries {
		b := testscale.ReadFile(t, filepath.Join(dir, e.Name()))
		all[e.Name()] = string(b)
	}
	return all
}

// titles shortens a listing to the titles of the sessions in it.
func titles(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := listing(t, dir)
	for name, content := range all {
		_, rest, _ := strings.Cut(content, `"title":"`)
		all[name], _, _ = strings.Cut(rest, `"`)
	}
	return all
}

func TestJSONLWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dir := jsonlConfig(t)
		s := newFakeStore()
		e := start(t, s.open, c, nop(), componenttest.NewNopHost())
		consume := func(ids ...string) {
			t.Helper()
			deliver(t, e, ids...)
		}
		check := func(when string, want map[string]string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, titles(t, dir)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		synctest.Wait()
		consume("a", "b")
		advance(quiet * 4 / 5)
		consume("b") // b goes on
		check("before a was quiet", map[string]string{})
		advance(quiet / 2)
		check("a was quiet", map[string]string{"a.jsonl": "1"})
		advance(quiet)
		check("both were quiet", map[string]string{"a.jsonl": "1", "b.jsonl": "2"})
		if s.due() != 0 {
			t.Errorf("%d sessions are still due", s.due())
		}
		consume("a")
		advance(2 * quiet)
		check("a woke up", map[string]string{"a.jsonl": "2", "b.jsonl": "2"})
	})
}

// advance lets time pass in a synctest bubble.
func advance(d time.Duration) { <-time.After(d) }

func TestJSONLOnShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dir := jsonlConfig(t)
		s := newFakeStore()
		e := tracesOf(t, newFactory(s.open), nop(), c)
		begin(t, e)
		deliver(t, e, "a")
		end(t, e)
		if diff := cmp.Diff(map[string]string{"a.jsonl": "1"}, titles(t, dir)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	})
}

// A shutdown that is out of time leaves its sessions due.
func TestJSONLShutdownOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dir := jsonlConfig(t)
		s := newFakeStore()
		e := tracesOf(t, newFactory(s.open), nop(), c)
		begin(t, e)
		deliver(t, e, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		testscale.Must(t, e.Shutdown(ctx))
		if got := titles(t, dir); len(got) != 0 || s.due() != 1 || s.closed != 1 {
			t.Errorf("files %v, %d due, closed %d times; want none, 1, once", got, s.due(), s.closed)
		}
	})
}

// A process that died between commit and file leaves the session in the store's
// outbox and perhaps half a file: the next one finishes the work.
func TestJSONLAfterCrash(t *testing.T) {
	c, dir := jsonlConfig(t)
	ctx := t.Context()
	before, err := sqlite.Open(ctx, c.Path, sqlite.Options{Outbox: true})
	testscale.Must(t, err)
	died := start(t, func(context.Context, string, stores.Options) (store.Store, error) {
		return unclosed{before}, nil
	},
		testConfig(t), nop(), componenttest.NewNopHost())
	testscale.Must(t, died.ConsumeTraces(ctx, runs("a")))
	testscale.Must(t, before.Close())
	testscale.Must(t, os.MkdirAll(dir, 0o700))
	for name, content := range map[string]string{".agenttrace-123": `{"type":"sess`, "other.txt": "not ours"} {
		testscale.WriteFile(t, filepath.Join(dir, name), content)
	}
	e := tracesOf(t, NewFactory(), nop(), c)
	testscale.Must(t, e.Start(ctx, componenttest.NewNopHost()))
	testscale.Must(t, e.Shutdown(ctx))
	reader, err := sqlite.OpenReader(ctx, c.Path)
	testscale.Must(t, err)
	defer reader.Close()
	whole, err := formats.ReadStored(ctx, reader, "a", nil)
	testscale.Must(t, err)
	if len(whole.SpanRefs) == 0 || whole.State == nil {
		t.Errorf("the store remembers %d spans and the state %v", len(whole.SpanRefs), whole.State)
	}
	var want bytes.Buffer
	testscale.Must(t, jsonl.NewEncoder(&want).Encode(whole))
	if diff := cmp.Diff(map[string]string{"a.jsonl": want.String(), "other.txt": "not ours"},
		listing(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(dir, "a.jsonl"))
	testscale.Must(t, err)
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("file mode %o, want 600", got)
	}
}

// unclosed is a store whose owner dies without closing it.
type unclosed struct{ *sqlite.Store }

func (unclosed) Close() error { return nil }

// A file that cannot be written is tried again, and the trouble is logged once.
func TestJSONLRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dir := jsonlConfig(t)
		core, logs := observer.New(zap.WarnLevel)
		set := nop()
		set.Logger = zap.New(core)
		s := newFakeStore()
		s.read = errors.New("disk is on fire")
		e := start(t, s.open, c, set, componenttest.NewNopHost())
		deliver(t, e, "a")
		advance(10 * quiet)
		synctest.Wait()
		if got := logs.Len(); got != 1 {
			t.Errorf("%d warnings after many failures, want 1", got)
		}
		s.mu.Lock()
		s.read = nil
		s.mu.Unlock()
		advance(2 * quiet)
		synctest.Wait()
		if diff := cmp.Diff(map[string]string{"a.jsonl": "1"}, titles(t, dir)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	})
}

// Files follow what is done to sessions beside ingest: a new title is in the file, and one that is deleted has none.
func TestJSONLFollowsEditsAndDeletions(t *testing.T) {
	c, dir := jsonlConfig(t)
	c.JSONL.Get().QuietPeriod = time.Millisecond
	st, err := sqlite.Open(t.Context(), c.Path, sqlite.Options{Outbox: true})
	testscale.Must(t, err)
	e := start(t, func(context.Context, string, stores.Options) (store.Store, error) { return st, nil }, c, nop(),
		componenttest.NewNopHost())
	deliver(t, e, "a", "b")
	files := func(want string) func() bool { return func() bool { return fmt.Sprint(titles(t, dir)) == want } }
	wait(t, "both have files", files("map[a.jsonl:New Chat b.jsonl:New Chat]"))
	testscale.Must(t, st.SetTitle(t.Context(), "a", "new", time.Now()))
	wait(t, "a has its new title", files("map[a.jsonl:new b.jsonl:New Chat]"))
	testscale.Must(t, st.Delete(t.Context(), "b"))
	wait(t, "b is gone", files("map[a.jsonl:new]"))
}

// TestEverySessionHasAFileOfItsOwn: whatever the ids, each session has a file in the
// directory, also where upper and lower case are the same, and no other is touched.
func TestEverySessionHasAFileOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dir := jsonlConfig(t)
		s := newFakeStore()
		e := start(t, s.open, c, nop(), componenttest.NewNopHost())
		ids := []string{
			"plain", strings.Repeat("x", 5000), strings.Repeat("x", 5000) + "y", strings.Repeat("é", 5000),
			"../../etc/passwd",
			"..", ".hidden", "a/b", `a\b`,
			"a_b", "nul", "NUL", "com1.x", "Case", "CASE", "case", "a:b", "a b", " ", "a.", "a",
			"ses_018f3a2b4c5d0AbcdefGhijk12", "ses_018f3a2b4c5d0abcdefghijk12", "ses_018f3a2b4c5d0ABCDEFGHIJK12",
		}
		for _, id := range ids {
			deliver(t, e, id)
		}
		advance(2 * quiet)
		synctest.Wait()
		files := listing(t, dir)
		if len(files) != len(ids) || s.due() != 0 {
			t.Errorf("%d files of %d sessions, %d due", len(files), len(ids), s.due())
		}
		folded := make(map[string]bool)
		for _, id := range ids {
			name := codec.FileName(id) + ".jsonl"
			if quoted, err := json.Marshal(id); err != nil || !strings.Contains(files[name], `"id":`+string(quoted)) {
				t.Errorf("the file %s of %.40q is %.200q, %v", name, id, files[name], err)
			}
			folded[strings.ToLower(name)] = true
		}
		if len(folded) != len(ids) {
			t.Errorf("%d names of %d sessions where case does not count", len(folded), len(ids))
		}
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
			t.Errorf("beside the directory: %v, %v", entries, err)
		}
	})
}

// startLogged starts an exporter that writes files of sessions, and keeps what it logs.
func startLogged(t *testing.T) (exporter.Traces, *fakeStore, string, *observer.ObservedLogs) {
	t.Helper()
	c, dir := jsonlConfig(t)
	core, logs := observer.New(zap.InfoLevel)
	set := nop()
	set.Logger = zap.New(core)
	s := newFakeStore()
	return start(t, s.open, c, set, componenttest.NewNopHost()), s, dir, logs
}

// TestAFailingSessionHidesNoOther: the files of the others are written, each failure is logged
// once with its file and what to do, and once when it is over.
func TestAFailingSessionHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, dir, logs := startLogged(t)
		consume := func(ids ...string) {
			t.Helper()
			deliver(t, e, ids...)
			advance(3 * quiet)
			synctest.Wait()
		}
		// logged are the messages about files since the last look, with the file's name.
		logged := func(want ...string) {
			t.Helper()
			var got []string
			for _, l := range logs.TakeAll() {
				if strings.HasPrefix(l.Message, "Writing ") {
					fields := l.ContextMap()
					got = append(got, l.Message+" "+strings.TrimPrefix(fmt.Sprint(fields["file"]), dir))
					if l.Level == zap.WarnLevel && (fields["remedy"] == "" ||
						strings.Contains(fmt.Sprint(fields["error"]), ".agenttrace-")) {
						t.Errorf("the log has %v", fields)
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		}
		block := func(id string) {
			t.Helper()
			testscale.Must(t, os.MkdirAll(filepath.Join(dir, id+".jsonl", "taken"), 0o700))
		}
		block("bad1")
		consume("a", "bad1", "b")
		logged(`Writing the file of session "bad1" failed, will be tried again. /bad1.jsonl`)
		block("bad2")
		consume("c", "bad2")
		logged(`Writing the file of session "bad2" failed, will be tried again. /bad2.jsonl`)
		for _, id := range []string{"a", "b", "c"} {
			if _, err := os.Stat(filepath.Join(dir, id+".jsonl")); err != nil {
				t.Error(err)
			}
		}
		testscale.Must(t, os.RemoveAll(filepath.Join(dir, "bad1.jsonl")))
		consume("d")
		logged(`Writing the file of session "bad1" succeeded again. /bad1.jsonl`)
		testscale.Must(t, os.RemoveAll(filepath.Join(dir, "bad2.jsonl")))
		consume("e")
		logged(`Writing the file of session "bad2" succeeded again. /bad2.jsonl`)
		if got := titles(t, dir); len(got) != 7 || s.due() != 0 {
			t.Errorf("files %v, %d due", got, s.due())
		}
	})
}

// TestADirectoryThatCannotBeWrittenIsLoggedOnce: a failure that concerns all sessions is logged once, and not
// for each of them; a directory that was removed is made again.
func TestADirectoryThatCannotBeWrittenIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, dir, logs := startLogged(t)
		synctest.Wait()
		testscale.Must(t, os.Remove(dir))
		testscale.WriteFile(t, dir, "")
		deliver(t, e, "a", "b", "c")
		advance(10 * quiet)
		synctest.Wait()
		failed := logs.FilterMessage("Writing session files failed, will be tried again.")
		if failed.Len() != 1 || failed.All()[0].ContextMap()["file"] != dir ||
			logs.FilterLevelExact(zap.WarnLevel).Len() != 1 {
			t.Errorf("the log has %v", logs.All())
		}
		testscale.Must(t, os.Remove(dir))
		advance(2 * quiet)
		synctest.Wait()
		if got := titles(t, dir); len(got) != 3 ||
			logs.FilterMessage("Writing session files succeeded again.").Len() != 1 {
			t.Errorf("files %v, log %v", got, logs.All())
		}
	})
}
