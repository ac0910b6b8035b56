package skillet

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// DecodeFile reads the conversations in path: a state directory or one that holds it, a
// directory of logs, a log, or a store. A conversation that is in the logs and in the store
// is one session. Sessions come in the order of the logs' paths, then those that only the
// store has.
//
// A log that cannot be read is reported and left out. An error is yielded when there is
// nothing of skillet in path.
func DecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		logs, store, err := places(path)
		var conversations []conversation
		if err == nil && store != "" {
			conversations, err = readStore(store)
		}
		if err != nil {
			return err
		}
		seen := make(map[names]bool)
		for _, l := range logs {
			s, err := readLog(l, conversations, report)
			if err != nil {
				report(codec.Problem{File: l.name, Reason: err.Error() + ": the log was left out"})
				continue
			}
			seen[l.key] = true
			if !yield(s) {
				return nil
			}
		}
		for _, c := range conversations {
			if !seen[c.key.sanitized()] && !yield(decodeItems(c.key, c.items, filepath.Base(store), report)) {
				break
			}
		}
		return nil
	})
}

// logFile is a log with the names that its path says.
type logFile struct {
	path, name string
	key        names
}

func readLog(l logFile, conversations []conversation, report func(codec.Problem)) (*codec.Session, error) {
	text, err := codec.ReadFile(l.path)
	if err != nil {
		return nil, err
	}
	d := logDecoder{key: l.key, file: l.name, report: report}
	// Several names may be one in a path. Then the log is all of theirs, and the
	// store of none of them reports it.
	var same []conversation
	for _, c := range conversations {
		if c.key.sanitized() == l.key {
			same = append(same, c)
		}
	}
	switch len(same) {
	case 0:
	case 1:
		d.key, d.store = same[0].key, newGuide(same[0].items)
	default:
		d.problem(0, "%d conversations of the store have this log: none of them was read with it", len(same))
	}
	return d.decode(text)
}

// places finds the logs and the store in path.
func places(path string) (logs []logFile, store string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", fmt.Errorf("read conversations: %w", err)
	}
	if !info.IsDir() {
		if ok, err := rows.IsDatabase(path); err != nil {
			return nil, "", fmt.Errorf("read conversations: %w", err)
		} else if ok {
			return nil, path, nil
		}
		return []logFile{logIn(filepath.Dir(filepath.Dir(path)), path)}, "", nil
	}
	for _, sub := range []string{".", "state", ".skilled-agent/state"} {
		root := filepath.Join(path, sub)
		if info, err := os.Stat(filepath.Join(root, databaseFile)); err == nil && info.Mode().IsRegular() &&
			store == "" {
			store = filepath.Join(root, databaseFile)
		}
		logs = append(logs, logsIn(filepath.Join(root, logsDir))...)
	}
	if logs == nil && store == "" {
		logs = logsIn(path)
	}
	if logs == nil && store == "" {
		return nil, "", fmt.Errorf("%s: no conversation in it: want a directory with %s or %s", path, logsDir,
			databaseFile)
	}
	return logs, store, nil
}

func logsIn(root string) (logs []logFile) {
	users, err := os.ReadDir(root)
	if err != nil {
		return nil // not there, which is what is asked
	}
	for _, user := range users {
		entries, err := os.ReadDir(filepath.Join(root, user.Name()))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".jsonl") {
				logs = append(logs, logIn(root, filepath.Join(root, user.Name(), e.Name())))
			}
		}
	}
	return logs
}

func logIn(root, path string) logFile {
	name, err := filepath.Rel(root, path)
	if err != nil {
		name = filepath.Base(path)
	}
	user := strings.ToValidUTF8(filepath.Base(filepath.Dir(path)), "\uFFFD")
	session := strings.ToValidUTF8(strings.TrimSuffix(filepath.Base(path), ".jsonl"), "\uFFFD")
	return logFile{path, filepath.ToSlash(name), names{user, session}}
}

// EncodeFile writes the session: to a log when path ends in .jsonl, to a store
// when it ends in .sqlite, and otherwise to both, in a state directory, which is
// made when it is not there. A session without a turn has no log there. It has the names
// that it was read with, or else those of "skillet" and its id.
//
// A log that exists, or a conversation that the store has, is replaced if replace is set,
// and with an error it is as it was. Otherwise it gives an error that is [os.ErrExist].
func EncodeFile(path string, s *codec.Session, replace bool) error {
	key := namesOf(&s.Session)
	log, store := path, path
	switch filepath.Ext(path) {
	case ".jsonl":
		store = ""
	case ".sqlite":
		log = ""
	default:
		log, store = filepath.Join(path, logsDir, key.logPath()), filepath.Join(path, databaseFile)
	}
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	if err := place(log, store, s, key, replace); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// place writes the log and the store, of which either may be "". The log is written when the
// store has all but committed, so that there are both or none.
func place(log, store string, s *codec.Session, key names, replace bool) error {
	put := func() error { return nil }
	switch {
	case log == "":
	case store != "" && len(turnsOf(s.Transcript)) == 0: // skillet makes a log with its first entry
		if replace {
			put = func() error {
				if err := os.Remove(log); !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				return nil
			}
		}
	default:
		if _, err := os.Lstat(log); err == nil && !replace {
			return &fs.PathError{Op: "create", Path: log, Err: fs.ErrExist}
		}
		put = func() error {
			if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
				return err
			}
			return rows.ReplaceFile(log, logOf(s.Transcript))
		}
	}
	if store == "" {
		return put()
	}
	if err := os.MkdirAll(filepath.Dir(store), 0o700); err != nil {
		return err
	}
	return writeStore(store, conversation{key, itemsOf(s.Transcript)}, replace, put)
}
