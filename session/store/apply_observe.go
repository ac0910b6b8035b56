package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// stretch is the part of a home that a batch touches, in Unix nanoseconds. A home
// is the session under which a trace's observations are kept together; those of
// sub-agents are kept with their parent's.
type stretch struct{ from, to int64 }

// observer is the part of an Apply that stores observations and tells their
// sessions anew.
type observer struct {
	*applier
	assemble Assembler
	touched  map[string]stretch
	// told are the sessions of which the SDK's spans in the batch tell, by trace.
	told map[string][]string
	// unsettled are traces whose home may be another, calls those that the model
	// asked for where that is news.
	unsettled, calls map[string]bool
	// arrived are the observations of the batch that were not placed yet.
	arrived map[[2]string]bool
	// moved are observations that left a home: what was told of them there goes.
	moved []Observation
}

// observe stores the batch's observations and adds what they come to to the work
// on sessions.
func (a *applier) observe(b *Batch) error {
	if b.Assemble == nil {
		if len(b.Observations) > 0 {
			return fmt.Errorf("store observations: the batch has no Assemble")
		}
		return nil
	}
	o := observer{
		applier: a, assemble: b.Assemble, touched: make(map[string]stretch), told: make(map[string][]string),
		unsettled: make(map[string]bool), calls: make(map[string]bool), arrived: make(map[[2]string]bool),
	}
	if err := o.tellsOf(b.Links); err != nil {
		return err
	}
	for i := range b.Observations {
		n := &b.Observations[i]
		o.arrived[[2]string{n.TraceID, n.Source}] = true
		changed, err := o.put(n)
		if err := a.wrote(changed, err); err != nil {
			return err
		}
	}
	for _, trace := range slices.Sorted(maps.Keys(o.unsettled)) {
		if err := o.settleHome(trace); err != nil {
			return err
		}
	}
	// Tool calls in traces of their own follow the trace that asked for them.
	for _, id := range slices.Sorted(maps.Keys(o.calls)) {
		strays, err := o.tx.StrayTraces(id)
		if err != nil {
			return err
		}
		for _, stray := range strays {
			if err := o.settleHome(stray); err != nil {
				return err
			}
		}
	}
	return o.tell()
}

// tellsOf notes the traces that the SDK's spans are of.
func (o *observer) tellsOf(links []Link) error {
	for i := range links {
		l := &links[i]
		if l.TraceID == "" || slices.Contains(o.told[l.TraceID], l.SessionID) {
			continue
		}
		home, err := o.tx.TraceHome(l.TraceID)
		if err != nil {
			return err
		}
		o.told[l.TraceID] = append(o.told[l.TraceID], l.SessionID)
		if home != "" {
			o.unsettled[l.TraceID] = true
		}
	}
	return nil
}

func (o *observer) put(n *Observation) (bool, error) {
	row := ObservationRow{Observation: *n, Home: cmp.Or(n.Session, n.Own)}
	old, err := o.tx.Observation(n.TraceID, n.Source)
	if err != nil {
		return false, err
	}
	switch {
	case old != nil && !n.better(&old.Observation):
		if old.Placed.SessionID != "" {
			delete(o.arrived, [2]string{n.TraceID, n.Source})
		}
		return false, nil
	case old != nil:
		row.Home, row.Placed = old.Home, old.Placed
		o.touch(row.Home, old.Start, old.End)
		o.unsettle(n.TraceID)
	case n.TraceID != "":
		known, err := o.tx.TraceHome(n.TraceID)
		if err != nil {
			return false, err
		}
		if row.Home = cmp.Or(known, row.Home); known == "" || n.Call != "" || n.Session != "" && n.Session != known {
			o.unsettle(n.TraceID)
		}
	}
	for _, id := range n.Calls {
		o.calls[id] = true
	}
	o.touch(row.Home, n.Start, n.End)
	return true, o.tx.PutObservation(&row, old == nil)
}

// unsettle has the home of a trace looked for again. A record outside of any trace
// is where it says.
func (o *observer) unsettle(trace string) {
	if trace != "" {
		o.unsettled[trace] = true
	}
}

func (o *observer) touch(home string, from, to int64) {
	s, known := o.touched[home]
	if !known {
		s = stretch{from, to}
	}
	o.touched[home] = stretch{min(s.from, from), max(s.to, to)}
}

