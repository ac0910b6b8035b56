package store

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
)

const unknownAgent = "unknown"

func (a *applier) loadSession(w *sessionWork) {
	row := a.rows.session(w.id)
	if row == nil {
		w.isNew = true
		row = &SessionRow{Session: blankSession(w.id)}
	}
	w.adopt(row)
}

// blankSession is a session of which only the id is known.
func blankSession(id string) session.Session {
	return session.Session{ID: id, Title: session.Untitled, Agent: unknownAgent,
		PermissionsJSON: "[]", MetadataJSON: "{}"}
}

// adopt makes row the one that the work is about.
func (w *sessionWork) adopt(row *SessionRow) {
	if row.State.Stamps == nil {
		row.State.Stamps = make(map[string]Stamp)
	}
	w.row = row
	w.resum = row.Usage() != row.State.Rollup
}

// boundAll makes the session as old and as new as what is reported of it.
func (w *sessionWork) boundAll() {
	for _, c := range w.changes {
		w.bound(c.Start, c.End)
	}
	if w.asStored {
		return
	}
	for _, m := range w.order {
		for _, c := range m.changes {
			w.bound(c.CreatedAt, c.UpdatedAt)
		}
		for _, p := range m.parts {
			w.bound(p.CreatedAt, p.UpdatedAt)
		}
	}
	for _, l := range w.links {
		w.bound(l.StartNano/1e6, l.EndNano/1e6)
	}
	for _, d := range w.decided {
		w.bound(d.DecidedAt, d.DecidedAt)
	}
}

func (w *sessionWork) bound(from, to int64) {
	row, declared := w.bounds()
	w.setBounds(row.include(from, to), declared.include(from, to))
}

// earlier is the lesser of two times of which zero is unknown.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// reportedColumn is a column of the session's row that sources report.
type reportedColumn struct {
	name string
	// row and change are its places in the columns of rows and of changes.
	row, change int
	// first is set if the first report of a value takes precedence, and not the last.
	first bool
}

var (
	changeColumns   = sync.OnceValue(session.ColumnsOf[SessionChange])
	reportedColumns = sync.OnceValue(reported)
	reportedFirst   = []string{"agent", "parent_id", "parent_message_id"}
)

// reported finds the columns of the row for which a change has a value.
func reported() (columns []reportedColumn) {
	names := session.SessionColumns().Names()
	for i, name := range changeColumns().Names() {
		_, isValue := changeColumns()[i].Field(new(SessionChange)).(**Value)
		if row := slices.Index(names, name); isValue && row >= 0 {
			columns = append(columns, reportedColumn{name, row, i, slices.Contains(reportedFirst, name)})
		}
	}
	return columns
}

// values yields the values that a change has of columns. The time of those of which the
// first report takes precedence is reversed, so that the greatest value takes it.
func (c *SessionChange) values(yield func(*reportedColumn, Value) bool) {
	for i := range reportedColumns() {
		column := &reportedColumns()[i]
		v := *changeColumns()[column.change].Field(c).(**Value)
		if v == nil {
			continue
		}
		out := *v
		if column.first {
			out = v.First()
		}
		if !yield(column, out) {
			return
		}
	}
}

// ChangeOf returns a change that reports every column of a row, at a time in Unix milliseconds.
func ChangeOf(row *session.Session, at int64) SessionChange {
	c := SessionChange{ID: row.ID, Start: at, End: at, Metadata: make(map[string]Value)}
	for i := range reportedColumns() {
		column := &reportedColumns()[i]
		if text, ok := column.get(row); ok {
			*changeColumns()[column.change].Field(&c).(**Value) = &Value{Text: text, At: at * 1e6, Rank: RankFinal}
		}
	}
	for key, value := range session.Object(row.MetadataJSON) {
		c.Metadata[key] = Value{Text: string(value), At: at * 1e6, Rank: RankFinal}
	}
	return c
}

// get returns the text of the column in a row. It is not ok for NULL.
func (column *reportedColumn) get(row *session.Session) (string, bool) {
	switch field := session.SessionColumns()[column.row].Field(row).(type) {
	case *string:
		return *field, true
	case **string:
		if *field != nil {
			return **field, true
		}
	}
	return "", false
}

// set sets the column to a value, or to what it is without any.
func (column *reportedColumn) set(row *session.Session, v *Value) {
	switch field := session.SessionColumns()[column.row].Field(row).(type) {
	case *string:
		if v != nil {
			*field = v.Text
			return
		}
		blank := blankSession(row.ID)
		*field, _ = column.get(&blank)
	case **string:
		*field = nil
		if v != nil {
			*field = &v.Text
		}
	}
}

