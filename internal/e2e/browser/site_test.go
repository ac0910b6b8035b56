package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
	"github.com/agenttrace/agenttrace/session/web"
)

// site is a server of the pages of a store.
type site struct {
	testing.TB
	store *sqlite.Store
	// URL is where the pages are, without a slash at the end, and key what opens them, "" where the test does that.
	URL, key string
	// end stops the server.
	end func()
}

// newSite serves the pages of a store at a path, which need not exist, with some sessions more.
func newSite(t testing.TB, path string, sessions ...*store.Imported) *site {
	t.Helper()
	st, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{TB: t, store: st}
	t.Cleanup(func() { st.Close() })
	s.add(sessions...)
	s.start(testscale.MustAddress())
	t.Cleanup(func() { s.stop() })
	return s
}

// emptyStore is the path of a store that is not there.
func emptyStore(t testing.TB) string { return filepath.Join(t.TempDir(), "sessions.db") }

// add stores sessions, or more of them.
func (s *site) add(sessions ...*store.Imported) {
	s.Helper()
	for _, in := range sessions {
		if _, err := s.store.Import(s.Context(), in); err != nil {
			s.Fatal(err)
		}
	}
}

// start serves the pages at an address, with the extension of a collector and all that is before its pages.
func (s *site) start(address string) {
	s.Helper()
	factory := sessionview.NewFactory()
	config := factory.CreateDefaultConfig().(*sessionview.Config)
	config.Server.NetAddr.Endpoint = address
	config.TraceURL = "https://jaeger.example/trace/{trace_id}?uiFind={span_id}"
	ext, err := factory.Create(s.Context(), extensiontest.NewNopSettings(factory.Type()), config)
	if err != nil {
		s.Fatal(err)
	}
	if err := ext.Start(s.Context(), componenttest.NewNopHost()); err != nil {
		s.Fatal(err)
	}
	detach := ext.(interface {
		Attach(location string, s store.Store) (detach func(context.Context))
	}).Attach(s.store.Path(), s.store)
	if s.key, err = sessionview.Key(s.store.Path()); err != nil {
		s.Fatal(err)
	}
	s.URL, s.end = "http://"+address, func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // which ends the requests that still read
		detach(ended)
		_ = ext.Shutdown(ended)
	}
}

// stop ends the server and its connections. It may be called again.
func (s *site) stop() {
	if s.end != nil {
		s.end()
		s.end = nil
	}
}

// restart ends the server and starts it again at the same address; between has what happens in the meantime.
func (s *site) restart(between func()) {
	s.Helper()
	s.stop()
	between()
	s.start(strings.TrimPrefix(s.URL, "http://"))
}

// message is a message of a session. Parts are in the JSON of the store.
type message struct {
	role, metadata string
	parts          []string
}

func user(text string) message { return message{role: "user", parts: []string{textPart(text)}} }

func assistant(parts ...string) message {
	return message{role: "assistant", metadata: `{"agenttrace":{"end_reason":"finish"}}`, parts: parts}
}

func textPart(text string) string      { return `{"type":"text","text":` + quoted(text) + `}` }
func reasoningPart(text string) string { return `{"type":"reasoning","text":` + quoted(text) + `}` }

func imagePart() string {
	// one red pixel
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	if _, err := base64.StdEncoding.DecodeString(png); err != nil {
		panic(err)
	}
	return `{"type":"file","mediaType":"image/png","filename":"red.png","url":"data:image/png;base64,` + png + `"}`
}

// toolPart is a tool call. The result is the rest of its JSON, such as "output":"ok".
func toolPart(id, tool, state, input, result string) string {
	return fmt.Sprintf(`{"type":"tool-%s","toolCallId":%q,"state":%q,"input":%s,%s}`, tool, id, state, input, result)
}

// conversation is a session whose messages follow each other by a second. The last is of the time at. Status is what
// the agent declared, or "".
func conversation(id, title, status string, at time.Time, messages ...message) *store.Imported {
	begin := at.Add(-time.Duration(len(messages)-1) * time.Second).UnixMilli()
	metadata := "{}"
	if status != "" {
		metadata = fmt.Sprintf(`{"status":{"state":%q,"at":%d}}`, status, at.UnixMilli())
	}
	root, model := "/home/ann/"+strings.ToLower(strings.Fields(title)[0]), `{"provider_id":"openai","model_id":"gpt-5"}`
	t := &session.Transcript{Session: session.Session{ID: id, Title: title, Agent: "coder", WorkspaceRoot: &root,
		ModelJSON: &model, PermissionsJSON: "[]", MetadataJSON: metadata, CreatedAt: begin, UpdatedAt: at.UnixMilli()}}
	for i, m := range messages {
		now := begin + int64(i)*1000
		row := session.MessageAndParts{Message: session.Message{ID: fmt.Sprintf("msg_%s_%05d", id, i), SessionID: id,
			Role: m.role, MetadataJSON: m.metadata, CreatedAt: now, UpdatedAt: now}}
		if m.metadata == "" {
			row.Message.MetadataJSON = "{}"
		}
		for j, data := range m.parts {
			var fields struct {
				Type  string  `json:"type"`
				Call  *string `json:"toolCallId"`
				State *string `json:"state"`
			}
			if err := json.Unmarshal([]byte(data), &fields); err != nil {
				panic(fmt.Sprintf("%v: %s", err, data))
			}
			row.Parts = append(row.Parts, session.Part{ID: fmt.Sprintf("prt_%s_%05d_%d", id, i, j),
				MessageID: row.Message.ID,
				SessionID: id, Index: int64(j), Type: fields.Type, ToolCallID: fields.Call, ToolState: fields.State,
				DataJSON: data, CreatedAt: now, UpdatedAt: now})
		}
		t.Messages = append(t.Messages, row)
	}
	return &store.Imported{Transcript: t}
}

