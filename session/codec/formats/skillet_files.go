package formats

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

// skilletDecodeFile reads the conversations in path: a state directory or one that holds it, a directory of logs, a
// log, or a store. A conversation that is in the logs and in the store is one session. Sessions come in the order of
// the logs' paths, then those that only the store has.
//
// A log that cannot be read is reported and left out. An error is yielded when there is nothing of skillet in path.
func skilletDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		logs, store, err := skilletPlaces(path)
		var conversations []skilletConversation
		if err == nil && store != "" {
			conversations, err = skilletReadStore(store)
		}
		if err != nil {
			return err
		}
		seen := make(map[skilletNames]bool)
		for _, path := range logs {
			d := skilletNewLogDecoder(path, report)
			name := d.key
			s, err := d.read(path, conversations)
			if err != nil {
				report(codec.Problem{File: d.file, Reason: err.Error() + ": the log was left out"})
				continue
			}
			seen[name] = true
			if !yield(s) {
				return nil
			}
		}
		for _, c := range conversations {
			if !seen[c.key.sanitized()] && !yield(skilletDecodeItems(c.key, c.items, filepath.Base(store), report)) {
				break
			}
		}
		return nil
	})
}

// skilletNewLogDecoder returns the decoder of the log at path, which has the names of the conversation.
func skilletNewLogDecoder(path string, report func(codec.Problem)) *skilletLogDecoder {
	user, file := filepath.Base(filepath.Dir(path)), filepath.Base(path)
	text := func(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
	return &skilletLogDecoder{
		key:  skilletNames{text(user), text(strings.TrimSuffix(file, ".jsonl"))},
		file: filepath.ToSlash(filepath.Join(user, file)), report: report,
	}
}

// read reads the log with what the store has of it. Several names may be one in a path. Then the log is all of
// theirs, and the store of none of them reports it.
func (d *skilletLogDecoder) read(path string, conversations []skilletConversation) (*codec.Session, error) {
	text, err := codec.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var same []skilletConversation
	for _, c := range conversations {
		if c.key.sanitized() == d.key {
			same = append(same, c)
		}
	}
	if len(same) == 1 {
		d.key, d.store = same[0].key, skilletNewGuide(same[0].items)
	} else if len(same) > 1 {
		d.problem(0, "%d conversations of the store have this log: none of them was read with it", len(same))
	}
	return d.decode(text)
}

// skilletPlaces finds the logs and the store in path.
func skilletPlaces(path string) (logs []string, store string, err error) {
	info, err := os.Stat(path)
	isStore := false
	if err == nil && !info.IsDir() {
		isStore, err = rows.IsDatabase(path)
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read conversations: %w", err)
	case isStore:
		return nil, path, nil
	case !info.IsDir():
		return []string{path}, "", nil
	}
	logsIn := func(dir string) []string {
		names, _ := filepath.Glob(filepath.Join(GlobEscape(dir), "*", "*.jsonl")) // none, if it cannot be read
		return names
	}
	for _, sub := range []string{".", "state", ".skilled-agent/state"} {
		root := filepath.Join(path, sub)
		database := filepath.Join(root, skilletDatabaseFile)
		if info, err := os.Stat(database); err == nil && info.Mode().IsRegular() && store == "" {
			store = database
		}
		logs = append(logs, logsIn(filepath.Join(root, skilletLogsDir))...)
	}
	if logs == nil && store == "" {
		logs = logsIn(path)
	}
	if logs == nil && store == "" {
		return nil, "", fmt.Errorf("%s: no conversation in it: want a directory with %s or %s", path, skilletLogsDir,
			skilletDatabaseFile)
	}
	return logs, store, nil
}

// skilletEncodeFile writes the session: to a log when path ends in .jsonl, to a store when it ends in .sqlite, and
// otherwise to both, in a state directory, which is made when it is not there. A session without a turn has no log
// there. It has the names that it was read with, or else those of "skillet" and its id.
//
// A log that exists, or a conversation that the store has, is replaced if replace is set,
// and with an error it is as it was. Otherwise it gives an error that is [os.ErrExist].
func skilletEncodeFile(path string, s *codec.Session, replace bool) error {
	key := skilletNamesOf(&s.Session)
	log, store := path, path
	switch filepath.Ext(path) {
	case ".jsonl":
		store = ""
	case ".sqlite":
		log = ""
	default:
		log, store = filepath.Join(path, skilletLogsDir, key.logPath()), filepath.Join(path, skilletDatabaseFile)
	}
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	if err := skilletPlace(log, store, s, key, replace); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// skilletPlace writes the log and the store, of which either may be "". The log is written when the
// store has all but committed, so that there are both or none.
func skilletPlace(log, store string, s *codec.Session, key skilletNames, replace bool) error {
	before, absent := os.ReadFile(log)
	switch {
	case log == "" || errors.Is(absent, fs.ErrNotExist):
	case !replace:
		return &fs.PathError{Op: "create", Path: log, Err: fs.ErrExist}
	case absent != nil:
		return absent
	}
	put := func() error {
		switch {
		case log == "":
			return nil
		case store != "" && len(skilletTurnsOf(s.Transcript)) == 0: // skillet makes a log with its first entry
			return os.RemoveAll(log)
		}
		if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
			return err
		}
		return rows.ReplaceFile(log, skilletEncode(s))
	}
	if store == "" {
		return put()
	}
	if err := os.MkdirAll(filepath.Dir(store), 0o700); err != nil {
		return err
	}
	// The commit of the store may fail after the log is written. Then the log is put back, or a conversation would be
	// in the log alone, and a second attempt be refused because the log exists.
	placed := false
	err := skilletWriteStore(store, skilletConversation{key, skilletItemsOf(s.Transcript)}, replace, func() error {
		err := put()
		placed = err == nil && log != ""
		return err
	})
	switch {
	case err == nil || !placed:
		return err
	case absent != nil:
		return errors.Join(err, os.RemoveAll(log))
	}
	return errors.Join(err, rows.ReplaceFile(log, before))
}
