package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// Imported is a session as a file holds it: a transcript, and what is in tables of our own.
type Imported struct {
	*session.Transcript
	Decisions []Decision
	// Annotations are all that the session has, those that are undone included.
	Annotations []Annotation
	// Blobs are the system prompts and tool catalogs that the messages name.
	Blobs []Blob
	// SpanRefs are the spans of the SDK that the session was made from, Traces the ids of its traces, those of other
	// agents included. Both are empty for what comes from another format than a store.
	SpanRefs []SpanRef
	Traces   []string
	// State is what another store remembers of the session, nil when nothing: its rewinds, so that what arrives late of
	// what they hide is hidden too and each can be undone; what it was forked from; and when each value was set, so
	// that telemetry that is delivered again changes nothing.
	State *State
	// RequestedIndexes are the indexes that displaced parts asked for.
	RequestedIndexes []RequestedIndex
	// AsGiven reports that the session is stored as it is, or not at all: a row that is
	// refused is an error of type [*NotWholeError], and the row of a session that the
	// store does not have keeps its tokens, which are summed again when the session changes.
	AsGiven bool
	// Alone reports that the rows are for a session without telemetry: for one that telemetry reports, or whose parent
	// it does, the error is [ErrReported].
	Alone bool
	// Grown is set if the rows are those of a source that grew, from some message on.
	Grown *Grown
}

// Size is about how many bytes a session takes.
func (in *Imported) Size() (n int) {
	if in.Transcript == nil {
		return 0
	}
	for i := range in.Messages {
		m := &in.Messages[i]
		n += len(m.Message.MetadataJSON)
		for k := range m.Parts {
			n += len(m.Parts[k].DataJSON)
		}
	}
	for i := range in.Blobs {
		n += len(in.Blobs[i].Body)
	}
	return n
}

// ImportGroups yields sessions in groups of up to a number of them and about a number of bytes, so that many small ones
// are stored together, and few large ones are held in memory.
func ImportGroups(sessions iter.Seq[*Imported], count, bytes int) iter.Seq[[]*Imported] {
	return func(yield func([]*Imported) bool) {
		var group []*Imported
		size := 0
		for in := range sessions {
			group, size = append(group, in), size+in.Size()
			if len(group) == count || size >= bytes {
				if !yield(group) {
					return
				}
				group, size = nil, 0
			}
		}
		if len(group) > 0 {
			yield(group)
		}
	}
}

// ErrReported is the error of importing a transcript as rows whose session telemetry reports, or evaluates.
var ErrReported = errors.New("telemetry reports the session")

// FromTelemetry reports whether a session was built from the telemetry of another program's agent.
func FromTelemetry(row *session.Session) bool {
	var about struct {
		Agenttrace struct {
			Dialect string `json:"dialect"`
		} `json:"agenttrace"`
	}
	return strings.Contains(row.MetadataJSON, `"dialect"`) &&
		json.Unmarshal([]byte(row.MetadataJSON), &about) == nil && about.Agenttrace.Dialect != ""
}

// ImportResult states what became of an imported session.
type ImportResult struct {
	// Added reports that the store did not have the session, Changed that its row was
	// written, be it for a rollup that changed.
	Added, Changed bool
	// Messages, Parts, Decisions and Blobs count rows that were added or replaced; Unchanged counts messages, parts and
	// decisions that were not, because the store has the same or a later one.
	Messages, Parts, Decisions, Blobs, Unchanged int
	// SpanRefs counts spans that were added or replaced, Annotations annotations.
	SpanRefs, Annotations int
	// Refused are the rows that could not be stored. The others were.
	Refused []Refusal
}

// Refusal is a row that an import could not store.
type Refusal struct {
	// Where names it, such as "message msg_…".
	Where string
	// Reason states why, and what to do.
	Reason string
}

func (r Refusal) String() string { return r.Where + ": " + r.Reason }

// NotWholeError is a session that was not imported because one of its rows was refused; see [Imported.AsGiven].
type NotWholeError struct{ Refusal }

