package importer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// exported is the whole store as lines of JSON, the sessions in the order of their ids.
func exported(t testing.TB, db string) string {
	t.Helper()
	r, err := sqlite.OpenReader(t.Context(), db)
	if errors.Is(err, store.ErrNotFound) {
		return "" // nothing was imported
	}
	testscale.Must(t, err)
	defer r.Close()
	var b bytes.Buffer
	e := jsonl.NewEncoder(&b)
	for _, row := range storetest.Sessions(t, r) {
		s, err := formats.Read(t.Context(), r, row.ID)
		if err == nil {
			err = e.Encode(s)
		}
		testscale.Must(t, err)
	}
	return b.String()
}

// importFile imports a file and returns how many bytes were read.
func importFile(t testing.TB, db, path string) int {
	t.Helper()
	var at importer.Progress
	im, err := importer.New(db, importer.Options{Progress: func(p importer.Progress) { at = p }})
	testscale.Must(t, err)
	if _, err := im.Run(t.Context(), importer.Inputs([]string{path}, nil, nil)); err != nil {
		t.Fatal(err)
	}
	testscale.Must(t, im.Close())
	return int(at.Read)
}

// transcripts are those of the repository that grow, and two that have what changes the meaning of records before.
func transcripts(t testing.TB) map[string]string {
	t.Helper()
	all := make(map[string]string)
	delegated, codecs := "../ingest/testdata/delegated/", "../codec/"
	// The rollout of Codex has compactions, turns that are rolled back, errors and late durations.
	for _, pattern := range []string{"testdata/long/*.jsonl", delegated + "claude-code/transcripts/*.jsonl",
		delegated + "claude-code-older/transcripts/*.jsonl", delegated + "codex*/transcripts/*.jsonl",
		codecs + "transcripts/testdata/gemini/tmp/*/chats/*.jsonl",
		codecs + "transcripts/testdata/kimi-code/sessions/*/*/agents/*/wire.jsonl",
		codecs + "transcripts/testdata/qwen/projects/*/chats/*.jsonl",
		codecs + "transcripts/testdata/vscode/User/workspaceStorage/*/chatSessions/*.jsonl",
		codecs + "transcripts/testdata/copilot/session-state/*/events.jsonl", codecs + "formats/testdata/pi/session.jsonl",
		codecs + "formats/testdata/acp/*.jsonl", codecs + "formats/testdata/acp/*.ndjson"} {
		names, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			text := testscale.ReadFile(t, name)
			all[name] = string(text)
		}
	}
	return all
}

// claudeLong has what changes the meaning of records before: commands, going back, compactions,
// titles, costs, late results, interruptions and notifications.
func claudeLong(t testing.TB) string {
	return string(testscale.ReadFile(t, "testdata/long/claude.jsonl"))
}

// TestGrownFileIsTheWholeFile: wherever a transcript ended when it was imported, importing what
// it has grown to gives the rows of the whole, byte for byte.
func TestGrownFileIsTheWholeFile(t *testing.T) {
	for name, text := range transcripts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, filepath.Base(name))
			write(t, path, text)
			fresh := filepath.Join(dir, "fresh.db")
			importFile(t, fresh, path)
			want := exported(t, fresh)
			all, every := cuts(text), testscale.Rounds(40, 4)
			for i := len(all) / 2 % every; i < len(all); i += every {
				cut := all[i]
				write(t, path, text[:cut])
				db := filepath.Join(t.TempDir(), "sessions.db")
				importFile(t, db, path)
				f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				testscale.Must(t, err)
				if _, err := f.WriteString(text[cut:]); err != nil {
					t.Fatal(err)
				}
				testscale.Must(t, f.Close())
				importFile(t, db, path)
				if got := exported(t, db); got != want {
					t.Fatalf("ended at %d after %.300s\n(-whole +grown):\n%s", cut, text[max(0, cut-300):cut],
						cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
				}
			}
		})
	}
}

// cuts are the ends of the lines of a text, and places within them.
func cuts(text string) (all []int) {
	at := 0
	for line := range strings.Lines(text) {
		all = append(all, at+len(line)/2, at+len(line)-1)
		at += len(line)
		all = append(all, at)
	}
	return all[:len(all)-1]
}

// TestSecretsAreNotRemembered: what the store remembers of a file has no secret of it, and the file
// is read as it grows all the same.
func TestSecretsAreNotRemembered(t *testing.T) {
	const secret = "ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"
	text := strings.ReplaceAll(claudeLong(t), `"first"`, `"use `+secret+` for it"`)
	text = strings.ReplaceAll(text, `["be brief"]`, `["be brief with `+secret+`"]`)
	dir := t.TempDir()
	path, db, fresh := filepath.Join(dir, "s.jsonl"), filepath.Join(dir, "sessions.db"), filepath.Join(dir, "fresh.db")
	for _, cut := range []int{len(text) / 2, len(text)} {
		write(t, path, text[:cut])
		importFile(t, db, path)
		for _, name := range []string{db, db + "-wal"} {
			if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s has the secret", name)
			}
		}
	}
	importFile(t, fresh, path)
	if diff := cmp.Diff(strings.Split(exported(t, fresh), "\n"), strings.Split(exported(t, db), "\n")); diff != "" {
		t.Errorf("-whole +grown:\n%s", diff)
	}
}
