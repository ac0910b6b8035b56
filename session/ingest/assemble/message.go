package assemble

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// This file writes the messages of a turn: that of the user, then one of the agent, with all steps of the turn in it.
//
//	step-start is between two steps      text, reasoning, file … of a call's answer, in its order
//	                                     tool-ls at the place where the answer requests it
//	                                     tools that ran without a request that is known, by their time
//	                                     what only the spans above report: the end of the answer
//
// A message without parts is none to the AI SDK, so one of which nothing is known has a part that states why.

// writer writes the parts of one message.
type writer struct {
	store.AssembledMessage
	turn  *turn
	began int64   // in Unix nanoseconds
	tools []*tool // those of the turn, in order of time
	// results are what the turn's requests report as results of calls, by [resultKey].
	results map[string][]*fact.Part
	seen    map[string]int // counts keys that part ids are made from, and the calls and results with an id
	texts   []string       // that were written so far, which roots repeat
	// steps counts the calls that left parts.
	steps int
	// mute reports that a call reported nothing of its answer: an answer that only a root has may be that call's, and
	// then no call was lost.
	mute bool
}

// newWriter begins a message at a time. turn is nil for one that is part of none.
func newWriter(t *turn, sessionID, id, role string, at int64) *writer {
	w := &writer{turn: t, seen: make(map[string]int)}
	w.ID, w.SessionID, w.Role, w.CreatedAt, w.UpdatedAt = id, sessionID, role, at/1e6, at/1e6
	w.MetadataJSON = "{}"
	return w
}

// reportTurn writes the turn's messages.
func (a *assembly) reportTurn(t *turn) {
	asker := a.reportUser(t)
	calls, lost := t.restore(t.findCalls())
	tools := t.findTools(calls)
	w := t.writer(calls, tools)
	if w == nil {
		if asker != nil { // only the user's message
			asker.place(t.session, t.userID, "")
		}
		return
	}
	w.reportEarlier(calls)
	// Tools that ran between this call and the next are this one's, also where it does not report what it requested.
	for i, c := range calls {
		until := int64(math.MaxInt64)
		if i+1 < len(calls) {
			until = calls[i+1].start
		}
		w.reportCall(c, until)
	}
	for _, x := range tools {
		w.reportTool(x, nil)
	}
	s := t.summarize(calls, w.began)
	s.elsewhere = t.usageElsewhere()
	s.lost = w.reportRoots(calls) || lost
	s.Trace.PendingApproval = slices.ContainsFunc(w.Parts, func(p session.Part) bool {
		return p.ToolState != nil && *p.ToolState == session.StateApprovalRequested
	})
	// Only now, for a root may have the answer that no call has.
	if len(w.Parts) == 0 {
		w.reportAbsence(s)
	}
	w.HiddenAt = t.hidden(fact.ModelCall)
	w.UpdatedAt = max(w.CreatedAt, s.latest/1e6)
	w.MetadataJSON = s.metadata()
	a.decide(w)
	// All facts of the turn are attributed to its answer, also those that added nothing: a span is looked up by its id.
	for _, n := range t.nodes {
		if n.Kind != fact.Prompt {
			n.place(t.session, w.ID, "")
		}
	}
	if asker != nil {
		asker.place(t.session, t.userID, "")
	}
	a.messages = append(a.messages, w.AssembledMessage)
}

// writer begins the assistant's message. It returns nil when there is none yet. The message begins with what is first
// of calls and tools: where the first call was lost, a tool is. It never comes before the user's, whose clock may be
// ahead.
func (t *turn) writer(calls []*call, tools []*tool) *writer {
	began := int64(math.MaxInt64)
	if len(calls) > 0 {
		began = calls[0].start
	}
	if len(tools) > 0 {
		began = min(began, tools[0].start)
	}
	if began == math.MaxInt64 {
		if len(t.roots) == 0 {
			return nil
		}
		began = t.start
	}
	began = max(began, t.userAt)
	w := newWriter(t, t.session, t.messageID(0, "assistant"), session.RoleAssistant, began)
	w.began, w.results, w.tools = began, t.results(), tools
	return w
}

// reportEarlier writes the tools that ran before the first model call that is known of: the one that requested them
// was lost. One that a call requests ran before it only by another clock, and is written with that call.
func (w *writer) reportEarlier(calls []*call) {
	if len(calls) == 0 {
		return
	}
	asked := askedAt(calls)
	for _, x := range w.between(math.MinInt64, calls[0].start) {
		if asked[x.id] == nil {
			w.reportTool(x, nil)
		}
	}
	if len(w.Parts) > 0 {
		w.steps++
	}
}

