package transcripts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// looksOpencode reports whether an object with these keys, and the values of those that
// are strings, is a session as opencode kept it in a file of its own.
func looksOpencode(keys map[string]string) bool {
	return strings.HasPrefix(keys["id"], "ses_") && keys["projectID"] != "" && keys["time"] == "{"
}

// Opencode reads what opencode keeps of its sessions: a database, the tree of
// JSON files in which older versions kept them, a directory with either or both, or
// one session's file in the tree, which names that session. Sessions come in the
// order of their making; of one that is in both, the database is read.
//
//	user                   user message; a system message where the program speaks
//	assistant              parts of the turn, its usage and its cost as stated
//	text, reasoning, file  parts of the same kind
//	tool                   part tool-<name>, and a permission decision where it was
//	                       refused
//	step-start             step-start part
//	patch, agent, subtask  part data-<type>
//	retry                  error of a model call
//	compaction, summary    assistant message with a data-compaction part
//
// A session that the user reverted, and has not gone on with since, has its messages
// hidden from there on; where that is in the midst of a turn, from the next message
// on. Ids are opencode's own.
//
// Nothing is written, and opencode may have the database open: each session is as it
// was when it was read. Rows and files that cannot be read are reported and left out;
// report may be nil. An error is yielded, last and with a nil session, when there is
// nothing of opencode at path or its sessions cannot be listed to the end. The caller
// owns what is yielded.
var Opencode = codec.Reading{
	Extensions: []string{".db", ".json"}, SniffKeys: looksOpencode, Transcript: true, Selects: true,
	Tables:     []string{"message", "part", "session"},
	Layout:     []string{"opencode.db", "opencode-*.db", "storage/session/*/*.json", "session/*/*.json"},
	DecodeFile: decodeOpencode, Beside: besideOpencode,
}

func decodeOpencode(ctx context.Context, path string, wanted codec.Wanted,
	report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	if report == nil {
		report = func(codec.Problem) {}
	}
	return func(yield func(*codec.Session, error) bool) {
		databases, tree, only, err := opencodeAt(path)
		if err != nil {
			yield(nil, err)
			return
		}
		seen := make(map[string]bool)
		for _, name := range databases {
			if !decodeOpencodeDatabase(ctx, name, seen, wanted, report, yield) {
				return
			}
		}
		if tree != "" {
			decodeOpencodeTree(ctx, tree, only, seen, report, yield)
		}
	}
}

// besideOpencode lists what is read of a path, be it a directory, a database or a file of the tree.
func besideOpencode(path string) []string {
	databases, tree, _, err := opencodeAt(path)
	if err != nil {
		return []string{path}
	}
	var all []string
	for _, name := range databases {
		all = append(all, name, name+"-wal", name+"-journal")
	}
	if tree != "" {
		for _, name := range []string{"session", "message", "part", "project"} {
			all = append(all, filepath.Join(tree, name))
		}
	}
	return all
}

// opencodeAt finds what there is at path; only is the session that it names.
func opencodeAt(path string) (databases []string, tree, only string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", "", fmt.Errorf("open sessions of opencode: %w", err)
	}
	isDir := func(elem ...string) bool {
		info, err := os.Stat(filepath.Join(append([]string{path}, elem...)...))
		return err == nil && info.IsDir()
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, "", "", fmt.Errorf("open sessions of opencode: %w", err)
		}
		for _, e := range entries { // each channel of releases has a database of its own
			if strings.HasPrefix(e.Name(), "opencode") && strings.HasSuffix(e.Name(), ".db") {
				databases = append(databases, filepath.Join(path, e.Name()))
			}
		}
		switch {
		case isDir("storage", "session"):
			tree = filepath.Join(path, "storage")
		case isDir("session"):
			tree = path
		}
		if tree == "" && len(databases) == 0 {
			return nil, "", "",
				fmt.Errorf("open sessions of opencode: %s "+
					"has neither a database opencode.db nor a directory storage/session", path)
		}
		return databases, tree, "", nil
	}
	if ok, err := rows.IsDatabase(path); err != nil {
		return nil, "", "", fmt.Errorf("open sessions of opencode: %w", err)
	} else if ok {
		return []string{path}, "", "", nil
	}
	project := filepath.Dir(path)
	if filepath.Ext(path) != ".json" || filepath.Base(filepath.Dir(project)) != "session" {
		return nil, "", "",
			fmt.Errorf(
				"open sessions of opencode: %s is neither a database nor a file "+
					"storage/session/<project>/<session>.json with the messages beside it", path)
	}
	return nil, filepath.Dir(filepath.Dir(project)), strings.TrimSuffix(filepath.Base(path), ".json"), nil
}

