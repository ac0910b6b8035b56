package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// The figures of a session are what [Reader.Stats] needs of its messages and tool calls, a few bytes of each. The table
// session_stats keeps them. A change of a session only empties its row; a query makes the rows that are
// missing, or counts without them. They depend on the messages and parts of the session
// alone, and have all that figures over any time, in any zone and at any prices depend on.
type figures struct {
	models   []session.Model
	tools    []string
	messages []countedMessage
	calls    []countedCall
}

// countedMessage is a message as it is counted: one of the assistant, or the user's question with which a turn begins.
type countedMessage struct {
	at int64
	// question reports that it is the user's, begins that a turn begins with it, marker that it is a compaction's.
	question, begins, marker bool
	model                    int64 // an index in the models of its session
	used                     *session.Usage
	costUSD                  *float64
	durationMS               *int64
	// failures are those of an answer besides those of its calls.
	failures, modelCalls int64
	steps                []countedStep // none if it is not known what each used
}

// countedStep is a model call. Its model is an index, -1 where it is that of the message.
type countedStep struct {
	model int64
	used  session.Usage
}

// countedCall is a tool call as it is counted. model and tool are indexes.
type countedCall struct {
	at, model, tool int64
	failed, denied  bool
	durationMS      *int64
}

// figuresVersion begins what is kept. It is another one when figures are kept in another form: those in the form of
// another version are not read. A migration removes what is kept when that changes, or the same rows give other figures.
const figuresVersion = 1

func (f *figures) encode() []byte {
	c := coder{data: []byte{figuresVersion}, writing: true}
	f.code(&c)
	return c.data
}

// decode sets f to what encode encoded, in the memory that f has. It returns false for anything else.
func (f *figures) decode(data []byte) bool {
	if len(data) == 0 || data[0] != figuresVersion {
		return false
	}
	c := coder{data: data[1:]}
	f.code(&c)
	return !c.damaged && len(c.data) == 0
}

func (f *figures) code(c *coder) {
	for i := range elements(c, &f.models) {
		m := &f.models[i]
		c.text(&m.ProviderID)
		c.text(&m.ModelID)
		c.text(&m.Variant)
	}
	for i := range elements(c, &f.tools) {
		c.text(&f.tools[i])
	}
	at := int64(0) // times are kept as what they differ from the one before
	for i := range elements(c, &f.messages) {
		m := &f.messages[i]
		c.after(&at, &m.at)
		c.index(&m.model, len(f.models))
		c.bools(&m.question, &m.begins, &m.marker)
		if m.question { // the rest is not looked at
			continue
		}
		c.int(&m.failures)
		c.int(&m.modelCalls)
		if used := optional(c, &m.used); used != nil {
			c.usage(used)
		}
		if cost := optional(c, &m.costUSD); cost != nil {
			c.float(cost)
		}
		if ms := optional(c, &m.durationMS); ms != nil {
			c.int(ms)
		}
		for k := range elements(c, &m.steps) {
			c.index(&m.steps[k].model, len(f.models))
			c.usage(&m.steps[k].used)
		}
	}
	for i := range elements(c, &f.calls) {
		call := &f.calls[i]
		c.after(&at, &call.at)
		c.index(&call.model, len(f.models))
		c.index(&call.tool, len(f.tools))
		c.bools(&call.failed, &call.denied)
		if ms := optional(c, &call.durationMS); ms != nil {
			c.int(ms)
		}
	}
}

// coder appends values to data, or takes them from its beginning. Whatever the data are, it does not fail: values that
// are missing are 0.
type coder struct {
	data             []byte
	writing, damaged bool
}

func (c *coder) int(v *int64) {
	if c.writing {
		c.data = binary.AppendVarint(c.data, *v)
		return
	}
	n := 0
	if *v, n = binary.Varint(c.data); n <= 0 {
		*v, n, c.damaged, c.data = 0, 0, true, nil
	}
	c.data = c.data[n:]
}

// index is an index in a list of n elements, or -1 for none.
func (c *coder) index(v *int64, n int) {
	if c.int(v); *v < -1 || *v >= int64(n) {
		*v, c.damaged = -1, true
	}
}

func (c *coder) after(before, v *int64) {
	d := *v - *before
	c.int(&d)
	*v = *before + d
	*before = *v
}

