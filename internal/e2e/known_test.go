//go:build long

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// restarted is the error of an orphaned call.
const restarted = "aborted by host restart"

// known is what the output of agents reveals about some sessions: what the store may contain, and what it must.
type known struct {
	// versions are the things that were sent. exports has those of the current process,
	// by the number of the export that acknowledges them together.
	exports  map[int64][]*version
	versions []*version
	// generated is the length of the generated text by tag.
	generated map[string]int
	// states are those that the host saved.
	states []agenttrace.State
}

// version is one report of something, in the order of reports.
type version struct {
	reported
	acknowledged bool
}

func newKnown() *known { return &known{generated: make(map[string]int)} }

// begins starts the output of another process.
func (k *known) begins() { k.exports = make(map[int64][]*version) }

func (k *known) read(l line) {
	switch l.Kind {
	case lineReported:
		for _, t := range l.Reports {
			v := &version{reported: t}
			k.exports[l.N] = append(k.exports[l.N], v)
			k.versions = append(k.versions, v)
		}
	case lineAcknowledged:
		for _, v := range k.exports[l.N] {
			v.acknowledged = true
		}
	case lineRecorded:
		k.generated[l.Tag] = max(k.generated[l.Tag], l.Size)
	case lineState:
		k.states = append(k.states, *l.State)
	}
}

// by groups the reports by the key of what they describe; those with the key "" are left out.
func (k *known) by(key func(*version) string) map[string][]*version {
	groups := make(map[string][]*version)
	for _, v := range k.versions {
		if id := key(v); id != "" {
			groups[id] = append(groups[id], v)
		}
	}
	return groups
}

func acknowledged(v *version) bool { return v.acknowledged }

// sessions returns the ids of all reported sessions.
func (k *known) sessions() []string {
	return slices.Sorted(maps.Keys(k.by(func(v *version) string { return v.Session })))
}

// check compares the store with what is known. It may run while the last export is still in progress.
//
// It returns the number of sessions that would count as interrupted.
func (k *known) check(t *testing.T, r store.Reader) (interrupted int) {
	t.Helper()
	stored := make(map[string]*session.Transcript)
	for _, id := range k.sessions() {
		if tr := transcript(t, r, id); tr != nil {
			stored[id] = tr
		}
	}
	interrupted = k.checkSessions(t, stored)
	k.checkMessages(t, stored)
	k.checkParts(t, stored)
	if t.Failed() {
		t.FailNow()
	}
	return interrupted
}

// transcript reads a session, or returns nil if there is none. The session must be valid.
func transcript(t *testing.T, r store.Reader, id string) *session.Transcript {
	t.Helper()
	if _, err := r.Session(t.Context(), id); errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	tr := storetest.Transcript(t, r, id)
	for _, v := range session.Check(tr) {
		t.Errorf("session %s: %v", id, v)
	}
	return tr
}

// traceOf returns the turn's metadata in a message.
func traceOf(t *testing.T, m *session.Message) session.MessageTrace {
	t.Helper()
	var metadata session.MessageMetadata
	if err := json.Unmarshal([]byte(m.MetadataJSON), &metadata); err != nil {
		t.Error(err)
	}
	return metadata.Trace
}

// checkSessions checks that a session with something acknowledged is in the store, with
// the status that its agent reported last.
func (k *known) checkSessions(t *testing.T, stored map[string]*session.Transcript) (interrupted int) {
	t.Helper()
	for id, versions := range k.by(func(v *version) string { return v.Session }) {
		tr := stored[id]
		if tr == nil {
			if slices.ContainsFunc(versions, acknowledged) {
				t.Errorf("session %s was acknowledged and is not in the store", id)
			}
			continue
		}
		var may []string
		over := false
		for _, v := range versions {
			over = over || v.Span == semconv.SpanSessionRun
			if v.Status == "" {
				continue
			}
			if v.acknowledged {
				may = may[:0]
			}
			may = append(may, v.Status)
		}
		if over {
			may = append(may, semconv.StatusIdle)
		}
		var metadata struct{ Status struct{ State string } }
		if err := json.Unmarshal([]byte(tr.Session.MetadataJSON), &metadata); err != nil {
			t.Error(err)
		}
		if got := metadata.Status.State; len(may) > 0 && got != "" && !slices.Contains(may, got) ||
			got == "" && slices.ContainsFunc(versions, func(v *version) bool {
				return v.Status != "" && v.acknowledged
			}) {
			t.Errorf("session %s is %q; its agent reported %q", id, got, may)
		}
		if checkSilence(t, tr) {
			interrupted++
		}
	}
	return interrupted
}

