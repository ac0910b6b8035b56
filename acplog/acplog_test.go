package acplog_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/acplog"
	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// client is one that takes what it is sent.
type client struct {
	mu   sync.Mutex
	sent []message
	err  error
}

type object = map[string]any

// message is a notification: its line on the wire, and what is in it.
type message struct {
	method, line string
	params       object
}

func (m message) data() object {
	data, _ := m.params["data"].(object)
	return data
}

func (c *client) notify(_ context.Context, method string, params any) error {
	raw, err := json.Marshal(params)
	m := message{method: method, line: string(raw)}
	if err := errors.Join(err, json.Unmarshal(raw, &m.params)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, m)
	return c.err
}

const (
	withLogging = `{"protocolVersion":1,"clientCapabilities":{"fs":{},"logging":{}}}`
	withNotices = `{"protocolVersion":1,"clientCapabilities":{"session":{"notices":{}}}}`
)

func inSession(id string) func(context.Context) string {
	return func(context.Context) string { return id }
}

// newLogger returns a logger for a client, which gets the notifications unless the options say who does.
func newLogger(t *testing.T, o acplog.Options, initialize string) (*client, *slog.Logger, *acplog.Handler) {
	t.Helper()
	c := new(client)
	if o.Notify == nil {
		o.Notify = c.notify
	}
	h := acplog.New(o)
	testscale.Must(t, h.Initialize([]byte(initialize)))
	return c, slog.New(h), h
}

// inBubble runs a test with a logger and a clock that moves when everything waits.
func inBubble(t *testing.T, o acplog.Options, initialize string,
	test func(t *testing.T, c *client, l *slog.Logger, h *acplog.Handler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, l, h := newLogger(t, o, initialize)
		test(t, c, l, h)
	})
}

// TestHandler: the handler is one as slog wants it.
func TestHandler(t *testing.T) {
	c := new(client)
	var h *acplog.Handler
	slogtest.Run(t, func(*testing.T) slog.Handler {
		c.sent = nil
		h = acplog.New(acplog.Options{Notify: c.notify})
		testscale.Must(t, h.Initialize([]byte(withLogging)))
		return h
	}, func(t *testing.T) object {
		testscale.Must(t, h.Flush(t.Context()))
		p := c.sent[len(c.sent)-1].params
		got := object{slog.LevelKey: p["level"], slog.MessageKey: p["message"]}
		if at, ok := p["timestamp"]; ok {
			got[slog.TimeKey] = at
		}
		if data, ok := p["data"].(object); ok {
			for key, v := range data {
				got[key] = v
			}
		}
		return got
	})
}

// TestCapabilities: a client gets only what it declared that it understands, and
// nothing before it did.
func TestCapabilities(t *testing.T) {
	for initialize, method := range map[string]string{
		withLogging: "log", withNotices: "session/update", "": "", `{}`: "", `[]`: "",
		`{"clientCapabilities":{"logging":{},"session":{"notices":{}}}}`: "log",
		`{"clientCapabilities":{"fs":{"readTextFile":true}}}`:            "",
		`{"clientCapabilities":{"logging":null}}`:                        "",
		`{"clientCapabilities":{"logging":false}}`:                       "",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := new(client)
			h := acplog.New(acplog.Options{Notify: c.notify, SessionID: inSession("sess-1")})
			if initialize != "" {
				if err := h.Initialize([]byte(initialize)); (err != nil) != (initialize == `[]`) {
					t.Error(err)
				}
			}
			slog.New(h).Error("it broke")
			if got := append(c.sent, message{})[0].method; got != method {
				t.Errorf("%q: sent %v, want %q", initialize, c.sent, method)
			}
		})
	}
}

func TestLog(t *testing.T) {
	inBubble(t, acplog.Options{SessionID: inSession("abc-123")}, withLogging, func(t *testing.T, c *client, l *slog.Logger,
		h *acplog.Handler) {
		r := slog.NewRecord(time.Date(2025, 1, 21, 10, 30, 0, 0, time.UTC), slog.LevelWarn, "Backing model rate limited", 0)
		r.AddAttrs(slog.String("logger", "model"), slog.Duration("retryIn", 5*time.Second),
			slog.Any("cause", errors.New("429")), slog.Any("bad", func() {}))
		testscale.Must(t, h.Handle(t.Context(), r))
		l.With("logger", "auth").WithGroup("http").Log(t.Context(), acplog.LevelCritical,
			"key api_key=sk-proj-"+strings.Repeat("aB3", 16), "status", 401)
		first, second := c.sent[0], c.sent[1]
		if text, ok := first.data()["bad"].(string); !ok || text == "" {
			t.Errorf("a value that JSON cannot hold: %v", first.data())
		}
		delete(first.data(), "bad")
		if d := cmp.Diff([]object{
			{"level": "warning", "message": "Backing model rate limited", "sessionId": "abc-123", "logger": "model",
				"timestamp": "2025-01-21T10:30:00Z", "data": object{"retryIn": "5s", "cause": "429"}},
			{"level": "critical", "message": second.params["message"], "sessionId": "abc-123", "logger": "auth",
				"timestamp": second.params["timestamp"], "data": object{"http": object{"status": 401.0}}},
		}, []object{first.params, second.params}); d != "" {
			t.Error(d)
		}
		if text := second.params["message"].(string); strings.Contains(text, "aB3aB3") || !strings.Contains(text, "api_key") {
			t.Errorf("secret: %q", text)
		}
	})
}

