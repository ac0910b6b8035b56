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

// lockKeys are the keys of what changes and queries name.
type lockKeys map[int64]bool

// add adds the keys of names.
func (k lockKeys) add(kind store.NameKind, names ...string) {
	for _, name := range names {
		if name != "" {
			k[lockKey(kind, name)] = true
		}
	}
}

// lockKey is the number of a key. It is the same in every program: FNV-1a, folded.
func lockKey(kind store.NameKind, name string) int64 {
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