// checkSilence checks that a busy session counts as interrupted after the idle timeout and not before; any other keeps
// its status. An agent with a heartbeat may miss three, and sends them while a person is asked, too.
func checkSilence(t *testing.T, tr *session.Transcript) (interrupted bool) {
	t.Helper()
	const idle = time.Minute
	ever := document.StatusOf(&tr.Session, tr, nil, time.Time{}, 0)
	limit := idle
	if ever.Heartbeat > 0 {
		limit = min(limit, 3*time.Duration(ever.Heartbeat)*time.Millisecond)
	}
	lastSeen := time.UnixMilli(max(tr.Session.UpdatedAt, ever.Since))
	soon := document.StatusOf(&tr.Session, tr, nil, lastSeen.Add(limit), idle)
	late := document.StatusOf(&tr.Session, tr, nil, lastSeen.Add(limit+time.Second), idle)
	want := ever.State
	if want == document.ActivityBusy || want == document.ActivityRetrying || want.Waiting() && ever.Heartbeat > 0 {
		want = document.ActivityInterrupted
	}
	if soon.State != ever.State || late.State != want || want == document.ActivityInterrupted &&
		late.Was != ever.State {
		t.Errorf("session %s is %s and, when idle for longer, %s (was %q); want %s", tr.Session.ID, soon.State,
			late.State,
			late.Was, want)
	}
	return want == document.ActivityInterrupted
}

// checkMessages checks that only reported messages are in the store, and all acknowledged
// ones, that each question has at most one answer, and that no end is invented.
func (k *known) checkMessages(t *testing.T, stored map[string]*session.Transcript) {
	t.Helper()
	messages := k.by(func(v *version) string { return v.Message })
	found := make(map[string]bool)
	for id, tr := range stored {
		answers := 0
		for _, m := range tr.Messages {
			id := id + " " + m.Message.ID
			found[m.Message.ID] = true
			versions := messages[m.Message.ID]
			if len(versions) == 0 {
				t.Errorf("message %s was never reported", id)
				continue
			}
			if role := versions[0].Role; m.Message.Role != role {
				t.Errorf("message %s is the %s's, want the %s's", id, m.Message.Role, role)
			}
			if answers++; m.Message.Role == session.RoleUser {
				answers = 0
			}
			if answers > 1 {
				t.Errorf("message %s is a second answer to one question", id)
			}
			trace := traceOf(t, &m.Message)
			var may []string
			must := false
			for _, v := range versions {
				if v.EndReason != "" {
					may = append(may, v.EndReason)
					must = must || v.acknowledged
				}
			}
			end := trace.EndReason
			if end == semconv.EndAbort && trace.Error == semconv.AbortedByRestart && !must &&
				k.wentOn(tr.Session.ID, m.Message.ID) {
				may = append(may, end) // its process died, and another one started the next turn
			}
			if end != "" && !slices.Contains(may, end) || end == "" && must {
				t.Errorf("message %s ended %q; its agent reported %q", id, end, may)
			}
			if spoken := slices.ContainsFunc(versions, func(v *version) bool {
				return v.Span == semconv.SpanSessionTurn
			}); !spoken && !trace.Incomplete {
				t.Errorf("message %s counts as whole: %s", id, m.Message.MetadataJSON)
			}
		}
	}
	for id, versions := range messages {
		if !found[id] && slices.ContainsFunc(versions, acknowledged) {
			t.Errorf("message %s of session %s was acknowledged and is not in the store", id, versions[0].Session)
		}
	}
}

// wentOn reports whether a later answer of the session was reported.
func (k *known) wentOn(id, message string) bool {
	own := slices.IndexFunc(k.versions, func(v *version) bool { return v.Message == message })
	return slices.ContainsFunc(k.versions[own+1:], func(v *version) bool {
		return v.Session == id && v.Role == session.RoleAssistant && v.Message != message && v.Message > message
	})
}

