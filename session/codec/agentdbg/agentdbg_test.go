package agentdbg_test

import (
	"bytes"
	"errors"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

var update = flag.Bool("update", false, "write the golden files")

const dataDir = "testdata/data"

var sampleRuns = []string{
	"3cb3426d-1fa6-417a-b821-6be9c94cd9f4", // stop_on_loop
	"46e80958-2ba7-4329-9bda-377db118f630", // an exception
	"dff117f0-c969-44c1-8173-1523b6eb1213", // a cycle of two
	"f0ca8552-c91a-473d-a112-286a75226e66", // redaction, truncation
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// collect decodes everything, and checks what must hold of every session.
func collect(tb testing.TB, sessions iter.Seq2[*codec.Session, error]) (all []*codec.Session) {
	tb.Helper()
	for s, err := range sessions {
		if err != nil {
			tb.Fatal(err)
		}
		for _, v := range session.Check(s.Transcript) {
			tb.Error(v)
		}
		all = append(all, s)
	}
	return all
}

func lines(tb testing.TB, s *codec.Session) string {
	tb.Helper()
	var b bytes.Buffer
	if err := jsonl.Encode(&b, s.Transcript); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// problems collects reports.
type problems []string

func (p *problems) report(problem codec.Problem) { *p = append(*p, problem.String()) }

func decode(tb testing.TB, text string) (*codec.Session, problems) {
	tb.Helper()
	var p problems
	all := collect(tb, agentdbg.Decode(strings.NewReader(text), p.report))
	if len(all) != 1 {
		tb.Fatalf("%d sessions, want 1", len(all))
	}
	return all[0], p
}

func samples(tb testing.TB) ([]*codec.Session, problems) {
	tb.Helper()
	var p problems
	all := collect(tb, agentdbg.DecodeFile(dataDir, p.report))
	if len(all) != len(sampleRuns) {
		tb.Fatalf("%d sessions, want %d", len(all), len(sampleRuns))
	}
	return all, p
}

func TestDecodeSamples(t *testing.T) {
	all, reported := samples(t)
	for i, s := range all {
		got := lines(t, s)
		golden := filepath.Join("testdata", sampleRuns[i]+".jsonl")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(readFile(t, golden), got); diff != "" {
			t.Errorf("run %s (-want +got):\n%s", sampleRuns[i], diff)
		}
	}
	// Counts that AgentDbg redacted are no damage, and the message says of them.
	if len(reported) > 0 {
		t.Errorf("problems %q of samples that are sound", reported)
	}
	if !strings.Contains(readFile(t, filepath.Join("testdata", "f0ca8552-c91a-473d-a112-286a75226e66.jsonl")),
		`is \\\"__REDACTED__\\\": the count is unknown`) {
		t.Error("nothing says that counts of tokens are unknown")
	}
}

// expressed fails the test if a session differs from what came of it by more than times,
// ids and counts of tokens that nobody can read.
func expressed(tb testing.TB, s, again *codec.Session) {
	tb.Helper()
	for _, l := range codec.Lost(s, again) {
		if !slices.Contains([]string{"ids and times", "other metadata"}, l.What) {
			tb.Errorf("run %s: %d %s did not come back", s.Session.ID, l.Count, l.What)
		}
	}
	if invented := codec.Invented(s, again); invented != nil {
		tb.Errorf("run %s: what came back also states %q", s.Session.ID, invented)
	}
}

// TestSamplesKeepWhatTheirSessionsExpress: a run of AgentDbg that is imported, exported and
// imported again is the same session.
func TestSamplesKeepWhatTheirSessionsExpress(t *testing.T) {
	all, _ := samples(t)
	out := t.TempDir()
	for _, s := range all {
		dir, err := agentdbg.EncodeFile(out, s, false)
		if err != nil {
			t.Fatal(err)
		}
		again := collect(t, agentdbg.DecodeFile(dir, func(p codec.Problem) { t.Error(p) }))
		if len(again) != 1 {
			t.Fatalf("%d sessions in %s", len(again), dir)
		}
		expressed(t, s, again[0])
	}
	if _, err := agentdbg.EncodeFile(out, all[0], false); !errors.Is(err, os.ErrExist) {
		t.Errorf("a run that is there: %v", err)
	}

	// Replaced: the two files, and nothing else that is there.
	dir := filepath.Join(out, "runs", sampleRuns[0])
	for _, name := range []string{"run.json", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := agentdbg.EncodeFile(out, all[0], true); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(dir, "notes.txt")); got != "mine" {
		t.Errorf("notes.txt after the run was replaced: %q", got)
	}
	for _, s := range collect(t, agentdbg.DecodeFile(dir, func(p codec.Problem) { t.Error(p) })) {
		expressed(t, all[0], s)
	}
	if left, err := filepath.Glob(filepath.Join(out, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// export.json was written by Python's json.dump of the sample.
func TestExport(t *testing.T) {
	want := readFile(t, "testdata/export.json")
	s, reported := decode(t, want)
	if reported != nil {
		t.Errorf("problems %q", reported)
	}
	var b bytes.Buffer
	if err := agentdbg.Encode(&b, s); err != nil {
		t.Fatal(err)
	}
	again, reported := decode(t, b.String())
	if expressed(t, s, again); reported != nil {
		t.Errorf("problems %q of what was exported", reported)
	}
	all, _ := samples(t)
	if diff := cmp.Diff(lines(t, all[2]), lines(t, s)); diff != "" {
		t.Errorf("the export and the directory differ:\n%s", diff)
	}
}
