package transcripts_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// record is what a fuzz target replaces in what a program keeps: a value of a database, or a file.
type record struct {
	// place is that of problems of the record, and session the only one that the record may
	// change. Of a record that has neither it is only asked that sessions are sound.
	place, session string
	// keeps are texts of other records of the session.
	keeps []string
	// damaged reports that nothing can be made of data, which is reported. Nil is for a record
	// on which nothing depends.
	damaged func(data []byte) bool
	data    []byte
	set     func(tb testing.TB, data []byte)
}

// odd are values that no program writes, and those by which seeds have them.
var odd = []struct {
	values *regexp.Regexp
	by     string
}{
	{regexp.MustCompile(`(: ?)"[^"\\]*"`), `${1}""`},
	{regexp.MustCompile(`(: ?)"[^"\\]*"`), `${1}null`},
	{regexp.MustCompile(`(id|Id|ID)": ?"[^"\\]*"`), `$1":"call_2"`},
	{regexp.MustCompile(`(id|Id|ID)": ?"[^"\\]*([^"\\])"`), `$1":"$2"`},
	{regexp.MustCompile(`(: ?)-?[0-9.]+`), `${1}-1`},
	{regexp.MustCompile(`(: ?)-?[0-9.]+`), `${1}1e400`},
	{regexp.MustCompile(`(: ?)-?[0-9.]+`), `${1}1.7e308`},
	{regexp.MustCompile(`(: ?)-?[0-9.]+`), `${1}9223372036854775807`},
	{regexp.MustCompile(`(: ?)-?[0-9.]+`), `${1}1099511627776`},
	{regexp.MustCompile(`20[0-9]{2}-[0-9]{2}`), `9999-12`},
	{regexp.MustCompile(`true|false`), `null`},
	{regexp.MustCompile(`(: ?)\[`), `${1}[null,7,"x",[],{},`},
	{regexp.MustCompile(`,"`), `,"a":1,"`},
}

// fuzzRecords has anything in one of the records make valid sessions, the same each time.
// Damage is reported with its place, and what other records have is read.
func fuzzRecords(f *testing.F, path string, decode codec.FileDecoder, records ...record) {
	f.Helper()
	read := func(t *testing.T) (map[string]string, []codec.Problem, error) {
		var found []codec.Problem
		all, _, err := valid(t, func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return decode(context.Background(), path, nil, func(p codec.Problem) {
				found = append(found, p)
				report(p)
			})
		})
		texts := make(map[string]string)
		for _, s := range all {
			texts[s.Session.ID] += text(t, []*codec.Session{s})
		}
		return texts, found, err
	}
	for i, r := range records {
		f.Add(uint8(i), r.data)
		f.Add(uint8(i), r.data[:len(r.data)/2])
		for _, o := range odd {
			f.Add(uint8(i), o.values.ReplaceAll(r.data, []byte(o.by)))
		}
	}
	var whole map[string]string
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		if whole == nil {
			whole, _, _ = read(t)
		}
		r := records[int(which)%len(records)]
		r.set(t, data)
		defer r.set(t, r.data)
		got, problems, err := read(t)
		again, _, _ := read(t)
		if !maps.Equal(got, again) {
			t.Errorf("%s\nthe second time\n%s", got, again)
		}
		for id, want := range whole {
			if r.session != "" && id != r.session && got[id] != want {
				t.Errorf("session %s is changed by %s:\n%s\nwant\n%s", id, r.place, got[id], want)
			}
		}
		for _, want := range r.keeps {
			if !strings.Contains(got[r.session], want) {
				t.Errorf("%s: %q of another record is not read, %v", r.place, want, err)
			}
		}
		named := func(p codec.Problem) bool { return p.File == r.place || p.Record == r.place }
		if r.damaged != nil && r.damaged(data) && err == nil && !slices.ContainsFunc(problems, named) {
			t.Errorf("%s is damaged, problems %q", r.place, problems)
		}
		for _, p := range problems {
			// Results of calls that are damaged are records of their own.
			if !named(p) && !strings.Contains(p.Reason, "pending") && !strings.Contains(p.Reason, "is not there") {
				t.Errorf("%s is damaged, problem %q", r.place, p)
			}
		}
	})
}

