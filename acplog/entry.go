package acplog

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"
)

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
