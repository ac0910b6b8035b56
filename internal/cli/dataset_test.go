package cli_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// A data set has a file for each session that matches, in every format, and no secret that the store has: not in
// texts, tool calls, titles, notes or prompts.
func TestADataSetHasNoSecrets(t *testing.T) {
	const secret, token = "hunter2swordfish", "ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	b := fixture()
	for i := range b.Sessions {
		b.Sessions[i].Title.Text += " password=" + secret
		n := store.Annotation{SessionID: b.Sessions[i].ID, Kind: store.AnnotationTag, Name: "good", CreatedAt: 1,
			UpdatedAt: 1,
			Comment:   "token=" + token}
		n.Identify()
		b.Annotations = append(b.Annotations, n)
	}
	for i := range b.Parts {
		p := &b.Parts[i]
		p.Data = bytes.Replace(p.Data, []byte(`"text":"`), []byte(`"text":"password=`+secret+` `), 1)
		p.Data = bytes.Replace(p.Data, []byte(`"output":"`), []byte(`"output":"token=`+token+` `), 1)
	}
	for i := range b.Blobs {
		b.Blobs[i].Body += " password=" + secret
		b.Blobs[i].Exact = false
	}
	newStore(t, path, b)
	help := run(t, "export", "--help")
	names := regexp.MustCompile(`(?m)^  ([a-z-]+) {2,}\S`).FindAllSubmatch(help[:bytes.Index(help, []byte("Flags:"))],
		-1)
	if len(names) < 10 {
		t.Fatalf("formats %q", names)
	}
	count := func(out string) (files, found int) {
		t.Helper()
		err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			found += bytes.Count(text, []byte(secret)) + bytes.Count(text, []byte(token))
			return err
		})
		testscale.Must(t, err)
		return files, found
	}
	for _, name := range names {
		format := string(name[1])
		out := filepath.Join(dir, format)
		run(t, "--store", path, "export", "--tag", "good", "--format", format, "--output", out+"/")
		if files, found := count(out); found > 0 || files < len(b.Sessions) {
			t.Errorf("%s: %d files for %d sessions, with %d secrets", format, files, len(b.Sessions), found)
		}
	}
	run(t, "--store", path, "export", "--tag", "good", "--redact=false", "--format", "jsonl", "--output", dir+"/whole/")
	if _, found := count(filepath.Join(dir, "whole")); found == 0 {
		t.Error("nothing was planted")
	}
	run(t, "--store", path, "export", "--all", "--redact", "--format", "jsonl", "--output", dir+"/all/")
	if _, found := count(filepath.Join(dir, "all")); found > 0 {
		t.Errorf("--all --redact: %d secrets", found)
	}
}