// settleHome finds the session that a trace is told in, and moves its observations
// there.
func (o *observer) settleHome(trace string) error {
	rows, err := o.tx.TraceObservations(trace)
	if err != nil || len(rows) == 0 {
		return err
	}
	home, err := o.homeOf(rows)
	if err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		if r.Home == home {
			continue
		}
		o.touch(r.Home, r.Start, r.End)
		o.touch(home, r.Start, r.End)
		o.moved = append(o.moved, r.Observation)
		for _, id := range r.Calls {
			o.calls[id] = true
		}
		if err := o.tx.SetHome(trace, r.Source, home); err != nil {
			return err
		}
	}
	return nil
}

// homeOf is where all of a trace's observations are told: in the session that the
// best key among them names; else where the model asked for a tool call of the
// trace that has no parent; else in a session of its own. What the SDK tells is
// not told again: a trace of its that names no other session has no home.
func (o *observer) homeOf(rows []ObservationRow) (string, error) {
	told, err := o.tx.TraceTold(rows[0].TraceID)
	if err != nil {
		return "", err
	}
	told = append(told, o.told[rows[0].TraceID]...)
	var best *ObservationRow
	for i := range rows {
		r := &rows[i]
		if r.Session != "" && (best == nil || cmp.Or(cmp.Compare(r.Rank, best.Rank), cmp.Compare(r.Start, best.Start), cmp.Compare(r.Session, best.Session)) < 0) {
			best = r
		}
	}
	switch {
	case best != nil && !slices.Contains(told, best.Session):
		return best.Session, nil
	case len(told) > 0:
		return "", nil
	}
	for i := range rows {
		if r := &rows[i]; r.Call != "" {
			asked, err := o.tx.Announcer(r.Call, r.TraceID, r.Start)
			if err != nil || asked != "" {
				return asked, err
			}
		}
	}
	return rows[0].Own, nil
}

// tell tells every stretch that was touched anew.
func (o *observer) tell() error {
	var rows []Observation
	var assembled Assembly
	for _, home := range slices.Sorted(maps.Keys(o.touched)) {
		if home == "" {
			continue
		}
		window, err := o.window(home, o.touched[home])
		if err != nil {
			return err
		}
		for _, segment := range segments(window) {
			part, err := o.assemble(home, segment)
			if err == nil && len(part.Placed) != len(segment) {
				err = fmt.Errorf("%d placements for %d observations", len(part.Placed), len(segment))
			}
			if err != nil {
				return fmt.Errorf("assemble session %s: %w", home, err)
			}
			rows = append(rows, segment...)
			assembled.Messages = append(assembled.Messages, part.Messages...)
			assembled.Decisions = append(assembled.Decisions, part.Decisions...)
			assembled.Placed = append(assembled.Placed, part.Placed...)
		}
	}
	if len(o.moved) > 0 {
		among := make(map[[2]string]bool, len(rows))
		for i := range rows {
			among[[2]string{rows[i].TraceID, rows[i].Source}] = true
		}
		for _, m := range o.moved {
			// One whose new home was told is among the rows; one that has none is not.
			if !among[[2]string{m.TraceID, m.Source}] {
				rows, assembled.Placed = append(rows, m), append(assembled.Placed, Placement{})
			}
		}
	}
	for i := range rows {
		if assembled.Placed[i].SessionID != "" {
			delete(o.arrived, [2]string{rows[i].TraceID, rows[i].Source})
		}
	}
	o.result.Parked += int64(len(o.arrived))
	return o.replace(rows, &assembled)
}

// window reads the observations of a home from the last opening before the stretch
// to the first after it, where nothing reaches across either.
func (o *observer) window(home string, s stretch) ([]Observation, error) {
	from := int64(math.MinInt64)
	for before := s.from; ; {
		at, ok, err := o.tx.OpenerBefore(home, before)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		first, across, err := o.tx.FirstAcross(home, at)
		if err != nil {
			return nil, err
		}
		if !across {
			from = at
			break
		}
		before = min(at, first+1)
	}
	to := int64(math.MaxInt64)
	for after := max(s.to, s.from+1); ; {
		at, ok, err := o.tx.OpenerFrom(home, after)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		_, across, err := o.tx.FirstAcross(home, at)
		if err != nil {
			return nil, err
		}
		if !across {
			to = at
			break
		}
		after = at + 1
	}
	return o.tx.Observations(home, from, to)
}

