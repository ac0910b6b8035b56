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

// noMessage replaces an empty message, which a client would show as an empty line.
const noMessage = "(no message)"

func (h *Handler) entry(ctx context.Context, r slog.Record) entry {
	e := entry{Level: severity(r.Level), Message: r.Message, SessionID: h.shared.sessionID(ctx), Logger: h.logger}
	if !r.Time.IsZero() {
		e.Timestamp = r.Time.UTC().Format(time.RFC3339Nano)
	}
	var data object
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
	redactor := h.shared.options.Redactor
	e.Message, e.Logger = redactor.Text(e.Message), redactor.Text(e.Logger)
	if len(data.members) > 0 {
		e.Data = redactor.JSON(data.appendTo(nil))
	}
	return e
}

// sessionID is the client's id of the session of ctx.
func (s *shared) sessionID(ctx context.Context) (id string) {
	defer func() { _ = recover() }() // the agent's function; then the record is of the connection
	return s.options.SessionID(ctx)
}

// shorten cuts what is too long for a client.
func (s *shared) shorten(e entry) entry {
	e.Message, _ = s.cutter.Truncate(e.Message)
	if strings.TrimSpace(e.Message) == "" {
		e.Message = noMessage
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

// severities are the levels of RFC 5424, the most severe first, each with the class of its
// records and the severity of their notices.
var severities = []struct {
	least  slog.Level
	name   string
	class  int
	notice string
}{
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

// severityAt returns the index of a level in severities. Levels between two names have the
// lower one's.
func severityAt(l slog.Level) int {
	i := 0
	for l < severities[i].least {
		i++
	}
	return i
}

func severity(l slog.Level) string { return severities[severityAt(l)].name }
func classOf(l slog.Level) int     { return severities[severityAt(l)].class }

// notice is the session update by which a client without logging gets a
// record.
type notice struct {
	SessionID string `json:"sessionId"`
	Update    struct {
		SessionUpdate string         `json:"sessionUpdate"`
		Severity      string         `json:"severity"`
		Title         string         `json:"title"`
		Meta          map[string]any `json:"_meta,omitempty"`
	} `json:"update"`
}

func (e *entry) notice() notice {
	var n notice
	n.SessionID = e.SessionID
	n.Update.SessionUpdate, n.Update.Title = "notice", e.Message
	for _, s := range severities {
		if s.name == e.Level {
			n.Update.Severity = s.notice
		}
	}
	// What a notice has no field for.
	n.Update.Meta = map[string]any{"agenttrace.level": e.Level}
	if e.Logger != "" {
		n.Update.Meta["agenttrace.logger"] = e.Logger
	}
	if e.Timestamp != "" {
		n.Update.Meta["agenttrace.timestamp"] = e.Timestamp
	}
	if e.Data != nil {
		n.Update.Meta["agenttrace.data"] = e.Data
	}
	return n
}
