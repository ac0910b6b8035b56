// Package acplog sends an agent's slog records to the client that it talks to
// over the Agent Client Protocol, and into the session that it works on.
//
//	handler := acplog.New(acplog.Options{Notify: conn.Notify})
//	logger := slog.New(handler)
//	…
//	handler.Initialize(params) // of the client's initialize request
//	logger.WarnContext(ctx, "rate limited, retrying", "logger", "model", "retryIn", 5)
//
// A client that declared clientCapabilities.logging gets the notification log. One that declared
// clientCapabilities.session.notices gets the session update notice, which needs a session. Any other client gets
// nothing, and no client gets anything before Initialize.
//
// The same records are in the session as data-log parts of the turn that the context carries: they are diagnostics,
// and never text of the conversation. The session gets every record; only what the client gets is limited.
//
// # The client cannot harm the agent
//
// Notifications are sent one after the other, by goroutines that run only while there is something to send.
// [Handler.Handle] waits a moment for its own record to go out, so that the client has it before the agent's next
// message; a client that does not read, or reads slowly, costs that moment at most once a second. To be sure, call
// [Handler.Flush], as before the agent exits. The queue of a slow client fills, and then records are dropped, the
// least severe first. A part of the rate is kept for severe records. What was dropped is counted in the next record,
// or in one of its own that Flush sends.
//
// A client that is gone would kill the agent: Go ends a program that writes to a closed standard output. So
// [Handler.Initialize] takes SIGPIPE over, once it knows that it talks to a client that wants records; such a write
// then fails with EPIPE. This does not concern the agent's child processes.
//
// # The usual SDK
//
// The agent's connection of github.com/coder/acp-go-sdk has no way to send log. A
// [Wire] shares the agent's streams with it:
//
//	wire := acplog.NewWire(os.Stdin, os.Stdout)
//	handler := acplog.New(acplog.Options{Notify: wire.Notify})
//	wire.OnInitialize(handler.Initialize)
//	conn := acp.NewAgentSideConnection(agent, wire, wire)
package acplog

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	// Notify sends a JSON-RPC notification to the client. Calls do not overlap. The context has the values of the
	// logger's, is not canceled with it, and ends after a few seconds. Notify must not log through the handler. Its
	// errors and panics are counted: logs are no reliable transport.
	Notify func(ctx context.Context, method string, params any) error

	// Level is the least level that is handled; nil means slog.LevelInfo.
	Level slog.Leveler

	// Logger names the component where neither the attribute "logger" nor [Handler.WithGroup] does.
	Logger string

	// SessionID returns the client's id of the session that the context belongs to, or "" for what concerns the
	// connection. Nil means the id of the agenttrace session in the context.
	SessionID func(context.Context) string

	// PerSecond is how many records a second the client is sent in the long run, Burst how many at once. 0 means 20
	// and 100. Debug records use half of it at most, info records three quarters, and errors leave some of it for what
	// is worse, so that lesser records do not keep the severe ones from the client. What is beyond is dropped for the
	// client, and kept in the session.
	PerSecond, Burst int

	// MaxBytes is how long a message, and how long the data of a record, may be for
	// the client. The rest is cut, with a mark that has the size. 0 means 16 KiB.
	MaxBytes int

	// Redactor takes secrets out of messages and data. Nil means the default one of
	// package redact; set KeepSecrets to have none.
	Redactor    *redact.Redactor
	KeepSecrets bool

	// Now is the clock of the rate limit; nil means time.Now.
	Now func() time.Time
}

// Handler is a [slog.Handler]. It is safe for concurrent use.
type Handler struct {
	client *client // of this handler and those made from it
	// with are the calls of WithAttrs and WithGroup, in order.
	with []func(slog.Handler) slog.Handler
}