// instant is the time between two ids that are made from times, in nanoseconds.
const instant = 250

// reportUser writes the user's message, and returns the fact that it was reported from, nil when none reports one.
// What a client wrote in the user's name, such as that a sub-agent is done, is a system message: Qwen Code begins a
// turn with it. Where its chat file has that message as a note, it is not written again.
func (a *assembly) reportUser(t *turn) *node {
	prompts := once(of(t.nodes, fact.Prompt))
	reporter := t.setAsked(prompts)
	if reporter == nil {
		return nil
	}
	at := t.start
	if len(prompts) > 0 && len(t.roots) == 0 {
		at = prompts[0].Start // without a span of the turn, it is when the user wrote it that is known best
	}
	role := session.RoleUser
	if fact.ByClient(t.asked) {
		role = session.RoleSystem
		if a.sessions[t.session].noted(t.asked) {
			for _, n := range prompts {
				n.place(t.session, "", "")
			}
			return nil
		}
	}
	w := newWriter(t, t.session, t.messageID(instant, "user"), role, at)
	w.MetadataJSON, w.HiddenAt = t.userMetadata(reporter), t.hidden(fact.Prompt)
	for i := range t.asked {
		w.reportPart(&t.asked[i], "asked", at, at)
	}
	if len(w.Parts) == 0 {
		// A message without parts is not one to the AI SDK.
		w.absent(session.TypeWithheld, "the prompt was not reported", "asked", at)
	}
	a.reportUnanswered(t, at)
	a.messages = append(a.messages, w.AssembledMessage)
	for _, n := range prompts {
		n.place(t.session, w.ID, "")
	}
	t.userID, t.userAt = w.ID, at
	return reporter
}

// setAsked collects the user's input: of the turn's roots or calls, and of prompts. It returns the fact that reports
// it, or else one that reports that there was a prompt, or nil.
//
//	turn "Fix it" ───────────────────────    user: Fix it
//	   chat …   prompt "And test it"               And test it
//
// A prompt that comes before the work is what a root repeats, with words around it or cut, so it alone counts.
func (t *turn) setAsked(prompts []*node) *node {
	reporter, begun := t.firstAsked()
	if reporter != nil {
		t.takeLiterally(reporter)
	}
	if reporter != nil && (len(prompts) == 0 ||
		begun < prompts[0].Start && !sameWords(reporter.Fact, prompts[0].Fact)) {
		// A prompt that is reported by itself while the work goes on is a further one.
		t.asked = askedBy(reporter.Fact)
	}
	for _, n := range prompts {
		if asked := askedBy(n.Fact); len(asked) > 0 {
			if len(t.asked) == 0 {
				reporter = n
			}
			t.asked = append(t.asked, asked...)
		}
	}
	if len(t.asked) == 0 && reporter != nil {
		t.asked = askedBy(reporter.Fact)
	}
	for _, n := range of(t.nodes, fact.ModelCall) {
		// The root may report the words alone, and the model was given a picture with them.
		asked := askedBy(n.Fact)
		if !has(t.asked, fact.PartFile) && has(asked, fact.PartFile) && textOf(asked) == textOf(t.asked) {
			isWords := func(p fact.Part) bool { return p.Kind != fact.PartFile }
			t.asked = slices.Concat(t.asked, slices.DeleteFunc(asked, isWords))
		}
	}
	switch {
	case len(t.asked) > 0:
		return reporter
	case len(prompts) > 0:
		return prompts[0] // it was withheld
	}
	return nil
}

// userMetadata is that of the user's message: the model that was called, and the id that the source gives the
// message.
func (t *turn) userMetadata(reporter *node) string {
	var about struct {
		Model *session.Model `json:"model,omitempty"`
		Trace struct {
			SourceID string `json:"source_id,omitempty"`
		} `json:"agenttrace,omitzero"`
	}
	for _, n := range of(t.nodes, fact.Turn, fact.ModelCall) {
		if about.Model == nil && n.Model != nil && n.Model.ModelID != "" {
			about.Model = n.Model
		}
	}
	for i := range reporter.Input {
		if m := &reporter.Input[i]; m.Role == "user" {
			about.Trace.SourceID = cmp.Or(m.ID, about.Trace.SourceID)
		}
	}
	return marshal(about)
}