func (e *NotWholeError) Error() string {
	reason, _, _ := strings.Cut(e.Reason, "; ") // the rest is what becomes of the row alone
	return e.Where + ": " + reason
}

// Import merges a session into the rows behind tx, all of it or, with an error,
// nothing if the caller rolls back. It does not change or retain in.
//
// A row that the store does not have is stored as it is, byte for byte. Of two rows of one id the later takes
// precedence, by updated_at, and of two of the same time the one that knows more: docs/decisions/0002-merge-rules.md
// has the order for each kind of row. What the store has and the import has not stays. So importing again changes
// nothing, and sessions can be imported in any order.
//
// Whether a message is hidden and a session archived is merged by itself, because neither dates its row. The tokens of
// the session are summed again, but see AsGiven. Its cost differs from that of the row that takes precedence by the
// cost of messages which that row did not know. Of State, rewinds are merged, a fork is one if either reports so, and
// the stamps are those of the row that takes precedence.
//
// What telemetry reports of the session afterwards is merged by [Apply] as ever: it has the last word on the columns of
// the session's row that it reports and on the metadata of messages that it measured. A message that several spans
// measured needs them all for that: those that are delivered again, or that come with the import as Links, each of
// which counts once however often it comes.
//
// A message that belongs to another session is refused with its parts, as is a part of another message. An error is
// returned for rows that make no tree (see session.Transcript.CheckTree), and when tx fails.
func Import(tx Tx, in *Imported) (ImportResult, error) {
	if in.Transcript == nil {
		return ImportResult{}, errors.New("import session: no transcript")
	}
	if err := in.CheckTree(); err != nil {
		return ImportResult{}, fmt.Errorf("import session %s: %w", in.Session.ID, err)
	}
	var i importer
	err := run(tx, func(set *rows) {
		a := newApplier(set)
		i = importer{applier: &a, work: a.session(in.Session.ID)}
		i.run(in)
	})
	if err == nil && in.AsGiven && len(i.result.Refused) > 0 {
		err = &NotWholeError{i.result.Refused[0]}
	}
	if err != nil {
		return ImportResult{}, fmt.Errorf("import session %s: %w", in.Session.ID, err)
	}
	return i.result, nil
}

// importer is one run of Import.
type importer struct {
	*applier
	work   *sessionWork
	result ImportResult
	// gave are the messages that the source gave before, if it grew since.
	gave map[string]*session.Message
	// displaced are the indexes that displaced parts of the import requested, by message and part.
	displaced map[string]map[string]int64
}

func (i *importer) run(in *Imported) {
	i.prefetch(in)
	for k := range in.Blobs {
		b := &in.Blobs[k]
		changed, refused := i.mergeBlob(b)
		i.stored(&i.result.Blobs, changed, refused, string(b.Kind)+" "+b.Digest)
	}
	w := i.work
	i.loadSession(w)
	i.alone(in)
	before := i.costs()
	other := otherCost(in)
	by := 1
	if w.isNew {
		w.row.Session = in.Session
		w.row.State.Rollup = in.Session.Usage() // else the row would seem to be changed by another program
		i.mergeState(in.State, by)
		i.putSession()
		i.result.Added = true
		w.dirty, w.resync = false, true // it may have forks that were known before it
	} else {
		stored := AddCost(w.row.CostUSD, -before)
		if by = i.mergeRow(in, other, stored); by <= 0 {
			other = stored
		}
		i.mergeState(in.State, by)
	}
	i.displaced = make(map[string]map[string]int64)
	for _, c := range in.RequestedIndexes {
		if i.displaced[c.MessageID] == nil {
			i.displaced[c.MessageID] = make(map[string]int64)
		}
		i.displaced[c.MessageID][c.PartID] = c.RequestedIndex
	}
	i.takeBack(in)
	for k := range in.Messages {
		i.message(&in.Messages[k])
	}
	for _, d := range in.Decisions {
		i.merge(&i.result.Decisions, "decision "+d.ID, d.SessionID, func() (bool, error) {
			return i.mergeDecision(&d, imports)
		})
	}
	for _, n := range in.Annotations {
		i.merge(&i.result.Annotations, "annotation "+n.ID, n.SessionID, func() (bool, error) {
			return i.mergeAnnotation(&n)
		})
	}
	for _, trace := range in.Traces {
		i.rows.exec(noteTrace, trace, w.id)
	}
	for _, l := range in.SpanRefs {
		i.merge(&i.result.SpanRefs, "span "+l.SpanID, l.SessionID, func() (bool, error) {
			if l.TraceID != "" {
				i.rows.exec(noteTrace, l.TraceID, w.id)
			}
			changed, _, refused := i.mergeSpan(&l)
			return changed, refused
		})
	}
	if cost := max(0, AddCost(AddCost(before, w.cost), other)); AddCost(cost, -w.row.CostUSD) != 0 {
		w.row.CostUSD, w.dirty = cost, true
	}
	w.cost = 0
	i.finish(by > 0)
	if reported := in.Session.Usage(); in.AsGiven && i.result.Added && w.row.Usage() != reported {
		// That the state has another rollup makes the next change sum it again.
		w.row.SetUsage(reported)
		i.putSession()
	}
}

