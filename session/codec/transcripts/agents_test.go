package transcripts_test

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// The fixtures below testdata are made after what the programs write. Their sources:
//
//	copilot    github/copilot-sdk, nodejs/src/generated/session-events.ts at cc0438d6
//	cursor     closed; AgentStore of cursor-agent (agent-kv), after public descriptions of its files
//	goose      aaif-goose/goose, crates/goose/src/session/session_manager.rs at 017176d0, and
//	           crates/goose-provider-types/src/conversation/message.rs at 3a31f2fd
//	continue   continuedev/continue, core/index.d.ts, core/util/history.ts and
//	           extensions/cli/src/{session,compaction}.ts at d0a3c0b6
//	cline      cline/cline, sdk/packages/core/src/services/session-data.ts and
//	           sdk/packages/shared/src/llms/messages.ts at 21cb8d25, and results of 3.0.65; of a task
//	           apps/vscode/src/core/task at 94f5a47a~1
//	roo        RooCodeInc/Roo-Code, src/core/task-persistence and src/core/prompts/responses.ts at
//	           cb836567, of which Kilo-Org/kilocode is a fork
//	openhands  OpenHands/software-agent-sdk, openhands-sdk/openhands/sdk/event and
//	           conversation/state.py at 611629e6
//	kiro       closed; aws/amazon-q-developer-cli, which it was made of,
//	           crates/chat-cli/src/cli/chat/{conversation,message,parser}.rs at 15cc8f3c, and
//	           crates/agent/src/agent/agent_loop/types.rs for the content of session files
//	aider      Aider-AI/aider, aider/io.py and aider/coders/base_coder.py at 5dc9490b
//	amp        closed; the reducer of threads in @sourcegraph/amp 0.0.1768018268
//	crush      charmbracelet/crush, internal/db/migrations, internal/message/content.go and
//	           internal/agent/agent.go at 37f36e93
//	kimi       MoonshotAI/kimi-cli, src/kimi_cli/wire/{types,file}.py, src/kimi_cli/soul/context.py,
//	           src/kimi_cli/{session_state,metadata}.py and src/kimi_cli/subagents/store.py at 4a550eff
//	kimi-code  what 2.1.0 wrote, with records that MoonshotAI/kimi-code, packages/agent-core-v2/docs/wire-manifest.d.ts
//	           at d723cc47 has for an approval, an undo and a compaction
//	qwen       QwenLM/qwen-code, packages/core/src/services/chatRecordingService.ts at 015346f1, and
//	           what 0.24.4 wrote
//	vscode     microsoft/vscode, src/vs/workbench/contrib/chat/common/model/{chatModel,
//	           chatSessionOperationLog,objectMutationLog}.ts at 047238f9, and microsoft/vscode-copilot-chat,
//	           src/extension/prompt/common/{conversation,intents}.ts
//	windsurf   closed; docs.windsurf.com/windsurf/cascade/hooks, and what it wrote in git-ai-project/git-ai,
//	           tests/fixtures/windsurf-session-simple.jsonl
//	zed        zed-industries/zed, crates/agent/src/db.rs at 0642ec7e
//
// agents are the golden files, each with a pattern of the file or directory below testdata that it is of.
var agents = []struct {
	golden, pattern string
	codec.Reading
}{
	{"copilot/events", "copilot/*/*/events.jsonl", transcripts.Copilot},
	{"kiro/session", "kiro/4*.jsonl", transcripts.Kiro},
	{"aider/history", "aider/history.md", transcripts.Aider},
	{"windsurf/steps", "windsurf/*/*.jsonl", transcripts.Windsurf},
	{"amp/thread", "amp/*/*1.json", transcripts.Amp},
	{"amp/child", "amp/*/*2.json", transcripts.Amp},
	{"amp/fork", "amp/*/*3.json", transcripts.Amp},
	{"kimi/session", "kimi/*/*/*/wire.jsonl", transcripts.Kimi},
	{"kimi/child", "kimi/*/*/*/subagents/*/wire.jsonl", transcripts.Kimi},
	{"kimi-code/main", "kimi-code/*/*/*/agents/main/wire.jsonl", transcripts.KimiCode},
	{"kimi-code/child", "kimi-code/*/*/*/agents/agent-0/wire.jsonl", transcripts.KimiCode},
	{"cline/session", "cline/*/*/1*.messages.json", transcripts.Cline},
	{"cline/child", "cline/*/*/agent*.messages.json", transcripts.Cline},
	{"cline/task", "cline/*/*/api*.json", transcripts.Cline},
	{"openhands/conversation", "openhands/*/*", transcripts.OpenHands},
	{"qwen/chat", "qwen/*/*/chats/*.jsonl", transcripts.Qwen},
	{"qwen/child", "qwen/*/*/subagents/*/*.jsonl", transcripts.Qwen},
	{"roo/task", "roo/*/*/roo*/tasks/*a/api*.json", transcripts.Cline},
	{"roo/child", "roo/*/*/roo*/tasks/*b/api*.json", transcripts.Cline},
	{"roo/kilo", "roo/*/*/kilo*/tasks/*/api*.json", transcripts.Cline},
	{"vscode/log", "vscode/*/*/*/*/*.jsonl", transcripts.VSCode},
	{"vscode/old", "vscode/*/*/*/*/*.json", transcripts.VSCode},
	{"continue/session", "continue/*/3*.json", transcripts.Continue},
	{"continue/cli", "continue/*/9*.json", transcripts.Continue},
}