func (c *coder) bools(all ...*bool) {
	bits := int64(0)
	for i, v := range all {
		if *v {
			bits |= 1 << i
		}
	}
	c.int(&bits)
	for i, v := range all {
		*v = bits&(1<<i) != 0
	}
}

func (c *coder) float(v *float64) {
	bits := int64(math.Float64bits(*v))
	c.int(&bits)
	*v = math.Float64frombits(uint64(bits))
}

func (c *coder) usage(u *session.Usage) {
	for _, v := range []*int64{&u.Input, &u.Output, &u.Reasoning, &u.CacheRead, &u.CacheWrite} {
		c.int(v)
	}
}

func (c *coder) text(v *string) {
	n := int64(len(*v))
	if c.length(&n); c.writing {
		c.data = append(c.data, *v...)
		return
	}
	*v, c.data = string(c.data[:n]), c.data[n:]
}

// length is a number of elements. Of none there are more than bytes.
func (c *coder) length(n *int64) {
	if c.int(n); !c.writing && (*n < 0 || *n > int64(len(c.data))) {
		*n, c.damaged = 0, true
	}
}

// elements returns a list, which has its length then.
func elements[T any](c *coder, list *[]T) []T {
	n := int64(len(*list))
	if c.length(&n); !c.writing {
		*list = slices.Grow((*list)[:0], int(n))[:n]
	}
	return *list
}

// optional returns where the value is that a pointer points to, nil if there is none.
func optional[T any](c *coder, v **T) *T {
	is := *v != nil
	switch c.bools(&is); {
	case !is:
		*v = nil
	case *v == nil:
		*v = new(T)
	}
	return *v
}

// readFigures makes the figures of sessions of their rows, by their ids.
func readFigures(conn Conn, sessions []string) (map[string]*figures, error) {
	all := make(map[string]*figures, len(sessions))
	for _, id := range sessions {
		all[id] = new(figures)
	}
	models, err := readMessages(conn, all)
	if err != nil {
		return nil, err
	}
	var data []byte
	return all, conn.Query(`SELECT p.session_id, p.message_id, p.created_at, p.type, p.tool_state, p.data_json
 FROM chat_parts p WHERE (p.type = 'dynamic-tool' OR p.type >= 'tool-' AND p.type < 'tool.')
 AND p.session_id IN (SELECT value FROM `+conn.Dialect().Elements("?", "x")+`)
 ORDER BY p.session_id, p.created_at, p.id`,
		func(row store.Row) error {
			f := all[row.ColumnText(0)]
			data = store.Bytes(row, 5, data)
			name, trace := readCall(data)
			state := row.ColumnText(4)
			if state == session.StateInputStreaming && trace.State != "" {
				state = trace.State // while its span is missing
			}
			model, ok := models[row.ColumnText(1)]
			if !ok {
				model = -1
			}
			f.calls = append(f.calls, countedCall{at: row.ColumnInt64(2), model: model,
				tool:   indexOf(&f.tools, session.ToolName(row.ColumnText(3), name)),
				failed: session.CallFailed(state, trace.Denied), denied: session.CallDenied(state, trace.Denied),
				durationMS: trace.DurationMS})
			return nil
		}, listOf(sessions))
}

// readMessages adds the messages of sessions to their figures, in their order. It returns the indexes of the models of
// messages that are not a user's, by the ids of these.
func readMessages(conn Conn, all map[string]*figures) (models map[string]int64, _ error) {
	of := ` IN (SELECT value FROM ` + conn.Dialect().Elements("?", "x") + `)`
	sessions := listOf(slices.Collect(maps.Keys(all)))
	// Other programs mark compactions by their parts alone.
	markers := map[string]bool{}
	err := conn.Query(`SELECT p.message_id FROM chat_parts p WHERE p.type = 'data-compaction' AND p.session_id`+of+`
 AND NOT EXISTS (SELECT 1 FROM chat_parts q WHERE q.message_id = p.message_id`+
		conn.Dialect().SameSession("q", "p")+` AND q.type <> 'data-compaction')`,
		func(row store.Row) error {
			markers[row.ColumnText(0)] = true
			return nil
		}, sessions)
	if err != nil {
		return nil, err
	}
	models = map[string]int64{}
	var text []byte
	var turns session.Turns
	last := ""
	return models, conn.Query(`SELECT session_id, id, role, created_at, metadata_json, hidden_at IS NOT NULL
 FROM chat_messages WHERE session_id`+of+` ORDER BY session_id, created_at, id`, func(row store.Row) error {
		of, id, role := row.ColumnText(0), row.ColumnText(1), row.ColumnText(2)
		if of != last {
			last, turns = of, session.Turns{}
		}
		text = store.Bytes(row, 4, text)
		metadata := session.ParseMessageMetadata(text)
		marker := metadata.Compaction || markers[id]
		begins, _ := turns.Next(session.TurnMessage{Role: role, Compaction: marker, Hidden: row.ColumnBool(5),
			Queued: role == session.RoleUser && bytes.Contains(text, []byte(`"queued_at"`)), Trace: &metadata.Trace})
		f := all[of]
		m := countedMessage{at: row.ColumnInt64(3), question: role == session.RoleUser && begins, begins: begins,
			marker: marker, model: f.model(metadata.Model)}
		if role != session.RoleUser && m.model >= 0 {
			models[id] = m.model
		}
		if role == session.RoleAssistant {
			f.answer(&m, &metadata)
		}
		if role == session.RoleAssistant || m.question {
			f.messages = append(f.messages, m)
		}
		return nil
	}, sessions)
}

