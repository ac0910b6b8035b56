package document_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// statusSession is a session whose last update is at begin+1000, with a question and an answer of the parts.
func statusSession(metadata, answer string, parts ...string) *session.Transcript {
	t := &session.Transcript{Session: session.Session{
		ID: "ses_1fa2bdc08000YO9dOSXjsMd9kP", Title: "Fix the test", Agent: "coder", PermissionsJSON: "[]",
		MetadataJSON: metadata,
		CreatedAt:    begin, UpdatedAt: begin + 1000,
	}}
	add := func(id, role, metadata string, at int64, parts ...string) {
		m := session.MessageAndParts{Message: session.Message{ID: id, SessionID: t.Session.ID, Role: role,
			MetadataJSON: metadata, CreatedAt: begin + at, UpdatedAt: begin + at + 500}}
		for i, data := range parts {
			var d struct{ Type, ToolCallID, State string }
			if err := json.Unmarshal([]byte(data), &d); err != nil {
				panic(err)
			}
			p := session.Part{ID: id + string(rune('a'+i)), MessageID: id, SessionID: t.Session.ID, Index: int64(i),
				Type: d.Type, DataJSON: data, CreatedAt: begin + at, UpdatedAt: begin + at + 400}
			if d.ToolCallID != "" {
				p.ToolCallID, p.ToolState = &d.ToolCallID, &d.State
			}
			m.Parts = append(m.Parts, p)
		}
		t.Messages = append(t.Messages, m)
	}
	add("msg_1", session.RoleUser, "{}", 0, `{"type":"text","text":"Why does it fail?"}`)
	if answer != "" {
		add("msg_2", session.RoleAssistant, answer, 100, parts...)
	}
	return t
}

const (
	busy       = `{"status":{"state":"busy","at":1795198540700}}`
	incomplete = `{"agenttrace":{"incomplete":true}}`
	finished   = `{"agenttrace":{"end_reason":"finish"}}`
	openCall   = `{"type":"tool-bash","toolCallId":"call_1","state":"input-available",` +
		`"input":{"command":"go test ./..."}}`
	approval = `{"type":"tool-bash","toolCallId":"call_1","state":"approval-requested",` +
		`"input":{"command":"git push"},"approval":{"id":"per_1"}}`
	streaming = `{"type":"text","state":"streaming","text":"It counts"}`
	text      = `{"type":"text","text":"It counts bytes."}`
)