// checkParts checks that each part is as it was last reported, or later if an export was
// still in progress, that no text was invented, and that nothing is there twice.
func (k *known) checkParts(t *testing.T, stored map[string]*session.Transcript) {
	t.Helper()
	parts := k.by(func(v *version) string { return v.Part })
	found := make(map[string]bool)
	twice := make(map[string]string)
	for id, tr := range stored {
		for _, m := range tr.Messages {
			for _, p := range m.Parts {
				found[p.ID] = true
				where := fmt.Sprintf("session %s, message %s, part %s (%s)", id, m.Message.ID, p.ID, p.Type)
				if p.Type == session.TypeUnfinished {
					k.checkUnfinished(t, where, m.Message.ID, p.DataJSON)
					continue
				}
				if p.Type == session.TypeError {
					k.checkError(t, where, &m.Message, p.DataJSON)
					continue
				}
				versions := parts[p.ID]
				if len(versions) == 0 {
					t.Errorf("%s was never reported: %s", where, p.DataJSON)
					continue
				}
				got := contentOf(seenData(t, where, &m.Message, p.DataJSON))
				if v := versions[0]; v.Session != id || v.Message != m.Message.ID || v.Type != p.Type {
					t.Errorf("%s is at the wrong place; want session %s, message %s, %s", where, v.Session, v.Message,
						v.Type)
				}
				if !slices.ContainsFunc(versions, func(v *version) bool { return v.content == got }) {
					t.Errorf("%s holds what was never reported: %s", where, p.DataJSON)
				}
				for _, v := range versions {
					if v.acknowledged && (order(v.content) > order(got) || len(v.Text) > len(got.Text)) {
						t.Errorf("%s\nholds less than was acknowledged:\n%s\n%+v", where, p.DataJSON, v.reported)
					}
				}
				key := got.Call
				if tag, isSpeech := tagOf(got.Text); isSpeech {
					key = tag
					if whole := speech(tag, 100); len(got.Text) > k.generated[tag] ||
						!strings.HasPrefix(whole, got.Text) {
						t.Errorf("%s holds what was not generated: %q; generated were %d bytes", where, got.Text,
							k.generated[tag])
					}
				}
				if other := twice[key]; key != "" && other != "" {
					t.Errorf("%q is there twice: %s, and %s", key, where, other)
				}
				twice[key] = where
			}
		}
	}
	for id, versions := range parts {
		if !found[id] && slices.ContainsFunc(versions, acknowledged) {
			t.Errorf("part %s of session %s was acknowledged and is not in the store: %+v", id, versions[0].Session,
				versions[0].content)
		}
	}
}

// checkUnfinished checks that a part without content is in the answer of a turn that some
// process reported as aborted, and claims nothing else.
func (k *known) checkUnfinished(t *testing.T, where, message, data string) {
	t.Helper()
	const want = `{"type":"data-unfinished","data":{"text":"the turn ended before anything was answered"}}`
	if data != want {
		t.Errorf("%s is %s, want %s", where, data, want)
	}
	aborted := func(v *version) bool { return v.Message == message && v.EndReason == semconv.EndAbort }
	if !slices.ContainsFunc(k.versions, aborted) {
		t.Errorf("%s: nobody reported that its turn was aborted", where)
	}
}