// answer sets what only a message of the assistant has.
func (f *figures) answer(m *countedMessage, metadata *session.MessageMetadata) {
	trace, tokens := &metadata.Trace, metadata.Tokens(session.RoleAssistant, m.marker)
	m.used, m.costUSD, m.durationMS = tokens.Used, tokens.CostUSD, trace.DurationMS
	m.failures, m.modelCalls = int64(session.Failures(trace.EndReason, trace.ModelErrors)), trace.ModelCalls
	whole := true
	for i := range trace.Steps {
		s := &trace.Steps[i]
		m.steps = append(m.steps, countedStep{f.model(s.Model), session.Deref(s.Usage)})
		whole = whole && s.Usage != nil
	}
	if !whole {
		m.steps = nil
	}
}

// model is the index of a model, -1 of none.
func (f *figures) model(m *session.Model) int64 {
	if m == nil {
		return -1
	}
	return indexOf(&f.models, *m)
}

// indexOf is the index of an element of a list, to which it is added if it is not there.
func indexOf[T comparable](list *[]T, v T) int64 {
	i := slices.Index(*list, v)
	if i < 0 {
		i = len(*list)
		*list = append(*list, v)
	}
	return int64(i)
}

// readCall returns the name of a tool and what is ours of its call. Other programs may have written what is not JSON.
func readCall(data []byte) (name string, trace session.ToolTrace) {
	var metadata session.ToolMetadata
	ok := jsonscan.Object(data, maxNesting, func(key string, value json.RawMessage) {
		switch key {
		case "toolName":
			_ = json.Unmarshal(value, &name)
		case "toolMetadata":
			_ = json.Unmarshal(value, &metadata) // reads what is of the right type
		}
	})
	if !ok {
		return "", session.ToolTrace{}
	}
	return name, metadata.Trace
}

// maxNesting is how deep encoding/json lets values nest.
const maxNesting = 10000

// minKept is how many sessions without figures are worth a transaction that keeps them, unless they are a large share
// of all: to read a few costs little.
const minKept = 32

// keptAtOnce is how many sessions a transaction makes figures of, so that other writers do not wait for long.
const keptAtOnce = 64

// errNotKept reports that many sessions have no figures that are kept.
var errNotKept = errors.New("figures are not kept")

// withFigures reads with the figures that are kept; missing are the sessions of which none are, in order. If these are
// many, their figures are kept first, where the store can be written.
func (r *Reader) withFigures(ctx context.Context, read func(conn Conn, missing []string) error) error {
	keeper, keeps := r.source.(Keeper)
	for {
		var missing []string
		err := r.source.Read(ctx, func(conn Conn) error {
			all, sessions, err := missingFigures(conn)
			if missing = all; err != nil {
				return err
			}
			if n := int64(len(missing)); keeps && conn.Dialect().Figures && n > 0 && n >= min(minKept, sessions/16) {
				return errNotKept
			}
			return read(conn, missing)
		})
		if !errors.Is(err, errNotKept) {
			return err
		}
		keepFigures(ctx, keeper, missing)
		keeps = false
	}
}

