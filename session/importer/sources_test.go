package importer_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// run imports arguments of a command line, and returns the summary and how many inputs were read.
func run(t *testing.T, db string, o importer.Options, args ...string) (importer.Summary, int) {
	t.Helper()
	var at importer.Progress
	o.Progress = func(p importer.Progress) { at = p }
	im, err := importer.New(db, o)
	testscale.Must(t, err)
	if _, err := im.Run(t.Context(), importer.Inputs(args, strings.NewReader(""), o.Format)); err != nil {
		t.Fatal(err)
	}
	testscale.Must(t, im.Close())
	return im.Summary, at.Begun
}

// claudeFile is a transcript of one turn.
func claudeFile(session, question string) string {
	record := func(id, parent, rest string) string {
		return fmt.Sprintf(`{"sessionId":%q,"isSidechain":false,"uuid":%q,"parentUuid":%s,`+
			`"timestamp":"2026-01-02T03:04:0%s.000Z",%s}`+"\n", session, session+id, parent, id, rest)
	}
	return record("1", "null", fmt.Sprintf(`"type":"user","promptId":"p1","message":{"role":"user","content":%q}`,
		question)) +
		record("2", `"`+session+`1"`, `"type":"assistant","requestId":"r","message":{"id":"m1","model":"claude-x",`+
			`"content":[{"type":"text","text":"yes"}],"stop_reason":"end_turn","usage":{"input_tokens":3,`+
			`"output_tokens":2}}`)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	testscale.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	testscale.WriteFile(t, path, text)
}

// TestSecondImportReadsNothing: of files that did not change, whatever they are, none is read,
// and the store's file stays byte for byte the same.
func TestSecondImportReadsNothing(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	for i := range 5 {
		write(t, filepath.Join(dir, "p", fmt.Sprintf("s%d.jsonl", i)), claudeFile(fmt.Sprintf("s%d", i), "why"))
	}
	write(t, filepath.Join(dir, "damaged.jsonl"), claudeFile("s9", "why")+"{\n")
	write(t, filepath.Join(dir, "other.json"), `{"some":"file"}`)
	write(t, filepath.Join(dir, "traces.json"),
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c",`+
			`"spanId":"b7ad6b7169203331","name":"GET","startTimeUnixNano":"1","endTimeUnixNano":"2"}]}]}]}`)
	first, n := run(t, db, importer.Options{}, dir)
	if n != 8 || first.Total.Damaged != 1 || len(first.Total.Sessions) != 6 {
		t.Fatalf("first import: %d read, %+v", n, first.Total)
	}
	before := testscale.ReadFile(t, db)
	again, n := run(t, db, importer.Options{}, dir)
	after := testscale.ReadFile(t, db)
	if n != 0 || !bytes.Equal(before, after) {
		t.Errorf("second import: %d read, store changed: %v", n, !bytes.Equal(before, after))
	}
	if got := again.Total; got.Damaged != 1 || got.Unchanged != 30 || got.Messages != 0 || len(got.Sessions) != 6 ||
		got.Spans != 1 {
		t.Errorf("second import: %+v", got)
	}
	if _, n := run(t, db, importer.Options{Again: true}, dir); n != 8 {
		t.Errorf("%d read with Again", n)
	}
	if _, n := run(t, filepath.Join(t.TempDir(), "other.db"), importer.Options{}, dir); n != 8 {
		t.Errorf("%d read into another store", n)
	}
	if _, n := run(t, db, importer.Options{KeepSecrets: true}, dir); n != 8 {
		t.Errorf("%d read with other options", n)
	}
}

// interruptedSources is a store whose import is interrupted when its files are to be remembered.
type interruptedSources struct {
	store.Service
	interrupt func()
}

func (s interruptedSources) RecordSources(ctx context.Context, sources ...*store.ImportSource) error {
	s.interrupt()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.Service.RecordSources(ctx, sources...)
}

