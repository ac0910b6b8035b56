package postgres

import (
	"slices"

	"github.com/agenttrace/agenttrace/session/store"
)

// lockBits bounds the keys of writer_locks to 2^lockBits rows. Two keys with one number wait for one another without
// need, which of a few hundred keys of a batch happens now and then.
const lockBits = 20

// lockQuery locks the rows of sorted keys, and makes those that are missing. DO UPDATE locks a row also where its
// condition is false; nothing is written then. Every writer locks in the order of the keys, so no two wait for each
// other, unless one needs more keys later: see [Store.Transact].
const lockQuery = `INSERT INTO writer_locks(key) SELECT unnest($1::bigint[])
 ON CONFLICT (key) DO UPDATE SET key = excluded.key WHERE false`

// What keys stand for. One text may be the id of a session and of a call.
const (
	sessionKey = 's'
	messageKey = 'm'
	traceKey   = 't'
	callKey    = 'c'
	pathKey    = 'p'
)

// lockKeys are the keys of what changes and queries name. Whatever a query reads, another transaction changes only if
// it names the same session, message, trace or call, in a query or in a change.
type lockKeys map[int64]bool

func (k lockKeys) add(kind byte, names ...string) {
	for _, name := range names {
		if name != "" {
			k[lockKey(kind, name)] = true
		}
	}
}

// lockKey is the number of a key. It is the same in every program: FNV-1a, folded.
func lockKey(kind byte, name string) int64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := (uint64(offset) ^ uint64(kind)) * prime
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	return int64((h ^ h>>lockBits ^ h>>(2*lockBits)) & (1<<lockBits - 1))
}

// sorted are the keys that are not held yet, in order.
func (k lockKeys) sorted(held lockKeys) []int64 {
	var keys []int64
	for key := range k {
		if !held[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (k lockKeys) ofChanges(c *store.Changes) {
	for i := range c.Sessions {
		s := c.Sessions[i].Row
		k.add(sessionKey, s.ID)
		if s.State.Fork != nil {
			k.add(sessionKey, s.State.Fork.From)
		}
	}
	for i := range c.Messages {
		k.add(sessionKey, c.Messages[i].Row.SessionID)
		k.add(messageKey, c.Messages[i].Row.ID)
	}
	for i := range c.Observations {
		o := c.Observations[i].Row
		k.add(traceKey, o.TraceID)
		k.add(sessionKey, o.Owner, o.Session)
		k.add(callKey, o.Call)
		k.add(callKey, o.Calls...)
	}
	for _, source := range c.Sources {
		k.add(pathKey, source.Path)
	}
	for i := range c.Owners {
		k.add(traceKey, c.Owners[i].TraceID)
		k.add(sessionKey, c.Owners[i].Owner)
	}
}

func (k lockKeys) ofQuery(q store.Query) {
	switch q := q.(type) {
	case *store.SessionsByID:
		k.add(sessionKey, q.IDs...)
	case *store.MessagesByID:
		k.add(messageKey, q.IDs...)
	case *store.PartsByKey:
		k.add(messageKey, q.MessageID)
	case *store.SpanRefsByKey:
		for _, key := range q.Keys {
			k.add(sessionKey, key.SessionID)
		}
	case *store.AnnotationsByKey:
		for _, key := range q.Keys {
			k.add(sessionKey, key.SessionID)
		}
	case *store.ObservationsByKey:
		k.ofObservations(q.Keys)
	case *store.MessagesFrom:
		k.add(sessionKey, q.SessionID)
	case *store.Compactions:
		k.add(sessionKey, q.SessionID)
	case *store.AnnotationsOf:
		k.add(sessionKey, q.SessionID)
	case *store.StatsOf:
		k.add(sessionKey, q.SessionID)
	case *store.Sources:
		k.add(sessionKey, q.SessionID)
	case *store.TraceOwners:
		k.add(traceKey, q.TraceIDs...)
	case *store.Trace:
		k.add(traceKey, q.TraceID)
	case *store.TraceObservations:
		k.add(traceKey, q.TraceID)
	case *store.Thread:
		k.add(sessionKey, q.SessionID)
	case *store.RequesterOf:
		k.add(callKey, q.CallID)
	case *store.OrphanTraces:
		k.add(callKey, q.CallID)
	case *store.SpanTimes:
		k.ofObservations(q.Keys)
	case *store.WindowFrom:
		k.add(sessionKey, q.Owner)
	case *store.WindowTo:
		k.add(sessionKey, q.Owner)
	case *store.ObservationsIn:
		k.add(sessionKey, q.Owner)
	case *store.Proven:
		k.add(sessionKey, q.Owner)
	}
}

func (k lockKeys) ofObservations(keys []store.ObservationKey) {
	for _, key := range keys {
		k.add(traceKey, key.TraceID)
	}
}