// New returns a handler that sends nothing until [Handler.Initialize].
func New(o Options) *Handler {
	if o.Level == nil {
		o.Level = slog.LevelInfo
	}
	if o.SessionID == nil {
		o.SessionID = func(ctx context.Context) string { return agenttrace.SessionFromContext(ctx).ID() }
	}
	for limit, usual := range map[*int]int{&o.PerSecond: 20, &o.Burst: 100, &o.MaxBytes: 16 << 10} {
		if *limit <= 0 {
			*limit = usual
		}
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
	// The limits are in range, so that there is no error.
	limit := max(o.MaxBytes, redact.MinLimit)
	cutter, _ := redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: limit})
	return &Handler{client: &client{Options: o, cutter: cutter, filled: o.Now(), left: float64(o.Burst)}}
}

var defaultRedactor = sync.OnceValue(func() *redact.Redactor {
	r, err := redact.New(redact.Config{})
	if err != nil {
		panic("acplog: " + err.Error()) // the defaults are sound, or the tests of redact fail
	}
	return r
})

// Initialize reads the parameters of a client's initialize request: what it declares decides whether and how it
// gets records. A client that connects again initializes again. Parameters that cannot be read declare nothing; the
// error states why.
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
	h.client.listen(c)
	if c != silent {
		surviveSIGPIPE()
	}
	return err
}

// surviveSIGPIPE has a write to a closed standard output fail instead of ending the program. To be notified of the
// signal is enough, and unlike ignoring it is not passed on to child processes. Nobody reads the channel.
var surviveSIGPIPE = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })

// declared reports whether a capability is there: an object, or true.
func declared(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "false"
}

// Enabled implements [slog.Handler].
func (h *Handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.client.Level.Level()
}

// WithAttrs implements [slog.Handler]. An attribute "logger" outside of any group names the component.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.after(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

// WithGroup implements [slog.Handler].
func (h *Handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.after(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (h *Handler) after(with func(slog.Handler) slog.Handler) *Handler {
	return &Handler{h.client, append(slices.Clip(h.with), with)}
}

// Handle implements [slog.Handler]. It never fails the agent: what cannot be sent
// is counted. That ctx is canceled does not matter.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	wanted := h.client.wants(r.Level)
	turn := agenttrace.TurnFromContext(ctx)
	if turn == nil && !wanted {
		return nil
	}
	e := h.entry(ctx, r)
	if turn != nil {
		turn.Data("log", "", e)
	}
	if wanted {
		h.client.send(context.WithoutCancel(ctx), h.client.shorten(e))
	}
	return nil
}

// Failed is how many notifications could not be sent.
func (h *Handler) Failed() int64 {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	return h.client.failed
}

// Flush waits until the client was sent what was logged before, or ctx ends, which is
// the error. An agent calls it before it exits.
func (h *Handler) Flush(ctx context.Context) error { return h.client.flush(ctx) }

// Close flushes, and then nothing more is sent to the client. Records still reach the
// session. To close is not necessary: a handler that has nothing to send holds nothing.
func (h *Handler) Close(ctx context.Context) error {
	err := h.client.flush(ctx)
	h.client.listen(silent)
	return err
}

// entry is a record as the notification log has it, and the data of a data-log part.
type entry struct {
	level slog.Level

	// Level is one of RFC 5424: debug, info, notice, warning, error, critical, alert or emergency.
	Level     string `json:"level"`
	Message   string `json:"message"`
	SessionID string `json:"sessionId,omitempty"`
	Logger    string `json:"logger,omitempty"`
	Timestamp string `json:"timestamp,omitempty"` // RFC 3339
	// Data is an object.
	Data json.RawMessage `json:"data,omitempty"`
}

func (h *Handler) entry(ctx context.Context, r slog.Record) entry {
	e := entry{
		level: r.Level, Level: severityOf(r.Level).name, Message: r.Message, SessionID: h.client.sessionID(ctx),
		Logger: h.client.Logger,
	}
	if !r.Time.IsZero() {
		e.Timestamp = r.Time.UTC().Format(time.RFC3339Nano)
	}
	var text bytes.Buffer
	to := slog.NewJSONHandler(&text, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			switch {
			case len(groups) == 0: // level and message
				return slog.Attr{}
			case len(groups) == 1 && a.Key == "logger":
				if e.Logger = ""; a.Value.Kind() == slog.KindString {
					e.Logger = a.Value.String()
				}
				return slog.Attr{}
			}
			a.Value = readable(a.Value)
			return a
		},
	}).WithGroup("data")
	for _, with := range h.with {
		to = with(to)
	}
	attrs := slog.NewRecord(time.Time{}, r.Level, "", 0)
	r.Attrs(func(a slog.Attr) bool {
		attrs.AddAttrs(a)
		return true
	})
	_ = to.Handle(ctx, attrs) // a buffer takes everything
	// The id of the session is the client's own; every other text may hold a secret.
	redactor := h.client.Redactor
	var out struct{ Data json.RawMessage }
	if json.Unmarshal(text.Bytes(), &out) == nil && len(out.Data) > 0 {
		e.Data = redactor.JSON(out.Data)
	}
	e.Message, e.Logger = redactor.Text(e.Message), redactor.Text(e.Logger)
	return e
}