// putSession stores the session's row, without which nothing of the import can be stored.
func (i *importer) putSession() {
	if refused := i.rows.putSession(i.work.row); refused != nil {
		i.rows.fail(refused)
	}
}

// alone ends the import if the session is to be stored alone and is not; see [Imported.Alone].
func (i *importer) alone(in *Imported) {
	if !in.Alone {
		return
	}
	for _, id := range in.family() {
		if row := i.rows.session(id); row != nil && FromTelemetry(&row.Session) {
			i.rows.fail(ErrReported)
		}
	}
	if len(i.rows.evaluations(in.evaluable())) > 0 {
		i.rows.fail(ErrReported)
	}
}

// evaluable is what of the session an evaluation may name.
func (in *Imported) evaluable() map[string]bool {
	about := map[string]bool{evaluatedSession + in.Session.ID: true}
	for k := range in.Messages {
		trace := session.ParseMessageMetadata([]byte(in.Messages[k].Message.MetadataJSON)).Trace
		about[EvaluationPrefix+ResponsePrefix+trace.ResponseID] = true
		for i := range trace.Steps {
			about[EvaluationPrefix+ResponsePrefix+trace.Steps[i].ResponseID] = true
		}
	}
	return about
}

// family are the session and, where it is to be alone, its parent: telemetry of a session is of its sub-agents, too.
func (in *Imported) family() []string {
	ids := []string{in.Session.ID}
	forked := session.TranscriptTraceOf(in.Session.MetadataJSON).Forked
	if p := in.Session.ParentID; in.Alone && p != nil && *p != in.Session.ID && !forked {
		ids = append(ids, *p)
	}
	return ids
}

// finish draws the consequences in the session and in those that follow it.
func (i *importer) finish(wins bool) {
	w := i.work
	w.recut, w.resum = true, true
	w.redraw = w.redraw || len(w.row.State.Rewinds) > 0 && len(w.touched) > 0
	rows := i.applier.result.Rows
	i.settle(w, nil)
	for k := 0; k < len(i.order); k++ { // forks join the list as they are found
		i.settle(i.order[k], nil)
	}
	i.result.Changed = i.result.Added || wins || i.applier.result.Rows > rows
	if i.result.Changed || i.result.Decisions > 0 || i.result.Annotations > 0 {
		i.rows.touch(w.id)
	}
}

// mergeState merges what another store remembers of the session. by states which of the two rows takes precedence: that
// of the import when it is greater than 0, that of the store when it is less.
func (i *importer) mergeState(in *State, by int) {
	if in == nil {
		return
	}
	w := i.work
	for _, rw := range in.Rewinds {
		w.mergeRewind(rw)
	}
	for column, stamp := range in.Stamps {
		old, known := w.row.State.Stamps[column]
		if known && (by < 0 || by == 0 && stamp.compare(old) <= 0 || stamp == old) {
			continue
		}
		w.row.State.Stamps[column], w.dirty = stamp, true
	}
	if by > 0 && w.row.State.OtherCost != in.OtherCost {
		w.row.State.OtherCost, w.dirty = in.OtherCost, true
	}
	i.mergeFork(w, in.Fork)
}

