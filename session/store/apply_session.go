package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/spans"
)

const unknownAgent = "unknown"

func (a *applier) loadSession(w *sessionWork) error {
	row, err := a.tx.Session(w.id)
	if err != nil {
		return err
	}
	if row == nil {
		w.isNew = true
		row = &SessionRow{Session: blankSession(w.id)}
	}
	w.adopt(row)
	return nil
}

// blankSession is a session of which only the id is known.
func blankSession(id string) session.Session {
	return session.Session{ID: id, Title: session.Untitled, Agent: unknownAgent, PermissionsJSON: "[]", MetadataJSON: "{}"}
}

// adopt makes row the one that the work is about.
func (w *sessionWork) adopt(row *SessionRow) {
	if row.State.Stamps == nil {
		row.State.Stamps = make(map[string]Stamp)
	}
	w.row = row
	w.resum = row.Usage() != row.State.Rollup
}

// boundAll makes the session as old and as new as what is said of it.
func (w *sessionWork) boundAll() {
	for _, c := range w.changes {
		w.bound(c.Start, c.End)
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

// mergeSession merges what one source says into the session's row.
func (a *applier) mergeSession(w *sessionWork, c *SessionChange) error {
	r := w.row
	w.last("title", c.Title, &r.Title)
	w.lastPtr("mode", c.Mode, &r.Mode)
	w.lastPtr("workspace_id", c.WorkspaceID, &r.WorkspaceID)
	w.lastPtr("workspace_root", c.WorkspaceRoot, &r.WorkspaceRoot)
	w.lastPtr("model_json", c.Model, &r.ModelJSON)
	w.last("permissions_json", c.Permissions, &r.PermissionsJSON)
	w.last("agent", first(c.Agent), &r.Agent)
	w.lastPtr("parent_id", first(c.ParentID), &r.ParentID)
	w.lastPtr("parent_message_id", first(c.ParentMessageID), &r.ParentMessageID)
	if v := c.Archived; v != nil {
		old := ""
		if r.ArchivedAt != nil {
			old = "1"
		} else if _, declared := r.State.Stamps["archived_at"]; declared {
			old = "0"
		}
		if w.last("archived_at", v, &old) {
			r.ArchivedAt = nil
			if v.Text == "1" {
				at := v.At / 1e6
				r.ArchivedAt = &at
			}
		}
	}
	w.mergeMetadata(c.Metadata)
	for _, rw := range c.Rewinds {
		w.mergeRewind(rw)
	}
	return a.mergeFork(w, c.Fork)
}

// first turns a value that stands as first said into one that stands as last
// said: the order of its time is reversed.
func first(v *Value) *Value {
	if v == nil {
		return nil
	}
	return &Value{Text: v.Text, At: -v.At, Rank: v.Rank}
}

// last stores v in dst if it beats what is there.
func (w *sessionWork) last(column string, v *Value, dst *string) bool {
	if v == nil {
		return false
	}
	old, declared := w.row.State.Stamps[column]
	stamp := v.stamp()
	if !w.observed.folding && old.Rank != RankFinal {
		w.quarantine(column, v)
	}
	if declared && stamp.compare(old) <= 0 {
		return false
	}
	if column == "title" && !w.observed.folding && w.renamed(old) && (stamp.Sum == old.Sum || v.At/1e6 <= w.row.UpdatedAt) {
		return false // another program has named it since
	}
	w.row.State.Stamps[column] = stamp
	w.news = w.news || *dst != v.Text
	*dst, w.dirty = v.Text, true
	return true
}

// renamed says that another program has given the session the title that it has. stamp is
// that of the title that was reported last. A source that repeats that one, or that speaks
// of an earlier time than the session was heard of last, does not know of the new one.
func (w *sessionWork) renamed(stamp Stamp) bool {
	title := w.row.Title
	if _, reported := w.row.State.Stamps["title"]; !reported {
		return false // an import, or telemetry that had no time
	}
	return crc32.ChecksumIEEE([]byte(title)) != stamp.Sum
}

func (w *sessionWork) lastPtr(column string, v *Value, dst **string) {
	if v == nil {
		return
	}
	var text string
	if *dst != nil {
		text = **dst
	}
	if w.last(column, v, &text) {
		*dst = &text
	}
}

func (w *sessionWork) mergeMetadata(declared map[string]Value) {
	if len(declared) == 0 {
		return
	}
	have := object(w.row.MetadataJSON)
	changed := false
	for _, key := range slices.Sorted(maps.Keys(declared)) {
		v, text := declared[key], string(have[key])
		var ok bool
		if v.Text, ok = compact(v.Text); !ok {
			continue // what is no JSON cannot stand in an object
		}
		if w.last("metadata."+key, &v, &text) {
			have[key], changed = json.RawMessage(text), true
		}
	}
	if changed {
		w.row.MetadataJSON = encodeObject(have)
	}
}

// compact returns JSON without space between its tokens: the form in which
// values are kept and compared.
func compact(text string) (string, bool) {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return "", false
	}
	return b.String(), true
}

// encodeObject writes an object with its keys in order and its values as they
// are.
func encodeObject(values map[string]json.RawMessage) string {
	b := []byte{'{'}
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(spans.AppendJSONString(b, key), ':'), values[key]...)
	}
	return string(append(b, '}'))
}