// decodeOpencodeDatabase yields the sessions of a database, and reports whether to go on.
func decodeOpencodeDatabase(ctx context.Context, path string, seen map[string]bool, wanted codec.Wanted,
	report func(codec.Problem), yield func(*codec.Session, error) bool) bool {
	conn, err := rows.OpenDatabase(path)
	if err != nil {
		return yield(nil, fmt.Errorf("open sessions of opencode in %s: %w", path, err))
	}
	defer conn.Close()
	conn.SetInterrupt(ctx.Done())
	// The list is read first, so that nobody is kept waiting while it is gone through.
	list, listed := table(conn, "SELECT * FROM session ORDER BY time_created, id")
	for _, row := range list {
		info := opencodeSessionRow(row)
		if seen[info.id] || info.id == "" {
			continue
		}
		seen[info.id] = true
		if wanted != nil && !wants(wanted, info.id, info.data, opencodeCounts(conn, info.id)...) {
			continue
		}
		s := &opencodeSession{info: info, parts: make(map[string][]opencodeRecord)}
		if err := s.read(conn, report); err != nil {
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return false
			}
			report(codec.Problem{Record: "session " + info.id,
				Reason: fmt.Sprintf("it is read as far as it is good: %v", err)})
		}
		if !yield(s.decode(report), nil) {
			return false
		}
	}
	switch {
	case ctx.Err() != nil:
		yield(nil, ctx.Err())
		return false
	case listed != nil:
		return yield(nil, fmt.Errorf("list sessions of opencode in %s: %w", path, listed))
	}
	return true
}

// opencodeCounts are what a session has in other tables: the program changes messages and parts in place.
func opencodeCounts(conn *sqlite.Conn, id string) (all []rows.Object) {
	for _, name := range []string{"message", "part"} {
		// What cannot be read is reported with the session.
		counts, _ := table(conn, "SELECT count(*), max(time_updated) FROM "+name+" WHERE session_id = ?", id)
		all = append(all, counts...)
	}
	return all
}

// opencodeSessionRow makes of a row what a file of the tree says. Columns have been
// added over time.
func opencodeSessionRow(row rows.Object) opencodeRecord {
	o := rows.NonEmpty("parentID", row.Text("parent_id"), "projectID", row.Text("project_id"),
		"workspaceID", row.Text("workspace_id"))
	o.Add(row.Texts("directory", "title", "version", "agent"))
	for _, key := range []string{"model", "revert", "permission"} {
		if v, err := rows.Value([]byte(row.Text(key))); err == nil {
			o.Set(key, v)
		}
	}
	o.Set("time", rows.NonEmpty("created", row.Get("time_created"), "updated", row.Get("time_updated"),
		"archived", row.Get("time_archived")))
	return opencodeRecord{id: row.Text("id"), data: o}
}