func TestStatusOf(t *testing.T) {
	soon, late := time.UnixMilli(begin+60_000), time.UnixMilli(begin+1000).Add(11*time.Minute)
	for _, c := range []struct {
		name       string
		transcript *session.Transcript
		now        time.Time
		want       document.Activity
		was        document.Activity
		since      int64
		call       string
		rowOnly    document.Activity // what the row alone shows
	}{
		{name: "busy, as it reports", transcript: statusSession(busy, incomplete, openCall), now: soon, want: "busy",
			since:   700,
			rowOnly: "busy"},
		{name: "busy without an update", transcript: statusSession(busy, incomplete, openCall), now: late,
			want: "interrupted",
			was:  "busy", since: 1000, rowOnly: "interrupted"},
		{name: "retrying without an update", transcript: statusSession(
			`{"status":{"state":"retrying","attempt":2,"at":1795198540700}}`, incomplete), now: late,
			want: "interrupted", was: "retrying", since: 1000, rowOnly: "interrupted"},
		{name: "waiting is not interrupted", transcript: statusSession(
			`{"status":{"state":"waiting_on_user_input","detail":"Which?","at":1795198540700}}`, incomplete), now: late,
			want: "waiting_on_user_input", since: 700, rowOnly: "waiting_on_user_input"},
		{name: "no clock, no judgement", transcript: statusSession(busy, incomplete), want: "busy", since: 700,
			rowOnly: "busy"},
		{name: "the run is over and a call waits", transcript: statusSession(`{"status":{"state":"idle",`+
			`"at":1795198541000}}`,
			`{"agenttrace":{"end_reason":"finish","pending_approval":true}}`, approval),
			now: late, want: "waiting_on_approval", since: 500, call: "call_1", rowOnly: "idle"},
		{name: "the run is over and a call asks", transcript: statusSession(`{"status":{"state":"idle",`+
			`"at":1795198541000}}`,
			`{"agenttrace":{"end_reason":"finish","pending_approval":true}}`, openCall),
			now: late, want: "waiting_on_user_input", since: 600, call: "call_1", rowOnly: "idle"},
		{name: "aborted with a call open", transcript: statusSession(`{"status":{"state":"idle","at":1795198541000}}`,
			`{"agenttrace":{"end_reason":"abort"}}`, openCall),
			now: late, want: "idle", since: 1000, rowOnly: "idle"},
		{name: "a word that is none", transcript: statusSession(`{"status":{"state":"dreaming"}}`, finished, text),
			now:  late,
			want: "idle", since: 600},
		{name: "a host's own status", transcript: statusSession(`{"status":"open"}`, finished, text), now: late,
			want:  "idle",
			since: 600},

		{name: "foreign, a call is open", transcript: statusSession(`{}`, incomplete, openCall), now: soon,
			want:  "busy",
			since: 500},
		{name: "foreign, a call is open without an update", transcript: statusSession(`{}`, incomplete, openCall),
			now:  late,
			want: "interrupted", was: "busy", since: 1000},
		{name: "foreign, a call is open in a turn that ended", transcript: statusSession(`{}`, finished, openCall),
			now:  late,
			want: "idle", since: 600},
		{name: "foreign, a call waits", transcript: statusSession(`{}`, incomplete, approval), now: late,
			want: "waiting_on_approval", since: 500, call: "call_1"},
		{name: "foreign, an error at the end", transcript: statusSession(`{}`,
			`{"agenttrace":{"end_reason":"error","error":"quota"}}`, text), now: late, want: "error", since: 600},
		{name: "foreign, the run failed", transcript: statusSession(`{"agenttrace":{"outcome":"error",`+
			`"error":"quota"}}`, "",
			""), now: late, want: "error", since: 500, rowOnly: "error"},
		{name: "foreign, and nothing else", transcript: statusSession(`{}`, finished, text), now: late, want: "idle",
			since: 600},
		{name: "live, a text streams", transcript: statusSession(`{}`, incomplete, streaming), now: soon, want: "busy",
			since: 600},
		{name: "a lost call is not open", transcript: statusSession(`{}`, incomplete,
			`{"type":"tool-bash","toolCallId":"c","state":"input-streaming",`+
				`"toolMetadata":{"agenttrace":{"stub":true,"state":"input-available"}}}`), now: soon, want: "idle",
			since: 600},
	} {
		st := document.StatusOf(&c.transcript.Session, c.transcript, nil, c.now, document.DefaultIdleTimeout)
		if st.State != c.want || st.Was != c.was || st.Since != begin+c.since || st.ToolCallID != c.call {
			t.Errorf("%s: %q, was %q, since %d, call %q; want %q, %q, %d, %q", c.name, st.State, st.Was, st.Since-begin,
				st.ToolCallID, c.want, c.was, c.since, c.call)
		}
		row := document.StatusOf(&c.transcript.Session, nil, nil, c.now, document.DefaultIdleTimeout)
		if row.State != c.rowOnly {
			t.Errorf("%s: the row alone shows %q, want %q", c.name, row.State, c.rowOnly)
		}
	}
}