// mergeRow merges the session's row into the one that is stored and reports whether
// it takes precedence: by is greater than 0 when it does, and 0 when the rows are the same.
// The costs are those that the two rows have beside their messages.
func (i *importer) mergeRow(imported *Imported, cost, storedCost float64) (by int) {
	w, in := i.work, &imported.Session
	old, archived := w.row.Session, w.archived(in.ArchivedAt)
	by = cmp.Or(compareImportedSessions(in, &old), cmp.Compare(math.Round(cost*1e9), math.Round(storedCost*1e9)))
	if g := imported.Grown; g != nil && by < 0 && compareImportedSessions(&g.Before.Session, &old) == 0 {
		by = 1
	}
	if by > 0 {
		w.row.Session = *in
		w.row.CreatedAt, w.row.UpdatedAt = old.CreatedAt, old.UpdatedAt
		w.row.SetUsage(old.Usage()) // summed again in the end
		w.dirty = true
	}
	w.row.ArchivedAt = archived
	w.dirty = w.dirty || !equal(archived, old.ArchivedAt)
	w.bound(in.CreatedAt, in.UpdatedAt)
	if g := imported.Grown; g != nil && g.Before.Session.CreatedAt == old.CreatedAt {
		row, declared := w.bounds() // a fork begins with its first message that is not a copy
		row.From, declared.From = in.CreatedAt, in.CreatedAt
		w.setBounds(row, declared)
	}
	return by
}

// archived is when the session was archived, if an import reports that it was so at a time, or that it was not.
func (w *sessionWork) archived(at *int64) *int64 {
	have := w.row.ArchivedAt
	switch stamp, declared := w.row.State.Stamps["archived_at"]; {
	case at == nil || have != nil && *have >= *at:
		return have
	case have == nil && declared && *at <= stamp.At/1e6:
		return nil // taken back since
	}
	return at
}

// compareImportedSessions orders two versions of a session's row: the later, the one that knows more, the greater.
func compareImportedSessions(s, o *session.Session) int {
	return cmp.Or(
		cmp.Compare(s.UpdatedAt, o.UpdatedAt),
		compareBools(s.ParentMessageID != nil, o.ParentMessageID != nil),
		compareBools(s.Title != session.Untitled, o.Title != session.Untitled),
		compareGrown(s.MetadataJSON, o.MetadataJSON),
		bytes.Compare(ownColumns(*s), ownColumns(*o)))
}

// ownColumns is the row without what follows from its messages or is merged by itself.
func ownColumns(s session.Session) []byte {
	s.SetUsage(session.Usage{})
	s.CostUSD, s.CreatedAt, s.UpdatedAt, s.ArchivedAt = 0, 0, 0, nil
	return s.AppendJSON(nil)
}

// costs sums the costs of the messages that are stored.
func (i *importer) costs() float64 {
	if i.work.isNew {
		return 0
	}
	sum := 0.0
	for _, m := range i.rows.messagesFrom(i.work.id, Position{}) {
		sum = AddCost(sum, messageCost(&m))
	}
	return sum
}

// otherCost is the cost that the session's row has beside the messages that it came with.
func otherCost(in *Imported) float64 {
	cost := in.Session.CostUSD
	if in.Grown != nil {
		cost = AddCost(cost, -in.Grown.CostUSD)
	}
	for k := range in.Messages {
		cost = AddCost(cost, -messageCost(&in.Messages[k].Message))
	}
	return cost
}

func messageCost(m *session.Message) float64 {
	if m.Role != session.RoleAssistant {
		return 0
	}
	_, cost := session.UsageOf(m.MetadataJSON)
	return cost
}