// once leaves out the prompts that a second source reports too, and keeps the account of the transcript, which is
// complete. They are paired one by one, as a user may write "Go on" twice.
func once(prompts []*node) []*node {
	if !slices.ContainsFunc(prompts, func(n *node) bool { return n.Transcript }) {
		return prompts
	}
	// A prompt of the one source takes one of the other. The earlier time of both is kept: the turn begins with it.
	var kept []*node
	taken := make(map[*node]bool) // by a prompt of the other source
	for _, n := range prompts {
		i := slices.IndexFunc(kept, func(o *node) bool {
			return o.Transcript != n.Transcript && !taken[o] &&
				(sameWords(n.Fact, o.Fact) || messageID(n) != "" && messageID(n) == messageID(o))
		})
		switch {
		case i < 0:
			kept = append(kept, n)
		case n.Transcript:
			n.begins = min(n.begins, kept[i].begins)
			kept[i], taken[n] = n, true
		default:
			taken[kept[i]] = true
		}
	}
	return kept
}

// messageID is the id that the source gives the user's message.
func messageID(n *node) string {
	for i := range n.Input {
		if m := &n.Input[i]; m.Role == "user" && m.ID != "" {
			return m.ID
		}
	}
	return ""
}

// reportNotes writes the messages that are not part of a turn, such as what a client adds for the model. One that
// telemetry and the transcript report is written as the transcript has it, which leaves nothing out.
func (a *assembly) reportNotes(s *stream) {
	complete, notes := make(map[string]bool), of(s.nodes, fact.Note)
	for _, n := range notes {
		for i := range n.Input {
			complete[n.Input[i].ID] = complete[n.Input[i].ID] || n.Transcript
		}
	}
	for _, n := range notes {
		for i := range n.Input {
			in := &n.Input[i]
			if in.ID != "" && complete[in.ID] && !n.Transcript {
				n.place(s.id, "", "")
				continue
			}
			id := spans.DeriveIDNano(spans.PrefixMessage, n.Start, s.id, n.Source, strconv.Itoa(i))
			w := newWriter(nil, s.id, id, in.Role, n.Start)
			w.HiddenAt = n.HiddenAt
			for k := range in.Parts {
				w.reportPart(&in.Parts[k], "note", n.Start, n.Start)
			}
			if len(w.Parts) > 0 {
				a.messages = append(a.messages, w.AssembledMessage)
				n.place(s.id, w.ID, w.Parts[0].ID)
			}
		}
	}
}

// noted reports whether a transcript has what a client wrote in the user's name. Both sources report it in words of
// the client's own, so the text alone joins them.
func (s *stream) noted(asked []fact.Part) bool {
	return slices.ContainsFunc(of(s.nodes, fact.Note), func(n *node) bool {
		text := strings.TrimSpace(textOf(fact.PartsOf(n.Input)))
		isText := func(p fact.Part) bool { return strings.TrimSpace(p.Text) == text }
		return n.Transcript && slices.ContainsFunc(asked, isText)
	})
}

// hidden is when the user took the turn back, as the first of its facts of the kind has it. Transcripts alone know of
// that.
func (t *turn) hidden(kind fact.Kind) (at *int64) {
	for _, n := range of(t.nodes, kind) {
		at = cmp.Or(at, n.HiddenAt)
	}
	return at
}

// reportUnanswered writes each earlier message of the user that nothing answered, where only the turn's request
// reports it: ADK sends the prompts of turns that failed once more, before the next one. They are messages of their
// own, a millisecond apart, before the turn's.
func (a *assembly) reportUnanswered(t *turn, at int64) {
	i := slices.IndexFunc(t.nodes, func(n *node) bool { return len(n.Unanswered) > 0 })
	if i < 0 {
		return
	}
	n := t.nodes[i]
	n.place(t.session, "", "")
	// They have no times of their own. A millisecond apart, they are in their order before the message of the turn.
	for i, m := range n.Unanswered {
		before := at - int64(len(n.Unanswered)-i)*1e6
		id := t.messageID(int64(len(n.Unanswered)-i)*1e6, "unanswered")
		w := newWriter(t, t.session, id, session.RoleUser, before)
		for i := range m.Parts {
			w.reportPart(&m.Parts[i], "asked", before, before)
		}
		if len(w.Parts) > 0 {
			a.messages = append(a.messages, w.AssembledMessage)
			n.attribution.Others = append(n.attribution.Others, w.ID)
		}
	}
}

// firstAsked returns the first root, or else model call, that reports what the user wrote, and when the turn's first
// model call began. A root comes first because it has what the user wrote, to which a client adds words for the
// model.
func (t *turn) firstAsked() (reporter *node, begun int64) {
	begun = math.MaxInt64
	for _, n := range of(t.nodes, fact.Turn, fact.ModelCall) {
		if n.Kind == fact.ModelCall {
			begun = min(begun, n.Start)
		}
		if (reporter == nil || reporter.Kind == fact.ModelCall && n.Kind == fact.Turn) && len(askedBy(n.Fact)) > 0 {
			reporter = n
		}
	}
	return reporter, begun
}

