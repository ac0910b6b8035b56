package acplog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// entry is a record as the notification log has it, and the data of a data-log
// part.
type entry struct {
	// Level is one of RFC 5424: debug, info, notice, warning, error, critical, alert
	// or emergency.
	Level     string         `json:"level"`
	Message   string         `json:"message"`
	SessionID string         `json:"sessionId,omitempty"`
	Logger    string         `json:"logger,omitempty"`
	Timestamp string         `json:"timestamp,omitempty"` // RFC 3339
	Data      map[string]any `json:"data,omitempty"`
}

// droppedKey tells in Data how many records were dropped before one.
const droppedKey = "agenttrace.dropped"

func (h *Handler) entry(ctx context.Context, r slog.Record, dropped int64) entry {
	e := entry{Level: severity(r.Level), Message: r.Message, SessionID: h.shared.options.SessionID(ctx), Logger: h.logger}
	if !r.Time.IsZero() {
		e.Timestamp = r.Time.UTC().Format(time.RFC3339Nano)
	}
	data := make(map[string]any)
	for _, g := range h.attrs {
		for _, a := range g.attrs {
			put(data, g.groups, a)
		}
	}
	r.Attrs(func(a slog.Attr) bool {
		if v := a.Value.Resolve(); len(h.groups) == 0 && a.Key == loggerKey && v.Kind() == slog.KindString {
			e.Logger = v.String()
		} else {
			put(data, h.groups, a)
		}
		return true
	})
	if dropped > 0 {
		data[droppedKey] = dropped
	}
	h.clean(&e, data)
	return e
}

// clean takes secrets out of what is sent.
func (h *Handler) clean(e *entry, data map[string]any) {
	redactor := h.shared.options.Redactor
	e.Message = redactor.Text(e.Message)
	if len(data) == 0 {
		return
	}
	raw, err := json.Marshal(data)
	if err != nil {
		raw, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	var clean map[string]any
	if json.Unmarshal(redactor.JSON(raw), &clean) == nil {
		e.Data = clean
	}
}

// severity names a level. Levels between two names have the lower one's.
func severity(l slog.Level) string {
	switch {
	case l >= LevelEmergency:
		return "emergency"
	case l >= LevelAlert:
		return "alert"
	case l >= LevelCritical:
		return "critical"
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	case l >= LevelNotice:
		return "notice"
	case l >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}

// put stores an attribute below its groups. A group without a name is laid open,
// an empty one is left out, as slog has it.
func put(data map[string]any, groups []string, a slog.Attr) {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) || v.Kind() == slog.KindGroup && len(v.Group()) == 0 {
		return
	}
	for _, g := range groups {
		inner, ok := data[g].(map[string]any)
		if !ok {
			inner = make(map[string]any)
			data[g] = inner
		}
		data = inner
	}
	if v.Kind() != slog.KindGroup {
		data[a.Key] = plain(v)
		return
	}
	var below []string
	if a.Key != "" {
		below = []string{a.Key}
	}
	for _, inner := range v.Group() {
		put(data, below, inner)
	}
}

// plain is a value that JSON can hold.
func plain(v slog.Value) any {
	switch v.Kind() {
	case slog.KindDuration:
		return v.Duration().String()
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	case slog.KindFloat64:
		f := v.Float64()
		if f-f != 0 { // infinite, or no number
			return fmt.Sprint(f)
		}
		return f
	case slog.KindAny:
		switch x := v.Any().(type) {
		case json.Marshaler:
		case error:
			return x.Error()
		case fmt.Stringer:
			return x.String()
		}
		if _, err := json.Marshal(v.Any()); err != nil {
			return fmt.Sprintf("%+v", v.Any())
		}
	}
	return v.Any()
}

// notice is the session update by which a client without logging hears of a
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
	switch e.Level {
	case "debug", "info", "notice":
		n.Update.Severity = "info"
	case "warning":
		n.Update.Severity = "warning"
	default:
		n.Update.Severity = "error"
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
