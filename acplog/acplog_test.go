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
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agenttrace/agenttrace/acplog"
	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/semconv"
)

// client is one that takes what it is sent.
type client struct {
	mu   sync.Mutex
	sent []map[string]any
	err  error
}

func (c *client) notify(_ context.Context, method string, params any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	m := make(map[string]any)
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, map[string]any{"method": method, "params": m})
	return c.err
}

const (
	withLogging = `{"protocolVersion":1,"clientCapabilities":{"fs":{},"logging":{}}}`
	withNotices = `{"protocolVersion":1,"clientCapabilities":{"session":{"notices":{}}}}`
)

func newLogger(t *testing.T, c *client, o acplog.Options, initialize string) (*slog.Logger, *acplog.Handler) {
	t.Helper()
	o.Notify = c.notify
	h := acplog.New(o)
	if initialize != "" {
		if err := h.Initialize([]byte(initialize)); err != nil {
			t.Fatal(err)
		}
	}
	return slog.New(h), h
}

// TestHandler: the handler is one as slog wants it.
func TestHandler(t *testing.T) {
	c := new(client)
	var h *acplog.Handler
	slogtest.Run(t, func(*testing.T) slog.Handler {
		c.sent = nil
		h = acplog.New(acplog.Options{Notify: c.notify})
		if err := h.Initialize([]byte(withLogging)); err != nil {
			t.Fatal(err)
		}
		return h
	}, func(t *testing.T) map[string]any {
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := c.sent[len(c.sent)-1]["params"].(map[string]any)
		got := map[string]any{slog.LevelKey: p["level"], slog.MessageKey: p["message"]}
		if at, ok := p["timestamp"]; ok {
			got[slog.TimeKey] = at
		}
		if data, ok := p["data"].(map[string]any); ok {
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
	for _, tt := range []struct {
		name, initialize string
		method           string
		bad              bool
	}{
		{"before initialize", "", "", false},
		{"logging", withLogging, "log", false},
		{"logging and notices", `{"clientCapabilities":{"logging":{},"session":{"notices":{}}}}`, "log", false},
		{"notices", withNotices, "session/update", false},
		{"neither", `{"clientCapabilities":{"fs":{"readTextFile":true}}}`, "", false},
		{"null", `{"clientCapabilities":{"logging":null}}`, "", false},
		{"false", `{"clientCapabilities":{"logging":false}}`, "", false},
		{"no capabilities", `{}`, "", false},
		{"not an object", `[]`, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := new(client)
				h := acplog.New(acplog.Options{Notify: c.notify, SessionID: func(context.Context) string {
					return "sess-1"
				}})
				if tt.initialize != "" {
					if err := h.Initialize([]byte(tt.initialize)); (err != nil) != tt.bad {
						t.Error(err)
					}
				}
				slog.New(h).Error("it broke")
				method := ""
				if len(c.sent) == 1 {
					method = c.sent[0]["method"].(string)
				}
				if method != tt.method {
					t.Errorf("sent %v, want %q", c.sent, tt.method)
				}
			})
		})
	}
}

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(client)
		at := time.Date(2025, 1, 21, 10, 30, 0, 0, time.UTC)
		l, h := newLogger(t, c, acplog.Options{SessionID: func(context.Context) string {
			return "abc-123"
		}}, withLogging)
		r := slog.NewRecord(at, slog.LevelWarn, "Backing model rate limited", 0)
		r.AddAttrs(slog.String("logger", "model"), slog.Duration("retryIn", 5*time.Second),
			slog.Any("cause", errors.New("429")), slog.Any("bad", func() {}))
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		l.With("logger", "auth").WithGroup("http").Log(t.Context(), acplog.LevelCritical,
			"key api_key=sk-proj-"+strings.Repeat("aB3", 16), "status", 401)
		bad := c.sent[0]["params"].(map[string]any)["data"].(map[string]any)
		if text, ok := bad["bad"].(string); !ok || text == "" {
			t.Errorf("a value that JSON cannot hold: %v", bad["bad"])
		}
		delete(bad, "bad")
		want := []map[string]any{
			{"method": "log", "params": map[string]any{
				"level": "warning", "message": "Backing model rate limited", "sessionId": "abc-123", "logger": "model",
				"timestamp": "2025-01-21T10:30:00Z",
				"data":      map[string]any{"retryIn": "5s", "cause": "429"},
			}},
			{"method": "log", "params": map[string]any{
				"level": "critical", "message": c.sent[1]["params"].(map[string]any)["message"], "sessionId": "abc-123",
				"logger":    "auth",
				"timestamp": c.sent[1]["params"].(map[string]any)["timestamp"],
				"data":      map[string]any{"http": map[string]any{"status": 401.0}},
			}},
		}
		if d := cmp.Diff(want, c.sent); d != "" {
			t.Error(d)
		}
		if message := c.sent[1]["params"].(map[string]any)["message"].(string); strings.Contains(message, "aB3aB3") ||
			!strings.Contains(message, "api_key") {
			t.Errorf("secret: %q", message)
		}
	})
}

func TestLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(client)
		l, _ := newLogger(t, c, acplog.Options{Level: slog.LevelDebug}, withLogging)
		want := []string{"debug", "info", "notice", "notice", "warning", "error", "critical", "alert", "emergency",
			"emergency"}
		for _, level := range []slog.Level{-4, 0, 2, 3, 4, 8, 12, 16, 20, 99} {
			l.Log(t.Context(), level, "m")
		}
		var got []string
		for _, s := range c.sent {
			got = append(got, s["params"].(map[string]any)["level"].(string))
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
	synctest.Test(t, func(t *testing.T) {
		c := new(client)
		id := ""
		l, _ := newLogger(t, c, acplog.Options{SessionID: func(context.Context) string { return id }}, withNotices)
		l.Error("of no session")
		id = "abc-123"
		l.Log(t.Context(), acplog.LevelAlert, "disk full", "free", 0)
		if len(c.sent) != 1 {
			t.Fatalf("sent %v", c.sent)
		}
		p := c.sent[0]["params"].(map[string]any)
		update := p["update"].(map[string]any)
		meta := update["_meta"].(map[string]any)
		if p["sessionId"] != "abc-123" || update["sessionUpdate"] != "notice" || update["severity"] != "error" ||
			update["title"] != "disk full" ||
			meta["agenttrace.level"] != "alert" || meta["agenttrace.data"].(map[string]any)["free"] != 0.0 {
			t.Errorf("notice %v", p)
		}
	})
}

// TestRate: beyond the rate records are dropped, and the next has their number.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(client)
		now := time.Unix(1e9, 0)
		l, _ := newLogger(t, c, acplog.Options{PerSecond: 2, Burst: 3, Now: func() time.Time {
			return now
		}}, withLogging)
		for range 10 {
			l.Info("again")
		}
		if len(c.sent) != 3 {
			t.Fatalf("%d were sent at once", len(c.sent))
		}
		now = now.Add(500 * time.Millisecond)
		l.Info("later")
		l.Info("too much")
		if len(c.sent) != 4 ||
			c.sent[3]["params"].(map[string]any)["data"].(map[string]any)["agenttrace.dropped"] != 7.0 {
			t.Errorf("after half a second: %v", c.sent[3:])
		}
	})
}

// TestClientGone: the agent does not notice that the client is.
func TestClientGone(t *testing.T) {
	c := &client{err: errors.New("broken pipe")}
	l, h := newLogger(t, c, acplog.Options{}, withLogging)
	l.Info("hello")
	if h.Failed() != 1 {
		t.Errorf("%d failed", h.Failed())
	}
}

// TestSession: records are in the session as data-log parts of the turn, whether
// or not the client gets them, and never as text.
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		tracer := agenttrace.New(agenttrace.Options{
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
		sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
		ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
		ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hi"}, agenttrace.TurnOptions{})
		c := new(client)
		l, _ := newLogger(t, c, acplog.Options{}, withLogging)
		l.WarnContext(ctx, "retrying", "attempt", 2)
		turn.Text("hello")
		turn.End(agenttrace.TurnResult{})
		run.End(nil)
		if id := c.sent[0]["params"].(map[string]any)["sessionId"]; id != sess.ID() {
			t.Errorf("session %v", id)
		}
		var parts []string
		for _, s := range spans.Ended() {
			for _, a := range s.Attributes() {
				if a.Key == semconv.AssistantMessagePartsKey {
					parts = a.Value.AsStringSlice()
				}
			}
		}
		if len(parts) != 2 || !strings.Contains(parts[0],
			`"type":"data-log","data":{"level":"warning","message":"retrying"`) ||
			!strings.Contains(parts[1], `"text":"hello"`) {
			t.Errorf("parts %q", parts)
		}
	})
}