// takeLiterally has the user's message be JSON as the user typed it, if a model call was asked just that. A root
// whose input is [{"role":"user","content":"Hi"}] reports a message, or a user who typed that; the call's request has
// the text "Hi" in the one case and the JSON in the other.
func (t *turn) takeLiterally(reporter *node) {
	start, end := fact.UserRun(reporter.Input)
	asked := make(map[string]bool)
	for _, n := range of(t.nodes, fact.ModelCall) {
		for _, p := range askedBy(n.Fact) {
			asked[p.Text] = true
		}
	}
	typed := func(m *fact.Message, literal string) bool { // a client may have words around JSON, and quotes around words
		if asked[literal] || m.Literal == "" || len(asked) > manyRepeated {
			return asked[literal]
		}
		for text := range asked {
			if strings.Contains(text, literal) {
				return true
			}
		}
		return false
	}
	input := slices.Clone(reporter.Input)
	for i, m := range reporter.Input[start:end] {
		if literal := cmp.Or(m.Literal, strconv.Quote(textOf(m.Parts))); typed(&m, literal) {
			input[start+i].Parts = []fact.Part{{Kind: fact.PartText, Text: literal}}
			reporter.Input = input
		}
	}
}

// sameWords reports whether one of two reports of the user's message contains the other, or one of them has no text:
// a client withholds it in its telemetry, and has it in its file.
func sameWords(x, y *fact.Fact) bool {
	a, b := words(x), words(y)
	return strings.Contains(a, b) || strings.Contains(b, a)
}

// reportCall writes the answer of a model call, and the tools that ran before the next. A call that was requested is
// at the place of the request, whenever it ran. A tool that ran and that no answer requests comes after the answer:
// of many clients without content that is all that is known of their tools.
func (w *writer) reportCall(c *call, until int64) {
	w.mute = w.mute || len(c.output) == 0
	parts := len(w.Parts)
	ran := w.ran(c, until)
	if w.steps > 0 {
		w.stepStart(c.start)
	}
	began := len(w.Parts)
	key := "call" // of a call that is known by records alone, or by a later request
	if c.span != nil {
		key = c.span.TraceID + c.span.Source
	}
	for i := range c.output {
		p := &c.output[i]
		switch p.Kind {
		case fact.PartCall:
			x := w.take(p, w.result(p.CallID, p.Name), c.start)
			if x == nil {
				x = &tool{start: c.start, end: c.end}
			}
			w.reportTool(x, p)
		case fact.PartResult:
			// It is built with its call.
		default:
			w.reportPart(p, key, c.start, max(c.start, c.end))
		}
	}
	for _, x := range ran {
		w.reportTool(x, nil)
	}
	if len(w.Parts) == began { // nothing follows the part that begins the step: a reader would see an empty step
		w.Parts = w.Parts[:parts]
	} else {
		w.steps++
	}
	for _, n := range c.nodes {
		if len(w.Parts) > began && n.Kind == fact.Answer {
			n.attribution.PartID = w.Parts[began].ID
		}
	}
}

// reportRoots writes what only the turn's roots report: the answer, where that of the model call was lost or not
// reported. It reports whether one must have been lost.
//
//	agent → "Two files."                     a call with "Two files." was lost, or its content withheld
//	├─ chat → call c1 of ls
//	└─ ls c1
//
// Most roots repeat the last answer or all of them, so what the calls have is left out.
func (w *writer) reportRoots(calls []*call) (lost bool) {
	known := make(map[string]bool)
	for i := range w.Parts {
		if p := &w.Parts[i]; p.ToolCallID != nil {
			known[*p.ToolCallID] = true
		}
	}
	// The roots of the AI SDK, of Genkit and of LangChain repeat the reasoning, in other pieces than the calls have it.
	thought := slices.ContainsFunc(w.Parts, func(p session.Part) bool { return p.Type == fact.PartReasoning })
	// What follows a call that requested a tool is the answer of another call.
	again := len(w.Parts) > 0 && w.Parts[len(w.Parts)-1].ToolCallID != nil
	called := len(calls) > 0
	for _, r := range w.turn.roots {
		for i := range r.Output {
			p := r.Output[i]
			switch p.Kind {
			case fact.PartText:
				if p.Text = unreported(p.Text, w.texts); p.Text == "" {
					continue
				}
				again = again && !w.answered(p.Text)
			case fact.PartReasoning:
				if thought {
					continue
				}
			case fact.PartCall:
				if p.CallID == "" || known[p.CallID] {
					continue
				}
				known[p.CallID] = true
				w.reportTool(&tool{start: r.Start, end: r.End}, &p)
				continue
			case fact.PartResult:
				continue
			default:
				if called { // files and sources are in the answers of the calls
					continue
				}
			}
			if again {
				again, lost = false, called && !w.mute
				w.stepStart(r.End)
			}
			w.reportPart(&p, "root"+r.Source, r.End, r.End)
		}
	}
	return lost
}