// segments cuts observations where one opens and none reaches across.
func segments(all []Observation) [][]Observation {
	slices.SortFunc(all, func(x, y Observation) int { return compareObservations(&x, &y) })
	var cut [][]Observation
	from, reach := 0, int64(math.MinInt64)
	for i := range all {
		// All that begin together stand on one side of the cut.
		if i > from && all[i].Start > all[i-1].Start && reach <= all[i].Start && opensAt(all[i:]) {
			cut = append(cut, all[from:i])
			from = i
		}
		reach = max(reach, all[i].End)
	}
	if from < len(all) {
		cut = append(cut, all[from:])
	}
	return cut
}

// opensAt says whether one of those that begin with the first opens a turn.
func opensAt(rest []Observation) bool {
	for i := range rest {
		if rest[i].Start != rest[0].Start {
			break
		}
		if rest[i].Opens {
			return true
		}
	}
	return false
}

// replace puts what was assembled in the place of what was told of the same
// observations before.
func (o *observer) replace(rows []Observation, assembled *Assembly) error {
	stale, void := make(map[string]string), make(map[string]string) // message and decision ids to their sessions
	faded := make(map[string]bool)                                  // sessions whose row must be told from what is left
	for i := range rows {
		old, placed := &rows[i].Placed, &assembled.Placed[i]
		if old.MessageID != "" {
			stale[old.MessageID] = old.SessionID
		}
		for _, id := range old.Others {
			stale[id] = old.SessionID
		}
		if old.DecisionID != "" {
			void[old.DecisionID] = old.SessionID
		}
		about, before := encodeAbout(placed.About), encodeAbout(old.About)
		if old.SessionID != "" && (old.SessionID != placed.SessionID || before != "" && before != about) {
			faded[old.SessionID] = true
		}
		if same := *old; !samePlacement(&same, placed) || before != about {
			if err := o.tx.Place(&rows[i], placed); err != nil {
				return err
			}
		}
		if placed.SessionID == "" {
			continue
		}
		w := o.session(placed.SessionID)
		w.observed = append(w.observed, stretch{rows[i].Start / 1e6, rows[i].End / 1e6})
		if rows[i].TraceID != "" {
			w.traces[rows[i].TraceID] = true
		}
		if placed.About != nil {
			w.changes = append(w.changes, placed.About)
		}
	}
	for i := range assembled.Messages {
		m := &assembled.Messages[i]
		delete(stale, m.ID)
		w := o.session(m.SessionID)
		w.told = append(w.told, m)
	}
	for i := range assembled.Decisions {
		d := &assembled.Decisions[i]
		delete(void, d.ID)
		w := o.session(d.SessionID)
		w.decided = append(w.decided, d)
	}
	for _, id := range slices.Sorted(maps.Keys(stale)) {
		w := o.session(stale[id])
		w.stale = append(w.stale, id)
	}
	for _, id := range slices.Sorted(maps.Keys(void)) {
		if err := o.wrote(true, o.tx.DeleteDecision(id)); err != nil {
			return err
		}
		o.session(void[id])
	}
	for id := range faded {
		o.session(id).faded = true
	}
	return nil
}

func samePlacement(p, q *Placement) bool {
	return p.SessionID == q.SessionID && p.MessageID == q.MessageID && p.PartID == q.PartID && p.DecisionID == q.DecisionID && p.Kind == q.Kind &&
		slices.Equal(p.Others, q.Others)
}

func encodeAbout(c *SessionChange) string {
	if c == nil {
		return ""
	}
	b, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return string(b)
}

// observes says whether observations are part of the work.
func (w *sessionWork) observes() bool {
	return len(w.observed) > 0 || len(w.told) > 0 || len(w.stale) > 0 || w.faded
}

// applyTold replaces messages of a session by what was assembled of them.
func (a *applier) applyTold(w *sessionWork) error {
	for _, trace := range slices.Sorted(maps.Keys(w.traces)) {
		if err := a.tx.PutTrace(trace, w.id); err != nil {
			return err
		}
	}
	for _, id := range w.stale {
		if err := a.dropMessage(w, id); err != nil {
			return err
		}
	}
	for _, m := range w.told {
		if err := a.replaceMessage(w, m); err != nil {
			return err
		}
	}
	w.told, w.stale, w.observed = nil, nil, nil
	return nil
}