// missingFigures finds the rows that are emptied and the sessions that are new. Only if there are others without a row,
// which the number of rows shows, it looks for the row of each. It returns how many sessions there are, too.
func missingFigures(conn Conn) (missing []string, sessions int64, err error) {
	d := conn.Dialect()
	const all = `(SELECT count(*) FROM chat_sessions)`
	query, count := `SELECT id FROM chat_sessions`, `SELECT `+all+`, 0`
	if d.Figures {
		query = `SELECT session_id FROM session_stats WHERE turns IS NULL`
		count = `SELECT ` + all + `, ` + all + ` - (SELECT count(*) FROM session_stats)`
		if d.NewRows != "" {
			query += ` UNION ` + d.NewRows
			count += ` - (SELECT count(*) FROM (` + d.NewRows + `) n
 WHERE NOT EXISTS (SELECT 1 FROM session_stats f WHERE f.session_id = n.session_id))`
		}
	}
	_, err = first(conn, count, func(row store.Row) {
		if sessions = row.ColumnInt64(0); row.ColumnInt64(1) != 0 {
			query += ` UNION SELECT s.id FROM chat_sessions s
 WHERE NOT EXISTS (SELECT 1 FROM session_stats f WHERE f.session_id = s.id)`
		}
	})
	if err == nil {
		missing, err = texts(conn, query)
	}
	slices.Sort(missing)
	return missing, sessions, err
}

// Keeper is a [Source] that can be written, if only to keep figures.
type Keeper interface {
	// Keep calls fn in a transaction, which is committed if fn returns nil. It does not wait long for other writers.
	Keep(ctx context.Context, fn func(Tx) error) error
}

// keepFigures makes the figures of sessions and keeps them. It ends where the store cannot be written now: figures that
// are not kept are made again where they are needed.
func keepFigures(ctx context.Context, k Keeper, sessions []string) {
	err := k.Keep(ctx, func(t Tx) error {
		for _, statement := range t.Dialect().SettleFigures {
			if _, err := t.Exec(statement); err != nil {
				return err
			}
		}
		return nil
	})
	for some := range slices.Chunk(sessions, keptAtOnce) {
		if err != nil {
			return
		}
		err = k.Keep(ctx, func(t Tx) error { return putFigures(t, some) })
	}
}

// putFigures keeps the figures of sessions.
func putFigures(t Tx, sessions []string) error {
	for _, id := range sessions {
		if _, err := t.Exec(t.Dialect().ClaimFigures, id); err != nil {
			return err
		}
	}
	all, err := readFigures(t, sessions)
	if err != nil {
		return err
	}
	for _, id := range sessions {
		s, err := sessionOf(t, id)
		if errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		values := []any{id, all[id].encode()}
		for _, sum := range all[id].sums(&s) {
			values = append(values, sum)
		}
		if _, err := t.Exec(`UPDATE session_stats SET data = ?2, turns = ?3, errors = ?4, tokens = ?5, duration = ?6
 WHERE session_id = ?1`, values...); err != nil {
			return err
		}
	}
	return nil
}

// figureSorts are the orders by figures of messages and calls. Each is the name of a column of session_stats, which has
// an index.
var figureSorts = []store.SessionSort{store.SortTurns, store.SortErrors, store.SortTokens, store.SortDuration}

// sums are what sessions are ordered by: one for each of figureSorts.
func (f *figures) sums(s *session.Session) [4]int64 {
	spent := f.spent(s, nil)
	duration := int64(-1) // none is stated
	if spent.DurationMS != nil {
		duration = *spent.DurationMS
	}
	return [4]int64{spent.Turns, spent.Errors, session.Deref(spent.Used).Total(), duration}
}

// ranked is a session with the figure that sessions are ordered by.
type ranked struct {
	session.Session
	figure int64
}

// compare orders sessions: the greatest figures, then ids, come first.
func (a ranked) compare(b ranked) int {
	return cmp.Or(cmp.Compare(b.figure, a.figure), strings.Compare(b.ID, a.ID))
}

// byFigure emits the sessions of a query in the order of a figure. Those of which it is kept are read by its index; the
// others, of which it is made of their messages and calls, are emitted between them.
func (r *Reader) byFigure(ctx context.Context, q *store.SessionQuery, among []string,
	emit func(session.Session) error) error {
	return r.withFigures(ctx, func(conn Conn, missing []string) error {
		o := figureOrder{conn, q, slices.Index(figureSorts, q.Sort), missing}
		return o.read(among, emit)
	})
}