// found is the one file or directory of a pattern below testdata.
func found(t testing.TB, pattern string) string {
	t.Helper()
	files, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("files of %s: %q %v", pattern, files, err)
	}
	return files[0]
}

// In the files of OpenHands and Aider times have no zone.
func init() { time.Local = time.UTC }

// TestFilesOfAgents reads what the programs keep of a session: the golden files have all
// of its rows, its decisions, and the problems.
func TestFilesOfAgents(t *testing.T) {
	check := func(golden, path string, decode codec.FileDecoder) {
		t.Run(golden, func(t *testing.T) {
			all, problems, err := valid(t, func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return decode(t.Context(), path, nil, report)
			})
			if err != nil {
				t.Error(err)
			}
			codectest.CheckGolden(t, filepath.Join("testdata", golden+".golden.jsonl"),
				codectest.Golden(t, problems, all...), *update)
		})
	}
	for _, a := range agents {
		check(a.golden, found(t, a.pattern), a.DecodeFile)
	}
	messages := readLines(t, "testdata/cursor/messages.jsonl")
	check("cursor/store", cursorStore(t, messages), transcripts.Cursor.DecodeFile)
	check("zed/threads", zedDatabase(t), transcripts.Zed.DecodeFile)
	check("kiro/data", databaseOf(t, "kiro/data.sql"), transcripts.Kiro.DecodeFile)
	check("goose/sessions", databaseOf(t, "goose/sessions.sql"), transcripts.Goose.DecodeFile)
	check("crush/crush", databaseOf(t, "crush/crush.sql"), transcripts.Crush.DecodeFile)
}

// FuzzDecodeAgents has files of agents with anything in them make valid sessions, and the same each time.
func FuzzDecodeAgents(f *testing.F) {
	decoders := make(map[string]decoder)
	for _, a := range agents {
		path := found(f, a.pattern)
		if in, err := os.ReadFile(path); err == nil { // else it is a directory
			f.Add(string(in))
			decoders[filepath.Dir(a.golden)] = a.Decode
		}
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, decode := range decoders {
			read := func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return decode(strings.NewReader(in), report)
			}
			first, _, _ := valid(t, read)
			again, _, _ := valid(t, read)
			if a, b := text(t, first), text(t, again); a != b {
				t.Errorf("%s\nthe second time\n%s", a, b)
			}
		}
	})
}

// databaseOf makes the database of a script below testdata and returns its path.
func databaseOf(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(name), ".sql")+".db")
	script := testscale.ReadFile(t, filepath.Join("testdata", name))
	newDatabase(t, path, string(script))
	return path
}

// zedDatabase makes the database of Zed, which has a thread that is compressed.
func zedDatabase(t testing.TB) string {
	t.Helper()
	path := databaseOf(t, "zed/threads.sql")
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	testscale.Must(t, err)
	defer conn.Close()
	text, err := sqlitex.ResultText(conn.Prep("SELECT data FROM threads WHERE id = 'thread-1'"))
	testscale.Must(t, err)
	w, err := zstd.NewWriter(nil)
	testscale.Must(t, err)
	testscale.Must(t, sqlitex.ExecuteTransient(conn,
		"UPDATE threads SET data_type = 'zstd', data = ? WHERE id = 'thread-1'",
		&sqlitex.ExecOptions{Args: []any{w.EncodeAll([]byte(text), nil)}}))
	return path
}

