package cli_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// TestImportContainers imports the same requests in everything that they may come
// in, and wants the same store of all.
func TestImportContainers(t *testing.T) {
	names, err := filepath.Glob("../../session/ingest/testdata/captures/*/*/*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	var text, frames []byte
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			t.Fatal(err)
		}
		text = append(append(text, compact.Bytes()...), '\n')
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(raw)
		if err != nil {
			t.Fatal(err)
		}
		proto, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		if td.SpanCount() == 0 {
			ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(raw)
			if err != nil {
				t.Fatal(err)
			}
			proto, _ = (&plog.ProtoMarshaler{}).MarshalLogs(ld)
		}
		frames = append(binary.BigEndian.AppendUint32(frames, uint32(len(proto))), proto...)
	}
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write(text)
	_ = w.Close()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()

	type result struct {
		Spans, Records, Accepted, Ignored int
		Dialects                          map[string]int
		Sessions                          int
	}
	var want *result
	var stored string
	for name, file := range map[string][]byte{"a.jsonl": text, "a.gz": gz.Bytes(), "a.zst": z.EncodeAll(frames, nil),
		"a.pb": frames} {
		dir := t.TempDir()
		path, store := filepath.Join(dir, name), filepath.Join(dir, "s.db")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		var summary struct {
			Total result
			Files []struct{ File, Format string }
		}
		out := run(t, "--store", store, "import", "--json", path)
		if err := json.Unmarshal(out, &summary); err != nil {
			t.Fatal(err)
		}
		if len(summary.Files) != 1 || summary.Files[0].File != path || summary.Files[0].Format != "otlp" {
			t.Errorf("%s: files %+v", name, summary.Files)
		}
		got := summary.Total
		if got.Spans == 0 || got.Records == 0 {
			t.Errorf("%s: %+v", name, got)
		}
		sessions := string(run(t, "--store", store, "ls", "--all", "--json"))
		if want == nil {
			want, stored = &got, sessions
			continue
		}
		if d := cmp.Diff(*want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(stored, sessions); d != "" {
			t.Errorf("%s: sessions: %s", name, d)
		}
	}
}

// run runs the command and returns what it printed.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "agenttrace", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("agenttrace %v: %v\n%s", args, err, stderr.String())
	}
	return out
}