// checkError checks that the part for a failed turn has the error that the turn reported.
func (k *known) checkError(t *testing.T, where string, m *session.Message, data string) {
	t.Helper()
	var part struct {
		Data struct {
			Text string `json:"text"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(data), &part); err != nil {
		t.Errorf("%s: %v in %s", where, err, data)
	}
	if want := traceOf(t, m).Error; part.Data.Text == "" || part.Data.Text != want {
		t.Errorf("%s contains %q; its turn ended with %q", where, part.Data.Text, want)
	}
}

// seenData returns the data of a part as it was reported. A call that was open when a
// later process ended its turn has ended as well, and has its state before that.
func seenData(t *testing.T, where string, m *session.Message, data string) []byte {
	t.Helper()
	var part, metadata, ours map[string]json.RawMessage
	if json.Unmarshal([]byte(data), &part) != nil || json.Unmarshal(part["toolMetadata"], &metadata) != nil ||
		json.Unmarshal(metadata["agenttrace"], &ours) != nil || ours["abandoned"] == nil {
		return []byte(data)
	}
	if trace := traceOf(t, m); trace.EndReason != semconv.EndAbort || trace.Error != semconv.AbortedByRestart {
		t.Errorf("%s was given up, and its turn was not: %s", where, m.MetadataJSON)
	}
	var was string
	if err := json.Unmarshal(ours["abandoned"], &was); err != nil {
		t.Errorf("%s: %v in %s", where, err, data)
	}
	return []byte(was)
}

// tagOf returns the tag of a text that an agent generated.
func tagOf(text string) (tag string, ok bool) {
	tag, _, ok = strings.Cut(strings.TrimPrefix(text, "["), "]")
	return tag, ok && strings.HasPrefix(text, "[")
}

// order returns how far a tool call has come. An end that a later process assumed ranks
// below an end that was observed. Observed ends rank equal: a host that resumes from a
// state before a call was approved may have it approved again, and run.
func order(c content) int {
	n := 2 * min(session.StateRank(c.State), session.StateRank(session.StateOutputAvailable))
	if c.State == session.StateOutputError && c.Error == restarted {
		n = 2*session.StateRank(session.StateApprovalResponded) + 1
	}
	return n
}

// checkResumed checks that everything that was open in the resumed states has ended: calls have failed, except those
// that wait or whose end was observed; turns are aborted or pending; and the sessions are idle or wait.
func (k *known) checkResumed(t *testing.T, r store.Reader, states []agenttrace.State,
	statuses map[string]string) (orphans,
	waits int) {
	t.Helper()
	for _, state := range states {
		if len(state.Open) == 0 {
			continue
		}
		tr := transcript(t, r, state.ID)
		if tr == nil {
			t.Fatalf("session %s was taken up and is not in the store", state.ID)
		}
		calls := make(map[string]content)
		ends := make(map[string]string)
		for _, m := range tr.Messages {
			trace := traceOf(t, &m.Message)
			ends[m.Message.ID] = trace.EndReason
			for _, p := range m.Parts {
				if c := contentOf([]byte(p.DataJSON)); c.Call != "" {
					calls[c.Call] = c
				}
			}
		}
		waiting := false
		for _, turn := range state.Open {
			if ends[turn.AssistantMessageID] == "" {
				t.Errorf("session %s: turn %d goes on in message %s", state.ID, turn.Index, turn.AssistantMessageID)
			}
			for _, c := range turn.Tools {
				got := calls[c.CallID]
				switch waited := c.State == "" || c.State == session.StateApprovalRequested || c.AsksUser; {
				case waited:
					waiting = true
					waits++
					if order(got) < order(content{State: c.State}) || got.Error == restarted && !k.givenUp(c.CallID) {
						t.Errorf("session %s: call %s waits; it is %+v", state.ID, c.CallID, got)
					}
				case got.Error == restarted && got.State == session.StateOutputError:
					orphans++
				case !k.seenToEnd(c.CallID):
					t.Errorf("session %s: call %s is orphaned; it is %+v", state.ID, c.CallID, got)
				}
			}
		}
		want := string(document.ActivityIdle)
		if waiting {
			want = statuses[state.ID]
		}
		if !waiting && statuses[state.ID] != want || waiting && !document.Activity(want).Waiting() {
			t.Errorf("session %s is %s, its agent reports; calls wait: %v", state.ID, statuses[state.ID], waiting)
		}
		// A state from before the last turn does not have the call that waits there.
		last := tr.Messages[len(tr.Messages)-1].Message.ID
		fresh := slices.ContainsFunc(state.Open, func(p agenttrace.PendingTurn) bool {
			return p.AssistantMessageID == last
		})
		if st := document.StatusOf(&tr.Session, tr, nil, time.Time{}, 0); fresh && string(st.State) != want {
			t.Errorf("session %s is %s; its agent reports %s", state.ID, st.State, want)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return orphans, waits
}

// seenToEnd reports whether a process that observed the end of a call reported it.
func (k *known) seenToEnd(call string) bool {
	return slices.ContainsFunc(k.versions, func(v *version) bool {
		return v.Call == call && session.StateRank(v.State) >= session.StateRank(session.StateOutputAvailable) &&
			v.Error != restarted
	})
}

// givenUp reports whether a restarted host reported a call as orphaned.
func (k *known) givenUp(call string) bool {
	return slices.ContainsFunc(k.versions, func(v *version) bool { return v.Call == call && v.Error == restarted })
}