// notJSON reports that data is not JSON that begins with one of the bytes.
func notJSON(begin string) func([]byte) bool {
	return func(data []byte) bool {
		data = bytes.TrimSpace(bytes.ToValidUTF8(data, []byte("\uFFFD")))
		return len(data) == 0 || !strings.ContainsRune(begin, rune(data[0])) || !json.Valid(data)
	}
}

// values returns a function that makes the record of a value in a database. It changes the
// database in which the reader finds it.
func values(f *testing.F, path string) func(table, column, where string, r record) record {
	f.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	testscale.Must(f, sqlitex.ExecuteTransient(conn, "PRAGMA synchronous = OFF", nil))
	return func(table, column, where string, r record) record {
		f.Helper()
		kind, query := "", fmt.Sprintf("SELECT %s, typeof(%[1]s) FROM %s WHERE %s", column, table, where)
		if err := sqlitex.ExecuteTransient(conn, query,
			&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
				r.data, kind = []byte(stmt.ColumnText(0)), stmt.ColumnText(1)
				return nil
			}}); err != nil || kind == "" {
			f.Fatalf("no row of %s where %s: %v", table, where, err)
		}
		update := fmt.Sprintf("UPDATE %s SET %s = CAST(? AS %s) WHERE %s", table, column, kind, where)
		r.set = func(tb testing.TB, data []byte) {
			if data == nil {
				data = []byte{} // not NULL
			}
			testscale.Must(tb, sqlitex.Execute(conn, update, &sqlitex.ExecOptions{Args: []any{data}}))
		}
		return r
	}
}

// file makes the record of a file.
func file(f *testing.F, path string, r record) record {
	f.Helper()
	var err error
	if r.data, err = os.ReadFile(path); err != nil {
		f.Fatal(err)
	}
	r.set = func(tb testing.TB, data []byte) {
		testscale.WriteFile(tb, path, data)
	}
	return r
}

// FuzzDecodeCursor has anything in the messages of a chat, in their lists, and in what is kept about it.
func FuzzDecodeCursor(f *testing.F) {
	messages := readLines(f, "testdata/cursor/messages.jsonl")
	path := cursorStore(f, messages)
	value := values(f, path)
	blobs := len(messages) + 2 // lists of messages, of which the root is the last
	records := []record{
		value("meta", "value", "key = '0'", record{}),
		file(f, filepath.Join(filepath.Dir(path), "meta.json"), record{}),
	}
	for id := 1; id <= blobs; id++ {
		r := value("blobs", "data", fmt.Sprintf("rowid = %d", id), record{
			session: "7d3e5c1a-0000-4000-8000-000000000001",
			damaged: func(data []byte) bool { return len(data) == 0 || data[0] == '{' && notJSON("{")(data) },
		})
		r.place = fmt.Sprintf("blob %x", sha256.Sum256(r.data))
		if id < blobs-1 {
			r.keeps = []string{"You are welcome."}
		}
		records = append(records, r)
	}
	root := records[len(records)-1].data
	f.Add(uint8(len(records)-1), slices.Concat(root, root)) // a message that was sent twice
	fuzzRecords(f, path, transcripts.Cursor.DecodeFile, records...)
}

// FuzzDecodeZed has anything in threads, of which one is compressed.
func FuzzDecodeZed(f *testing.F) {
	path := zedDatabase(f)
	value := values(f, path)
	var records []record
	for _, id := range []string{"thread-2", "thread-1"} {
		r := record{place: "thread " + id, session: id, damaged: notJSON("{")}
		records = append(records, value("threads", "data", "id = '"+id+"'", r))
	}
	records[1].damaged = nil // it is compressed
	records = append(records, value("threads", "data_type", "id = 'thread-2'",
		record{place: "thread thread-2", session: "thread-2"}))
	fuzzRecords(f, path, transcripts.Zed.DecodeFile, records...)
}