func (a *applier) dropMessage(w *sessionWork, id string) error {
	old, err := a.tx.Message(id)
	if err != nil || old == nil || old.SessionID != w.id {
		return err
	}
	if err := a.wrote(true, a.tx.DeleteMessage(id)); err != nil {
		return err
	}
	w.account(old, -1)
	w.touched[id] = true
	w.recut, w.redraw = true, w.redraw || w.awaitsRewind(id)
	w.resync = w.resync || w.forksAt(id)
	return nil
}

func (a *applier) replaceMessage(w *sessionWork, told *AssembledMessage) error {
	m := told.Message
	old, err := a.tx.Message(m.ID)
	if err != nil {
		return err
	}
	if old != nil && old.SessionID != w.id {
		a.result.Refused += int64(1 + len(told.Parts))
		return nil
	}
	if m.HiddenAt, err = w.hiddenAt(&m, a.tx, 0); err != nil {
		return err
	}
	if m.HiddenAt == nil && old != nil && old.HiddenAt != nil && !w.hides(*old.HiddenAt) {
		m.HiddenAt = old.HiddenAt // another program hid it
	}
	if err := a.putMessage(w, &m, old); err != nil {
		return err
	}
	var stored []session.Part
	if old != nil {
		if stored, err = a.tx.Parts(m.ID); err != nil {
			return err
		}
	}
	keep := make(map[string]*session.Part, len(told.Parts))
	for i := range told.Parts {
		keep[told.Parts[i].ID] = &told.Parts[i]
	}
	same := make(map[string]bool, len(stored))
	for i := range stored {
		p := &stored[i]
		if n := keep[p.ID]; n != nil && n.Index == p.Index && equalParts(n, p) {
			same[p.ID] = true
			continue
		}
		if err := a.wrote(true, a.tx.DeletePart(p.ID)); err != nil {
			return err
		}
		w.changedPart(p)
	}
	for i := range told.Parts {
		p := &told.Parts[i]
		if same[p.ID] {
			continue
		}
		inserted, err := a.tx.InsertPart(p)
		if err == nil && !inserted {
			err = ErrRefused
		}
		if err := a.wrote(inserted, err); err != nil {
			return err
		}
		w.changedPart(p)
	}
	return nil
}

func (w *sessionWork) changedPart(p *session.Part) {
	w.touched[p.MessageID] = true
	if p.Type == session.TypeCompaction {
		w.recut = true
	}
}

// refold tells a session's row from what is left of its observations, where what
// it was told from was taken back. It reports false when nothing is left of the
// session, which is then deleted.
func (a *applier) refold(w *sessionWork) (bool, error) {
	left, err := a.tx.Abouts(w.id)
	if err != nil {
		return false, err
	}
	own, err := a.tx.HasLinks(w.id)
	if err != nil {
		return false, err
	}
	if len(left) == 0 && !own && len(w.told) == 0 && len(w.row.State.Forks) == 0 && w.row.State.Fork == nil && len(w.messages) == 0 {
		messages, err := a.tx.MessagesFrom(w.id, Position{})
		if err != nil {
			return false, err
		}
		if len(messages) == len(w.stale) {
			return false, nil
		}
	}
	r := w.row
	fresh := blankSession(w.id)
	for column, stamp := range r.State.Stamps {
		if stamp.Rank == RankFinal {
			continue
		}
		delete(r.State.Stamps, column)
		switch column {
		case "title":
			r.Title = fresh.Title
		case "agent":
			r.Agent = fresh.Agent
		case "mode":
			r.Mode = nil
		case "workspace_id":
			r.WorkspaceID = nil
		case "workspace_root":
			r.WorkspaceRoot = nil
		case "model_json":
			r.ModelJSON = nil
		case "permissions_json":
			r.PermissionsJSON = fresh.PermissionsJSON
		case "parent_id":
			r.ParentID = nil
		case "parent_message_id":
			r.ParentMessageID = nil
		default:
			if key, ok := strings.CutPrefix(column, "metadata."); ok {
				have := object(r.MetadataJSON)
				delete(have, key)
				r.MetadataJSON = encodeObject(have)
			}
		}
	}
	if !own {
		r.CreatedAt, r.UpdatedAt = 0, 0
	}
	w.dirty = true
	for i := range left {
		w.bound(left[i].Start/1e6, left[i].End/1e6)
		if left[i].About != nil {
			if err := a.mergeSession(w, left[i].About); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}
