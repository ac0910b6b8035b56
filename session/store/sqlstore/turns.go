package sqlstore

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// turnIndex is where the turns of a session begin.
type turnIndex struct {
	// began is when the first message was created, and ids are those of all messages, in order.
	began int64
	ids   idList
	// waiting are the ids of the queued messages that belong to no turn.
	waiting map[string]bool
	begins  []turnBegin
}

// turnBegin is the message that a turn begins with, and whether its user message was lost.
type turnBegin struct {
	at   int
	lost bool
}

// idList has ids in one piece of memory, as there may be very many.
type idList struct {
	text []byte
	ends []int
}

func (l *idList) add(row Row, column int) {
	n := row.ColumnLen(column)
	begin := len(l.text)
	l.text = slices.Grow(l.text, n)[:begin+n]
	row.ColumnBytes(column, l.text[begin:])
	l.ends = append(l.ends, len(l.text))
}

// at returns an id. It is valid as long as the list.
func (l *idList) at(i int) []byte {
	begin := 0
	if i > 0 {
		begin = l.ends[i-1]
	}
	return l.text[begin:l.ends[i]]
}

// index returns where an id is, -1 if it is not there.
func (l *idList) index(id string) int {
	for i := range l.ends {
		if string(l.at(i)) == id {
			return i
		}
	}
	return -1
}

// turnRange finds turns, and returns the ids of their messages.
func turnRange(conn Conn, id string, r store.TurnRange) (f store.FoundTurns, messages []string, err error) {
	messages = []string{} // nil would be all
	x, err := findTurns(conn, id)
	if err != nil {
		return f, messages, err
	}
	f.Total, f.Began = len(x.begins), x.began
	for i := 0; len(f.Queued) < len(x.waiting) && i < len(x.ids.ends); i++ {
		if id := string(x.ids.at(i)); x.waiting[id] {
			f.Queued = append(f.Queued, id)
		}
	}
	if r.Of != "" {
		at := x.ids.index(r.Of)
		if at < 0 || x.waiting[r.Of] {
			return f, messages, nil
		}
		// What precedes the first turn is shown with it.
		after, _ := slices.BinarySearchFunc(x.begins, at+1, func(b turnBegin, at int) int {
			return cmp.Compare(b.at, at)
		})
		r.First = max(after, 1)
		r.Last = r.First
	}
	if r.First < 1 || r.First > f.Total || r.Last < r.First {
		return f, messages, nil
	}
	f.First, f.Last, f.Begin = r.First, min(r.Last, f.Total), max(1, r.First-r.Before)
	f.Lost = x.begins[f.Begin-1].lost
	from, to := 0, len(x.ids.ends)
	if f.Begin > 1 {
		from = x.begins[f.Begin-1].at
	}
	if f.Last < f.Total {
		to = x.begins[f.Last].at
	}
	for i := from; i < to; i++ {
		if id := string(x.ids.at(i)); !x.waiting[id] {
			messages = append(messages, id)
		}
	}
	return f, messages, nil
}

// findTurns finds the turns of a session. Of most messages it reads only what an index has, their place and their role:
// a question and an answer are a turn. Where there is anything else between two questions, it asks [session.Turns].
func findTurns(conn Conn, id string) (*turnIndex, error) {
	const user, assistant = 'u', 'a'
	x := &turnIndex{}
	var roles []byte // their first letters
	var role [len(session.RoleAssistant) + 1]byte
	err := conn.Query(`SELECT created_at, id, role FROM chat_messages WHERE session_id = ? ORDER BY created_at, id`,
		func(row Row) error {
			if roles == nil {
				x.began = row.ColumnInt64(0)
			}
			x.ids.add(row, 1)
			switch string(role[:row.ColumnBytes(2, role[:])]) {
			case session.RoleUser:
				roles = append(roles, user)
			case session.RoleAssistant:
				roles = append(roles, assistant)
			default:
				roles = append(roles, 0)
			}
			return nil
		}, id)
	if err != nil {
		return nil, err
	}
	if x.waiting, err = waiting(conn, id); err != nil {
		return nil, err
	}
	compacting, err := texts(conn, compactionsQuery, id)
	if err != nil {
		return nil, err
	}
	compactions := setOf(compacting)
	var unclear [][2]int // from one question to the next
	from, answers, asked := 0, 0, false
	end := func(to int) {
		if answers > 1 || answers == 1 && !asked {
			unclear = append(unclear, [2]int{from, to})
		}
		from, answers = to, 0
	}
	for i, role := range roles {
		switch {
		case role == user && (len(x.waiting) == 0 || !x.waiting[string(x.ids.at(i))]):
			end(i)
			x.begins, asked = append(x.begins, turnBegin{at: i}), true
		case role == assistant && (len(compactions) == 0 || !compactions[string(x.ids.at(i))]):
			answers++
		}
	}
	end(len(roles))
	if err := x.addUnasked(conn, id, unclear, compactions); err != nil {
		return nil, err
	}
	if len(x.begins) == 0 && len(roles) > len(x.waiting) {
		x.begins = []turnBegin{{}} // of what is in no turn
	}
	return x, nil
}