// TestInterruptedImportRemembersWhatWasRead: what was read and stored before an import was interrupted is not read
// again.
func TestInterruptedImportRemembersWhatWasRead(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	write(t, filepath.Join(dir, "s.jsonl"), claudeFile("s", "why"))
	ctx, interrupt := context.WithCancel(t.Context())
	im, err := importer.New(db, importer.Options{Open: func(ctx context.Context) (store.Service, error) {
		s, err := sqlite.Open(ctx, db, sqlite.Options{})
		return interruptedSources{s, interrupt}, err
	}})
	testscale.Must(t, err)
	if _, err := im.Run(ctx, importer.Inputs([]string{dir}, nil, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("the import ended with %v", err)
	}
	testscale.Must(t, im.Close())
	if _, n := run(t, db, importer.Options{}, dir); n != 0 {
		t.Errorf("%d files were read again", n)
	}
}

// TestChangedFilesAreRead: a file that grew, was replaced or truncated is read; one that is gone loses nothing.
func TestChangedFilesAreRead(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	path := func(name string) string { return filepath.Join(dir, name+".jsonl") }
	for _, name := range []string{"same", "grown", "replaced", "truncated", "gone", "touched"} {
		write(t, path(name), claudeFile(name, "why"))
	}
	run(t, db, importer.Options{}, dir)

	write(t, path("grown"), claudeFile("grown", "why")+`{"type":"summary","summary":"a title","leafUuid":"grown2"}`+
		"\n")
	info, err := os.Stat(path("replaced"))
	testscale.Must(t, err)
	write(t, path("new"), strings.Replace(claudeFile("replaced", "who"), "yes", "you", 1)) // of the same size
	testscale.Must(t, os.Rename(path("new"), path("replaced")))
	testscale.Must(t, os.Chtimes(path("replaced"), info.ModTime(), info.ModTime()))
	text := claudeFile("truncated", "why")
	write(t, path("truncated"), text[:strings.Index(text, "\n")+1])
	later := time.Now().Add(time.Hour)
	testscale.Must(t, os.Chtimes(path("touched"), later, later))
	testscale.Must(t, os.Remove(path("gone")))
	summary, _ := run(t, db, importer.Options{}, dir)
	for _, tally := range summary.Files {
		if name := strings.TrimSuffix(filepath.Base(tally.File), ".jsonl"); tally.Same != (name == "same") {
			t.Errorf("%s: read: %v", name, !tally.Same)
		}
	}
	r := testscale.Open(t, sqlite.OpenReader, db)
	for _, name := range []string{"same", "grown", "replaced", "truncated", "gone", "touched"} {
		got, err := r.Transcript(context.Background(), name)
		if err != nil || len(got.Messages) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFilesBesideAreNoticed: what is read with a transcript is part of it.
func TestFilesBesideAreNoticed(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	name := filepath.Join(dir, "agent-a1.jsonl")
	write(t, name, strings.ReplaceAll(claudeFile("s1", "why"), `"isSidechain":false`,
		`"isSidechain":true,"agentId":"a1"`))
	run(t, db, importer.Options{}, name)
	if _, n := run(t, db, importer.Options{}, name); n != 0 {
		t.Errorf("%d read", n)
	}
	write(t, filepath.Join(dir, "agent-a1.meta.json"), `{"agentType":"Explore","toolUseId":"toolu_1"}`)
	if _, n := run(t, db, importer.Options{}, name); n != 1 {
		t.Errorf("%d read", n)
	}
	warned := ""
	if run(t, db, importer.Options{Warn: func(text string) { warned += text }}, dir); warned != "" {
		t.Errorf("the file beside is left out: %s", warned)
	}
	r := testscale.Open(t, sqlite.OpenReader, db)
	if s, err := r.Session(t.Context(), "s1-a1"); err != nil || s.Agent != "Explore" {
		t.Errorf("agent %q, %v", s.Agent, err)
	}
}

// TestFilesThatChangeWhileTheyAreRead: a thousand transcripts that grow during the import lose
// nothing: what was written after they were read is read next time.
func TestFilesThatChangeWhileTheyAreRead(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	const files = 1000
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("s%d.jsonl", i)) }
	text := func(i int) string { return claudeFile(fmt.Sprintf("s%d", i), "why") }
	for i := range files {
		first, _, _ := strings.Cut(text(i), "\n")
		write(t, name(i), first+"\n")
	}
	done := make(chan error, 1)
	go func() {
		for i := range files {
			if err := os.WriteFile(name(i), []byte(text(i)), 0o600); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	run(t, db, importer.Options{}, dir)
	testscale.Must(t, <-done)
	run(t, db, importer.Options{}, dir)
	if _, n := run(t, db, importer.Options{}, dir); n != 0 {
		t.Errorf("%d read again", n)
	}
	r := testscale.Open(t, sqlite.OpenReader, db)
	for i := range files {
		if s, err := r.Transcript(t.Context(), fmt.Sprintf("s%d", i)); err != nil || len(s.Messages) != 2 {
			t.Fatalf("s%d: %v", i, err)
		}
	}
}

// TestCompressedAndDamagedFilesAreRemembered: a compressed transcript is read when it changed, and
// what is damaged in one is reported once when it grew.
func TestCompressedAndDamagedFilesAreRemembered(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	packed := filepath.Join(dir, "a.jsonl.gz")
	pack := func(text string) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		testscale.Must(t, z.Close())
		write(t, packed, b.String())
	}
	pack(claudeFile("s1", "why"))
	grows := filepath.Join(dir, "b.jsonl")
	text := claudeFile("s2", "why")
	write(t, grows, "{damaged\n"+text[:len(text)-20])
	before := time.Now().Add(-time.Minute) // else the last line is being written
	testscale.Must(t, os.Chtimes(grows, before, before))
	first, _ := run(t, db, importer.Options{}, dir)
	if first.Total.Damaged != 2 {
		t.Errorf("%d damaged: %v", first.Total.Damaged, first.Files[1].Damages)
	}
	if _, n := run(t, db, importer.Options{}, dir); n != 0 {
		t.Errorf("%d read again", n)
	}
	pack(claudeFile("s1", "why") + `{"type":"summary","summary":"a title","leafUuid":"s12"}` + "\n")
	write(t, grows, "{damaged\n"+text)
	second, n := run(t, db, importer.Options{}, dir)
	if n != 2 || second.Total.Damaged != 1 || len(second.Files[1].Damages) != 1 {
		t.Errorf("%d read, %+v", n, second.Files[1])
	}
	r := testscale.Open(t, sqlite.OpenReader, db)
	for id, title := range map[string]string{"s1": "a title", "s2": "why"} {
		if s, err := r.Transcript(t.Context(), id); err != nil || s.Session.Title != title || len(s.Messages) != 2 {
			t.Errorf("%s: %q, %v", id, s.Session.Title, err)
		}
	}
}