func (w *sessionWork) mergeRewind(rw Rewind) {
	s := &w.row.State
	i, found := slices.BinarySearchFunc(s.Rewinds, rw, compareRewinds)
	switch {
	case !found:
		s.Rewinds = slices.Insert(s.Rewinds, i, rw)
		w.begin(rw)
	case rw.Undone && !s.Rewinds[i].Undone:
		s.Rewinds[i].Undone = true
	default:
		return
	}
	w.redraw, w.resync, w.dirty, w.news = true, true, true, true
}

// begin notes that a rewind has not hidden anything yet.
func (w *sessionWork) begin(rw Rewind) {
	if w.fresh == nil {
		w.fresh = make(map[Rewind]bool)
	}
	w.fresh[rw] = true
}

func compareRewinds(x, y Rewind) int {
	return cmp.Or(cmp.Compare(x.At, y.At), strings.Compare(x.To, y.To))
}

// redrawHidden hides and shows messages as the rewinds want it.
func (a *applier) redrawHidden(w *sessionWork) error {
	messages, err := a.tx.MessagesFrom(w.id, Position{})
	if err != nil {
		return err
	}
	for i := range messages {
		m := &messages[i]
		hidden, err := w.hidden(m, m, a.tx)
		if err != nil {
			return err
		}
		if sameTime(hidden, m.HiddenAt) {
			continue
		}
		w.remember(m.ID, m)
		m.HiddenAt = hidden
		if err := a.wrote(true, a.tx.PutMessage(m, false)); err != nil {
			return err
		}
		w.touched[m.ID] = true
	}
	w.recut, w.resum = true, true
	return nil
}

// hides says whether a message hidden at that time was hidden by a rewind that
// telemetry told of. Another program's rewinds are left alone.
func (w *sessionWork) hides(at int64) bool {
	return slices.ContainsFunc(w.row.State.Rewinds, func(r Rewind) bool { return r.At == at })
}

// moveCut finds the compaction in force and the position from which messages
// count towards the context.
func (a *applier) moveCut(w *sessionWork) error {
	s := &w.row.State
	marker, tail, index := s.Marker, s.Tail, int64(-1)
	among := w.compacted
	if w.recut {
		marker, tail, among = Position{}, "", []string{""} // all of them
	}
	var markers []session.Part
	for _, messageID := range among {
		some, err := a.tx.Compactions(w.id, messageID)
		if err != nil {
			return err
		}
		markers = append(markers, some...)
	}
	for i := range markers {
		m, err := a.tx.Message(markers[i].MessageID)
		if err != nil {
			return err
		}
		if m == nil || m.HiddenAt != nil {
			continue
		}
		if pos := PositionOf(m); marker.Before(pos) || marker == pos && index < markers[i].Index {
			marker, tail, index = pos, session.TailStartID(markers[i].DataJSON), markers[i].Index
		}
	}
	cut := marker
	if tail != "" {
		m, err := a.tx.Message(tail)
		if err != nil {
			return err
		}
		if m != nil && m.SessionID == w.id {
			cut = PositionOf(m)
		}
	}
	if marker == s.Marker && tail == s.Tail && cut == s.Cut {
		return nil
	}
	s.Marker, s.Tail, s.Cut = marker, tail, cut
	w.dirty, w.resum = true, true
	return nil
}

// recount sums the rollup anew.
func (a *applier) recount(w *sessionWork) error {
	messages, err := a.tx.MessagesFrom(w.id, w.row.State.Cut)
	if err != nil {
		return err
	}
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
	return nil
}

// counts says whether a message's tokens are part of the session's context.
func (w *sessionWork) counts(m *session.Message) bool {
	return m.Role == session.RoleAssistant && m.HiddenAt == nil && !PositionOf(m).Before(w.row.State.Cut)
}

// AddCost adds in steps of a billionth of a dollar, so that a sum does not
// depend on the order of its terms.
func AddCost(a, b float64) float64 {
	const unit = 1e9
	return (math.Round(a*unit) + math.Round(b*unit)) / unit
}