// read reads the messages and parts of a session as they are at one moment.
func (s *opencodeSession) read(conn *sqlite.Conn, report func(codec.Problem)) error {
	if err := sqlitex.ExecuteTransient(conn, "BEGIN", nil); err != nil {
		return err
	}
	// Nothing was written; a file that is damaged fails this too.
	defer func() { _ = sqlitex.ExecuteTransient(conn, "ROLLBACK", nil) }()
	each := func(what, query string, add func(r opencodeRecord, stmt *sqlite.Stmt)) error {
		return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
			Args: []any{s.info.id},
			ResultFunc: func(stmt *sqlite.Stmt) (err error) {
				r := opencodeRecord{
					id:      strings.ToValidUTF8(stmt.GetText("id"), "\uFFFD"),
					created: stmt.GetInt64("time_created"), updated: stmt.GetInt64("time_updated"),
				}
				if r.data, err = parse([]byte(stmt.GetText("data"))); err != nil {
					report(codec.Problem{Record: what + " " + r.id,
						Reason: "its data is not a JSON object: left out: " + err.Error()})
					return nil
				}
				add(r, stmt)
				return nil
			},
		})
	}
	const (
		messages = "SELECT id, time_created, time_updated, data FROM message" +
			" WHERE session_id = ? ORDER BY time_created, id"
		parts = "SELECT id, message_id, time_created, time_updated, data FROM part" +
			" WHERE session_id = ? ORDER BY message_id, id"
	)
	err := each("message", messages, func(r opencodeRecord, _ *sqlite.Stmt) { s.messages = append(s.messages, r) })
	if err != nil {
		return err
	}
	return each("part", parts, func(r opencodeRecord, stmt *sqlite.Stmt) {
		message := strings.ToValidUTF8(stmt.GetText("message_id"), "\uFFFD")
		s.parts[message] = append(s.parts[message], r)
	})
}

// decodeOpencodeTree yields the sessions of a tree of files: that whose id is only,
// or all that were not seen. Names say whose a file is; what it reports itself may be
// from before the files were moved.
func decodeOpencodeTree(ctx context.Context, root, only string, seen map[string]bool, report func(codec.Problem),
	yield func(*codec.Session, error) bool) {
	projects, err := os.ReadDir(filepath.Join(root, "session"))
	if err != nil {
		yield(nil, fmt.Errorf("list sessions of opencode: %w", err))
		return
	}
	infos := make(map[string]opencodeRecord)
	for _, project := range projects {
		for _, r := range readRecords(root, filepath.Join("session", project.Name()), report) {
			if (only == "" || r.id == only) && !seen[r.id] {
				infos[r.id] = r
			}
		}
	}
	if only != "" && len(infos) == 0 && !seen[only] {
		yield(nil, fmt.Errorf("read session %s of opencode: its file cannot be read", only))
		return
	}
	created := func(r opencodeRecord) int64 { return moment(r.data.Object("time"), "created") }
	order := slices.SortedFunc(maps.Values(infos), func(a, b opencodeRecord) int {
		return cmp.Or(cmp.Compare(created(a), created(b)), cmp.Compare(a.id, b.id))
	})
	for _, info := range order {
		if ctx.Err() != nil {
			yield(nil, ctx.Err())
			return
		}
		s := &opencodeSession{info: info, parts: make(map[string][]opencodeRecord)}
		s.messages = readRecords(root, filepath.Join("message", info.id), report)
		for _, m := range s.messages {
			s.parts[m.id] = readRecords(root, filepath.Join("part", m.id), report)
		}
		if !yield(s.decode(report), nil) {
			return
		}
	}
}

// readRecords reads the files of a directory in the order of their names, which are
// the ids.
func readRecords(root, dir string, report func(codec.Problem)) []opencodeRecord {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		report(codec.Problem{File: filepath.ToSlash(dir), Reason: fmt.Sprintf("it is left out: %v", err)})
	}
	var all []opencodeRecord
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || id == "" || strings.HasPrefix(id, ".") {
			continue
		}
		name := filepath.Join(dir, e.Name())
		text, err := codec.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		var o rows.Object
		if err == nil {
			o, err = parse(text)
		}
		if err != nil {
			report(codec.Problem{File: filepath.ToSlash(name), Reason: fmt.Sprintf("it is left out: %v", err)})
			continue
		}
		all = append(all, opencodeRecord{id: strings.ToValidUTF8(id, "\uFFFD"), data: o})
	}
	return all
}