// mergeSession merges what one source reports into the session's row.
func (a *applier) mergeSession(w *sessionWork, c *SessionChange) {
	r := w.row
	for column, v := range c.values {
		if old, _ := column.get(&r.Session); w.accept(column.name, &v, old) {
			column.set(&r.Session, &v)
		}
	}
	if v := c.Archived; v != nil {
		old := ""
		if r.ArchivedAt != nil {
			old = "1"
		} else if _, declared := r.State.Stamps["archived_at"]; declared {
			old = "0"
		}
		if w.accept("archived_at", v, old) {
			r.ArchivedAt = nil
			if v.Text == "1" {
				at := v.At / 1e6
				r.ArchivedAt = &at
			}
		}
	}
	w.mergeMetadata(c)
	if v := c.OtherCost; v != nil && w.accept("other_cost_usd", v, "") {
		if cost, err := strconv.ParseFloat(v.Text, 64); err == nil {
			w.cost, r.State.OtherCost = AddCost(w.cost, AddCost(cost, -r.State.OtherCost)), cost
		}
	}
	for _, rw := range c.Rewinds {
		w.mergeRewind(rw)
	}
	a.mergeFork(w, c.Fork)
}

// accept reports whether a value takes precedence over those of the column before it, the
// last of which is old, and keeps its stamp.
func (w *sessionWork) accept(column string, v *Value, old string) bool {
	before, declared := w.row.State.Stamps[column]
	stamp := v.stamp(w.observed.folding)
	if declared && stamp.compare(before) <= 0 {
		return false
	}
	if column == "title" && !w.observed.folding && w.renamed(before) &&
		(stamp.Sum == before.Sum || v.At/1e6 <= w.row.UpdatedAt) {
		return false // another program has named it since
	}
	w.row.State.Stamps[column] = stamp
	w.news = w.news || old != v.Text
	w.dirty = true
	return true
}

// renamed reports whether another program has given the session the title that it has. stamp is that of the title that
// was reported last. A source that repeats that one, or reports one of an earlier time than the last update of the
// session, does not know of the new one.
func (w *sessionWork) renamed(stamp Stamp) bool {
	title := w.row.Title
	if _, reported := w.row.State.Stamps["title"]; !reported {
		return false // an import, or telemetry that had no time
	}
	return crc32.ChecksumIEEE([]byte(title)) != stamp.Sum
}

func (w *sessionWork) mergeMetadata(c *SessionChange) {
	declared := c.Metadata
	if len(declared) == 0 && c.MetadataJSON == "" {
		return
	}
	have := session.Object(w.row.MetadataJSON)
	changed := false
	for _, key := range slices.Sorted(maps.Keys(declared)) {
		v := declared[key]
		var ok bool
		if v.Text, ok = compact(v.Text); !ok {
			continue // what is no JSON cannot be in an object
		}
		if w.accept("metadata."+key, &v, string(have[key])) {
			have[key], changed = json.RawMessage(v.Text), true
		}
	}
	if changed {
		w.row.MetadataJSON = encodeObject(have)
	}
	if as := c.MetadataJSON; as != "" && as != w.row.MetadataJSON && canonicalObject(as) == w.row.MetadataJSON {
		w.row.MetadataJSON, w.dirty = as, true
	}
}

// compact returns JSON without space between its tokens: the form in which values are kept and compared.
func compact(text string) (string, bool) {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return "", false
	}
	return b.String(), true
}

// canonicalObject is a JSON object as encodeObject writes it, without space between tokens.
func canonicalObject(text string) string {
	m := session.Object(text)
	for key, value := range m {
		if text, ok := compact(string(value)); ok {
			m[key] = json.RawMessage(text)
		}
	}
	return encodeObject(m)
}

// encodeObject writes an object with its keys in order and its values as they are.
func encodeObject(values map[string]json.RawMessage) string {
	b := []byte{'{'}
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(jsonscan.AppendString(b, key), ':'), values[key]...)
	}
	return string(append(b, '}'))
}

// moveCut finds the compaction in force and the position from which messages count towards the context.
func (a *applier) moveCut(w *sessionWork) {
	s := &w.row.State
	marker, tail, index := Position{}, "", int64(-1)
	markers := selectRows(a.rows, PartTable(), `SELECT `+PartTable().List+
		` FROM chat_parts INDEXED BY idx_chat_parts_compaction WHERE type = 'data-compaction' AND session_id = ?1`,
		NameSession, w.id)
	of := make([]string, len(markers))
	for i := range markers {
		of[i] = markers[i].MessageID
	}
	a.rows.messages.want(of...)
	a.rows.ask()
	for i := range markers {
		m := a.rows.message(markers[i].MessageID)
		if m == nil || m.HiddenAt != nil {
			continue
		}
		if pos := PositionOf(m); marker.Before(pos) || marker == pos && index < markers[i].Index {
			marker, tail, index = pos, session.TailStartID(markers[i].DataJSON), markers[i].Index
		}
	}
	cut := marker
	if tail != "" {
		if m := a.rows.message(tail); m != nil && m.SessionID == w.id {
			cut = PositionOf(m)
		}
	}
	if marker != s.Marker || tail != s.Tail || cut != s.Cut {
		s.Marker, s.Tail, s.Cut = marker, tail, cut
		w.dirty, w.resum = true, true
	}
}

