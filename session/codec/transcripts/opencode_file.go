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

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Opencode reads what opencode keeps of its sessions: a database, the tree of JSON files in which older versions kept
// them, a directory with either or both, or one session's file in the tree, which names that session. Sessions come in
// the order of their making; of one that is in both, the database is read.
//
// A session that the user reverted, and has not gone on with since, has its messages hidden from there on; where that
// is in the midst of a turn, from the next message on. Ids are opencode's own.
//
// Kilo Code, since it is made of opencode, has a database of its own with the same tables.
//
// Nothing is written, and opencode may have the database open: sessions are as they were at one moment.
var Opencode = codec.Reading{
	Keys:       []string{"id=ses_* projectID=* time={"},
	Extensions: []string{".db", ".json"}, Transcript: true, Selects: true,
	Tables: []string{"message", "part", "session"},
	Layout: []string{"opencode.db", "opencode-*.db", "kilo.db", "kilo-*.db", "storage/session/*/*.json",
		"session/*/*.json"},
	DecodeFile: decodeOpencode, Beside: besideOpencode,
}

func decodeOpencode(ctx context.Context, path string, wanted codec.Wanted,
	report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		place, err := opencodeAt(path)
		if err != nil {
			yield(nil, fmt.Errorf("open sessions of opencode: %w", err))
			return
		}
		seen := make(map[string]bool)
		read := inDatabase("sessions of opencode", func(db *database) error { return opencodeSessions(db, seen) })
		for _, name := range place.databases {
			for s, err := range read(ctx, name, wanted, report) {
				if !yield(s, err) {
					return
				}
			}
		}
		if place.tree != "" && ctx.Err() == nil {
			rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
				return opencodeTree(ctx, &source{path: place.tree, report: report}, place.session, seen, yield)
			})(yield)
		}
	}
}

// besideOpencode lists what is read of a path, be it a directory, a database or a file of the tree.
func besideOpencode(path string) (all []string) {
	place, err := opencodeAt(path)
	if err != nil {
		return []string{path}
	}
	for _, name := range place.databases {
		all = append(all, rows.DatabaseFiles(name)...)
	}
	if place.tree != "" {
		for _, name := range []string{"session", "message", "part", "project"} {
			all = append(all, filepath.Join(place.tree, name))
		}
	}
	return all
}

// opencodePlace is what there is at a path: each channel of releases has a database of its own. session is the one of
// the tree that the path names, "" for all.
type opencodePlace struct {
	databases     []string
	tree, session string
}

func opencodeAt(path string) (p opencodePlace, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return p, err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return p, err
		}
		for _, e := range entries {
			if beginsWith(e.Name(), []string{"opencode", "kilo"}) && strings.HasSuffix(e.Name(), ".db") {
				p.databases = append(p.databases, filepath.Join(path, e.Name()))
			}
		}
		for _, tree := range []string{path, filepath.Join(path, "storage")} {
			if info, err := os.Stat(filepath.Join(tree, "session")); err == nil && info.IsDir() {
				p.tree = tree
			}
		}
		if p.tree == "" && len(p.databases) == 0 {
			return p, fmt.Errorf("%s has neither a database opencode.db nor a directory storage/session", path)
		}
		return p, nil
	}
	if ok, err := rows.IsDatabase(path); err != nil || ok {
		return opencodePlace{databases: []string{path}}, err
	}
	sessions := filepath.Dir(filepath.Dir(path))
	if filepath.Ext(path) != ".json" || filepath.Base(sessions) != "session" {
		return p, fmt.Errorf("%s is neither a database nor a file storage/session/<project>/<session>.json with the "+
			"messages beside it", path)
	}
	return opencodePlace{tree: filepath.Dir(sessions), session: strings.TrimSuffix(filepath.Base(path), ".json")}, nil
}

