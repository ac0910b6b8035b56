package importer_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// exported is the whole store as lines of JSON, the sessions in the order of their ids.
func exported(t testing.TB, db string) string {
	t.Helper()
	r, err := sqlite.OpenReader(t.Context(), db)
	if errors.Is(err, store.ErrNotFound) {
		return "" // nothing was imported
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all := make(map[string]*codec.Session)
	for s, err := range r.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if all[s.ID], err = formats.Read(t.Context(), r, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	e := jsonl.NewEncoder(&b)
	for _, id := range sortedKeys(all) {
		if err := e.Encode(all[id]); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// importFile imports a file and returns how many bytes were read.
func importFile(t testing.TB, db, path string) int {
	t.Helper()
	var at importer.Progress
	im, err := importer.New(db, importer.Options{Progress: func(p importer.Progress) { at = p }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := im.Run(t.Context(), importer.Inputs([]string{path}, nil, nil)); err != nil {
		t.Fatal(err)
	}
	if err := im.Close(); err != nil {
		t.Fatal(err)
	}
	return int(at.Read)
}

// transcripts are those of the repository that grow, and two that have what changes the meaning of records before.
func transcripts(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{"claude.jsonl": claudeLong(), rollout + "001.jsonl": codexLong()}
	delegated, codecs := "../ingest/testdata/delegated/", "../codec/"
	for _, pattern := range []string{delegated + "claude-code/transcripts/*.jsonl",
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

const rollout = "rollout-2026-01-02T03-04-05-0f4c2f6e-0000-7000-8000-000000000"

// claudeLong has what changes the meaning of records before: commands, going back, compactions,
// titles, costs, late results, interruptions and notifications.
func claudeLong() string {
	var b strings.Builder
	parent, n := "", 0
	record := func(above, rest string) string {
		n++
		id := fmt.Sprintf("u%d", n)
		fmt.Fprintf(&b, `{"sessionId":"s1","isSidechain":false,"uuid":%q,"parentUuid":%s,`+
			`"timestamp":"2026-01-02T03:%02d:%02d.000Z",%s}`+"\n",
			id, map[bool]string{true: "null", false: `"` + above + `"`}[above == ""], n/60, n%60, rest)
		parent = id
		return id
	}
	bare := func(rest string) { b.WriteString("{" + rest + "}\n") }
	user := func(above, text string) string {
		return record(above, fmt.Sprintf(`"type":"user","promptId":"p%d","message":{"role":"user","content":%q}`, n,
			text))
	}
	says := func(id, text, usd string) string {
		return record(parent, fmt.Sprintf(`"type":"assistant","requestId":"req_%s",%s"message":{"id":%q,`+
			`"model":"claude-x",`+
			`"content":[{"type":"text","text":%q}],"stop_reason":"end_turn","usage":{"input_tokens":%d,`+
			`"output_tokens":2}}`, id, usd, id, text, n))
	}
	call := func(id, tool string) string {
		return record(parent, fmt.Sprintf(`"type":"assistant","message":{"id":%q,"model":"claude-x",`+
			`"content":[{"type":"tool_use","id":%q,`+
			`"name":"Bash","input":{"command":"ls"}}],"stop_reason":"tool_use","usage":{"input_tokens":%d,`+
			`"output_tokens":2}}`, id, tool, n))
	}
	result := func(tool, text string) string {
		return record(parent, fmt.Sprintf(`"type":"user","toolUseResult":{"durationMs":5},"message":{"role":"user",`+
			`"content":[{"type":"tool_result","tool_use_id":%q,"content":%q}]}`, tool, text))
	}
	record("", `"type":"attachment","attachment":{"type":"prompt_snapshot","systemPrompt":["be brief"]}`)
	user(parent, "first")
	says("m1", "one", `"costUSD":0.25,`)
	record(parent, `"type":"system","subtype":"turn_duration","durationMs":1200`)
	bare(`"type":"ai-title","sessionId":"s1","aiTitle":"guessed"`)
	user(parent, "<command-name>/review</command-name><command-args>now</command-args>")
	record(parent, `"type":"user","isMeta":true,"message":{"role":"user","content":"Review the code."}`)
	call("m2", "t1")
	result("t1", "a.go")
	anchor := says("m2", "done", `"costUSD":0.5,`)
	user(parent, "<command-name>/model</command-name>")
	record(parent, `"type":"user","message":{"role":"user",`+
		`"content":"<local-command-stdout>set</local-command-stdout>"}`)
	user(parent, "left behind")
	says("m3", "nobody reads this", "")
	user(anchor, "instead")
	call("m4", "t2")
	record(parent, `"type":"attachment","attachment":{"type":"queued_command","prompt":"and hurry"}`)
	says("m5", "hurrying", `"costUSD":0.125,`)
	result("t2", "late")
	user(parent, "[Request interrupted by user]")
	bare(`"type":"custom-title","sessionId":"s1","customTitle":"mine"`)
	user(parent, "go on")
	says("m6", "on", "")
	record(parent, `"type":"system","subtype":"compact_boundary","compactMetadata":{"trigger":"auto","preTokens":900}`)
	record(parent, `"type":"user","isCompactSummary":true,"message":{"role":"user","content":"It was about files."}`)
	bare(`"type":"cost-state","sessionId":"s1","totalCostUSD":4.5`)
	bare(`"type":"permission-mode","sessionId":"s1","permissionMode":"plan"`)
	user(parent, "more")
	record(parent, `"type":"assistant","message":{"id":"m7","model":"claude-x","content":[{"type":"tool_use",`+
		`"id":"t3","name":"Bash","input":{}}],`+
		`"stop_reason":"tool_use"}`)
	record(parent, `"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t3",`+
		`"is_error":true,`+
		`"content":"The user doesn't want to proceed with this tool use. Stop."}]}`)
	user(parent, "next")
	says("m8", "last", `"costUSD":1.5,`)
	bare(`"type":"summary","summary":"the end","leafUuid":"u9"`)
	return b.String()
}

// codexLong has compactions, turns that are rolled back, errors and late durations.
func codexLong() string {
	var b strings.Builder
	n := 0
	record := func(kind, payload string) {
		n++
		fmt.Fprintf(&b, `{"timestamp":"2026-01-02T03:%02d:%02d.000Z","type":%q,"payload":{%s}}`+"\n", n/60, n%60, kind,
			payload)
	}
	event := func(payload string) { record("event_msg", payload) }
	user := func(text string) {
		event(fmt.Sprintf(`"type":"task_started","turn_id":"turn%d"`, n))
		record("response_item", fmt.Sprintf(`"type":"message","role":"user","content":[{"type":"input_text",`+
			`"text":%q}]`, text))
	}
	says := func(text string) {
		record("response_item", fmt.Sprintf(`"type":"message","role":"assistant","content":[{"type":"output_text",`+
			`"text":%q}]`, text))
		event(fmt.Sprintf(`"type":"token_count","info":{"last_token_usage":{"input_tokens":%d,"output_tokens":3,`+
			`"total_tokens":%d},`+
			`"total_token_usage":{"input_tokens":%d}}`, n, n+3, n*10))
	}
	record("session_meta", `"id":"0f4c2f6e-0000-7000-8000-000000000001","cwd":"/w","model_provider":"openai",`+
		`"base_instructions":{"text":"be brief"}`)
	record("turn_context", `"model":"gpt-x","approval_policy":"never","sandbox_policy":{"type":"read-only"}`)
	user("one")
	says("first")
	event(`"type":"task_complete","duration_ms":50`)
	user("two")
	record("response_item", `"type":"function_call","name":"shell","call_id":"c1","arguments":"{\"cmd\":\"ls\"}"`)
	event(`"type":"exec_command_end","call_id":"c1","duration":{"secs":1,"nanos":0}`)
	record("response_item", `"type":"function_call_output","call_id":"c1","output":"a.go"`)
	says("second")
	event(`"type":"task_complete"`)
	user("three")
	says("third")
	event(`"type":"exec_command_end","call_id":"c1","duration":{"secs":2,"nanos":0}`)
	user("four")
	event(`"type":"error","message":"it failed"`)
	event(`"type":"thread_rolled_back","num_turns":2`)
	user("five")
	says("a summary")
	record("compacted", `"message":"So far: a summary"`)
	event(`"type":"token_count","info":{"last_token_usage":{"total_tokens":77},` +
		`"total_token_usage":{"input_tokens":999}}`)
	says("after it")
	user("six")
	says("fine")
	event(`"type":"thread_name_updated","thread_name":"a name"`)
	event(`"type":"turn_aborted"`)
	return b.String()
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
			for i, cut := range cuts(text) {
				if i%testscale.Rounds(16, 4) != 0 {
					continue
				}
				write(t, path, text[:cut])
				db := filepath.Join(t.TempDir(), "sessions.db")
				importFile(t, db, path)
				f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString(text[cut:]); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
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

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// TestSecretsAreNotRemembered: what the store remembers of a file has no secret of it, and the file
// is read as it grows all the same.
func TestSecretsAreNotRemembered(t *testing.T) {
	const secret = "ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"
	text := strings.ReplaceAll(claudeLong(), `"first"`, `"use `+secret+` for it"`)
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