// recount sums the rollup again.
func (a *applier) recount(w *sessionWork) {
	messages := a.rows.messagesFrom(w.id, w.row.State.Cut)
	var sum session.Usage
	for i := range messages {
		if m := &messages[i]; w.counts(m) {
			usage, _ := session.UsageOf(m.MetadataJSON)
			sum = sum.Add(usage)
		}
	}
	w.usage = session.Usage{}
	if sum != w.row.Usage() {
		w.row.SetUsage(sum)
		w.dirty = true
	}
}

// counts reports whether a message's tokens are part of the session's context.
func (w *sessionWork) counts(m *session.Message) bool {
	return m.Role == session.RoleAssistant && m.HiddenAt == nil && !PositionOf(m).Before(w.row.State.Cut)
}

// AddCost adds in steps of a billionth of a dollar, so that a sum does not depend on the order of its terms.
func AddCost(a, b float64) float64 {
	const unit = 1e9
	return (math.Round(a*unit) + math.Round(b*unit)) / unit
}

// A session that was imported from a program's own transcript is rows, like any import. When telemetry of the same
// program names the session, the two report the same turns under other ids, so the rows are turned into observations
// before those of the batch are stored. From then on both are assembled together: it does not matter which came first.
// The other order needs nothing of this, because the transcript of a session that telemetry reports is stored as
// observations from the beginning.

// isFork reports whether the session is a fork of its parent, and not a sub-agent.
func isFork(row *SessionRow) bool {
	return row.State.Fork != nil || session.TranscriptTraceOf(row.MetadataJSON).Forked
}

// adoptTranscripts adds the observations of the transcripts that were imported of the
// sessions which the batch's observations name, and of their sub-agents. What is the
// store's own stays: when the session was archived, what was rewound, its annotations and its forks.
func (a *applier) adoptTranscripts(b *Batch) {
	if b.Adopt == nil {
		return
	}
	known := make(map[string]bool)
	level := namedBy(b.Observations, known)
	stored := len(b.Observations)
	for declared := true; len(level) > 0; declared = false { // then sub-agents
		a.rows.ask(a.transcriptQueries(level)...)
		var below []string
		for _, id := range level {
			for _, child := range a.rows.transcripts[id] {
				if !known[child] {
					known[child] = true
					below = append(below, child)
				}
			}
			row := a.rows.session(id)
			if row == nil || !declared && isFork(row) || !strings.Contains(row.MetadataJSON, `"transcript"`) ||
				session.TranscriptOf(row.MetadataJSON) == "" { // it has telemetry, or was not imported
				continue
			}
			a.rows.within("merge with its telemetry the transcript of session", id, func() { a.adoptTranscript(b, row) })
		}
		level = below
	}
	if len(b.Observations) > stored {
		a.rows.ask(a.observer.queries(b.Observations[stored:])...)
	}
}

// namedBy are the sessions that observations name, and their sub-agents, in order. They are noted in known.
func namedBy(observations []Observation, known map[string]bool) []string {
	for i := range observations {
		for _, id := range []string{observations[i].Session, observations[i].Subagent} {
			if id != "" {
				known[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// transcriptQueries read sessions and the transcripts below them, those that are not read yet.
func (a *applier) transcriptQueries(ids []string) []query {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, read := a.rows.transcripts[id]; return read })
	a.rows.sessions.want(ids...)
	return []query{a.rows.readTranscripts(ids...)}
}

func (a *applier) adoptTranscript(b *Batch, row *SessionRow) {
	t := session.Transcript{Session: row.Session}
	messages := a.rows.messagesFrom(row.ID, Position{})
	ids := make([]string, len(messages))
	for i := range messages {
		ids[i] = messages[i].ID
	}
	a.rows.loadWhole(ids...)
	annotations := selectRows(a.rows, AnnotationTable(), annotationsQuery(), NameSession, row.ID)
	for _, m := range messages {
		t.Messages = append(t.Messages, session.MessageAndParts{Message: m, Parts: a.rows.known(m.ID).parts})
	}
	b.Observations = append(b.Observations, b.Adopt(&Imported{Transcript: &t})...)
	a.rows.deleteSession(row.ID)
	w := a.session(row.ID)
	for i := range annotations {
		w.noted = append(w.noted, &annotations[i])
	}
	a.result.Rows++
	kept := SessionRow{Session: blankSession(row.ID),
		State: State{Rewinds: row.State.Rewinds, Fork: row.State.Fork}}
	if row.ArchivedAt == nil && len(kept.State.Rewinds) == 0 && kept.State.Fork == nil {
		return
	}
	kept.ArchivedAt = row.ArchivedAt
	if stamp, ok := row.State.Stamps["archived_at"]; ok {
		kept.State.Stamps = map[string]Stamp{"archived_at": stamp}
	}
	a.wrote(true, a.rows.putSession(&kept))
}
