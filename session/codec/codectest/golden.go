package codectest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// Load reads the sessions of a file of JSON lines.
func Load(tb testing.TB, path string) (all []*codec.Session) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for t, err := range jsonl.Decode(f) {
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		all = append(all, &codec.Session{Transcript: t})
	}
	return all
}

// Golden is sessions as they are in a golden file: JSON lines, the decisions of each
// after it, and in the end the problems of reading them.
func Golden(tb testing.TB, problems []string, all ...*codec.Session) string {
	tb.Helper()
	var b strings.Builder
	for _, s := range all {
		if err := jsonl.Encode(&b, s.Transcript); err != nil {
			tb.Fatal(err)
		}
		for i := range s.Decisions {
			line, err := json.Marshal(&s.Decisions[i])
			if err != nil {
				tb.Fatal(err)
			}
			fmt.Fprintf(&b, "decision %s\n", line)
		}
	}
	for _, p := range problems {
		fmt.Fprintf(&b, "problem %s\n", p)
	}
	return b.String()
}

// CheckGolden compares got with the file at path, after writing it there if update is
// set.
func CheckGolden(t *testing.T, path, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s; run with -update to accept (-want +got):\n%s", path, d)
	}
}
