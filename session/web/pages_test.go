package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/web"
)

// began is when the sessions of the tests begin, in Unix milliseconds.
const began = 1_750_000_000_000

// conversation is a session with turns of a question and an answer that calls a tool.
func conversation(id string, turns int) *store.Imported {
	t := &session.Transcript{Session: session.Session{ID: id, Title: "A conversation", Agent: "tester",
		PermissionsJSON: "[]", MetadataJSON: "{}", CreatedAt: began, UpdatedAt: began + int64(turns)*1000}}
	for i := range turns {
		at := began + int64(i)*1000
		of := strings.TrimPrefix(id, "ses_one") // ids of messages and parts are unique
		user, answer := fmt.Sprintf("msg_%05d_a%s", i, of), fmt.Sprintf("msg_%05d_b%s", i, of)
		part := func(message, kind, id, data string, index int64) session.Part {
			return session.Part{ID: fmt.Sprintf("prt_%05d_%s%s", i, id, of), MessageID: message, SessionID: t.Session.ID,
				Index: index,
				Type:  kind, DataJSON: data, CreatedAt: at, UpdatedAt: at}
		}
		call := "call_" + fmt.Sprint(i)
		state := `"state":"output-available","output":"ok ` + strings.Repeat("word ", 40) + `"`
		if i == 3 {
			state = `"state":"output-error","errorText":"it broke"`
		}
		tool := part(answer, "tool-bash", "tool", `{"type":"tool-bash","toolCallId":"`+call+`",`+state+
			`,"input":{"command":"make test"}}`, 0)
		tool.ToolCallID = &call
		toolState := session.StateOutputAvailable
		if i == 3 {
			toolState = session.StateOutputError
		}
		tool.ToolState = &toolState
		t.Messages = append(t.Messages,
			session.MessageAndParts{Message: session.Message{ID: user, SessionID: id, Role: session.RoleUser,
				MetadataJSON: "{}", CreatedAt: at, UpdatedAt: at},
				Parts: []session.Part{part(user, "text", "q", fmt.Sprintf(`{"type":"text","text":"Question %d"}`, i+1),
					0)}},
			session.MessageAndParts{Message: session.Message{ID: answer, SessionID: id, Role: session.RoleAssistant,
				MetadataJSON: `{"agenttrace":{"end_reason":"finish"}}`, CreatedAt: at + 1, UpdatedAt: at + 1},
				Parts: []session.Part{tool,
					part(answer, "text", "a", fmt.Sprintf(`{"type":"text","text":"**Answer** %d"}`, i+1), 1)}})
	}
	return &store.Imported{Transcript: t}
}

// site is a server of the pages of a store.
type site struct {
	testing.TB
	*httptest.Server
	store store.Store
}

