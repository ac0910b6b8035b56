package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// searchPage is how many parts are looked through at a time. What was found in them is yielded before the next ones
// are read.
const searchPage = 256

// Search implements [store.Reader].
func (r *Reader) Search(ctx context.Context, q store.SearchQuery) iter.Seq2[store.Hit, error] {
	return sequence("search "+r.Name(), func(emit func(store.Hit) error) error {
		n, err := newNeedle(q)
		if q.Text == "" || err != nil {
			return err
		}
		s := &searcher{SearchQuery: q, needle: n, sessions: map[string]*searchedSession{}, since: math.MinInt64,
			yield: emit}
		if !q.Since.IsZero() {
			s.since = q.Since.UnixMilli()
		}
		return r.source.Read(ctx, func(conn Conn) error {
			s.conn, s.dialect = conn, conn.Dialect()
			for _, look := range []func() error{s.titles, s.notes, s.blobs, s.parts} {
				if err := look(); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

type searcher struct {
	store.SearchQuery
	conn     Conn
	dialect  *store.Dialect
	yield    func(store.Hit) error
	needle   needle
	since    int64
	sessions map[string]*searchedSession
	// raw and hits are buffers for the parts that are looked through.
	raw  []byte
	hits []store.Hit
}

type searchedSession struct {
	title, agent string
	// from is when a fork of a session that is there began: what is older was copied.
	from int64
}

// titles yields the sessions that have the text in their title.
func (s *searcher) titles() error {
	return s.texts(store.TypeSession, "title", `SELECT title, created_at, id, title, agent, NULL, NULL
 FROM chat_sessions NOT INDEXED WHERE created_at >= ? AND title <> '`+session.Untitled+`'
 ORDER BY `+s.dialect.Stored+` DESC, id DESC`)
}

// notes yields the notes that have the text, the last first: the comments of annotations.
func (s *searcher) notes() error {
	if s.dialect.Foreign || s.dialect.Unannotated {
		return nil
	}
	return s.texts(store.TypeNote, "note", `SELECT a.comment, a.created_at, s.id, s.title, s.agent, a.message_id, a.part_id
 FROM annotations a JOIN chat_sessions s ON s.id = a.session_id
 WHERE a.deleted_at IS NULL AND a.comment <> '' AND a.created_at >= ?
 ORDER BY a.created_at DESC, a.session_id, a.id`)
}

// texts yields the rows of a query that have the text in their first column, since ?. The others are of the hit.
func (s *searcher) texts(kind, field, query string) error {
	return s.conn.Query(query, func(row store.Row) error {
		hit, ok := s.needle.hit(row.ColumnText(0))
		if !ok || !s.selects(row.ColumnText(2), row.ColumnText(4)) {
			return nil
		}
		hit.Type, hit.Field, hit.CreatedAt, hit.SessionID = kind, field, row.ColumnInt64(1), row.ColumnText(2)
		hit.Title, hit.Agent, hit.MessageID, hit.PartID = row.ColumnText(3), row.ColumnText(4), row.ColumnText(5),
			row.ColumnText(6)
		return s.yield(hit)
	}, s.since)
}

// selects reports whether a session is one that is looked through.
func (s *searcher) selects(id, agent string) bool {
	return (s.Session == "" || id == s.Session) && (s.Agent == "" || agent == s.Agent)
}

// blobs yields the sessions with a system prompt or a tool catalog that has the text.
func (s *searcher) blobs() error {
	if s.dialect.Foreign {
		return nil
	}
	for _, b := range blobKinds {
		found := map[string]store.Hit{}
		if err := s.conn.Query(`SELECT digest, body FROM `+string(b.kind), func(row store.Row) error {
			if hit, ok := s.needle.hit(row.ColumnText(1)); ok {
				hit.Type, hit.Field, hit.Digest = b.hit, b.field, row.ColumnText(0)
				found[hit.Digest] = hit
			}
			return nil
		}); err != nil {
			return err
		}
		if len(found) == 0 {
			continue // the sessions are looked for only when something was found: it reads all messages
		}
		type place struct{ session, digest string }
		seen := map[place]bool{}
		digest := s.dialect.JSON("m.metadata_json", b.key...)
		if err := s.conn.Query(`SELECT m.session_id, m.id, m.role, m.hidden_at, m.created_at, `+digest+`,
 s.title, s.agent, s.parent_id, s.created_at FROM chat_messages m JOIN chat_sessions s ON s.id = m.session_id
 WHERE m.role <> 'user' AND m.created_at >= ? AND `+digest+` IS NOT NULL
 ORDER BY s.updated_at DESC, m.session_id, m.created_at, m.id`, func(row store.Row) error {
			hit, ok := found[row.ColumnText(5)]
			at := place{row.ColumnText(0), hit.Digest}
			of := session.Session{ParentID: store.TextPtr(row, 8), CreatedAt: row.ColumnInt64(9)}
			copied := s.Session == "" && of.Copied(row.ColumnInt64(4))
			if !ok || seen[at] || !s.selects(at.session, row.ColumnText(7)) || copied {
				return nil
			}
			seen[at] = true
			hit.SessionID, hit.MessageID, hit.Role, hit.Hidden = at.session, row.ColumnText(1), row.ColumnText(2),
				!row.ColumnIsNull(3)
			hit.CreatedAt, hit.Title, hit.Agent = row.ColumnInt64(4), row.ColumnText(6), row.ColumnText(7)
			return s.yield(hit)
		}, s.since); err != nil {
			return err
		}
	}
	return nil
}

// blobKinds are the kinds of blobs: the key of the digest in the metadata of a message, and how a hit is named.
var blobKinds = []struct {
	kind       store.BlobKind
	key        []string
	hit, field string
}{
	{store.BlobSystemPrompt, []string{"system_prompt_digest"}, store.TypeSystemPrompt, "system prompt"},
	{store.BlobToolCatalog, []string{"agenttrace", "tool_catalog_digest"}, store.TypeToolCatalog, "tool catalog"},
}

// parts yields what is found in parts, the last first.
func (s *searcher) parts() error {
	if filter, ok := s.conn.(PartFilter); ok && s.Session == "" {
		return filter.FilterParts(s.needle.literals, func(r PartRange) error {
			if r.Listed {
				return s.listed(r.Parts)
			}
			return s.scan(r)
		})
	}
	return s.scan(PartRange{Above: math.MinInt64, UpTo: math.MaxInt64})
}

// scan looks through a range of parts page by page.
func (s *searcher) scan(r PartRange) error {
	stored := s.dialect.Stored
	before := r.UpTo
	if before < math.MaxInt64 {
		before++
	}
	query, args := s.query(`(`+stored+`, id) < (?2, ?3)`, before, "")
	if r.Above > math.MinInt64 {
		query += fmt.Sprintf(` AND %s > %d`, stored, r.Above)
	}
	size := searchPage
	if s.Session != "" {
		size = math.MaxInt32 // its parts are sorted for each page
	}
	query += fmt.Sprintf(` ORDER BY %s DESC, id DESC LIMIT %d`, stored, size)
	for n := size; n == size; {
		n = 0
		if err := s.page(query, args, func(row store.Row) {
			if n++; n == size {
				args[1], args[2] = row.ColumnInt64(6), row.ColumnText(4)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// listed looks through the parts that were stored under some numbers.
func (s *searcher) listed(numbers []int64) error {
	query, args := s.query(s.dialect.Stored+` = ?2`, int64(0))
	for _, args[1] = range numbers {
		if err := s.page(query, args, func(store.Row) {}); err != nil {
			return err
		}
	}
	return nil
}

// query returns a query of the parts, since ?1, that meet a condition on the parameters from ?2 on and may have what is
// searched for, and its parameters.
func (s *searcher) query(condition string, of ...any) (query string, args []any) {
	noIndex := ` NOT INDEXED`
	if s.Session != "" {
		noIndex = "" // that of the session is the one to use
	}
	query = `SELECT data_json, created_at, session_id, message_id, id, type, ` + s.dialect.Stored + ` FROM chat_parts` +
		noIndex + ` WHERE type <> 'step-start' AND created_at >= ?1 AND ` + condition
	args = append([]any{s.since}, of...)
	if s.Session != "" {
		query, args = query+fmt.Sprintf(` AND session_id = ?%d`, len(args)+1), append(args, s.Session)
	}
	if s.needle.run != "" {
		if may := s.dialect.MayContain("data_json", fmt.Sprintf("?%d", len(args)+1)); may != "" {
			query, args = query+` AND `+may, append(args, s.needle.run)
		}
	}
	return query, args
}

// page yields what is found in the rows of a query, and calls each for each row. The sessions and messages of what was
// found are looked up when the rows have been read.
func (s *searcher) page(query string, args []any, each func(store.Row)) error {
	s.hits = s.hits[:0]
	if err := s.conn.Query(query, func(row store.Row) error {
		each(row)
		if s.raw = store.Bytes(row, 0, s.raw); s.needle.mayBeIn(s.raw) {
			s.hits = s.part(row, s.raw, s.hits)
		}
		return nil
	}, args...); err != nil {
		return err
	}
	for i := range s.hits {
		if ok, err := s.locate(&s.hits[i]); err != nil {
			return err
		} else if !ok {
			continue
		}
		if err := s.yield(s.hits[i]); err != nil {
			return err
		}
	}
	return nil
}

// part appends the hits in a part, the JSON of which is raw.
func (s *searcher) part(row store.Row, raw []byte, hits []store.Hit) []store.Hit {
	p, _ := session.ParseUIPart(string(raw)) // what can be read of it is looked through
	look := func(path, value string) {
		if hit, ok := s.needle.hit(value); ok {
			hit.CreatedAt, hit.SessionID, hit.MessageID = row.ColumnInt64(1), row.ColumnText(2), row.ColumnText(3)
			hit.PartID, hit.Type, hit.Field = row.ColumnText(4), row.ColumnText(5), path
			hit.Tool, hit.CallID = session.ToolName(hit.Type, p.ToolName), p.ToolCallID
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
	return hits
}

// locate completes a hit in a part with its session and message. It reports whether the hit is one: what a fork
// copied, and what another agent than the one asked for wrote, is none.
func (s *searcher) locate(h *store.Hit) (bool, error) {
	in, err := s.session(h.SessionID)
	copied := in != nil && s.Session == "" && h.CreatedAt < in.from
	if err != nil || in == nil || copied || !s.selects(h.SessionID, in.agent) {
		return false, err
	}
	h.Title, h.Agent = in.title, in.agent
	return first(s.conn, `SELECT role, hidden_at FROM chat_messages WHERE id = ?`, func(row store.Row) {
		h.Role, h.Hidden = cmp.Or(row.ColumnText(0), session.RoleAssistant), !row.ColumnIsNull(1)
	}, h.MessageID)
}

func (s *searcher) session(id string) (*searchedSession, error) {
	if known, ok := s.sessions[id]; ok {
		return known, nil
	}
	query := `SELECT title, agent, created_at, NULL FROM chat_sessions WHERE id = ?`
	if !s.dialect.Foreign {
		query = `SELECT s.title, s.agent, s.created_at, st.forked_from FROM chat_sessions s
 LEFT JOIN session_state st ON st.session_id = s.id WHERE s.id = ?`
	}
	var found *searchedSession
	forkedFrom := ""
	_, err := first(s.conn, query, func(row store.Row) {
		found = &searchedSession{row.ColumnText(0), row.ColumnText(1), row.ColumnInt64(2)}
		forkedFrom = row.ColumnText(3)
	}, id)
	there := false
	if err == nil && forkedFrom != "" {
		there, err = first(s.conn, `SELECT 1 FROM chat_sessions WHERE id = ?`, func(store.Row) {}, forkedFrom)
	}
	if found != nil && !there {
		found.from = 0
	}
	s.sessions[id] = found
	return found, err
}
