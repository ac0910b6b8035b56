package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

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
 ORDER BY created_at DESC, id DESC`)
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

// parts yields what is found in parts, the newest first.
func (s *searcher) parts() error {
	if filter, ok := s.conn.(PartFilter); ok && s.Session == "" {
		query, args := s.query(`json_each(?2) CROSS JOIN chat_parts p ON p.rowid = value`, ``, "")
		return filter.FilterParts(s.needle.literals, s.since, searchPage, func(parts string) error {
			args[1] = parts
			return s.page(query, args, func(store.Row) {})
		})
	}
	size := searchPage
	if s.Session != "" {
		size = math.MaxInt32 // its parts are sorted for each page
	}
	query, args := s.query(`chat_parts p`, ` AND (created_at, p.id) < (?2, ?3)`, int64(math.MaxInt64), "")
	query += fmt.Sprintf(` ORDER BY created_at DESC, p.id DESC LIMIT %d`, size)
	for n := size; n == size; {
		n = 0
		if err := s.page(query, args, func(row store.Row) {
			if n++; n == size {
				args[1], args[2] = row.ColumnInt64(1), row.ColumnText(4)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// query returns a query of the parts, since ?1, that meet a condition on the parameters from ?2 on and may have what is
// searched for, and its parameters.
func (s *searcher) query(from, condition string, of ...any) (query string, args []any) {
	query = `SELECT data_json, created_at, session_id, message_id, p.id, p.type FROM ` + from +
		` WHERE p.type <> 'step-start' AND created_at >= ?1` + condition
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

// needle is what is searched for.
type needle struct {
	re *regexp.Regexp
	// literals are in every value that matches, upper and lower case alike.
	literals []string
	// run is the longest piece of them, in lower case, that JSON writes in one way only; what does not have it does not
	// match. Empty rules out nothing. rare is the place in it of the character that texts have least often.
	run  string
	rare int
	// folded are the literals, folded, if there is no run; buf is for folded JSON.
	folded [][]byte
	buf    []byte
}

func newNeedle(q store.SearchQuery) (n needle, err error) {
	n.literals = []string{q.Text}
	if !q.Regexp {
		q.Text = textPattern(q.Text)
	}
	if n.re, err = q.Compile(); err != nil {
		return n, err
	}
	if q.Regexp {
		parsed, err := syntax.Parse(n.re.String(), syntax.Perl)
		if err != nil {
			return n, err
		}
		n.literals = literals(parsed, nil)
	}
	plain := func(r rune) bool {
		// Some writers of JSON escape more than they must.
		return r >= ' ' && r < 0x7f && !strings.ContainsRune(`"\/<>&'+`, r)
	}
	for _, literal := range n.literals {
		for _, piece := range strings.FieldsFunc(literal, func(r rune) bool { return !plain(r) }) {
			if len(piece) > len(n.run) {
				n.run = strings.ToLower(piece)
			}
		}
		n.folded = append(n.folded, AppendFolded(nil, literal))
	}
	for i := range n.run {
		if strings.IndexByte(seldom, n.run[i]) < strings.IndexByte(seldom, n.run[n.rare]) {
			n.rare = i
		}
	}
	return n, nil
}

// textPattern is a regular expression for a text. What is ASCII matches ASCII only, so that the index misses nothing.
func textPattern(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch quoted := regexp.QuoteMeta(string(r)); {
		case !foldsAcross(r):
			b.WriteString(quoted)
		case r < utf8.RuneSelf:
			b.WriteString("(?-i:[" + strings.ToLower(quoted) + strings.ToUpper(quoted) + "])")
		default:
			b.WriteString("(?-i:" + quoted + ")")
		}
	}
	return b.String()
}

// literals appends the texts that every match of a regular expression has.
func literals(re *syntax.Regexp, all []string) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return append(all, strings.FieldsFunc(string(re.Rune), func(r rune) bool {
			return re.Flags&syntax.FoldCase != 0 && foldsAcross(r)
		})...)
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
	case syntax.OpRepeat:
		if re.Min == 0 {
			return all
		}
	default:
		return all
	}
	for _, sub := range re.Sub {
		all = literals(sub, all)
	}
	return all
}

// foldsAcross reports whether a letter is equal, apart from case, to one of ASCII and to another one: to k and the
// Kelvin sign, or to s and the long s. A regular expression takes them for equal, the search for a text does not.
func foldsAcross(r rune) bool {
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if (f < utf8.RuneSelf) != (r < utf8.RuneSelf) {
			return true
		}
	}
	return false
}

// seldom are the characters that JSON of texts and code has often, those that it has most last.
const seldom = "xk9876543210vwbygfpmc_-.:,uldhsrinoate "

// mayBeIn reports whether JSON can have the text in one of its values.
func (n *needle) mayBeIn(raw []byte) bool {
	if n.run != "" {
		rare, run := n.run[n.rare:n.rare+1], []byte(n.run)
		for _, letter := range []string{rare, strings.ToUpper(rare)} {
			for i := 0; ; i++ {
				k := bytes.IndexByte(raw[i:], letter[0])
				if k < 0 {
					break
				}
				i += k
				from := i - n.rare
				if from >= 0 && from+len(run) <= len(raw) && bytes.EqualFold(raw[from:from+len(run)], run) {
					return true
				}
			}
		}
		return false
	}
	n.buf = AppendFoldedJSON(n.buf[:0], raw)
	for _, literal := range n.folded {
		if !bytes.Contains(n.buf, literal) {
			return false
		}
	}
	return true
}

const (
	// around is how many bytes of a value are built before and after a match, longest how many of the match.
	around  = 120
	longest = 4 << 10
	// maxMatches is how many matches of a regular expression in a value are counted.
	maxMatches = 100_000
)

// matches calls fn with the range of each match in a value, in order.
func (n *needle) matches(value string, fn func(start, end int)) {
	for _, m := range n.re.FindAllStringIndex(value, maxMatches) {
		if m[0] < m[1] {
			fn(m[0], m[1])
		}
	}
}

// hit returns the first match in a value, with what is around it.
func (n *needle) hit(value string) (h store.Hit, found bool) {
	var from, to int
	n.matches(value, func(start, end int) {
		if !found {
			found = true
			from, to = max(start-around, 0), min(min(end, start+longest)+around, len(value))
			for from > 0 && !utf8.RuneStart(value[from]) {
				from--
			}
			for to < len(value) && !utf8.RuneStart(value[to]) {
				to++
			}
			h.Context, h.CutBefore, h.CutAfter = value[from:to], from > 0, to < len(value)
			h.Marks = append(h.Marks, [2]int{start - from, min(end, to) - from})
		} else if end <= to {
			h.Marks = append(h.Marks, [2]int{start - from, end - from})
		}
		h.Matches++
	})
	return h, found
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