// addUnasked adds the turns that begin with an answer, of which the user message was lost or never there.
func (x *turnIndex) addUnasked(conn Conn, id string, unclear [][2]int, compactions map[string]bool) error {
	if len(unclear) == 0 {
		return nil
	}
	var ids []string
	at := make(map[string]int)
	for _, s := range unclear {
		for i := s[0]; i < s[1]; i++ {
			id := string(x.ids.at(i))
			ids = append(ids, id)
			at[id] = i
		}
	}
	type message struct {
		session.TurnMessage
		at int
	}
	var messages []message
	err := conn.Query(`SELECT m.id, m.role, m.metadata_json, m.hidden_at IS NOT NULL FROM `+
		conn.Dialect().Elements("?2", "x")+` CROSS JOIN chat_messages m WHERE m.id = x.value AND m.session_id = ?1
 ORDER BY m.created_at, m.id`, func(row Row) error {
		text := []byte(row.ColumnText(2))
		metadata, marks, id := session.ParseMessageMetadata(text), marksOf(text), row.ColumnText(0)
		messages = append(messages, message{session.TurnMessage{Role: row.ColumnText(1), Trace: &metadata.Trace,
			Compaction: metadata.Compaction || compactions[id], Hidden: row.ColumnBool(3) || marks.HiddenAt != nil,
			Queued: x.waiting[id]}, at[id]})
		return nil
	}, id, listOf(ids))
	if err != nil {
		return err
	}
	var turns session.Turns // begins anew with each question
	for _, m := range messages {
		if begins, lost := turns.Next(m.TurnMessage); begins && m.Role != session.RoleUser {
			x.begins = append(x.begins, turnBegin{m.at, lost})
		}
	}
	slices.SortFunc(x.begins, func(a, b turnBegin) int { return cmp.Compare(a.at, b.at) })
	return nil
}

// marks are of a message's metadata what decides whether it is in a turn, and visible.
type marks struct {
	HiddenAt *int64 `json:"hidden_at"`
	QueuedAt *int64 `json:"queued_at"`
}

func marksOf(metadata []byte) (m marks) {
	_ = json.Unmarshal(metadata, &m) // what cannot be read marks nothing
	return m
}

// waiting returns the ids of the user messages that still wait in a queue: of those that were queued, the ones that no
// model call answered.
func waiting(conn Conn, id string) (map[string]bool, error) {
	var queued []string
	err := conn.Query(`SELECT id, metadata_json FROM chat_messages WHERE session_id = ? AND `+
		conn.Dialect().Contains("metadata_json", `"queued_at"`)+` AND role = 'user'`, func(row Row) error {
		if marksOf([]byte(row.ColumnText(1))).QueuedAt != nil {
			queued = append(queued, row.ColumnText(0))
		}
		return nil
	}, id)
	if err != nil || len(queued) == 0 {
		return nil, err
	}
	wait := setOf(queued)
	if conn.Dialect().Foreign {
		return wait, nil
	}
	spans, err := spansOfMessages(conn, id, listOf(queued))
	for i := range spans {
		if s := &spans[i]; s.TurnStats != nil && s.TurnStats.Step {
			delete(wait, s.MessageID)
		}
	}
	return wait, err
}

func setOf(texts []string) map[string]bool {
	set := make(map[string]bool, len(texts))
	for _, text := range texts {
		set[text] = true
	}
	return set
}
