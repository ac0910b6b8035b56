package acp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Of a session that never was a trace, a part may have the name of an update and
// mean something else by it. What is written as a message of the protocol must be
// one to every reader, so such a part has to conform to the published schema of
// version 1; what does not is left out.

// updateKind returns the kind of session/update that stands for a data part;
// false when there is none for it.
func updateKind(p *session.Part, data rows.Object, foreign bool) (string, bool) {
	kind, isData := strings.CutPrefix(p.Type, "data-")
	field, known := dataUpdates[kind]
	inner := data.Object("data")
	ok := isData && known && inner != nil && (field == "" || inner.Has(field)) && plausible(kind, inner) && (!foreign || conforms(kind, inner))
	return kind, ok
}

// plausible says that an update has the shape that its kind wants, so that a
// part of the same name that came from elsewhere is not taken for one.
func plausible(kind string, o rows.Object) bool {
	switch kind {
	case "plan":
		return each(o, "entries", "content", "priority", "status")
	case "available_commands_update":
		return each(o, "availableCommands", "name", "description")
	case "config_option_update":
		return rows.Elements(o.Get("configOptions")) != nil
	case "usage_update":
		return o.Has("size")
	case "notice":
		return o.Text("title") != ""
	}
	return true
}

func each(o rows.Object, list string, keys ...string) bool {
	items := rows.Elements(o.Get(list))
	for _, raw := range items {
		item, err := rows.Parse(raw)
		if err != nil || slices.ContainsFunc(keys, func(key string) bool { return item.Text(key) == "" }) {
			return false
		}
	}
	return items != nil
}

// conforms says that an update is valid by the schema of version 1. Kinds that
// only drafts and version 2 have are not, nor are those that a session which was
// no trace has no reason to hold.
func conforms(kind string, o rows.Object) bool {
	switch kind {
	case "plan":
		for _, raw := range rows.Elements(o.Get("entries")) {
			entry, _ := rows.Parse(raw) // plausible by now
			if !slices.Contains([]string{"high", "medium", "low"}, entry.Text("priority")) ||
				!slices.Contains([]string{"pending", "in_progress", "completed"}, entry.Text("status")) {
				return false
			}
		}
		return true
	case "available_commands_update":
		for _, raw := range rows.Elements(o.Get("availableCommands")) {
			command, _ := rows.Parse(raw) // plausible by now
			if _, hint := rows.Text(command.Object("input").Get("hint")); command.Has("input") && !hint {
				return false
			}
		}
		return true
	case "current_mode_update":
		return texts(o, "currentModeId")
	case "session_info_update":
		return (!o.Has("title") || texts(o, "title")) && (!o.Has("updatedAt") || texts(o, "updatedAt"))
	case "usage_update":
		cost := o.Object("cost")
		var amount float64
		return counts(o, "used", "size") &&
			(!o.Has("cost") || texts(cost, "currency") && json.Unmarshal(cost.Get("amount"), &amount) == nil)
	case "notice":
		return texts(o, "severity", "title") && (!o.Has("description") || texts(o, "description"))
	case "compaction_update":
		return texts(o, "compactionId", "status") && !o.Has("summary") && !o.Has("error")
	}
	return false
}

// texts says that the fields are strings.
func texts(o rows.Object, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		_, ok := rows.Text(o.Get(key))
		return !ok
	})
}

// counts says that the fields are whole numbers, none below zero.
func counts(o rows.Object, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		var n uint64
		return !o.Has(key) || json.Unmarshal(o.Get(key), &n) != nil
	})
}

// logLevels are those of RFC 5424.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// isLog says that the data of a data-log part is what the notification needs.
func isLog(o rows.Object, foreign bool) bool {
	return o.Has("level") && o.Has("message") && (!foreign || texts(o, "message") && slices.Contains(logLevels, o.Text("level")))
}

// isQuestion says that the data of a data-permission part is what a request needs.
func isQuestion(o rows.Object, foreign bool) bool {
	if askedAbout(o) == "" || rows.Elements(o.Get("options")) == nil {
		return false
	}
	if !foreign {
		return true
	}
	for _, raw := range rows.Elements(o.Get("options")) {
		option, err := rows.Parse(raw)
		if err != nil || !texts(option, "optionId", "name") ||
			!slices.Contains([]string{"allow_once", "allow_always", "reject_once", "reject_always"}, option.Text("kind")) {
			return false
		}
	}
	// Of the call only what every reader takes; its own part says the rest.
	call := o.Object("toolCall")
	if len(call.Without("toolCallId", "title")) > 0 || call.Text("toolCallId") == "" || call.Has("title") && !texts(call, "title") {
		return false
	}
	switch outcome := o.Object("outcome"); outcome.Text("outcome") {
	case "selected":
		return texts(outcome, "optionId")
	case "cancelled":
		return true
	}
	return !o.Has("outcome") && !o.Has("response") && !o.Has("error")
}