func TestLevels(t *testing.T) {
	inBubble(t, acplog.Options{Level: slog.LevelDebug}, withLogging, func(t *testing.T, c *client, l *slog.Logger,
		_ *acplog.Handler) {
		want := []string{"debug", "info", "notice", "notice", "warning", "error", "critical", "alert", "emergency",
			"emergency"}
		for _, level := range []slog.Level{-4, 0, 2, 3, 4, 8, 12, 16, 20, 99} {
			l.Log(t.Context(), level, "m")
		}
		var got []string
		for _, s := range c.sent {
			got = append(got, s.params["level"].(string))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if !acplog.New(acplog.Options{}).Enabled(t.Context(), slog.LevelInfo) ||
			acplog.New(acplog.Options{}).Enabled(t.Context(), slog.LevelDebug) {
			t.Error("the default level is not info")
		}
	})
}

// TestNotice: a notice needs a session, and keeps what it has no field for.
func TestNotice(t *testing.T) {
	id := ""
	inBubble(t, acplog.Options{SessionID: func(context.Context) string { return id }}, withNotices, func(t *testing.T,
		c *client, l *slog.Logger, _ *acplog.Handler) {
		l.Error("of no session")
		id = "abc-123"
		l.Log(t.Context(), acplog.LevelAlert, "disk full", "free", 0)
		l.Error("", "cause", "429")
		if len(c.sent) != 2 {
			t.Fatalf("sent %v", c.sent)
		}
		notice := func(severity, level, title string, data object) object {
			return object{"sessionId": "abc-123", "update": object{"sessionUpdate": "notice", "severity": severity,
				"title": title, "_meta": object{"agenttrace.level": level, "agenttrace.data": data,
					"agenttrace.timestamp": "2000-01-01T00:00:00Z"}}}
		}
		if d := cmp.Diff([]object{notice("error", "alert", "disk full", object{"free": 0.0}),
			notice("error", "error", "(no message)", object{"cause": "429"})},
			[]object{c.sent[0].params, c.sent[1].params}); d != "" {
			t.Error(d)
		}
	})
}

// TestRate: beyond the rate records are dropped, and the next has their number. What was dropped last is reported
// although no other record follows.
func TestRate(t *testing.T) {
	now := time.Unix(1e9, 0)
	o := acplog.Options{PerSecond: 2, Burst: 3, Now: func() time.Time { return now }}
	inBubble(t, o, withLogging, func(t *testing.T, c *client, l *slog.Logger, h *acplog.Handler) {
		for range 10 {
			l.Info("again")
		}
		if len(c.sent) != 3 {
			t.Fatalf("%d were sent at once", len(c.sent))
		}
		now = now.Add(500 * time.Millisecond)
		l.Info("later")
		l.Info("too much")
		l.Info("too much")
		if len(c.sent) != 4 || c.sent[3].data()["agenttrace.dropped"] != 7.0 {
			t.Errorf("after half a second: %v", c.sent[3:])
		}
		testscale.Must(t, h.Flush(t.Context()))
		if last := c.sent[len(c.sent)-1]; len(c.sent) != 5 || last.data()["agenttrace.dropped"] != 2.0 ||
			last.params["message"] != "2 log records were dropped, as there were too many for the client" {
			t.Errorf("sent %v", c.sent)
		}
	})
}

// TestSession: records are in the session as data-log parts of the turn, whether
// or not the client gets them, and never as text.
func TestSession(t *testing.T) {
	inBubble(t, acplog.Options{}, withLogging, func(t *testing.T, c *client, l *slog.Logger, _ *acplog.Handler) {
		ctx, end := traced(t)
		l.WarnContext(ctx, "retrying", "attempt", 2)
		agenttrace.TurnFromContext(ctx).Text("hello")
		if id := c.sent[0].params["sessionId"]; id != agenttrace.SessionFromContext(ctx).ID() {
			t.Errorf("session %v", id)
		}
		if parts := end(); len(parts) != 2 || !strings.Contains(parts[0],
			`"type":"data-log","data":{"level":"warning","message":"retrying"`) ||
			!strings.Contains(parts[1], `"text":"hello"`) {
			t.Errorf("parts %q", parts)
		}
	})
}
