package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// Search yields where a text is found: in the titles of sessions, in system prompts and tool
// catalogs, once for each session that was given one, and then in what
// was said, in the inputs and outputs of tools, and in the data of hosts; what was
// stored last comes first. What a fork
// copied from a session that is there is found in that session alone. An error is
// yielded once and ends the sequence.
//
// It reads the sessions and then the parts one after the other, without an index, and only for as long
// as the consumer wants more. While it runs it holds a read transaction.
func (r *Reader) Search(ctx context.Context, q store.SearchQuery) iter.Seq2[store.Hit, error] {
	return func(yield func(store.Hit, error) bool) {
		if q.Text == "" {
			return
		}
		s := &searcher{SearchQuery: q, needle: newNeedle(q.Text), sessions: map[string]*searchedSession{}}
		if !q.Since.IsZero() {
			s.since = q.Since.UnixMilli()
		}
		err := r.read(ctx, func(conn *sqlite.Conn) error {
			if err := s.titles(conn, yield); err != nil {
				return err
			}
			if err := s.blobs(conn, yield); err != nil {
				return err
			}
			stmt := conn.Prep(`SELECT data_json, created_at, session_id, message_id, id, type FROM chat_parts NOT INDEXED
 WHERE type <> 'step-start' ORDER BY rowid DESC`)
			var raw []byte
			return each(stmt, func() error {
				if stmt.ColumnInt64(1) < s.since {
					return nil
				}
				raw = slices.Grow(raw[:0], stmt.ColumnLen(0))[:stmt.ColumnLen(0)]
				stmt.ColumnBytes(0, raw)
				if !s.needle.mayBeIn(raw) {
					return nil
				}
				hits, err := s.part(conn, stmt, raw, r.ours)
				for i := range hits {
					if !yield(hits[i], nil) {
						return errStop
					}
				}
				return err
			})
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(store.Hit{}, fmt.Errorf("search %s: %w", r.path, err))
		}
	}
}

type searcher struct {
	store.SearchQuery
	needle   needle
	since    int64
	sessions map[string]*searchedSession
}

type searchedSession struct {
	title, agent string
	// from is when a fork of a session that is there began: what is older was
	// copied.
	from int64
}

// titles yields the sessions that have the text in their title.
func (s *searcher) titles(conn *sqlite.Conn, yield func(store.Hit, error) bool) error {
	stmt := conn.Prep(`SELECT title, created_at, id, agent FROM chat_sessions NOT INDEXED ORDER BY rowid DESC`)
	return each(stmt, func() error {
		if stmt.ColumnInt64(1) < s.since {
			return nil
		}
		title := stmt.ColumnText(0)
		hit, ok := s.needle.hit(title)
		if !ok || title == session.Untitled || s.Agent != "" && stmt.ColumnText(3) != s.Agent {
			return nil
		}
		hit.Type, hit.Field = store.TypeSession, "title"
		hit.SessionID, hit.Title, hit.Agent, hit.CreatedAt = stmt.ColumnText(2), title, stmt.ColumnText(3),
			stmt.ColumnInt64(1)
		if !yield(hit, nil) {
			return errStop
		}
		return nil
	})
}

// blobs yields the sessions with a system prompt or a tool catalog that has the text.
func (s *searcher) blobs(conn *sqlite.Conn, yield func(store.Hit, error) bool) error {
	tables, err := names(conn,
		"SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('system_prompts', 'tool_catalogs')")
	if err != nil {
		return err
	}
	for _, kind := range []struct{ table, path, hit, field string }{
		{"system_prompts", "$.system_prompt_digest", store.TypeSystemPrompt, "system prompt"},
		{"tool_catalogs", "$.agenttrace.tool_catalog_digest", store.TypeToolCatalog, "tool catalog"},
	} {
		if !slices.Contains(tables, kind.table) {
			continue // another program's file
		}
		found := map[string]store.Hit{}
		bodies := conn.Prep(`SELECT digest, body FROM ` + kind.table)
		if err := each(bodies, func() error {
			if hit, ok := s.needle.hit(bodies.ColumnText(1)); ok {
				hit.Type, hit.Field, hit.Digest = kind.hit, kind.field, bodies.ColumnText(0)
				found[hit.Digest] = hit
			}
			return nil
		}); err != nil || len(found) == 0 {
			if err != nil {
				return err
			}
			continue
		}
		// The sessions are looked for only when something was found: it reads all messages.
		type place struct{ session, digest string }
		seen := map[place]bool{}
		stmt := conn.Prep(`SELECT m.session_id, m.id, m.role, m.hidden_at, m.created_at, json_extract(m.metadata_json, '` + kind.path + `') AS digest,
 s.title, s.agent, s.parent_id, s.created_at FROM chat_messages m JOIN chat_sessions s ON s.id = m.session_id
 WHERE m.role <> 'user' AND json_valid(m.metadata_json) AND digest IS NOT NULL ORDER BY s.updated_at DESC, m.session_id, m.created_at, m.id`)
		if err := each(stmt, func() error {
			hit, ok := found[stmt.ColumnText(5)]
			at := place{stmt.ColumnText(0), hit.Digest}
			row := session.Session{ParentID: sqlstore.TextPtr(stmt, 8), CreatedAt: stmt.ColumnInt64(9)}
			if !ok || seen[at] || stmt.ColumnInt64(4) < s.since || s.Agent != "" && stmt.ColumnText(7) != s.Agent ||
				row.Copied(stmt.ColumnInt64(4)) {
				return nil
			}
			seen[at] = true
			hit.SessionID, hit.MessageID, hit.Role, hit.Hidden = at.session, stmt.ColumnText(1), stmt.ColumnText(2),
				!stmt.ColumnIsNull(3)
			hit.CreatedAt, hit.Title, hit.Agent = stmt.ColumnInt64(4), stmt.ColumnText(6), stmt.ColumnText(7)
			if !yield(hit, nil) {
				return errStop
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *searcher) session(conn *sqlite.Conn, id string, ours bool) (*searchedSession, error) {
	if known, ok := s.sessions[id]; ok {
		return known, nil
	}
	query := `SELECT title, agent, 0 FROM chat_sessions WHERE id = ?`
	if ours {
		query = `SELECT s.title, s.agent, iif(o.id IS NULL, 0, s.created_at) FROM chat_sessions s
 LEFT JOIN session_state st ON st.session_id = s.id LEFT JOIN chat_sessions o ON o.id = st.forked_from WHERE s.id = ?`
	}
	stmt := prep(conn, query, id)
	found, err := one(stmt, func(stmt *sqlite.Stmt) searchedSession {
		return searchedSession{stmt.ColumnText(0), stmt.ColumnText(1), stmt.ColumnInt64(2)}
	})
	s.sessions[id] = found
	return found, err
}

// part returns the hits in the part that stmt is at, the JSON of which is raw.
func (s *searcher) part(conn *sqlite.Conn, stmt *sqlite.Stmt, raw []byte, ours bool) ([]store.Hit, error) {
	p, _ := session.ParseUIPart(string(raw)) // what can be read of it is looked through
	var hits []store.Hit
	look := func(path, value string) {
		if hit, ok := s.needle.hit(value); ok {
			hit.Field = path
			hits = append(hits, hit)
		}
	}
	lookText := func(name string, text *string) {
		if text != nil {
			look(name, *text)
		}
	}
	lookJSON := func(name string, raw json.RawMessage) {
		var v any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if len(raw) > 0 && d.Decode(&v) == nil {
			leaves(name, v, look)
		}
	}
	lookText("text", p.Text)
	if p.Input == nil {
		p.Input = p.RawInput // as it was sent where it is no proper one
	}
	lookJSON("input", p.Input)
	lookJSON("output", p.Output)
	lookText("error", p.ErrorText)
	lookJSON("data", p.Data)
	if len(hits) == 0 {
		return nil, nil
	}
	at, id := stmt.ColumnInt64(1), stmt.ColumnText(2)
	in, err := s.session(conn, id, ours)
	if err != nil || in == nil || at < in.from || s.Agent != "" && in.agent != s.Agent {
		return nil, err
	}
	message, err := get(conn, sqlstore.MessageTable, stmt.ColumnText(3))
	if err != nil || message == nil {
		return nil, err
	}
	for i := range hits {
		h := &hits[i]
		h.SessionID, h.Title, h.Agent, h.CreatedAt = id, in.title, in.agent, at
		h.MessageID, h.Role, h.Hidden = message.ID, cmp.Or(message.Role, session.RoleAssistant), message.HiddenAt != nil
		h.PartID, h.Type, h.Tool, h.CallID = stmt.ColumnText(4), stmt.ColumnText(5),
			session.ToolName(stmt.ColumnText(5), p.ToolName), p.ToolCallID
	}
	return hits, nil
}

// leaves calls fn for every value that is neither object nor list, by path.
func leaves(path string, v any, fn func(path, value string)) {
	switch v := v.(type) {
	case string:
		fn(path, v)
	case json.Number:
		fn(path, v.String())
	case bool:
		fn(path, strconv.FormatBool(v))
	case []any:
		for i := range v {
			leaves(path+"["+strconv.Itoa(i)+"]", v[i], fn)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			leaves(path+"."+key, v[key], fn)
		}
	}
}

// needle is what is searched for.
type needle struct {
	text string
	// run is the longest piece of it, in lower case, that JSON writes in one way
	// only; what does not have it has not the text either. Empty rules out nothing.
	run string
	// rare is the place in run of the letter that texts have least often.
	rare int
}

func newNeedle(text string) needle {
	n := needle{text: text}
	plain := func(r rune) bool {
		// Some writers of JSON escape more than they must.
		return r >= ' ' && r < 0x7f && !strings.ContainsRune(`"\/<>&'+`, r)
	}
	for _, piece := range strings.FieldsFunc(text, func(r rune) bool { return !plain(r) }) {
		if len(piece) > len(n.run) {
			n.run = strings.ToLower(piece)
		}
	}
	for i := range n.run {
		if rarity(n.run[i]) > rarity(n.run[n.rare]) {
			n.rare = i
		}
	}
	return n
}

// rarity orders characters by how seldom they are in JSON of texts and code.
func rarity(c byte) int {
	const common = " etaonirshdlu,:.-_cmpfgybwv0123456789kx"
	if i := strings.IndexByte(common, c); i >= 0 {
		return i
	}
	return len(common)
}

// mayBeIn reports whether JSON can have the text in one of its values.
func (n *needle) mayBeIn(raw []byte) bool {
	if n.run == "" {
		return true
	}
	low := n.run[n.rare]
	high := low
	if low >= 'a' && low <= 'z' {
		high -= 'a' - 'A'
	}
	// Each of the two is looked for once per place where it is, however often the
	// other one is.
	next := func(c byte, from int) int {
		if i := bytes.IndexByte(raw[from:], c); i >= 0 {
			return from + i
		}
		return len(raw)
	}
	at, atHigh := next(low, 0), len(raw)
	if high != low {
		atHigh = next(high, 0)
	}
	for {
		i := min(at, atHigh)
		if i == len(raw) {
			return false
		}
		if start := i - n.rare; start >= 0 && start+len(n.run) <= len(raw) && equalLower(raw[start:start+len(n.run)], n.run) {
			return true
		}
		if i == at {
			at = next(low, i+1)
		} else {
			atHigh = next(high, i+1)
		}
	}
}

// equalLower compares bytes in any case with ASCII in lower case.
func equalLower(b []byte, lower string) bool {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// index returns the range of the first match at or after from, or -1.
func (n *needle) index(text string, from int) (start, end int) {
	first, _ := utf8.DecodeRuneInString(n.text)
	for i, r := range text[from:] {
		if !equalFold(r, first) {
			continue
		}
		if length := n.prefix(text[from+i:]); length >= 0 {
			return from + i, from + i + length
		}
	}
	return -1, -1
}

// prefix returns the length of the head of text that is the needle, or -1.
func (n *needle) prefix(text string) int {
	at := 0
	for _, want := range n.text {
		r, size := utf8.DecodeRuneInString(text[at:])
		if size == 0 || !equalFold(r, want) {
			return -1
		}
		at += size
	}
	return at
}

// equalFold ignores case. What is ASCII is equal to ASCII only, not to the Kelvin
// sign or the long s, so that [needle.mayBeIn] misses nothing.
func equalFold(a, b rune) bool {
	if a == b {
		return true
	}
	if (a < utf8.RuneSelf) != (b < utf8.RuneSelf) {
		return false
	}
	for r := unicode.SimpleFold(a); r != a; r = unicode.SimpleFold(r) {
		if r == b {
			return true
		}
	}
	return false
}

// around is how many bytes of a value are built before and after a match.
const around = 120

// hit returns the first match in a value, with what is around it.
func (n *needle) hit(value string) (store.Hit, bool) {
	start, end := n.index(value, 0)
	if start < 0 {
		return store.Hit{}, false
	}
	from, to := max(start-around, 0), min(end+around, len(value))
	for from > 0 && !utf8.RuneStart(value[from]) {
		from--
	}
	for to < len(value) && !utf8.RuneStart(value[to]) {
		to++
	}
	h := store.Hit{Context: value[from:to], CutBefore: from > 0, CutAfter: to < len(value)}
	for start >= 0 {
		h.Matches++
		if end <= to {
			h.Marks = append(h.Marks, [2]int{start - from, end - from})
		}
		start, end = n.index(value, end)
	}
	return h, true
}
