package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// tailEpoch is when the sessions of these tests begin, Unix milliseconds.
const tailEpoch = 1795198540000

// agent writes a session as its events would.
type agent struct {
	t     *testing.T
	store *sqlite.Store
	id    string
	at    int64
}

func (a *agent) apply(b store.Batch) {
	a.t.Helper()
	a.at += 1000
	b.Sessions = append(b.Sessions, store.SessionChange{ID: a.id, Start: tailEpoch + a.at, End: tailEpoch + a.at})
	r, err := a.store.Apply(a.t.Context(), &b)
	if err != nil || r.Refused > 0 {
		a.t.Fatalf("apply: %v, %+v", err, r)
	}
}

func (a *agent) begin(title string) {
	said := &store.Value{Text: title, At: tailEpoch * 1e6, Rank: store.RankLive}
	name := &store.Value{Text: "coder", At: tailEpoch * 1e6, Rank: store.RankLive}
	a.apply(store.Batch{Sessions: []store.SessionChange{
		{ID: a.id, Title: said, Agent: name, Start: tailEpoch, End: tailEpoch}}})
}

func (a *agent) says(state, more string) {
	text := `{"state":"` + state + `"` + more + `,"at":` + strconv.FormatInt(tailEpoch+a.at+1000, 10) + `}`
	a.apply(store.Batch{Sessions: []store.SessionChange{{ID: a.id, Metadata: map[string]store.Value{
		"status": {Text: text, At: (tailEpoch + a.at + 1000) * 1e6, Rank: store.RankFinal}}}}})
}

func (a *agent) part(role, message string, index int64, data string) {
	var head struct {
		Type       string `json:"type"`
		ToolCallID string `json:"toolCallId"`
		State      string `json:"state"`
	}
	if err := json.Unmarshal([]byte(data), &head); err != nil {
		a.t.Fatal(err)
	}
	rank := store.RankFinal
	if store.PartRank(data) == store.RankLive {
		rank = store.RankLive
	}
	p := store.PartChange{
		ID: message + string(rune('a'+index)), MessageID: message, SessionID: a.id, Index: index, Type: head.Type,
		Data:      json.RawMessage(data),
		CreatedAt: tailEpoch + a.at, UpdatedAt: tailEpoch + a.at, Rank: rank,
	}
	if head.ToolCallID != "" {
		p.ToolCallID, p.ToolState = head.ToolCallID, head.State
	}
	a.apply(store.Batch{
		Messages: []store.MessageChange{{ID: message, SessionID: a.id, Role: role, CreatedAt: tailEpoch + a.at,
			UpdatedAt: tailEpoch + a.at, Rank: store.RankLive}},
		Parts: []store.PartChange{p},
	})
}

const liveMark = `"toolMetadata":{"agenttrace":{"live":true}},"providerMetadata":{"agenttrace":{"live":true}}`

// turn is a turn in steps, each of which is one commit.
func (a *agent) turn(n string, short bool) []func() {
	user, answer := a.id+"u"+n, a.id+"v"+n
	steps := []func(){
		func() { a.says("busy", "") },
		func() { a.part(session.RoleUser, user, 0, `{"type":"text","text":"Why does the test fail?"}`) },
		func() {
			a.part(session.RoleAssistant, answer, 0, `{"type":"text",`+liveMark+
				`,"state":"streaming","text":"I will look at what the test prints, and then at the fun"}`)
		},
		func() {
			a.part(session.RoleAssistant, answer, 0, `{"type":"text",`+liveMark+
				`,"state":"streaming","text":"I will look at what the test prints,`+
				` and then at the function that it calls. \u001b[31mRed\u001b[0m"}`)
		},
		func() {
			a.part(session.RoleAssistant, answer, 1, `{"type":"tool-bash",`+liveMark+
				`,"toolCallId":"call_1","state":"input-available","input":{"command":"go test ./..."}}`)
		},
	}
	if short {
		return steps
	}
	return append(steps,
		func() { a.says("retrying", `,"attempt":2,"detail":"overloaded"`) },
		func() {
			a.part(session.RoleAssistant, answer, 1,
				`{"type":"tool-bash","toolCallId":"call_1","state":"output-available",`+
					`"input":{"command":"go test ./..."},"output":"FAIL",`+
					`"toolMetadata":{"agenttrace":{"duration_ms":1200}}}`)
		},
		func() {
			a.part(session.RoleAssistant, answer, 0,
				`{"type":"text","text":"I will look at what the test prints,`+
					` and then at the function that it calls. \u001b[31mRed\u001b[0m it is."}`)
		},
		func() {
			duration := int64(9000)
			a.apply(store.Batch{SpanRefs: []store.SpanRef{{
				TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902" + n + n, SessionID: a.id,
				MessageID: answer,
				Kind:      "session.turn", Dialect: "agenttrace",
				StartNano: tailEpoch * 1e6, EndNano: (tailEpoch + a.at) * 1e6,
				TurnStats: &store.TurnStats{Usage: &session.Usage{Input: 100, Output: 20},
					Trace: session.MessageTrace{EndReason: "finish", DurationMS: &duration}},
			}}})
		},
		func() { a.says("idle", "") },
	)
}