// readable returns a value of which slog's handler for JSON writes what people read: a duration is a text, and so is
// a number that JSON lacks, and what has a String method and none for an encoding.
func readable(v slog.Value) slog.Value {
	switch x := v.Any().(type) {
	case float64:
		if x-x == 0 { // neither infinite nor no number
			return v
		}
	case time.Duration:
	case json.Marshaler, encoding.TextMarshaler, json.Number, error, time.Time:
		return v
	case fmt.Stringer:
	default:
		return v
	}
	return slog.StringValue(fmt.Sprint(v.Any())) // which recovers from a panic
}

// encode returns the JSON of what always has one.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return bytes.TrimSpace(b.Bytes())
}

// sessionID is the client's id of the session of ctx.
func (c *client) sessionID(ctx context.Context) (id string) {
	defer func() { _ = recover() }() // the agent's function; then the record is of the connection
	return c.SessionID(ctx)
}

// shorten cuts what is too long for a client.
func (c *client) shorten(e entry) entry {
	e.Message, _ = c.cutter.Truncate(e.Message)
	if strings.TrimSpace(e.Message) == "" {
		e.Message = "(no message)" // which a client would show as an empty line
	}
	e.Logger, _ = c.cutter.Truncate(e.Logger)
	if len(e.Data) == 0 {
		return e
	}
	e.Data, _ = c.cutter.TruncateJSON(e.Data)
	if e.Data[0] != '{' { // where even the names are too long
		e.Data = append(append([]byte(`{"agenttrace.truncated":`), e.Data...), '}')
	}
	return e
}

// severity is a level of RFC 5424, the share of the rate that is kept for more severe records, and the severity of
// notices.
type severity struct {
	least   slog.Level
	name    string
	reserve float64
	notice  string
}

// severities are the levels, the most severe first.
var severities = []severity{
	{LevelEmergency, "emergency", 0, "error"},
	{LevelAlert, "alert", 0, "error"},
	{LevelCritical, "critical", 0, "error"},
	{slog.LevelError + 1, "error", 0, "error"},
	{slog.LevelError, "error", 0.05, "error"},
	{slog.LevelWarn, "warning", 0.1, "warning"},
	{LevelNotice, "notice", 0.1, "info"},
	{slog.LevelInfo, "info", 0.25, "info"},
	{math.MinInt, "debug", 0.5, "info"},
}

// severityOf returns the severity of a level. Levels between two names have the lower one's.
func severityOf(l slog.Level) severity {
	i := 0
	for l < severities[i].least {
		i++
	}
	return severities[i]
}

// notice is the session update by which a client without logging gets a record. What a notice has no field for is
// in its _meta.
func (e *entry) notice() any {
	meta := map[string]any{"agenttrace.level": e.Level}
	for key, text := range map[string]string{"agenttrace.logger": e.Logger, "agenttrace.timestamp": e.Timestamp} {
		if text != "" {
			meta[key] = text
		}
	}
	if e.Data != nil {
		meta["agenttrace.data"] = e.Data
	}
	return map[string]any{"sessionId": e.SessionID, "update": map[string]any{
		"sessionUpdate": "notice", "severity": severityOf(e.level).notice, "title": e.Message, "_meta": meta,
	}}
}