// FuzzDecodeKiroDatabase has anything in a conversation.
func FuzzDecodeKiroDatabase(f *testing.F) {
	path := databaseOf(f, "kiro/data.sql")
	value := values(f, path)
	fuzzRecords(f, path, transcripts.Kiro.DecodeFile,
		value("conversations_v2", "value", "conversation_id = 'conv-1'",
			record{place: "conversation conv-1", session: "conv-1", damaged: notJSON("{")}))
}

// FuzzDecodeKiroFile has anything in the file beside a session file, on which nothing depends.
// FuzzDecodeAgents has anything in the session file.
func FuzzDecodeKiroFile(f *testing.F) {
	dir, lines := f.TempDir(), found(f, "kiro/4*.jsonl")
	testscale.Must(f, os.CopyFS(dir, os.DirFS(filepath.Dir(lines))))
	path := filepath.Join(dir, filepath.Base(lines))
	fuzzRecords(f, path, transcripts.Kiro.DecodeFile,
		file(f, strings.TrimSuffix(path, "l"), record{}))
}

// FuzzDecodeGooseDatabase has anything in messages, and in columns of sessions.
func FuzzDecodeGooseDatabase(f *testing.F) {
	path := databaseOf(f, "goose/sessions.sql")
	value := values(f, path)
	var records []record
	for _, id := range []string{"msg_1", "msg_4", "msg_7", "msg_10"} {
		records = append(records, value("messages", "content_json", "message_id = '"+id+"'", record{
			place: "message " + id, session: "20260801_1", damaged: notJSON("["),
			keeps: []string{"It is fixed.", "now delegate"},
		}))
	}
	for _, column := range []string{"model_config_json", "name", "created_at"} {
		records = append(records, value("sessions", column, "id = '20260801_2'", record{session: "20260801_2"}))
	}
	records = append(records, value("messages", "metadata_json", "message_id = 'msg_7'", record{session: "20260801_1"}))
	fuzzRecords(f, path, transcripts.Goose.DecodeFile, records...)
}

// FuzzDecodeCrush has anything in messages, and in columns of sessions.
func FuzzDecodeCrush(f *testing.F) {
	path := databaseOf(f, "crush/crush.sql")
	value := values(f, path)
	var records []record
	for _, id := range []string{"m-2", "m-4", "m-5a", "m-sum", "m-12"} {
		records = append(records, value("messages", "parts", "id = '"+id+"'", record{place: "message " + id,
			session: "5c0f1e2d-0000-4000-8000-000000000001", damaged: notJSON("["), keeps: []string{"It is fixed."}}))
	}
	for _, column := range []string{"title", "created_at", "cost"} {
		records = append(records, value("sessions", column, "parent_session_id IS NULL", record{}))
	}
	fuzzRecords(f, path, transcripts.Crush.DecodeFile, records...)
}

// FuzzDecodeOpenHands has anything in the state and in the events of a conversation.
func FuzzDecodeOpenHands(f *testing.F) {
	from := found(f, "openhands/*/*")
	name := filepath.Base(from)
	dir := filepath.Join(f.TempDir(), name)
	testscale.Must(f, os.CopyFS(dir, os.DirFS(from)))
	state := filepath.Join(dir, "base_state.json")
	records := []record{file(f, state, record{place: name + "/base_state.json", damaged: notJSON("{")})}
	events, err := filepath.Glob(filepath.Join(dir, "events", "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for i, path := range events {
		r := record{place: name + "/events/" + filepath.Base(path), session: "7f3c0a5e-1111-4222-8333-44445555aaaa",
			damaged: notJSON("{")}
		if i < len(events)-6 {
			r.keeps = []string{"try another way", "no, finish"}
		}
		records = append(records, file(f, path, r))
	}
	fuzzRecords(f, dir, transcripts.OpenHands.DecodeFile, records...)
}