// screen is written by a tail while the test reads it.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *screen) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *screen) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// tailing is a tail under test. Its clock stands where the test puts it.
type tailing struct {
	t      *testing.T
	out    screen
	notice screen
	clock  atomic.Int64 // Unix milliseconds
	ticks  chan time.Time
	done   chan error
	stop   context.CancelFunc
}

func startTail(t *testing.T, path, name string, width int) *tailing {
	return startTailAt(t, tailEpoch+60_000, path, name, width)
}

func startTailAt(t *testing.T, now int64, path, name string, width int) *tailing {
	t.Helper()
	x := &tailing{t: t, ticks: make(chan time.Time), done: make(chan error, 1)}
	x.clock.Store(now)
	printer := render.NewNewsPrinter(render.Options{Width: width, Now: time.UnixMilli(now)})
	o := tailer{store: stores.Follow(path), storeName: path, name: name, turns: 1, print: printNews(&x.out, printer),
		waits: func(name string) { fmt.Fprintf(&x.notice, "waiting for a session store at %s\n", name) },
		now:   func() time.Time { return time.UnixMilli(x.clock.Load()) }}
	o.follower.IdleTimeout = document.DefaultIdleTimeout
	ctx, cancel := context.WithCancel(t.Context())
	x.stop = cancel
	go func() { x.done <- errors.Join(o.follow(ctx, x.ticks), o.store.Close()) }()
	x.tick()
	return x
}

// tick has the tail look again, and returns when it has: it takes the second tick when it is through with the first.
func (x *tailing) tick() {
	x.t.Helper()
	for range 2 {
		select {
		case x.ticks <- time.Time{}:
		case err := <-x.done:
			x.t.Fatalf("tail ended: %v\n%s", err, x.out.String())
		}
	}
}

// end stops the tail and returns what it has printed.
func (x *tailing) end() string {
	x.t.Helper()
	x.stop()
	if err := <-x.done; err != nil {
		x.t.Errorf("tail ended with %v", err)
	}
	return x.out.String()
}

func openAgent(t *testing.T, path, id string) *agent {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return &agent{t: t, store: s, id: id}
}

// ruled writes out what is as long as a terminal is wide.
var ruled = strings.NewReplacer("<blanks>", strings.Repeat(" ", 40), "<37>", strings.Repeat("─", 37),
	"<43>", strings.Repeat("─", 43), "<44>", strings.Repeat("─", 44), "<77>", strings.Repeat("─", 77))

// TestTail follows a turn step by step: what it prints is what a person reads, and a text grows line by line.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{80, `
── 1fa2bdc0  Fix the test <37> coder · 18:15:40
► busy

