package importer

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/agenttrace/agenttrace/session/store"
)

// versions are those of the sessions of a database: of one that changed, the sessions are read that did. They are the
// state of its source.
type versions struct {
	was, now map[string]sessionVersion
	t        *Tally
	// deleted are the sessions that the store lacks; they are read again if the database was named.
	deleted []string
	named   bool
	// reading is the session that is being read.
	reading string
}

// sessionVersion is a version of a session, with the number of its messages, parts and decisions.
type sessionVersion struct {
	Version string `json:"version"`
	Items   int    `json:"items"`
}

// versionsOf returns the versions of the sessions of an input, with those that it had when it was read before.
func (im *Importer) versionsOf(ctx context.Context, in Input, now *store.ImportSource, t *Tally) (*versions, error) {
	v := &versions{now: make(map[string]sessionVersion), t: t, named: !in.found}
	was := im.sources[now.Path]
	if was == nil || was.Format != t.Format || was.Reading != im.reading(was.Format) {
		return v, nil
	}
	whole, err := im.store.ImportSource(ctx, now.Path)
	if errors.Is(err, store.ErrNotFound) || err == nil && json.Unmarshal(whole.State, &v.was) != nil {
		v.was = nil
		return v, nil // all is read
	}
	if err != nil {
		return nil, storeError{err}
	}
	v.deleted = whole.Deleted
	return v, nil
}

// wanted implements [codec.Wanted].
func (v *versions) wanted(id, version string) bool {
	v.reading = id
	was, known := v.was[id]
	deleted := slices.Contains(v.deleted, id)
	if !known || was.Version != version || deleted && v.named {
		v.now[id] = sessionVersion{Version: version}
		return true
	}
	v.now[id] = was
	if deleted {
		v.t.Deleted++
		v.t.deleted = append(v.t.deleted, id)
		return false
	}
	v.t.addSession(id)
	v.t.items += was.Items
	v.t.Unchanged += was.Items
	return false
}

// has notes how much there is in a session that was read.
func (v *versions) has(id string, items int) {
	if v == nil {
		return
	}
	if s, ok := v.now[id]; ok {
		s.Items = items
		v.now[id] = s
	}
}

// forget has a session read again next time.
func (v *versions) forget(id string) {
	if v != nil {
		delete(v.now, id)
	}
}