// gallery is a store with one session of every kind.
type gallery struct {
	*site
	// demo is the session of the demo, child that of its sub-agent, fork one that was forked from it and rewound.
	demo, child, fork string
}

func newGallery(t testing.TB) *gallery {
	t.Helper()
	path := emptyStore(t)
	r, err := recorder.Open(t.Context(), path, recorder.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(r.SpanExporter()))
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(r.LogExporter())))
	result, err := codeagent.Run(t.Context(), codeagent.Config{TracerProvider: tp, LoggerProvider: lp})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(context.Context) error{tp.Shutdown, lp.Shutdown, r.Close} {
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	g := &gallery{demo: result.SessionID, site: newSite(t, path,
		conversation("ses_waiting", "Migrate the database", "waiting_on_approval", now.Add(-3*time.Minute),
			user("Migrate the database to the new schema."),
			message{"assistant", `{"agenttrace":{"incomplete":true}}`, []string{
				reasoningPart("The schema has two versions. Migrate the tables in the order of their references, and " +
					"keep a copy."),
				textPart("I need to run the migration. It drops a column."),
				toolPart("call_w", "bash", "approval-requested", `{"command":"make migrate"}`,
					`"approval":{"id":"per_w"}`)}}),
		conversation("ses_busy", "Write the report", "busy", now.Add(-time.Second),
			user("Write the report of the last quarter."),
			message{"assistant", `{"agenttrace":{"incomplete":true}}`, []string{textPart("I read the figures first."),
				toolPart("call_b", "read", "input-available", `{"path":"figures.csv"}`, `"callProviderMetadata":{}`)}}),
		conversation("ses_failed", "Deploy to production", "error", now.Add(-time.Hour),
			user("Deploy it to production."),
			message{"assistant", `{"agenttrace":{"end_reason":"error",` +
				`"error":"the model's server answered 529: overloaded"}}`,
				[]string{textPart("I start the deployment."),
					toolPart("call_f", "bash", "output-error", `{"command":"kubectl apply -f ."}`,
						`"errorText":"\u001b[31merror:\u001b[0m the connection to the server was refused"`)}}),
		conversation("ses_image", "Explain the picture", "", now.Add(-50*time.Hour),
			message{role: "user", parts: []string{textPart("What is in this picture?"), imagePart()}},
			assistant(textPart("A red pixel.\n\n| color | share |\n|---|---|\n| red | 100 % |\n\n```go\n"+
				"fmt.Println(1)\n```\n\n"+
				strings.Repeat("A long paragraph has many words in it, so that its lines are full. ", 12)))),
	)}
	g.fork, err = g.store.Fork(t.Context(), store.ForkOptions{From: g.demo, Title: "Fix it without the cache"})
	if err != nil {
		t.Fatal(err)
	}
	fork := storetest.Transcript(t, g.store, g.fork)
	var questions []string
	for i := range fork.Messages {
		if m := &fork.Messages[i].Message; m.Role == session.RoleUser {
			questions = append(questions, m.ID)
		}
	}
	if _, err := g.store.Rewind(t.Context(), g.fork, questions[1], time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, s := range storetest.List(t, g.store, store.SessionQuery{Children: true}) {
		if s.ParentID != nil && *s.ParentID == g.demo && s.ID != g.fork {
			g.child = s.ID
		}
	}
	at := now.UnixMilli()
	notes := []store.Annotation{{SessionID: g.demo, Kind: store.AnnotationTag, Name: "reviewed"},
		{SessionID: g.demo, Kind: store.AnnotationScore, Name: "quality", Value: new(0.9)},
		{SessionID: g.demo, Kind: store.AnnotationNote, Comment: "The fix is right; the push was denied as it " +
			"should be."}}
	for i := range notes {
		notes[i].Author, notes[i].CreatedAt, notes[i].UpdatedAt = "ann", at, at
		notes[i].Identify()
	}
	if err := g.store.Annotate(t.Context(), notes); err != nil {
		t.Fatal(err)
	}
	return g
}

// address is the path of a page of a session.
func address(id string, more ...any) string { return web.Address(append([]any{"s", id}, more...)...) }
