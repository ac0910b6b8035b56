package transcripts

import (
	"cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// claudeTranscript is the transcript of a session.
var claudeTranscript rows.Opener[claudeState] = openClaude

// claudeState is what the reader has to know of the records before a checkpoint.
type claudeState struct {
	Builder builderState `json:"builder"`
	claudeKnown
	// Paid is what the last answer cost, and each of the turn that goes on, by its id.
	Paid map[string]float64 `json:"paid,omitempty"`
	// Title is that of the file, Custom and Guessed are those of the session.
	Title   string `json:"title,omitempty"`
	Custom  string `json:"custom,omitempty"`
	Guessed string `json:"guessed,omitempty"`
	// Tip is the last record of the conversation, and Role whose it is; After are the records
	// after it that follow from it. Above is what the beginning follows from, if no record is.
	Tip   string   `json:"tip"`
	Role  string   `json:"role"`
	After []string `json:"after,omitempty"`
	Above string   `json:"above,omitempty"`
}

// claudePlace is a record before which reading can go on.
type claudePlace struct {
	state claudeState
	line  int // 0 for none
	order int // how many records of the tree are before it
}

// before returns the place before a record of a session that is about to be read. It has no line
// where reading cannot go on.
func (d *claude) before(s *claudeSession, line int) claudePlace {
	if len(d.order) != 1 || s.command != nil || s.boundary != nil || len(s.tree.order) == 0 {
		return claudePlace{}
	}
	id := s.b.s.Row.ID
	p := claudePlace{line: line, order: len(s.tree.order), state: claudeState{
		Builder: s.b.state(), claudeKnown: s.claudeKnown, Title: d.title,
		Custom: d.custom[id], Guessed: d.guessed[id],
	}}
	if usd, ok := s.paid[s.Step]; ok {
		p.state.Paid = map[string]float64{s.Step: usd}
	}
	return p
}

// begins notes the place before a record with which the user began a turn.
func (d *claude) begins(said bool, before claudePlace) {
	if said && before.line > 0 && before.state.Builder.Base.Messages > 0 {
		d.order[0].b.settle(&before.state.Builder)
		d.begun = before
	}
}

// goesOn notes the place before a record with which the model begins an answer in the midst of a turn.
func (d *claude) goesOn(before claudePlace) {
	if before.line == 0 {
		return
	}
	s := d.order[0]
	state, ok := s.b.inTurn()
	if !ok {
		return
	}
	before.state.Builder, before.state.Paid = state, make(map[string]float64)
	for id := range state.Turn.BySource {
		if usd, paid := s.paid[id]; paid {
			before.state.Paid[id] = usd
		}
	}
	d.begun = before
}

// Place implements [rows.Grower].
func (d *claude) Place() (any, float64, int) {
	p := &d.begun
	if p.line == 0 || len(d.order) != 1 {
		return nil, 0, 0
	}
	if p.state.Sub != "" {
		return &p.state, p.state.Builder.Settled, p.line
	}
	p.state.Builder.Row.ParentID = d.order[0].b.s.Row.ParentID // which takes the whole file to know
	p.state.Builder.Row.ParentMessageID = d.order[0].b.s.Row.ParentMessageID
	t := &d.order[0].tree
	order := t.order[:p.order]
	answered := t.resumed
	for _, b := range order {
		answered = answered || b.conversation() && b.row.Row.Role == session.RoleAssistant
	}
	if p.state.Above = t.above; !t.resumed {
		p.state.Above = t.missing(d.links)
	}
	if p.state.Above != "" && !answered {
		return nil, 0, 0 // the first answer does not have the mark yet that something is missing
	}
	tip := len(order) - 1
	for tip >= 0 && !order[tip].conversation() {
		tip--
	}
	if tip < 0 || t.byID[order[tip].id] != order[tip] {
		return nil, 0, 0
	}
	p.state.Tip, p.state.Role = order[tip].id, order[tip].row.Row.Role
	follows := map[string]bool{p.state.Tip: true}
	for _, b := range order[tip+1:] {
		if follows[b.parent] {
			follows[b.id] = true
			p.state.After = append(p.state.After, b.id)
		}
	}
	return &p.state, p.state.Builder.Settled, p.line
}

// Lacking implements [rows.Grower].
func (d *claude) Lacking() bool {
	return d.lacks || len(d.order) != 1 || d.order[0].b.lacks || d.order[0].tree.lacks
}

// resumed reports whether only the end of the transcript is read.
func (d *claude) resumed() bool { return len(d.order) > 0 && d.order[0].b.resumed }

// openClaude returns a reader that has a state, nil for the beginning.
func openClaude(_ string, p *claudeState, report func(codec.Problem)) (rows.Grower, error) {
	d := newClaude(report)
	if p == nil {
		return d, nil
	}
	s := &claudeSession{b: resume(&p.Builder), claudeKnown: p.claudeKnown, paid: p.Paid,
		shapes: make(map[string]string)}
	if s.paid == nil {
		s.paid = make(map[string]float64)
	}
	id := s.b.s.Row.ID
	d.bySession[id], d.order = s, []*claudeSession{s}
	if d.title = p.Title; p.Sub != "" {
		return d, nil
	}
	for titles, title := range map[*map[string]string]string{&d.custom: p.Custom, &d.guessed: p.Guessed} {
		if title != "" {
			(*titles)[id] = title
		}
	}
	// The messages of what came before are not known: of the conversation there is its last record.
	tip := &branch{id: p.Tip, row: cmp.Or(s.b.turn, &rows.Message{Row: session.Message{Role: p.Role}}), at: s.b.At}
	s.tree = branches{order: []*branch{tip}, byID: map[string]*branch{p.Tip: tip}, resumed: true, above: p.Above}
	parent := p.Tip
	for _, id := range p.After {
		b := &branch{id: id, parent: parent, at: s.b.At}
		s.tree.order, s.tree.byID[id] = append(s.tree.order, b), b
	}
	return d, nil
}
