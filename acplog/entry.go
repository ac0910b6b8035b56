package acplog

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"time"
)

// entry is a record as the notification log has it, and the data of a data-log
// part.
type entry struct {
	level slog.Level

	// Level is one of RFC 5424: debug, info, notice, warning, error, critical, alert
	// or emergency.
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
		level: r.Level, Level: severityOf(r.Level).name, Message: r.Message, SessionID: h.shared.sessionID(ctx),
		Logger: h.logger,
	}
	if !r.Time.IsZero() {
		e.Timestamp = r.Time.UTC().Format(time.RFC3339Nano)
	}
	data := make(object)
	for _, g := range h.attrs {
		for _, a := range g.attrs {
			data.put(g.groups, a, 0, new(maxAttrs))
		}
	}
	r.Attrs(func(a slog.Attr) bool {
		if name, ok := component(a); ok && len(h.groups) == 0 {
			e.Logger = name
		} else {
			data.put(h.groups, a, 0, new(maxAttrs))
		}
		return true
	})
	// The id of the session is the client's own; every other text may hold a secret.
	redactor := h.shared.Redactor
	e.Message, e.Logger = redactor.Text(e.Message), redactor.Text(e.Logger)
	if len(data) > 0 {
		e.Data = redactor.JSON(encode(data))
	}
	return e
}

// sessionID is the client's id of the session of ctx.
func (s *shared) sessionID(ctx context.Context) (id string) {
	defer func() { _ = recover() }() // the agent's function; then the record is of the connection
	return s.SessionID(ctx)
}

// shorten cuts what is too long for a client.
func (s *shared) shorten(e entry) entry {
	e.Message, _ = s.cutter.Truncate(e.Message)
	if strings.TrimSpace(e.Message) == "" {
		e.Message = "(no message)" // which a client would show as an empty line
	}
	e.Logger, _ = s.cutter.Truncate(e.Logger)
	if len(e.Data) == 0 {
		return e
	}
	e.Data, _ = s.cutter.TruncateJSON(e.Data)
	if e.Data[0] != '{' { // where even the names are too long
		e.Data = append(append([]byte(`{"agenttrace.truncated":`), e.Data...), '}')
	}
	return e
}

// Classes of severity, each with a rate of its own.
const (
	classDebug = iota
	classInfo
	classNotice
	classWarning
	classError
	classWorse
	classes
)

// shares are what classes have of the rate.
var shares = [classes]float64{0.5, 1, 0.25, 0.25, 1, 1}

// severity is a level of RFC 5424, with the class of its records and the severity of their notices.
type severity struct {
	least  slog.Level
	name   string
	class  int
	notice string
}

// severities are the levels, the most severe first.
var severities = []severity{
	{LevelEmergency, "emergency", classWorse, "error"},
	{LevelAlert, "alert", classWorse, "error"},
	{LevelCritical, "critical", classWorse, "error"},
	{slog.LevelError + 1, "error", classWorse, "error"},
	{slog.LevelError, "error", classError, "error"},
	{slog.LevelWarn, "warning", classWarning, "warning"},
	{LevelNotice, "notice", classNotice, "info"},
	{slog.LevelInfo, "info", classInfo, "info"},
	{math.MinInt, "debug", classDebug, "info"},
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