func newSite(t testing.TB, sessions ...*store.Imported) *site {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() { s.Close() })
	for _, in := range sessions {
		if _, err := s.Import(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	changes := web.NewCounter(sqlite.Follow(s.Path()))
	t.Cleanup(func() { changes.Close() })
	server := httptest.NewServer(web.New(web.Backend{Sessions: document.Reader{Reader: s}, Changes: changes,
		Author: "ann",
		Change: func(ctx context.Context, fn func(context.Context, store.Service) error) error {
			return fn(ctx, s)
		}}, web.Options{TraceURL: "https://jaeger.example/trace/{trace_id}?uiFind={span_id}"}))
	t.Cleanup(server.Close)
	return &site{t, server, s}
}

// get reads a page, which must have the status.
func (s *site) get(path string, status int) (string, http.Header) {
	s.Helper()
	answer, err := s.Client().Get(s.URL + path)
	testscale.Must(s, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		s.Fatalf("GET %s: status %d, want %d (%v)\n%s", path, answer.StatusCode, status, err, body)
	}
	return string(body), answer.Header
}

func (s *site) has(path string, wanted ...string) {
	s.Helper()
	body, _ := s.get(path, http.StatusOK)
	for _, w := range wanted {
		if !strings.Contains(body, w) {
			s.Errorf("%s has no %q", path, w)
		}
	}
}

func TestGroupsOfTurnsSayHowManyFailed(t *testing.T) {
	newSite(t, conversation("ses_one", 120)).has("/s/ses_one", "Turns 1 to 100", "1 failed")
}

func TestPagesShowASession(t *testing.T) {
	child, parent := conversation("ses_z", 1), "ses_y" // which another process started, and nobody named
	child.Session.Title, child.Session.ParentID = session.Untitled, &parent
	s := newSite(t, conversation("ses_one", 40), conversation("ses_x", 2), conversation("ses_y", 1), child)
	s.has("/s/ses_y/tree", `<span class="kind sub-agent">sub-agent</span> <a href="/s/ses_z">Question 1 ·`)
	if st, err := (document.Reader{Reader: s.store}).LoadStatus(t.Context(), "ses_z"); st.Title != "Question 1" {
		t.Errorf("the status is of %q, %v", st.Title, err)
	}
	s.has("/sessions", "A conversation", `href="/s/ses_one"`)
	s.has("/s/ses_one", `id="turn-40"`, `id="turn-21"`, "Turns 21 to 40 of 40", "<strong>Answer</strong> 40",
		"make test",
		`id="p-prt_00039_tool"`)
	s.has("/s/ses_one?at=1", `id="turn-1"`, `id="turn-20"`, "at=21")
	s.has("/s/ses_one?before=1", `id="turn-1"`)
	s.has("/s/ses_one?at=40.99", `id="turn-40"`)
	s.has("/s/ses_one/t/4", "it broke", "Question 4")
	s.has("/s/ses_one/t/4?before=0", "Question 4")
	s.has("/s/ses_one/outline?only=failures", "Question 4", `class="o-tool"`)
	s.get("/s/ses_one/outline?turn=41", http.StatusNotFound)
	s.has("/s/ses_one/t/4/context", "1. System prompt", "7. Problems")
	s.has("/s/ses_one/tree", "No forks")
	s.has("/s/ses_one/share", "Download")
	s.has("/s/ses_one/next?kind=error", "it broke")
	s.has("/diff/ses_one/ses_one", "no difference", "do not count")
	s.has("/diff?s=ses_one&s=ses_x&s=ses_y", "3 sessions beside each other", "turn 2 of A", `href="/diff/ses_one/ses_y"`)
	s.get("/diff?s=ses_one", http.StatusBadRequest)
	s.has("/sessions?q=o", "50 places in 3 sessions", `from=50&amp;q=o" rel="next"`)
	s.has("/sessions?q=o&from=50", "after the first 50 places")
	s.get("/sessions?q=o&from=-1", http.StatusBadRequest)
	s.has("/stats?by=tool", "bash")
	s.has("/stats?by=agent&by=day", "Turns by hour of the week", "polyline", "agent=")
	s.has("/now", "Now")
	s.has("/sessions?q=Question+7", "Turn 7", "<mark>Question 7</mark>")
	s.has("/sessions?agent=nobody&since=2020-01-01", "No session matches", `href="/sessions?since=2020-01-01"`)
	s.has("/sessions?errors=1&tool=bash&sort=title&status=idle", "A conversation")
	s.has("/sessions?status=busy", "No session matches")
	s.get("/sessions?score=%3E", http.StatusBadRequest)
	s.has("/s/ses_one/p/msg_00003_b/prt_00003_tool/raw", `"errorText`)
	s.get("/s/ses_two", http.StatusNotFound)
	s.get("/s/ses_one/t/41", http.StatusNotFound)
	s.get("/s/ses_one?at=x", http.StatusBadRequest)
	s.get("/nothing", http.StatusNotFound)
}

func TestAnEmptyStoreSaysHowToGetSessions(t *testing.T) {
	newSite(t).has("/sessions", "No sessions yet", "agenttrace demo")
}

func TestFormsChangeASession(t *testing.T) {
	s := newSite(t, conversation("ses_one", 1))
	post := func(values ...string) {
		form := url.Values{}
		for i := 0; i < len(values); i += 2 {
			form.Set(values[i], values[i+1])
		}
		answer, err := s.Client().PostForm(s.URL+"/s/ses_one", form)
		testscale.Must(t, err)
		page, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if failed := strings.Contains(string(page), "<h1>This request is not valid</h1>"); failed == (answer.StatusCode == 200) {
			t.Errorf("POST %v: %s: %s", values, answer.Status, page)
		}
	}
	post("do", "title")
	post("do", "annotate", "kind", "score", "text", "quality", "value", "high")
	post("do", "fork", "turn", "x")
	post("do", "title", "text", "Another title")
	post("do", "annotate", "kind", "tag", "text", "good")
	post("do", "annotate", "kind", "score", "text", "quality", "value", "0.9")
	post("do", "annotate", "kind", "note", "text", "wrong file", "message", "msg_00000_a")
	s.has("/s/ses_one", "Another title", "good", "quality=0.9", "wrong file")
	all, err := s.store.Annotations(t.Context(), "ses_one")
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, n := range all {
		post("do", "remove", "annotation", n.ID)
	}
	post("do", "archive")
	if body, _ := s.get("/s/ses_one", http.StatusOK); strings.Contains(body, "quality") {
		t.Error("what was taken back is shown")
	}
	s.has("/sessions", "Nothing to list")
	s.has("/sessions?archived=1", "Another title")
}

func TestNowShowsWhatATurnTakesPerMinute(t *testing.T) {
	in := conversation("ses_one", 1)
	now := time.Now().UnixMilli()
	in.Session.MetadataJSON = fmt.Sprintf(`{"status":{"state":"busy","at":%d}}`, now)
	in.Session.CreatedAt, in.Session.UpdatedAt = now-120_000, now
	for i := range in.Messages {
		in.Messages[i].Message.CreatedAt = now - 120_000 + int64(i)
	}
	in.Messages[1].Message.MetadataJSON = `{"usage":{"input":2000,"output":400},"agenttrace":{"cost_usd":0.02,"incomplete":true}}`
	newSite(t, in).has("/now", "Busy", "1.2k tokens/min · $0.01", "since <time", "**Answer** 1")
}

// Sessions with the tag of an experiment are a row of it, which leads to them. One that waits has not passed yet.
func TestExperimentsAreATable(t *testing.T) {
	waits := conversation("ses_one_waits", 1)
	waits.Session.MetadataJSON = `{"status":{"state":"waiting_on_approval","at":1}}`
	s := newSite(t, conversation("ses_a", 2), waits)
	s.has("/experiments", "No experiments")
	for _, id := range []string{"ses_a", "ses_one_waits"} {
		n := store.Annotation{SessionID: id, Kind: store.AnnotationTag, Name: "experiment:<b>", Label: "one",
			CreatedAt: 1, UpdatedAt: 1}
		n.Identify()
		testscale.Must(t, s.store.Annotate(t.Context(), []store.Annotation{n}))
	}
	s.has("/experiments", `<a href="/sessions?children=1&amp;tag=experiment%3A%3Cb%3E">&lt;b&gt;</a>`, "<td>2 (1 unfinished)</td>", "100 %")
	s.has("/sessions?children=1&tag=experiment%3A%3Cb%3E", "ses_a")
}

// Who sees that models have no price has the lists fetched; where that fails, the page says why and what to do.
func TestPricesAreFetchedOnRequest(t *testing.T) {
	in := conversation("ses_priced", 1)
	in.Messages[1].Message.MetadataJSON =
		`{"model":{"provider_id":"openai","model_id":"gpt-x"},"usage":{"input":1000000}}`
	list := `{"openai":{"id":"openai","models":{"gpt-x":{"id":"gpt-x","cost":{"input":7,"output":1}}}}}`
	down := true
	published := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down {
			http.Error(w, "", http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, list)
	}))
	t.Cleanup(published.Close)
	from := price.Sources()[:1]
	from[0].URL = published.URL
	kept := price.NewKept(t.TempDir(), price.UpdateOptions{Sources: from})
	s := newSite(t, in)
	s.Config.Handler = web.New(web.Backend{Sessions: document.Reader{Reader: s.store, Price: kept.Rate},
		Change:       func(context.Context, func(context.Context, store.Service) error) error { return nil },
		UpdatePrices: kept.Update}, web.Options{})
	s.has("/stats", "there is no price for <code>openai/gpt-x</code>", "Fetch prices now")
	for _, want := range []struct {
		status int
		text   string
	}{{http.StatusBadGateway, "the server answers 502 Bad Gateway; check the network and HTTPS_PROXY"},
		{http.StatusOK, "~$7.00"}} {
		answer, err := s.Client().PostForm(s.URL+"/prices", url.Values{"back": {"/stats?by=model"}})
		testscale.Must(t, err)
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != want.status || !strings.Contains(string(body), want.text) {
			t.Errorf("%s, and not %q: %s", answer.Status, want.text, body)
		}
		down = false
	}
}