// stored counts a row that was stored, and notes one that was refused.
func (i *importer) stored(counter *int, changed bool, refused error, where string) {
	switch {
	case refused != nil:
		i.refuse(where, refused)
	case changed:
		*counter++
	case counter != &i.result.SpanRefs && counter != &i.result.Annotations:
		i.result.Unchanged++
	}
}

// merge merges a row of the session. One that names another is left out.
func (i *importer) merge(counter *int, where, sessionID string, merge func() (changed bool, refused error)) {
	if sessionID != i.work.id {
		i.refuse(where, refuse("it names session %q; it is left out", sessionID))
		return
	}
	changed, refused := merge()
	i.stored(counter, changed, refused, where)
}

func (i *importer) refuse(where string, reason error) {
	i.result.Refused = append(i.result.Refused, Refusal{where, reason.Error()})
}

func (i *importer) message(in *session.MessageAndParts) {
	w := i.work
	m := in.Message
	old, known := i.rows.withParts(m.ID)
	where := "message " + m.ID
	if old != nil && old.SessionID != w.id {
		i.refuse(where, refuse("its id belongs to session %s; it is left out with its parts", old.SessionID))
		return
	}
	m.MetadataJSON = MarkGap(m.MetadataJSON, false) // it shows again in the end, if there still is one
	hidden := w.hiddenAt(&m, i.rows, 0)
	if hidden != nil || m.HiddenAt != nil && w.hides(*m.HiddenAt) {
		m.HiddenAt = hidden
	}
	if old != nil {
		was := *old
		was.MetadataJSON = MarkGap(was.MetadataJSON, false)
		merged := mergeMessage(&was, &m, imports)
		switch gave := i.gave[m.ID]; {
		case gave == nil:
			m = merged
		case !equal(old.HiddenAt, gave.HiddenAt):
			m.HiddenAt = merged.HiddenAt
			fallthrough
		default:
			i.clearParts(w, known, in.Parts)
		}
	} else {
		i.putMessage(w, &m, nil) // parts refer to it; whether they have a gap is known when they are there
	}
	was := cmp.Or(old, new(m))
	i.parts(in, known)
	m.MetadataJSON = MarkGap(m.MetadataJSON, known.hasGap())
	changed := old == nil || !equalMessages(&m, old)
	i.putMessage(w, &m, was)
	i.stored(&i.result.Messages, changed, nil, where)
}

// parts merges the parts of a message.
func (i *importer) parts(in *session.MessageAndParts, m *message) {
	parts := make([]*session.Part, 0, len(in.Parts))
	for _, p := range in.Parts {
		if p.Index < 0 || p.Index > MaxIndex {
			i.refuse("part "+p.ID, refuse("its index %d is not from 0 to %d; it is left out", p.Index, int64(MaxIndex)))
			continue
		}
		parts = append(parts, &p)
	}
	i.mergeParts(i.work, m, parts, i.displaced[in.Message.ID], imports,
		func(p *session.Part, changed bool, refused error) {
			i.stored(&i.result.Parts, changed, refused, "part "+p.ID)
		})
}

// Grown is what is known of a session whose source was read before and grew since. A source that
// grows does not only add: a turn that was open goes on, and a record that was last may mean
// something else with the next. So the messages of the import replace those that the store has.
type Grown struct {
	// Before are the rows that the source gave, of messages without their parts and metadata. The row of the session, and
	// whether a message is hidden, is merged only if something else has changed it since. A message that is not in the
	// import is deleted.
	Before *session.Transcript
	// Partly reports that neither Before nor the import has the messages that are in both as they were. CostUSD is
	// their cost.
	Partly  bool
	CostUSD float64
}

