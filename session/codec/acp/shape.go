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

// updateKind returns the kind of session/update that a data part is; false if it is not one.
func updateKind(p *session.Part, inner rows.Object, foreign bool) (string, bool) {
	kind, isData := strings.CutPrefix(p.Type, "data-")
	return kind, isData && slices.Contains(dataUpdates, kind) && inner != nil && (!foreign || conforms(kind, inner))
}

// each reports whether a list has elements that are valid.
func each(o rows.Object, list string, valid func(rows.Object) bool) bool {
	items := rows.Elements(o.Get(list))
	return items != nil && !slices.ContainsFunc(items, func(raw json.RawMessage) bool {
		item, err := rows.Parse(raw)
		return err != nil || !valid(item)
	})
}

// oneOf reports whether a field is one of the words.
func oneOf(o rows.Object, key string, words ...string) bool {
	return slices.Contains(words, o.Text(key))
}

// conforms reports whether an update is valid by the schema of version 1. Kinds that
// only drafts and version 2 have are not, nor are those that a session which was
// no trace has no reason to hold.
func conforms(kind string, o rows.Object) bool {
	optional := func(key string) bool { return !o.Has(key) || isString(o, key) }
	switch kind {
	case "plan":
		return each(o, "entries", func(entry rows.Object) bool {
			return entry.Text("content") != "" && oneOf(entry, "priority", "high", "medium", "low") &&
				oneOf(entry, "status", "pending", "in_progress", "completed")
		})
	case "available_commands_update":
		return each(o, "availableCommands", func(c rows.Object) bool {
			return c.Text("name") != "" && c.Text("description") != "" &&
				(!c.Has("input") || isString(c.Object("input"), "hint"))
		})
	case "current_mode_update":
		return isString(o, "currentModeId")
	case "session_info_update":
		return optional("title") && optional("updatedAt")
	case "usage_update":
		cost := o.Object("cost")
		var amount float64
		return counts(o, "used", "size") &&
			(!o.Has("cost") || isString(cost, "currency") && json.Unmarshal(cost.Get("amount"), &amount) == nil)
	case "notice":
		return isString(o, "severity", "title") && o.Text("title") != "" && optional("description")
	case "compaction_update":
		return isString(o, "compactionId", "status") && !o.Has("summary") && !o.Has("error")
	}
	return false
}

// counts reports whether the fields are whole numbers, none below zero.
func counts(o rows.Object, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		var n uint64
		return !o.Has(key) || json.Unmarshal(o.Get(key), &n) != nil
	})
}

// logLevels are those of RFC 5424.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// isLog reports whether the data of a data-log part is a notification.
func isLog(o rows.Object, foreign bool) bool {
	return o.Has("level") && o.Has("message") &&
		(!foreign || isString(o, "message") && slices.Contains(logLevels, o.Text("level")))
}

// isQuestion reports whether the data of a data-permission part is a request for permission.
func isQuestion(o rows.Object, foreign bool) bool {
	if askedAbout(o) == "" || rows.Elements(o.Get("options")) == nil {
		return false
	}
	if !foreign {
		return true
	}
	if !each(o, "options", func(option rows.Object) bool {
		return isString(option, "optionId", "name") && answers[option.Text("kind")].outcome != ""
	}) {
		return false
	}
	// Of the call only what every reader takes; its own part has the rest.
	call := o.Object("toolCall")
	if len(call.Without("toolCallId", "title")) > 0 || call.Text("toolCallId") == "" ||
		call.Has("title") && !isString(call, "title") {
		return false
	}
	switch outcome := o.Object("outcome"); outcome.Text("outcome") {
	case "selected":
		return isString(outcome, "optionId")
	case "cancelled":
		return true
	}
	return !o.Has("outcome") && !o.Has("response") && !o.Has("error")
}
