package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

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
			next := ranked{s, row.ColumnInt64(len(store.SessionTable.Columns))}
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
	slices.SortFunc(all, ranked.compare)
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
