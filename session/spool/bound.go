package spool

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// bound drops the oldest files until a new one has room below the limit: those
// whose process is dead, and those that this one has ended. The caller holds mu.
func (w *writer) bound() {
	type candidate struct {
		path     string
		size     int64
		modified time.Time
	}
	dirs, err := dirsOf(w.root)
	if err != nil {
		return // what cannot be listed cannot be dropped either
	}
	var total int64
	var mine, others []candidate
	for _, dir := range append(dirs, filepath.Join(w.root, damagedName)) {
		files, _ := filesOf(dir)
		for _, path := range files {
			info, err := os.Stat(path)
			if err != nil {
				continue
			}
			total += info.Size()
			c := candidate{path, info.Size(), info.ModTime()}
			if dir == w.dir {
				mine = append(mine, c)
			} else {
				others = append(others, c)
			}
		}
	}
	room := w.o.MaxTotalBytes - w.o.MaxFileBytes
	if total <= room {
		return
	}
	all := append(mine, others...)
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Or(a.modified.Compare(b.modified), cmp.Compare(a.path, b.path)) })
	var dropped tally
	var files int
	for _, c := range all {
		if total <= room {
			break
		}
		if lost, ok := w.drop(c.path); ok {
			total -= c.size
			files++
			dropped.spans += lost.spans
			dropped.records += lost.records
		}
	}
	if files > 0 {
		w.dropped.spans += dropped.spans
		w.dropped.records += dropped.records
		w.say = fmt.Errorf("spool %s is full at %d bytes: dropped the oldest %d files with %d spans and %d log records",
			w.root, w.o.MaxTotalBytes, files, dropped.spans, dropped.records)
	}
}

// drop removes a file unless it is in use, and counts what was in it. What is
// damaged was delivered but for what nobody can read.
func (w *writer) drop(path string) (lost tally, ok bool) {
	dir := filepath.Dir(path)
	switch {
	case dir == w.dir:
		if path == w.sending {
			return tally{}, false
		}
		lost = contents(path)
	case filepath.Base(dir) == damagedName:
	default:
		l, held, err := lockDir(dir)
		if err != nil || !held {
			return tally{}, false
		}
		defer func() {
			if files, err := filesOf(dir); err == nil && len(files) == 0 {
				removeDir(dir, l)
				return
			}
			_ = l.Unlock()
		}()
		lost = contents(path)
	}
	return lost, os.Remove(path) == nil
}

// contents counts what is in a file.
func contents(path string) tally {
	var t tally
	f, err := os.Open(path)
	if err != nil {
		return t
	}
	defer f.Close()
	for fr, err := range frames(f) {
		if err == nil {
			t.add(fr.kind, int64(fr.items))
		}
	}
	return t
}
