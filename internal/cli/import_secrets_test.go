package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// corpusSecrets reads the texts of the corpus that package redact is tested with. What the
// corpus leaves to chance is another string in each text. Without the long suites it is every eighth.
func corpusSecrets(t *testing.T) (texts, secrets []string) {
	t.Helper()
	file := testscale.ReadFile(t, "../../redact/testdata/corpus/secrets.txt")
	for i, line := range strings.Split(string(file), "\n") {
		if line == "" || strings.HasPrefix(line, "#") && (i < 10 || strings.HasPrefix(line, "## ")) {
			continue
		}
		if i%testscale.Rounds(8, 1) != 0 {
			continue
		}
		text, hidden := testscale.ExpandSecret(line, uint64(i))
		texts = append(texts, text)
		for _, secret := range hidden {
			if len(secret) >= 12 {
				secrets = append(secrets, secret)
			}
		}
	}
	return texts, secrets
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// plantedFiles has the texts in a file of each kind, in prompts, answers, inputs and outputs
// of tools and metadata, and a token in every id.
func plantedFiles(t *testing.T, texts []string, token string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{}
	write := func(format, name, content string) {
		path := filepath.Join(dir, name)
		testscale.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testscale.WriteFile(t, path, content)
		if _, ok := files[format]; !ok {
			files[format] = path
		}
	}
	var claude, codex, rows, events strings.Builder
	fmt.Fprintf(&codex,
		`{"timestamp":"2026-01-02T03:04:00.000Z","type":"session_meta","payload":{"id":"codex-%s",`+
			`"model_provider":"openai","base_instructions":{"text":%s}}}`+"\n",
		token, quoted(texts[0]+"\n"+texts[3]))
	fmt.Fprintf(&rows,
		`{"type":"session","data":{"id":"ses_%s","title":%s,"agent":"a-%[1]s","permissions_json":"[]",`+
			`"metadata_json":%[3]s,"created_at":1,"updated_at":99999}}`+"\n",
		token, quoted(texts[1]), quoted(`{"note":`+quoted(texts[2])+`,"k_`+token+`":1}`))
	fmt.Fprintf(&events,
		`{"event_type":"RUN_START","run_id":"run-%s","event_id":"e0","ts":"2026-01-02T03:04:00.000Z",`+
			`"payload":{"run_name":%s}}`+"\n", token, quoted(texts[4]))
	for i, text := range texts {
		q, stamp := quoted(text), fmt.Sprintf("2026-01-02T03:%02d:%02d.000Z", 5+i/60%50, i%60)
		fmt.Fprintf(&claude,
			`{"sessionId":"claude-%s","uuid":"u%d","type":"user","timestamp":%q,"cwd":"/w","message":{"role":"user",`+
				`"content":%s}}`+"\n", token, i, stamp, q)
		fmt.Fprintf(&claude,
			`{"sessionId":"claude-%s","uuid":"a%d","type":"assistant","timestamp":%q,"message":{"id":"msg_%d_%[1]s",`+
				`"role":"assistant","model":"m","content":[`+
				`{"type":"text","text":%[5]s},{"type":"tool_use","id":"toolu_%[2]d_%[1]s","name":"Bash",`+
				`"input":{"command":%[5]s}}]}}`+"\n", token, i, stamp, i, q)
		fmt.Fprintf(&claude,
			`{"sessionId":"claude-%s","uuid":"r%d","type":"user","timestamp":%q,"message":{"role":"user","content":[`+
				`{"type":"tool_result","tool_use_id":"toolu_%[2]d_%[1]s","content":%[4]s}]}}`+"\n", token, i, stamp, q)
		for _, record := range []string{
			`{"type":"message","role":"user","content":[{"type":"input_text","text":` + q + `}]}`,
			`{"type":"function_call","name":"exec_command","arguments":` + quoted(`{"cmd":`+q+`}`) +
				fmt.Sprintf(`,"call_id":"k%d_%s"}`, i, token),
			fmt.Sprintf(`{"type":"function_call_output","call_id":"k%d_%s","output":`, i, token) + q + `}`,
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":` + q + `}]}`,
		} {
			fmt.Fprintf(&codex, `{"timestamp":%q,"type":"response_item","payload":%s}`+"\n", stamp, record)
		}
		fmt.Fprintf(&rows,
			`{"type":"message","data":{"id":"msg_%d_%s","session_id":"ses_%[2]s","role":"user","metadata_json":%s,`+
				`"created_at":%d,"updated_at":99999}}`+"\n",
			i, token, quoted(`{"agenttrace":{"error":`+q+`}}`), 1+i)
		fmt.Fprintf(&rows,
			`{"type":"part","data":{"id":"prt_%d_%s","message_id":"msg_%[1]d_%[2]s","session_id":"ses_%[2]s",`+
				`"index":0,"type":"text","data_json":%s,"created_at":1,"updated_at":99999}}`+"\n",
			i, token, quoted(`{"type":"text","text":`+q+`}`))
		fmt.Fprintf(&events,
			`{"event_type":"LLM_CALL","run_id":"run-%s","event_id":"l%d","ts":%q,"payload":{"model":"m",`+
				`"provider":"p","prompt":%[4]s,"response":%[4]s}}`+"\n", token, i, stamp, q)
		fmt.Fprintf(&events,
			`{"event_type":"TOOL_CALL","run_id":"run-%s","event_id":"t%d","ts":%q,"payload":{"tool_name":"bash",`+
				`"args":{"command":%[4]s},"result":%[4]s,"status":"ok"}}`+"\n",
			token, i, stamp, q)
	}
	write("claude-code", "claude.jsonl", claude.String())
	write("codex", "rollout-2026.jsonl", codex.String())
	write("jsonl", "rows.jsonl", rows.String())
	write("agentdbg", "runs/r/run.json",
		fmt.Sprintf(`{"spec_version":"0.1","run_id":"run-%s","run_name":%s,"started_at":"2026-01-02T03:04:00.000Z",`+
			`"ended_at":"2026-01-02T04:04:00.000Z",`+
			`"duration_ms":3600000,"status":"ok","counts":{"llm_calls":%d,"tool_calls":%[3]d,"errors":0,`+
			`"loop_warnings":0},"last_event_ts":"2026-01-02T04:04:00.000Z"}`,
			token, quoted(texts[4]), len(texts)))
	write("agentdbg events", "runs/r/events.jsonl", events.String())
	files["agentdbg"] = filepath.Join(dir, "runs", "r")
	delete(files, "agentdbg events")
	return files
}

// TestNothingSecretIsImported: what the file of another program holds of secrets is in no file of the store that it is
// imported into, nor in what is exported. --keep-secrets keeps all of it.
func TestNothingSecretIsImported(t *testing.T) {
	const token = "ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"
	texts, secrets := corpusSecrets(t)
	if n := testscale.Rounds(20, 100); len(texts) < n || len(secrets) < n {
		t.Fatalf("%d texts with %d secrets", len(texts), len(secrets))
	}
	secrets = append(secrets, token)
	for format, file := range plantedFiles(t, texts, token) {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			store := filepath.Join(dir, "s.db")
			commandLine := func(args ...string) string {
				t.Helper()
				return commandLine(append([]string{"--store", store}, args...)...)
			}
			report := commandLine("import", "--format", format, file)
			if !strings.Contains(report, "redacted") {
				t.Fatalf("import: %s", report)
			}
			if got := commandLine("export", "--all", "-o", filepath.Join(dir, "all.jsonl")); got != "exit code 0\n" {
				t.Fatalf("export: %s", got)
			}
			commandLine("export", "--all", "-o", filepath.Join(dir, "each")+string(filepath.Separator))
			where := leftIn(t, dir, secrets)
			for i, at := range where {
				if i < 10 {
					t.Error(at)
				}
			}
			again := commandLine("import", "--format", "jsonl", filepath.Join(dir, "all.jsonl"))
			if strings.Contains(again, "redacted") || !strings.Contains(again, "0 messages, 0 parts") {
				t.Errorf("importing what was exported changes the store: %s", again)
			}
			kept := filepath.Join(t.TempDir(), "kept.db")
			store = kept
			if got := commandLine("import", "--keep-secrets", "--format", format, file); strings.Contains(got,
				"redacted") {
				t.Errorf("with --keep-secrets: %s", got)
			}
			if where := leftIn(t, filepath.Dir(kept), secrets); len(where) < len(secrets)/2 {
				t.Errorf("with --keep-secrets only %d secrets are kept", len(where))
			}
		})
	}
}

// leftIn names the secrets that are in the files below a directory or in their names.
func leftIn(t *testing.T, dir string, secrets []string) (where []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, s := range secrets {
			if at := bytes.Index(content, []byte(s)); at >= 0 {
				where = append(where, fmt.Sprintf("%s has %s: …%q", filepath.Base(path), s,
					content[max(0, at-80):min(len(content), at+80)]))
			}
			if strings.Contains(filepath.Base(path), s) {
				where = append(where, "the name "+path)
			}
		}
		return err
	})
	testscale.Must(t, err)
	return where
}