func readLines(t testing.TB, path string) []string {
	t.Helper()
	text := testscale.ReadFile(t, path)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// newDatabase makes a database at a path of scripts. Like the programs it is in WAL mode, and stays open.
func newDatabase(t testing.TB, path string, scripts ...string) *sqlite.Conn {
	t.Helper()
	testscale.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	testscale.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	for _, script := range scripts {
		testscale.Must(t, sqlitex.ExecuteScript(conn, script, nil))
	}
	return conn
}

// cursorStore makes a chat of messages, which are JSON, and returns its path. The first
// three are in a list of their own.
func cursorStore(t testing.TB, messages []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), ".cursor", "chats", "0a1b2c3d", "7d3e5c1a-0000-4000-8000-000000000001",
		"store.db")
	conn := newDatabase(t, path, "CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB); CREATE TABLE meta (key TEXT "+
		"PRIMARY KEY, value TEXT)")
	put := func(data []byte) []byte {
		sum := sha256.Sum256(data)
		testscale.Must(t, sqlitex.Execute(conn, "INSERT OR REPLACE INTO blobs VALUES (?, ?)",
			&sqlitex.ExecOptions{Args: []any{hex.EncodeToString(sum[:]), data}}))
		return sum[:]
	}
	refer := func(list, sum []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(list, 1, protowire.BytesType), sum)
	}
	var first, root []byte
	for i, m := range messages {
		sum := put([]byte(m))
		if i < 3 {
			first = refer(first, sum)
		} else {
			if i == 3 {
				root = refer(root, put(first))
			}
			root = refer(root, sum)
		}
	}
	root = protowire.AppendString(protowire.AppendTag(root, 9, protowire.BytesType), "file:///work/app")
	root = protowire.AppendVarint(protowire.AppendTag(root, 10, protowire.VarintType), 1)
	about := `{"agentId":"7d3e5c1a-0000-4000-8000-000000000001","latestRootBlobId":"` + hex.EncodeToString(put(root)) +
		`","name":"Fix the parser","mode":"default","createdAt":1785578400000,"lastUsedModel":"composer-2",` +
		`"blobEncryptionKey":"c2VjcmV0"}`
	testscale.Must(t, sqlitex.Execute(conn, "INSERT OR REPLACE INTO meta VALUES ('0', ?)",
		&sqlitex.ExecOptions{Args: []any{hex.EncodeToString([]byte(about))}}))
	testscale.WriteFile(t, filepath.Join(filepath.Dir(path), "meta.json"), `{"schemaVersion":1,"createdAtMs":`+
		`1785578400000,"updatedAtMs":1785578460000,"hasConversation":true,"title":"Fix the parser","cwd":"/work/app"}`)
	return path
}

// TestCursorGrowsAndIsCompacted: rows keep their ids when a chat goes on, and those of
// messages that a summary replaces are not taken by others.
func TestCursorGrowsAndIsCompacted(t *testing.T) {
	messages := readLines(t, "testdata/cursor/messages.jsonl")
	ids := func(messages []string) map[string]string {
		all, problems, err := valid(t, func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return transcripts.Cursor.DecodeFile(t.Context(), cursorStore(t, messages), nil, report)
		})
		if err != nil || len(problems) > 0 || len(all) != 1 {
			t.Fatalf("%d sessions, %v %q", len(all), err, problems)
		}
		rows := make(map[string]string)
		for _, m := range all[0].Messages {
			for i := range m.Parts {
				rows[m.Message.ID+" "+m.Parts[i].ID] = m.Parts[i].Type
			}
		}
		return rows
	}
	whole := ids(messages)
	for id, kind := range ids(messages[:4]) {
		if whole[id] != kind {
			t.Errorf("row %s of the shorter chat is %q in the longer one", id, whole[id])
		}
	}
	compacted := ids([]string{messages[0], messages[1], messages[2],
		`{"role":"user","content":"Summary: all is well."}`,
		`{"role":"user","content":"<user_query>\nand now?\n</user_query>"}`})
	same := 0
	for id := range compacted {
		if whole[id] != "" {
			same++
		}
	}
	if same == 0 || same == len(compacted) {
		t.Errorf("%d of %d rows are those of before", same, len(compacted))
	}
}

// TestCursorMessageSentTwice: a user who says the same twice, and gets the same answer, has
// two messages of each, with ids of their own.
func TestCursorMessageSentTwice(t *testing.T) {
	messages := readLines(t, "testdata/cursor/messages.jsonl")
	messages = append(messages, messages[len(messages)-2:]...)
	all, problems, err := valid(t, func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return transcripts.Cursor.DecodeFile(t.Context(), cursorStore(t, messages), nil, report)
	})
	if err != nil || len(problems) > 0 || len(all) != 1 {
		t.Fatalf("%d sessions, %v %q", len(all), err, problems)
	}
	if rows := text(t, all); strings.Count(rows, "You are welcome.") != 2 || strings.Count(rows, "thanks") != 2 {
		t.Errorf("the last turn is not there twice:\n%s", rows)
	}
}

// TestSessionsOfAgentsGrow: what is read of the beginning of a file has the ids that it has
// in the whole, so importing the file again adds to the session.
func TestSessionsOfAgentsGrow(t *testing.T) {
	for _, a := range agents {
		if ext := filepath.Ext(a.pattern); ext != ".md" && ext != ".jsonl" || a.golden == "vscode/log" {
			continue // it is written again as a whole
		}
		file := found(t, a.pattern)
		lines, dir := readLines(t, file), t.TempDir()
		rows := func(n int) map[string]bool {
			path := filepath.Join(dir, filepath.Base(file))
			testscale.WriteFile(t, path, strings.Join(lines[:n], "\n")+"\n")
			all, _, err := valid(t, func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return a.DecodeFile(t.Context(), path, nil, report)
			})
			testscale.Must(t, err)
			ids := make(map[string]bool)
			for _, s := range all {
				for _, m := range s.Messages {
					for i := range m.Parts {
						ids[s.Session.ID+" "+m.Message.ID+" "+m.Parts[i].ID+" "+m.Parts[i].Type] = true
					}
				}
			}
			return ids
		}
		whole := rows(len(lines))
		for n := 1; n < len(lines); n++ {
			for id := range rows(n) {
				if !whole[id] {
					t.Errorf("%s: row %s of the first %d lines is not in the whole", file, id, n)
				}
			}
		}
	}
}
