// Package acplog sends an agent's slog records to the client that it talks to
// over the Agent Client Protocol, and into the session that it works on.
//
//	handler := acplog.New(acplog.Options{Notify: conn.Notify})
//	logger := slog.New(handler)
//	…
//	handler.Initialize(params) // of the client's initialize request
//	logger.WarnContext(ctx, "rate limited, retrying", "logger", "model", "retryIn", 5)
//
// A client that declared clientCapabilities.logging gets the notification log. One
// that declared clientCapabilities.session.notices gets the session update notice,
// which needs a session. Any other client gets nothing, and nobody gets anything
// before Initialize.
//
// The same records stand in the session as data-log parts of the turn that the
// context carries: they are diagnostics, and never text of the conversation.
package acplog

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/redact"
)

// Levels of RFC 5424 that slog has no name for, between and above its own.
const (
	LevelNotice    = slog.Level(2)
	LevelCritical  = slog.Level(12)
	LevelAlert     = slog.Level(16)
	LevelEmergency = slog.Level(20)
)

// Options configure a [Handler]. Only Notify is needed.
type Options struct {
	// Notify sends a JSON-RPC notification to the client. It is called by whoever
	// logs, so it must not log through the handler. Its errors are counted: logs
	// are no reliable transport.
	Notify func(ctx context.Context, method string, params any) error

	// Level is the least level that is handled; nil means slog.LevelInfo.
	Level slog.Leveler

	// Logger names the component where neither the attribute "logger" nor
	// [Handler.WithGroup] does.
	Logger string

	// SessionID returns the client's id of the session that the context belongs to,
	// or "" for what concerns the connection. Nil means the id of the agenttrace
	// session in the context.
	SessionID func(context.Context) string

	// PerSecond is how many records a second are sent in the long run, Burst how
	// many at once. 0 means 20 and 100. What is beyond is dropped, and the next
	// record says how many were.
	PerSecond, Burst int

	// Redactor takes secrets out of messages and data. Nil means the default one of
	// package redact; set KeepSecrets to have none.
	Redactor    *redact.Redactor
	KeepSecrets bool

	// Now is the clock of the rate limit; nil means time.Now.
	Now func() time.Time
}

// Handler is a [slog.Handler]. It is safe for concurrent use.
type Handler struct {
	shared *shared
	groups []string
	// attrs are those of With, each below the groups that were open then.
	attrs  []grouped
	logger string
}

type grouped struct {
	groups []string
	attrs  []slog.Attr
}

// shared is what a handler and those made from it have in common.
type shared struct {
	options Options

	mu      sync.Mutex
	channel channel
	tokens  float64
	filled  time.Time
	dropped int64
	failed  int64
}

// channel is by what the client hears of records.
type channel int

const (
	silent channel = iota
	byLog
	byNotice
)

// Defaults of Options.
const (
	defaultPerSecond = 20
	defaultBurst     = 100
)

// New returns a handler that sends nothing until [Handler.Initialize].
func New(o Options) *Handler {
	if o.Level == nil {
		o.Level = slog.LevelInfo
	}
	if o.SessionID == nil {
		o.SessionID = func(ctx context.Context) string { return agenttrace.SessionFromContext(ctx).ID() }
	}
	if o.PerSecond <= 0 {
		o.PerSecond = defaultPerSecond
	}
	if o.Burst <= 0 {
		o.Burst = defaultBurst
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.KeepSecrets:
		o.Redactor = nil // a nil one changes nothing
	case o.Redactor == nil:
		o.Redactor = defaultRedactor()
	}
	return &Handler{shared: &shared{options: o, tokens: float64(o.Burst), filled: o.Now()}, logger: o.Logger}
}

var defaultRedactor = sync.OnceValue(func() *redact.Redactor {
	r, err := redact.New(redact.Config{})
	if err != nil {
		panic("acplog: " + err.Error()) // the defaults are sound, or the tests of redact fail
	}
	return r
})

// Initialize reads the parameters of a client's initialize request: what it
// declares decides whether and how it hears of records. A client that connects
// anew initializes anew. Parameters that cannot be read declare nothing; the error
// says why.
func (h *Handler) Initialize(params json.RawMessage) error {
	var p struct {
		ClientCapabilities struct {
			Logging json.RawMessage `json:"logging"`
			Session struct {
				Notices json.RawMessage `json:"notices"`
			} `json:"session"`
		} `json:"clientCapabilities"`
	}
	err := json.Unmarshal(params, &p)
	var c channel
	switch {
	case err != nil:
	case declared(p.ClientCapabilities.Logging):
		c = byLog
	case declared(p.ClientCapabilities.Session.Notices):
		c = byNotice
	}
	h.shared.mu.Lock()
	h.shared.channel = c
	h.shared.mu.Unlock()
	return err
}

// declared says whether a capability is there: an object, or true.
func declared(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "false"
}

// Enabled implements [slog.Handler].
func (h *Handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.shared.options.Level.Level()
}

// WithAttrs implements [slog.Handler]. An attribute "logger" outside of any group
// names the component.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	made := *h
	if len(h.groups) == 0 {
		attrs = slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool {
			if a.Key == loggerKey && a.Value.Resolve().Kind() == slog.KindString {
				made.logger = a.Value.Resolve().String()
				return true
			}
			return false
		})
	}
	made.attrs = append(slices.Clip(h.attrs), grouped{h.groups, attrs})
	return &made
}

// WithGroup implements [slog.Handler].
func (h *Handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	made := *h
	made.groups = append(slices.Clip(h.groups), name)
	return &made
}

// loggerKey is the attribute that names the component.
const loggerKey = "logger"

// Handle implements [slog.Handler]. It never fails the agent: what cannot be sent
// is counted.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	s := h.shared
	dropped, ok := s.admit()
	if !ok {
		return nil
	}
	e := h.entry(ctx, r, dropped)
	if turn := agenttrace.TurnFromContext(ctx); turn != nil {
		turn.Data("log", "", e)
	}
	s.mu.Lock()
	by := s.channel
	s.mu.Unlock()
	if s.options.Notify == nil {
		return nil
	}
	var err error
	switch {
	case by == byLog:
		err = s.options.Notify(ctx, "log", e)
	case by == byNotice && e.SessionID != "":
		err = s.options.Notify(ctx, "session/update", e.notice())
	}
	if err != nil {
		s.mu.Lock()
		s.failed++
		s.mu.Unlock()
	}
	return nil
}

// admit takes a record's share of the rate. It returns how many records were
// dropped since the last one that was not.
func (s *shared) admit() (dropped int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Now()
	if passed := now.Sub(s.filled).Seconds(); passed > 0 {
		s.tokens = min(float64(s.options.Burst), s.tokens+passed*float64(s.options.PerSecond))
		s.filled = now
	}
	if s.tokens < 1 {
		s.dropped++
		return 0, false
	}
	s.tokens--
	dropped, s.dropped = s.dropped, 0
	return dropped, true
}

// Failed is how many notifications could not be sent.
func (h *Handler) Failed() int64 {
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	return h.shared.failed
}
