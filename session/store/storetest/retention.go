package storetest

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

var retentionCases = []testCase{
	{"retention", "Sessions of an age are deleted with their family, those with a tag are kept if that is asked for, " +
		"and of a store that is too large the oldest go first.", func(h *harness) {
		fill := func(s Store) {
			random := rand.New(rand.NewPCG(1, 2)) // what repeats itself is compressed
			for i, id := range []string{"old", "tagged", "parent", "new"} {
				h.apply(s, ofSession(id, int64(i), store.SessionChange{}))
				for k := range 10 {
					m := user(id, fmt.Sprintf("%s-%d", id, k), int64(i))
					noise := make([]byte, 20_000)
					for j := range noise {
						noise[j] = byte(random.Uint32())
					}
					m.Parts[0].Data = object("type", "text", "text", hex.EncodeToString(noise))
					h.apply(s, m)
				}
			}
			day := int64(24 * time.Hour / time.Millisecond)
			h.apply(s, ofSession("new", 30*day, store.SessionChange{}))
			h.apply(s, ofSession("child", 30*day, store.SessionChange{ParentID: reported(1, "parent")}))
			h.apply(s, annotated(store.Annotation{ID: "t", SessionID: "tagged", Kind: store.AnnotationTag,
				Name: "good"},
				store.Annotation{ID: "n", SessionID: "old", Kind: store.AnnotationNote, Comment: "a note is no tag"}))
		}
		now := time.UnixMilli(epoch).Add(31 * 24 * time.Hour)
		apply := func(s Store, p store.Retention) (deleted []string) {
			h.check(p.Apply(h.Context(), s, now, func(s session.Session) { deleted = append(deleted, s.ID) }))
			return deleted
		}
		h.with(func(s Store) {
			fill(s)
			h.equal("deleted without rules", apply(s, store.Retention{}), []string(nil))
			h.equal("deleted", apply(s, store.Retention{MaxAge: 7 * 24 * time.Hour, KeepTagged: true}), []string{"old"})
			h.equal("deleted then", apply(s, store.Retention{MaxAge: 7 * 24 * time.Hour}), []string{"tagged"})
			h.equal("left", ids(List(h, s, everything)), []string{"new", "child", "parent"})
		})
		h.with(func(s Store) {
			fill(s)
			source := &store.ImportSource{Path: "/old.jsonl", Reading: "1", State: []byte("state"), Report: "{}",
				Sessions: []string{"old"}}
			h.check(s.RecordSources(h.Context(), source))
			h.equal("deleted with a file", apply(s, store.Retention{MaxAge: 7 * 24 * time.Hour, KeepTagged: true}),
				[]string{"old"})
			kept, err := s.ImportSource(h.Context(), source.Path)
			source.Deleted = source.Sessions
			h.equal("the file, which is not imported again", []any{kept, err}, []any{*source, nil})
		})
		h.with(func(s Store) {
			sizer, ok := s.(store.Sizer)
			if !ok {
				return // a client of a store in another process
			}
			fill(s)
			size, err := sizer.Size(h.Context())
			if err != nil || size < 700_000 {
				h.Fatalf("1,600 KB in hex are %d bytes, %v", size, err)
			}
			h.equal("deleted with room", apply(s, store.Retention{MaxSize: 2 * size}), []string(nil))
			h.equal("deleted for the size", apply(s, store.Retention{MaxSize: size / 10, KeepTagged: true}),
				[]string{"old", "parent", "child", "new"})
			after, err := sizer.Size(h.Context())
			if err != nil || after > size*2/3 {
				h.Errorf("of %d bytes are %d left, %v", size, after, err)
			}
		})
	}},
}