// answered reports whether a text is what the model gave the last tool: some agents answer by a call, such as BeeAI's
// final_answer, and then no further call of the model is missing.
func (w *writer) answered(text string) bool {
	var call struct {
		Input map[string]any `json:"input"`
	}
	_ = json.Unmarshal([]byte(w.Parts[len(w.Parts)-1].DataJSON), &call)
	for _, v := range call.Input {
		if s, ok := v.(string); ok && strings.TrimSpace(s) == strings.TrimSpace(text) {
			return true
		}
	}
	return false
}

// reportAbsence writes why the message has no content: the turn failed, the provider blocked the model's answer, it was
// withheld, as most clients do unless they are asked for content, or nothing reports how the turn ended.
func (w *writer) reportAbsence(s *summary) {
	at := max(w.CreatedAt*1e6, s.latest)
	went := func(r *node) bool { return !r.Aborted && !r.Unfinished }
	switch failed := s.failure(); {
	case s.aborted: // somebody stopped it, so it did not fail, whatever a span reports
		w.absent(session.TypeUnfinished, "the turn was aborted", "absent", at)
	case failed != "":
		w.absent(session.TypeError, failed, "absent", at)
	case len(s.calls) > 0 && slices.ContainsFunc(s.last().nodes, (*node).blocked):
		w.absent(session.TypeError, session.BlockedText, "absent", at)
	case s.finished(), len(s.calls) == 0 && slices.ContainsFunc(w.turn.roots, went):
		w.absent(session.TypeWithheld, "the answer was not reported", "absent", at)
	default:
		s.lost = true
		w.absent(session.TypeUnfinished, "the end of the turn was not reported", "absent", at)
	}
}

// blocked reports whether the provider gave no answer, or not all of it.
func (n *node) blocked() bool { return fact.FinishReason(n.Finish) == "content-filter" }

// absent writes a part in the place of content that is missing. Its type is one of ours, so that no reader takes it
// for words of the model.
func (w *writer) absent(partType, why, key string, at int64) {
	w.add(partType, key, at, at, dataPart{partType, session.Absence{Text: why}})
}

func (w *writer) stepStart(at int64) {
	w.add("step-start", "step", at, at, session.UIPart{Type: "step-start"})
}

// add writes a part. Times are Unix nanoseconds. The id is made of what the part was reported by, and not of its
// index: a part that turns up before it, with a span that comes late, does not give it another id.
func (w *writer) add(partType, key string, from, to int64, data any) *session.Part {
	w.seen[key]++
	w.Parts = append(w.Parts, session.Part{
		ID:        spans.DeriveIDNano(spans.PrefixPart, from, w.ID, key, strconv.Itoa(w.seen[key])),
		MessageID: w.ID, SessionID: w.SessionID, Index: int64(len(w.Parts)),
		Type: partType, DataJSON: marshal(data), CreatedAt: from / 1e6, UpdatedAt: max(from, to) / 1e6,
	})
	return &w.Parts[len(w.Parts)-1]
}

// unreported returns what a text adds to what was reported: a root's may be the last answer, or all of them, with
// other blanks between. Of "I look.\nTwo files." only "Two files." is new where a call reported "I look.".
func unreported(text string, written []string) string {
	rest := strings.TrimSpace(text)
	if rest == "" || len(written) == 0 {
		return rest
	}
	// It may be one of the texts, or some of them in a row: of a root it is mostly the last one.
	if slices.ContainsFunc(written, func(given string) bool { return strings.Contains(given, rest) }) ||
		strings.Contains(strings.Join(written, "\n"), rest) {
		return ""
	}
	// It may begin with all of them, and go on with an answer of which nothing else reports.
	all := true
	for _, given := range written {
		cut, begins := strings.CutPrefix(rest, strings.TrimSpace(given))
		if !begins {
			all = false
			break
		}
		rest = strings.TrimSpace(cut)
	}
	if all {
		return rest
	}
	// Some frameworks join the answers with other blanks than they came with, so that they are found without any.
	if strings.Contains(squeeze(text), squeeze(strings.Join(written, ""))) {
		return ""
	}
	return strings.TrimSpace(text)
}