// figureOrder reads sessions in the order of a figure, which is the one at a place in figureSorts.
type figureOrder struct {
	conn  Conn
	q     *store.SessionQuery
	place int
	// missing are the sessions of which no figure is kept.
	missing []string
}

func (o *figureOrder) read(among []string, emit func(session.Session) error) error {
	where, few, err := conditionsOf(o.conn, o.q, among)
	if err != nil {
		return err
	}
	var before *ranked
	if o.q.Before != nil {
		if before, err = o.rank(o.q.Before.ID); before == nil {
			return err
		}
	}
	made, err := o.made(where, before)
	if err != nil {
		return err
	}
	left := cmp.Or(o.q.Limit, 50)
	give := func(s session.Session) error {
		if left == 0 {
			return nil
		}
		left--
		return emit(s)
	}
	if o.conn.Dialect().Figures {
		query, args := o.kept(where, few, before)
		err = eachSession(o.conn, query, args, func(s session.Session, row store.Row) error {
			next := ranked{s, row.ColumnInt64(len(store.SessionTable().Columns))}
			for len(made) > 0 && made[0].compare(next) < 0 {
				if err := give(made[0].Session); err != nil {
					return err
				}
				made = made[1:]
			}
			return give(s)
		})
	}
	for i := 0; i < len(made) && err == nil; i++ {
		err = give(made[i].Session)
	}
	return err
}

// kept is the query of sessions of which the figure is kept.
func (o *figureOrder) kept(where conditions, few bool, before *ranked) (query string, args []any) {
	d, column := o.conn.Dialect(), "f."+string(o.q.Sort)
	// Where conditions select few sessions, these are found first; otherwise the index has all in their order.
	from := ` FROM session_stats f INDEXED BY idx_session_stats_` + string(o.q.Sort) + ` CROSS JOIN chat_sessions s`
	if few {
		from = ` FROM chat_sessions s CROSS JOIN session_stats f`
	}
	where.add(`s.id = f.session_id AND f.turns IS NOT NULL`)
	if len(o.missing) > 0 {
		where.add(`s.id NOT IN (SELECT value FROM `+d.Elements("?", "missing")+`)`, listOf(o.missing))
	}
	if before != nil {
		where.add(`(`+column+`, f.session_id) < (?, ?)`, before.figure, before.ID)
	}
	return `SELECT ` + d.SessionColumns + `, ` + column + from + where.String() +
		` ORDER BY ` + column + ` DESC, f.session_id DESC` + limitOf(o.q), where.args
}

// made are the sessions of which the figure is not kept, in its order.
func (o *figureOrder) made(where conditions, before *ranked) (all []ranked, err error) {
	if len(o.missing) == 0 {
		return nil, nil
	}
	where.where, where.args = slices.Clone(where.where), slices.Clone(where.args)
	where.among(o.missing)
	err = eachSession(o.conn, `SELECT `+where.d.SessionColumns+` FROM chat_sessions s`+where.String(), where.args,
		func(s session.Session, _ store.Row) error {
			all = append(all, ranked{Session: s})
			return nil
		})
	if err == nil {
		err = o.figures(all)
	}
	all = slices.DeleteFunc(all, func(s ranked) bool { return before != nil && s.compare(*before) <= 0 })
	all = session.SortedRows(all, func(a, b *ranked) int { return a.compare(*b) })
	return all, err
}

// figures makes those of sessions.
func (o *figureOrder) figures(sessions []ranked) error {
	for some := range slices.Chunk(sessions, keptAtOnce) {
		var ids []string
		for i := range some {
			ids = append(ids, some[i].ID)
		}
		all, err := readFigures(o.conn, ids)
		if err != nil {
			return err
		}
		for i := range some {
			some[i].figure = all[some[i].ID].sums(&some[i].Session)[o.place]
		}
	}
	return nil
}

// rank is the place of a session in the order, nil if it is not there.
func (o *figureOrder) rank(id string) (*ranked, error) {
	s, err := sessionOf(o.conn, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	one := []ranked{{Session: s}}
	if _, missing := slices.BinarySearch(o.missing, id); missing || !o.conn.Dialect().Figures {
		err = o.figures(one)
	} else {
		one[0].figure, err = number(o.conn, `SELECT `+string(o.q.Sort)+` FROM session_stats WHERE session_id = ?`, id)
	}
	return &one[0], err
}