// GrewFrom notes what the source gave before, which it changes. If partly is set, it leaves out the messages and
// decisions that are as they were.
func (in *Imported) GrewFrom(before *Imported, partly bool) {
	in.Grown = &Grown{Before: before.Transcript, Partly: partly}
	if partly {
		gave := make(map[string]*session.MessageAndParts, len(before.Messages))
		for i := range before.Messages {
			gave[before.Messages[i].Message.ID] = &before.Messages[i]
		}
		same := make(map[string]bool)
		in.Messages = slices.DeleteFunc(in.Messages, func(m session.MessageAndParts) bool {
			if was := gave[m.Message.ID]; was == nil || !reflect.DeepEqual(&m, was) {
				return false
			}
			same[m.Message.ID] = true
			in.Grown.CostUSD = AddCost(in.Grown.CostUSD, messageCost(&m.Message))
			return true
		})
		before.Messages = slices.DeleteFunc(before.Messages, func(m session.MessageAndParts) bool {
			return same[m.Message.ID]
		})
		in.Decisions = slices.DeleteFunc(in.Decisions, func(d Decision) bool {
			return slices.ContainsFunc(before.Decisions, func(was Decision) bool { return reflect.DeepEqual(d, was) })
		})
	}
	for i := range before.Messages {
		before.Messages[i].Parts, before.Messages[i].Message.MetadataJSON = nil, "{}"
	}
}

// takeBack deletes the messages that the source gave before and gives no more, and notes the others.
func (i *importer) takeBack(in *Imported) {
	if in.Grown == nil {
		return
	}
	has := make(map[string]bool)
	for k := range in.Messages {
		has[in.Messages[k].Message.ID] = true
	}
	i.gave = make(map[string]*session.Message)
	for k := range in.Grown.Before.Messages {
		m := &in.Grown.Before.Messages[k].Message
		if i.gave[m.ID] = m; !has[m.ID] && i.rows.message(m.ID) != nil {
			i.dropMessage(i.work, m.ID)
			i.result.Messages++
		}
	}
}

// ImportSource is a file that sessions were imported from, or a directory that is one input, as it
// was then. By it the next import knows what it need not read again.
type ImportSource struct {
	// Path is absolute.
	Path string `column:"path"`
	// Format is that of the file, "" if import does not know it. Reading is what the result
	// depends on beside the file: the options of the import, and what the program can read.
	Format  string `column:"format,omitempty"`
	Reading string `column:"reading"`

	// Device and Inode are those of the file, 0 where the system has none; Size and
	// ModifiedNano what it reported of the file before it was read.
	Device       int64 `column:"device"`
	Inode        int64 `column:"inode"`
	Size         int64 `column:"size"`
	ModifiedNano int64 `column:"modified_nano"`
	// Beside is a digest of what the system reports of the other files that were read.
	Beside string `column:"beside,omitempty"`

	// ReadTo is how many bytes were read. It differs from Size where the file grew meanwhile.
	// Tail is a digest of the last of them.
	ReadTo int64  `column:"read_to"`
	Tail   string `column:"tail,omitempty"`
	// Resume is always 0.
	Resume int64 `column:"resume_from"`
	// State is, of a database of many sessions, JSON of their versions.
	State []byte `column:"state"`

	// Report counts what was made of the file: JSON of package importer.
	Report string `column:"report_json"`
	// Sessions are the ids of the sessions that the file is a source of. Deleted are those of them
	// that the store does not have, which it knows when it is asked for the source.
	Sessions []string `column:"-"`
	Deleted  []string `column:"-"`
}

// ImportSources is the part of a store that remembers the files which sessions were imported from.
// A source that is part of an [Imported] is recorded by its transaction.
type ImportSources interface {
	// ImportSources returns the sources whose path begins with prefix, by path. They have no State.
	ImportSources(ctx context.Context, prefix string) ([]ImportSource, error)
	// ImportSource returns the whole of the source with the path, or ErrNotFound.
	ImportSource(ctx context.Context, path string) (ImportSource, error)
	// RecordSources replaces the sources with the same paths, in one transaction.
	RecordSources(ctx context.Context, sources ...*ImportSource) error
}

// RecordSources is [ImportSources.RecordSources] in a transaction of any engine.
func RecordSources(tx Tx, sources ...*ImportSource) error {
	return tx.Do(func(s Statements) {
		for _, source := range sources {
			putSource(source)(s)
		}
	})
}