// TestFollower: what is read twice is reported once, what shrinks is reported again, what a rewind hides is reported.
func TestFollower(t *testing.T) {
	var f document.Follower
	now := time.UnixMilli(begin + 2000)
	events := func(tr *session.Transcript) string {
		var all []string
		for _, n := range f.Read(tr, nil, now) {
			what := n.Event
			if n.Event == document.NewsText {
				what += " " + n.Delta
				if n.Replaced {
					what += " again"
				}
			}
			all = append(all, what)
		}
		return strings.Join(all, ", ")
	}
	hidden := statusSession(busy, finished, `{"type":"text","text":"It counts bytes."}`)
	at := int64(begin + 900)
	hidden.Messages[1].Message.HiddenAt = &at
	for _, step := range []struct {
		transcript *session.Transcript
		want       string
	}{
		{statusSession(busy, incomplete, streaming),
			"session, message, text Why does it fail?, message, text It counts, status"},
		{statusSession(busy, incomplete, streaming), ""},
		{statusSession(busy, incomplete, `{"type":"text","state":"streaming","text":"It counts bytes"}`),
			"text  bytes"},
		{statusSession(busy, incomplete, `{"type":"text","state":"streaming","text":"Well"}`), "text Well again"},
		{statusSession(busy, incomplete, text), "text It counts bytes. again"},
		{statusSession(busy, finished, text), "message_end"},
		{hidden, "message_hidden"},
		{statusSession(busy, finished, text), "message_shown"},
	} {
		if got := events(step.transcript); got != step.want {
			t.Errorf("news are %q, want %q", got, step.want)
		}
	}
	if news := f.Idle(now.Add(time.Hour)); len(news) != 0 {
		t.Errorf("without an idle timeout no session is interrupted: %v", news)
	}
	f.IdleTimeout = time.Minute
	if news := f.Idle(now.Add(time.Hour)); len(news) != 1 || news[0].Status.State != document.ActivityInterrupted {
		t.Errorf("without an update: %v", news)
	}
	if news := f.Idle(now.Add(time.Hour)); len(news) != 0 {
		t.Errorf("it is reported twice: %v", news)
	}
	if gone := f.Prune(nil); len(gone) != 1 {
		t.Errorf("pruned %v, want the one session", gone)
	}
}

// TestReadersAgreeOnWhatIsInterrupted: status, ls and tail show the same of a
// session at every moment, whether its agent has a heartbeat or not.
func TestReadersAgreeOnWhatIsInterrupted(t *testing.T) {
	const heartbeat = `{"status":{"state":"busy","at":1795198540700,"heartbeat":15000}}`
	for _, c := range []struct {
		name, metadata string
		// lost is how long after its last update it counts as interrupted.
		lost time.Duration
	}{
		{"heartbeat", heartbeat, 45 * time.Second},
		{"no heartbeat", busy, 10 * time.Minute},
		{"waits in its process",
			`{"status":{"state":"waiting_on_approval","at":1795198540700,"tool_call_id":"call_1","heartbeat":15000}}`,
			45 * time.Second},
		{"waits without one", `{"status":{"state":"waiting_on_approval","at":1795198540700,"tool_call_id":"call_1"}}`,
			1000 * time.Hour},
		{"absurd heartbeat", `{"status":{"state":"busy","at":1795198540700,"heartbeat":9e15}}`, 10 * time.Minute},
		{"negative heartbeat", `{"status":{"state":"busy","at":1795198540700,"heartbeat":-1}}`, 10 * time.Minute},
	} {
		transcript := statusSession(c.metadata, incomplete, openCall)
		lastSeen := time.UnixMilli(transcript.Session.UpdatedAt)
		follower := document.Follower{IdleTimeout: document.DefaultIdleTimeout}
		tail := func(news []document.News) (last document.Activity) {
			for _, n := range news {
				if n.Status != nil {
					last = n.Status.State
				}
			}
			return last
		}
		shown := tail(follower.Read(transcript, nil, lastSeen))
		for _, age := range []time.Duration{0, 30 * time.Second, 44 * time.Second, 46 * time.Second, 5 * time.Minute,
			11 * time.Minute, time.Hour} {
			now := lastSeen.Add(age)
			full := document.StatusOf(&transcript.Session, transcript, nil, now, document.DefaultIdleTimeout)
			row := document.NewItem(&transcript.Session, nil, new(store.Spent), now, document.DefaultIdleTimeout).Status
			if state := tail(follower.Idle(now)); state != "" {
				shown = state
			}
			if want := age > c.lost; (full.State == document.ActivityInterrupted) != want || row != full.State ||
				shown != full.State {
				t.Errorf("%s, %s after the last news: status %s, ls %s, tail %s, want interrupted %t", c.name, age,
					full.State, row,
					shown, want)
			}
		}
		// It has an update: all show that.
		transcript.Session.UpdatedAt += time.Hour.Milliseconds()
		now := lastSeen.Add(time.Hour + time.Second)
		if state := tail(follower.Read(transcript, nil, now)); state != "" {
			shown = state
		}
		full := document.StatusOf(&transcript.Session, transcript, nil, now, document.DefaultIdleTimeout)
		if full.State == document.ActivityInterrupted || shown != full.State {
			t.Errorf("%s, with an update: status %s, tail %s", c.name, full.State, shown)
		}
	}
}