// opencodeSessions yields the sessions of a database that were not seen. The program changes messages and parts in
// place.
func opencodeSessions(db *database, seen map[string]bool) error {
	list, listed := db.table("SELECT * FROM session ORDER BY time_created, id")
	return cmp.Or(db.each(list, func(row rows.Object) *codec.Session {
		info := opencodeInfo(row)
		if info.id == "" || seen[info.id] {
			return nil
		}
		if seen[info.id] = true; !db.wants(info.id, info.data,
			"SELECT count(*), max(time_updated) FROM message WHERE session_id = ?",
			"SELECT count(*), max(time_updated) FROM part WHERE session_id = ?") {
			return nil
		}
		s := &opencodeSession{info: info, parts: make(map[string][]opencodeRecord)}
		messages, failed := db.opencodeRecords("message", info.id, "time_created, id")
		parts, alsoFailed := db.opencodeRecords("part", info.id, "message_id, id")
		if err := cmp.Or(failed, alsoFailed); err != nil && db.ended() == nil {
			db.problemOf("session "+info.id, "it is read as far as it is good: %v", err)
		}
		for s.messages = messages; len(parts) > 0; parts = parts[1:] {
			s.parts[parts[0].message] = append(s.parts[parts[0].message], parts[0])
		}
		return s.decode(db.source)
	}), listed)
}

// opencodeInfo makes of a row what a file of the tree says. Columns have been added over time.
func opencodeInfo(row rows.Object) opencodeRecord {
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

// opencodeRecords reads the messages or parts of a session.
func (db *database) opencodeRecords(what, session, order string) (all []opencodeRecord, err error) {
	list, err := db.table("SELECT * FROM "+what+" WHERE session_id = ? ORDER BY "+order, session)
	for _, row := range list {
		r := opencodeRecord{id: row.Text("id"), message: row.Text("message_id"), created: moment(row, "time_created"),
			updated: moment(row, "time_updated")}
		var bad error
		if r.data, bad = rows.Parse([]byte(row.Text("data"))); bad != nil {
			db.problemOf(what+" "+r.id, "its data is not a JSON object: left out: %v", bad)
			continue
		}
		all = append(all, r)
	}
	return all, err
}

// opencodeTree yields the sessions of a tree of files: that whose id is only, or all that were not seen. Names say
// whose a file is; what it reports itself may be from before the files were moved.
func opencodeTree(ctx context.Context, from *source, only string, seen map[string]bool,
	yield func(*codec.Session) bool) error {
	projects, err := os.ReadDir(filepath.Join(from.path, "session"))
	if err != nil {
		return fmt.Errorf("list sessions of opencode: %w", err)
	}
	infos := make(map[string]opencodeRecord)
	for _, project := range projects {
		for _, r := range from.opencodeFiles(filepath.Join("session", project.Name())) {
			if (only == "" || r.id == only) && !seen[r.id] {
				infos[r.id] = r
			}
		}
	}
	if only != "" && len(infos) == 0 && !seen[only] {
		return fmt.Errorf("read session %s of opencode: its file cannot be read", only)
	}
	created := func(r opencodeRecord) int64 { return moment(r.data.Object("time"), "created") }
	for _, info := range slices.SortedFunc(maps.Values(infos), func(a, b opencodeRecord) int {
		return cmp.Or(cmp.Compare(created(a), created(b)), cmp.Compare(a.id, b.id))
	}) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s := &opencodeSession{info: info, parts: make(map[string][]opencodeRecord)}
		s.messages = from.opencodeFiles(filepath.Join("message", info.id))
		for _, m := range s.messages {
			s.parts[m.id] = from.opencodeFiles(filepath.Join("part", m.id))
		}
		if !yield(s.decode(from)) {
			return nil
		}
	}
	return nil
}

// opencodeFiles reads the files of a directory of the tree in the order of their names, which are the ids.
func (s *source) opencodeFiles(dir string) (all []opencodeRecord) {
	entries, err := os.ReadDir(filepath.Join(s.path, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.report(codec.Problem{File: filepath.ToSlash(dir), Reason: fmt.Sprintf("it is left out: %v", err)})
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || id == "" || strings.HasPrefix(id, ".") {
			continue
		}
		if o := s.object(s.path, filepath.Join(dir, e.Name()), ""); o != nil {
			all = append(all, opencodeRecord{id: valid(id), data: o})
		}
	}
	return all
}
