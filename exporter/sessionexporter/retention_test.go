package sessionexporter

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// failing is a store that deletes nothing while err is set.
type failing struct {
	*sqlite.Store
	err error
}

func (s *failing) Delete(ctx context.Context, id string) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Delete(ctx, id)
}

// Sessions are deleted when they are too old by the clock, a failure is tried again, and both are counted and logged.
func TestRetentionDeletesOldSessions(t *testing.T) {
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() { st.Close() })
	began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var b store.Batch
	for i, id := range []string{"day 0", "day 1", "day 2", "day 3"} {
		at := began.AddDate(0, 0, i).UnixMilli()
		b.Sessions = append(b.Sessions, store.SessionChange{ID: id, Start: at, End: at})
	}
	b.Annotations = []store.Annotation{{ID: "t", SessionID: "day 1", Kind: store.AnnotationTag, Name: "good"}}
	if _, err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	telemetry, err := newMetrics(measured(tel).TelemetrySettings)
	testscale.Must(t, err)
	core, logs := observer.New(zapcore.InfoLevel)
	full := &failing{st, errors.New("the disk is full")}
	c := &RetentionConfig{MaxAge: Age(48 * time.Hour), KeepTagged: true, Interval: time.Hour}
	s := sink{config: &Config{Retention: configoptional.Some(*c)}, logger: zap.New(core), telemetry: telemetry}
	rules := store.Retention{MaxAge: time.Duration(c.MaxAge), KeepTagged: c.KeepTagged}
	left := func() (ids []string) {
		for _, s := range storetest.List(t, st, store.SessionQuery{Limit: -1}) {
			ids = append(ids, s.ID)
		}
		return ids
	}
	for _, step := range []struct {
		at     time.Duration
		err    error
		want   []string
		logged string
	}{
		{47 * time.Hour, nil, []string{"day 3", "day 2", "day 1", "day 0"}, ""},
		{49 * time.Hour, full.err, []string{"day 3", "day 2", "day 1", "day 0"}, "cannot apply the retention; it is " +
			"tried again"},
		{49 * time.Hour, nil, []string{"day 3", "day 2", "day 1"}, "deleted sessions that the configured retention " +
			"does not keep"},
		{96 * time.Hour, nil, []string{"day 3", "day 2", "day 1"}, ""},
		{400 * time.Hour, nil, []string{"day 1"}, "deleted sessions that the configured retention does not keep"},
	} {
		full.err = step.err
		var deleted []session.Session
		err := rules.Apply(t.Context(), full, began.Add(step.at), func(one session.Session) {
			deleted = append(deleted, one)
		})
		s.retained(deleted, err)
		if got := left(); !slices.Equal(got, step.want) {
			t.Errorf("after %v %v are left, want %v", step.at, got, step.want)
		}
		logged := ""
		for _, line := range logs.TakeAll() {
			logged += line.Message
		}
		if logged != step.logged {
			t.Errorf("after %v %q is logged, want %q", step.at, logged, step.logged)
		}
	}
	if got := counted(t, tel, "retention_deleted"); got != 3 {
		t.Errorf("%d sessions counted as deleted, want 3", got)
	}
	if got := counted(t, tel, "retention_failures"); got != 1 {
		t.Errorf("%d failures counted, want 1", got)
	}
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: it did not happen", what)
		}
	}
}

// A started exporter applies the retention beside ingest, and stops doing so when it is shut down.
func TestRetentionOfAStartedExporter(t *testing.T) {
	c := testConfig(t)
	c.Retention = configoptional.Some(RetentionConfig{MaxAge: Age(time.Minute), Interval: 10 * time.Millisecond})
	st, err := sqlite.Open(t.Context(), c.Path, sqlite.Options{})
	testscale.Must(t, err)
	now := time.Now().UnixMilli()
	if _, err := st.Apply(t.Context(), &store.Batch{Sessions: []store.SessionChange{{ID: "old", Start: 1, End: 2},
		{ID: "new", Start: now, End: now}}}); err != nil {
		t.Fatal(err)
	}
	testscale.Must(t, st.Close())
	e := tracesOf(t, NewFactory(), nop(), c)
	begin(t, e)
	r, err := sqlite.OpenReader(t.Context(), c.Path)
	testscale.Must(t, err)
	defer r.Close()
	wait(t, "the old session is deleted", func() bool {
		_, err := r.Session(t.Context(), "old")
		return errors.Is(err, store.ErrNotFound)
	})
	end(t, e)
	if _, err := r.Session(t.Context(), "new"); err != nil {
		t.Error(err)
	}
}

// TestRetentionAndTranscriptsTogether: a collector that follows a directory and deletes old sessions does not import
// them again, however often their files are looked at, until they go on.
func TestRetentionAndTranscriptsTogether(t *testing.T) {
	dir := t.TempDir()
	write := func(id, text string) {
		t.Helper()
		testscale.WriteFile(t, filepath.Join(dir, id+".jsonl"), text)
	}
	turn := func(id string, n int, at time.Time) string {
		record := `{"sessionId":%q,"isSidechain":false,"uuid":"%s-%d-%s","timestamp":%q,"type":%q,` +
			`"message":{"role":%q,"id":"m%d","content":%q}}` + "\n"
		stamp := at.UTC().Format(time.RFC3339Nano)
		return fmt.Sprintf(record, id, id, n, "u", stamp, "user", "user", n, "why") +
			fmt.Sprintf(record, id, id, n, "a", stamp, "assistant", "assistant", n, "because")
	}
	long := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	write("old", turn("old", 1, long))
	now := turn("new", 1, time.Now())
	write("new", now)

	c := testConfig(t)
	c.Retention = configoptional.Some(RetentionConfig{MaxAge: Age(time.Hour), Interval: 10 * time.Millisecond})
	c.Transcripts.Directories = []string{dir}
	e := tracesOf(t, NewFactory(), nop(), c)
	begin(t, e)
	defer func() {
		end(t, e)
	}()
	r, err := sqlite.OpenReader(t.Context(), c.Path)
	testscale.Must(t, err)
	defer r.Close()
	messages := func(id string, n int) func() bool {
		return func() bool {
			s, err := r.Transcript(t.Context(), id)
			return err == nil && len(s.Messages) == n
		}
	}
	source := func(size int) func() bool {
		return func() bool {
			s, err := r.ImportSource(t.Context(), filepath.Join(dir, "old.jsonl"))
			return err == nil && len(s.Deleted) == 1 && s.Size == int64(size)
		}
	}
	wait(t, "the old session is deleted", source(len(turn("old", 1, long))))
	// The file changes, and has nothing new of the session.
	write("old", turn("old", 1, long)+"\n")
	write("new", now+turn("new", 2, time.Now()))
	wait(t, "the new session goes on", messages("new", 4))
	wait(t, "the old session stays deleted", source(len(turn("old", 1, long))+1))
	if _, err := r.Session(t.Context(), "old"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the old session is there again: %v", err)
	}
	write("old", turn("old", 1, long)+"\n"+turn("old", 2, time.Now()))
	wait(t, "the old session goes on", messages("old", 4))
}
