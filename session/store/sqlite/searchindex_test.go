package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// indexed makes the search index of a store.
func indexed(t testing.TB, r *Reader) {
	t.Helper()
	testscale.Must(t, r.UpdateSearchIndex(t.Context(), func(int, int) bool { return true }))
}

// indexFiles are the names of the files of the search index.
func indexFiles(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path + "-search")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// hitsOf is all that a search finds; without has no index.
func hitsOf(t testing.TB, path string, q store.SearchQuery, without bool) []store.Hit {
	t.Helper()
	if without {
		hidden := path + "-search"
		if err := os.Rename(hidden, hidden+"-hidden"); err == nil {
			defer func() {
				testscale.Must(t, os.Rename(hidden+"-hidden", hidden))
			}()
		}
	}
	r := openReader(t, path)
	var hits []store.Hit
	for h, err := range r.Search(t.Context(), q) {
		testscale.Must(t, err)
		hits = append(hits, h)
	}
	return hits
}

// words are put into random texts.
var words = []string{"permission denied", "needle", "NEEDLE", "naïve", "Straße", "Kelvin \u212a", "日本語",
	"a\"b\\c/d", "\n\t", "ſ", "É", "<&>", "x", "42", "e\u0301", "😀", "timeout after 30 s", "\U00010400"}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(6) * r.IntN(2) {
		b.WriteString(words[r.IntN(len(words))])
		if r.IntN(3) > 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// randomJSON is a part of a text, written in one of several ways.
func randomJSON(r *rand.Rand) string {
	text := randomText(r)
	raw, _ := json.Marshal(map[string]any{"type": "text", "text": text})
	switch r.IntN(4) {
	case 0:
		raw, _ = json.Marshal(map[string]any{"toolCallId": "c", "output": randomText(r),
			"input": map[string]any{"n": r.IntN(100), "list": []string{text}}})
	case 1: // all that can be is escaped
		var b strings.Builder
		for _, c := range string(raw) {
			if c < 0x80 {
				b.WriteRune(c)
			} else if c < 0x10000 {
				fmt.Fprintf(&b, `\u%04X`, c)
			} else {
				c -= 0x10000
				fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
			}
		}
		return b.String()
	case 2:
		return string(raw[:len(raw)-r.IntN(4)]) // perhaps damaged
	}
	return string(raw)
}

// randomQuery is a text or a regular expression that may be found.
func randomQuery(r *rand.Rand) store.SearchQuery {
	text := []rune(randomText(r))
	for len(text) == 0 {
		text = []rune(randomText(r))
	}
	from := r.IntN(len(text))
	q := store.SearchQuery{Text: string(text[from:min(len(text), from+1+r.IntN(12))])}
	if r.IntN(3) == 0 {
		q = store.SearchQuery{Text: []string{`n.edle`, `permission\s+den`, `(?-i)NEED`, `日.語`, `[0-9]+ s`,
			`stra(ß|ss)e`,
			`kelvin \x{212a}`, `needle.*naïve`, `^needle`, `😀+`}[r.IntN(10)], Regexp: true}
	}
	if r.IntN(8) == 0 {
		q.Agent = "other"
	}
	return q
}

// fillParts inserts n parts of a session from a rowid on.
func fillParts(r *rand.Rand, session string, from, n int) string {
	var b strings.Builder
	for i := range n {
		separator := ","
		if i%500 == 0 {
			separator = `;INSERT INTO chat_parts(rowid, id, message_id, session_id, "index", type, data_json, created_at,
 updated_at) VALUES`
		}
		fmt.Fprintf(&b, "%s (%d, 'p%d', 'm-%s', '%s', %d, 'text', '%s', %d, 1)", separator, from+i, r.Uint64(), session,
			session, from+i, strings.ReplaceAll(randomJSON(r), "'", "''"), r.IntN(1000))
	}
	return b.String()[1:] + ";"
}

// sessions of stores that are searched.
const indexedSessions = `PRAGMA foreign_keys = ON;
INSERT INTO chat_sessions(id, title, agent, created_at, updated_at) VALUES
 ('a', 'Needle', 'a', 1, 1), ('b', 'b', 'other', 1, 1), ('c', 'c', 'a', 1, 1);
INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) VALUES
 ('m-a', 'a', 'user', 1, 1), ('m-b', 'b', 'assistant', 1, 1), ('m-c', 'c', 'user', 1, 1);
`

// TestTheSearchIndexChangesNoResult: whatever is inserted, changed, deleted and indexed, in any order, a search finds
// the same with the index as without.
func TestTheSearchIndexChangesNoResult(t *testing.T) {
	for seed := range uint64(testscale.Rounds(1, 2)) {
		r := rand.New(rand.NewPCG(seed, 1))
		path := newPath(t)
		open(t, path, Options{}).Close()
		testscale.Script(t, path, indexedSessions)
		reader := openReader(t, path)
		next, found := 1, 0
		for step := range 25 {
			switch r.IntN(8) {
			case 0, 1, 2: // many parts: a segment may be full then
				n := 500 + r.IntN(3000)
				testscale.Script(t, path, fillParts(r, []string{"a", "b", "c"}[r.IntN(3)], next, n))
				next += n
			case 3:
				testscale.Script(t, path, fmt.Sprintf("UPDATE chat_parts SET data_json = '%s' WHERE rowid = %d",
					strings.ReplaceAll(randomJSON(r), "'", "''"), 1+r.IntN(next)))
			case 4: // the last rows, so that their numbers are used again
				n := r.IntN(5000)
				testscale.Script(t, path, fmt.Sprintf("DELETE FROM chat_parts WHERE rowid >= %d", next-n))
				next = max(1, next-n)
			case 5:
				testscale.Script(t, path, fmt.Sprintf("DELETE FROM chat_parts WHERE rowid %% 7 = %d", r.IntN(7)))
			case 6:
				if r.IntN(3) == 0 {
					conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
					if err == nil {
						err = errors.Join(sqlitex.ExecuteTransient(conn, "VACUUM", nil), conn.Close())
					}
					testscale.Must(t, err)
					next = 1 + atoi(testscale.Query(t, path, "SELECT coalesce(max(rowid), 0) FROM chat_parts")[0])
				} else {
					open(t, path, Options{}).Close()
				}
			case 7:
				indexed(t, reader)
			}
			if r.IntN(2) == 0 {
				q := randomQuery(r)
				want := hitsOf(t, path, q, true)
				found += len(want)
				if diff := cmp.Diff(want, hitsOf(t, path, q, false)); diff != "" {
					t.Fatalf("seed %d, step %d: %+v (-without index +with):\n%s", seed, step, q, diff)
				}
			}
		}
		indexed(t, reader)
		for range 20 {
			q := randomQuery(r)
			if diff := cmp.Diff(hitsOf(t, path, q, true), hitsOf(t, path, q, false)); diff != "" {
				t.Fatalf("seed %d: %+v (-without index +with):\n%s", seed, q, diff)
			}
		}
		if found == 0 {
			t.Error("nothing was found")
		}
	}
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// TestDeletedSessionsLeaveTheSearchIndex: of what rm deletes, no word stays in a file, and the parts of other sessions
// are found as before.
func TestDeletedSessionsLeaveTheSearchIndex(t *testing.T) {
	path := newPath(t)
	open(t, path, Options{}).Close()
	r := rand.New(rand.NewPCG(1, 1))
	testscale.Script(t, path, indexedSessions+fillParts(r, "a", 1, segmentParts)+fillParts(r, "b", 1+segmentParts, segmentParts)+
		fillParts(r, "a", 1+2*segmentParts, segmentParts))
	s := open(t, path, Options{})
	indexed(t, s.Reader)
	before := indexFiles(t, path)
	if len(before) != 3 {
		t.Fatalf("files %v", before)
	}
	want := len(hitsOf(t, path, store.SearchQuery{Text: "needle", Agent: "a"}, true))
	testscale.Must(t, s.Delete(t.Context(), "b"))
	// Rowids begin with 1, so the first and the last part of b are in segments with parts of a.
	if after := indexFiles(t, path); len(after) != 1 || after[0] != before[0] {
		t.Errorf("after the deletion there are %v of %v", after, before)
	}
	for range 2 {
		if got := hitsOf(t, path, store.SearchQuery{Text: "needle"}, false); len(got) != want {
			t.Errorf("%d places are found, want %d", len(got), want)
		}
		indexed(t, s.Reader)
	}
	if after := indexFiles(t, path); len(after) != 3 {
		t.Errorf("files %v", after)
	}
}

// TestADamagedSearchIndexIsMadeAgain: whatever its files contain, a search finds what is there.
func TestADamagedSearchIndexIsMadeAgain(t *testing.T) {
	path := newPath(t)
	open(t, path, Options{}).Close()
	r := rand.New(rand.NewPCG(1, 1))
	testscale.Script(t, path, indexedSessions+fillParts(r, "a", 1, 2*segmentParts))
	s := open(t, path, Options{})
	indexed(t, s.Reader)
	name := filepath.Join(path+"-search", indexFiles(t, path)[0])
	valid := testscale.ReadFile(t, name)
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	queries := []store.SearchQuery{{Text: "needle"}, {Text: "日本語"}, {Text: "timeout.*den", Regexp: true}}
	var want [][]store.Hit
	for _, q := range queries {
		want = append(want, hitsOf(t, path, q, true))
	}
	for i := range 12 {
		damaged := append([]byte(nil), valid...)
		switch i % 4 {
		case 0:
			damaged = damaged[:r.IntN(len(damaged))]
		case 1:
			damaged[r.IntN(trigramHeader)] ^= 1 << r.IntN(8)
		default:
			for range 1 + r.IntN(2000) {
				damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
			}
		}
		testscale.WriteFile(t, name, damaged)
		for i, q := range queries {
			if diff := cmp.Diff(want[i], hitsOf(t, path, q, false)); diff != "" {
				t.Fatalf("%+v (-want +got):\n%s", q, diff)
			}
		}
	}
	testscale.WriteFile(t, name, "")
	hitsOf(t, path, queries[0], false)
	indexed(t, s.Reader)
	if again, err := os.ReadFile(name); err != nil || string(again) != string(valid) {
		t.Errorf("it is not made again: %d bytes, want %d, %v", len(again), len(valid), err)
	}
}

// TestAStoreOfAnEarlierVersionGetsASearchIndex: a reader finds all before it is upgraded, too.
func TestAStoreOfAnEarlierVersionGetsASearchIndex(t *testing.T) {
	path := newPath(t)
	open(t, path, Options{}).Close()
	testscale.Script(t, path, `DROP TABLE search_segments; DROP TRIGGER search_part_updated;
DROP TRIGGER search_part_deleted;`+indexedSessions+fillParts(rand.New(rand.NewPCG(1, 1)), "a", 1, 2*segmentParts+1))
	old := openReader(t, path)
	indexed(t, old)
	want := hitsOf(t, path, store.SearchQuery{Text: "needle"}, true)
	if files := indexFiles(t, path); len(files) != 0 || len(want) == 0 {
		t.Errorf("files %v, %d hits", files, len(want))
	}
	s := open(t, path, Options{})
	indexed(t, s.Reader)
	if files := indexFiles(t, path); len(files) != 2 {
		t.Errorf("files %v", files)
	}
	if diff := cmp.Diff(want, hitsOf(t, path, store.SearchQuery{Text: "needle"}, false)); diff != "" {
		t.Errorf("hits (-want +got):\n%s", diff)
	}
}

// TestSearchFindsAllWhereNoIndexCanBeWritten: a file is where the directory would be.
func TestSearchFindsAllWhereNoIndexCanBeWritten(t *testing.T) {
	path := newPath(t)
	open(t, path, Options{}).Close()
	testscale.Script(t, path, indexedSessions+fillParts(rand.New(rand.NewPCG(1, 1)), "a", 1, segmentParts))
	s := open(t, path, Options{})
	want := hitsOf(t, path, store.SearchQuery{Text: "needle"}, true)
	testscale.Must(t, os.WriteFile(path+"-search", nil, 0o400))
	if err := s.UpdateSearchIndex(t.Context(), func(int, int) bool {
		return true
	}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(want, hitsOf(t, path, store.SearchQuery{Text: "needle"}, false)); diff != "" {
		t.Errorf("hits (-want +got):\n%s", diff)
	}
}

// TestSearchWhileAWriterRuns: readers that index and search see each a state of the store, and miss nothing of it.
func TestSearchWhileAWriterRuns(t *testing.T) {
	path := newPath(t)
	open(t, path, Options{}).Close()
	testscale.Script(t, path, indexedSessions+fillParts(rand.New(rand.NewPCG(1, 1)), "a", 1, 3*segmentParts)+
		"UPDATE chat_parts SET data_json = '{\"text\":\"nothing\"}';")
	testscale.Script(t, path, `UPDATE chat_parts SET data_json = '{"text":"the token"}' WHERE rowid = 100`)
	s := open(t, path, Options{})
	done := make(chan struct{})
	var writers, readers sync.WaitGroup
	writers.Go(func() { // the token is moved from part to part: each state has it once
		for i := range 60 {
			err := s.Transact(t.Context(), func(tx store.Tx) error {
				_, err := tx.(interface {
					Exec(string, ...any) (int64, error)
				}).Exec(`UPDATE chat_parts SET data_json =
 CASE rowid WHEN ?1 THEN '{"text":"the token"}' ELSE '{"text":"nothing"}' END
 WHERE rowid IN (?1, ?2)`, int64(100+(i+1)*190), int64(100+i*190))
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		close(done)
	})
	for range 3 {
		readers.Go(func() {
			r, err := OpenReader(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := r.UpdateSearchIndex(t.Context(), func(int, int) bool { return true }); err != nil {
					t.Error(err)
				}
				n := 0
				for _, err := range r.Search(t.Context(), store.SearchQuery{Text: "the TOKEN"}) {
					if err != nil {
						t.Error(err)
					}
					n++
				}
				if n != 1 {
					t.Errorf("the text is found %d times", n)
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
}