❯ Why does the test fail?
● I will look at what the test prints, and then at the function that it calls.
  ␛[31mRed␛[0m
▸ bash  go test ./...                                                          …
↻ retrying · attempt 2 · overloaded
▸ bash  go test ./...                                                     ✓ 1.2s
  │ FAIL
● … it is.
✓ finished · 9.0s · 120 tokens
· idle
`},
		{120, `
── 1fa2bdc0  Fix the test <77> coder · 18:15:40
► busy

❯ Why does the test fail?
● I will look at what the test prints, and then at the function that it calls. ␛[31mRed␛[0m
▸ bash  go test ./...<blanks>                                                          …
↻ retrying · attempt 2 · overloaded
▸ bash  go test ./...<blanks>                                                     ✓ 1.2s
  │ FAIL
● … it is.
✓ finished · 9.0s · 120 tokens
· idle
`},
	} {
		path := filepath.Join(t.TempDir(), "s.db")
		a := openAgent(t, path, "ses_1fa2bdc08000YO9d")
		a.begin("Fix the test")
		x := startTail(t, path, "", c.width)
		for i, step := range a.turn("1", false) {
			step()
			x.tick()
			if i == 3 && c.width == 80 && !strings.HasSuffix(x.out.String(), "that it calls.\n") {
				t.Errorf("a text does not grow line by line: %q", x.out.String())
			}
		}
		if d := cmp.Diff(ruled.Replace(c.want[1:]), x.end()); d != "" {
			t.Errorf("%d columns (-want +got):\n%s", c.width, d)
		}
	}
}

// TestTailStore: the store comes late, its writer starts anew, sessions appear,
// it goes away and comes back, another file takes its place.
func TestTailStore(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	x := startTail(t, path, "", 80)
	x.tick()
	if got, want := x.notice.String(), "waiting for a session store at "+path+"\n"; got != want {
		t.Errorf("it says %q, want %q once", got, want)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // as its writer begins
		t.Fatal(err)
	}
	x.tick()

	a := openAgent(t, path, "ses_aaaaaaaa1")
	a.begin("First")
	x.tick()
	for _, step := range a.turn("1", true) {
		step()
		x.tick()
	}
	testscale.Must(t, a.store.Close())
	x.tick()
	b := openAgent(t, path, "ses_bbbbbbbb2")
	b.begin("Second")
	b.part(session.RoleUser, "msg_b", 0, `{"type":"text","text":"Hello."}`)
	x.tick()
	testscale.Must(t, b.store.Close())

	move := func(from, to string) {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Rename(from+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		x.tick()
	}
	move(path, path+".1")
	move(path+".1", path) // what it has was reported
	move(path, path+".1")
	c := openAgent(t, path, "ses_cccccccc3")
	c.begin("Third")
	x.tick()
	testscale.Must(t, c.store.Close())
	want := `── aaaaaaaa  First <44> coder · 18:15:40
► busy

❯ Why does the test fail?
● I will look at what the test prints, and then at the function that it calls.
  ␛[31mRed␛[0m
▸ bash  go test ./...                                                          …

── bbbbbbbb  Second <43> coder · 18:15:40
❯ Hello.
► busy

── cccccccc  Third <44> coder · 18:15:40
`
	if d := cmp.Diff(ruled.Replace(want), x.end()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestTailSilence: a session that is busy and silent is interrupted when the time is over, without anything being
// written; one that was there long before is reported of when it goes on.
func TestTailSilence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	a := openAgent(t, path, "ses_aaaaaaaa1")
	a.begin("Old")
	old := startTailAt(t, tailEpoch+3_600_000, path, "", 80)
	if got := old.end(); got != "" {
		t.Errorf("a session of an hour ago is reported: %q", got)
	}
	x := startTail(t, path, "", 80)
	for _, step := range a.turn("1", true)[:2] {
		step()
		x.tick()
	}
	x.clock.Add(10 * 60_000)
	x.tick()
	x.tick()
	got := x.end()
	if n := strings.Count(got, "◌ interrupted · was busy · last seen 2026-11-20 18:15:43 UTC"); n != 1 {
		t.Errorf("interrupted is reported %d times, want once:\n%s", n, got)
	}
}

// listed is a store of which a session was deleted after it was listed.
type listed struct{ store.Reader }

func (l listed) Sessions(ctx context.Context, q store.SessionQuery) iter.Seq2[session.Session, error] {
	return func(yield func(session.Session, error) bool) {
		if yield(session.Session{ID: "ses_deleted"}, nil) {
			l.Reader.Sessions(ctx, q)(yield)
		}
	}
}

func TestAStoreIsCheckedWhileSessionsAreDeleted(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{})
	testscale.Must(t, err)
	a := agent{t: t, store: s, id: "ses_a"}
	a.begin("stays")
	c := checker{cmd: &cobra.Command{}}
	c.cmd.SetContext(t.Context())
	if err := c.checkAll(listed{s}, nil); err != nil || c.Sessions != 1 {
		t.Errorf("%d sessions are checked: %v", c.Sessions, err)
	}
}
