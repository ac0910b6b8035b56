package session

import (
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

// TypeContext is the type of a part with what a client put around the words of the user: {"text": …}.
const TypeContext = "data-context"

// contextTags are the elements that clients put before or after what the user wrote.
var contextTags = []string{
	"current_datetime", "environment_context", "environment_details", "environment_info", "workspace_info",
	"session_context", "hook_context", "user_info", "user_instructions", "permissions instructions", "turn_aborted",
	"subagent_notification", "user_shell_command", "skill", "system-reminder", "system_reminder",
	"system_notification", "ide_selection", "ide_opened_file", "ide_diagnostics", "reminderInstructions",
	"editorContext", "additional_data", "attached_files", "open_and_recently_viewed_files", "EXTRA_INFO", "timestamp",
	"task-notification", "git-context", "hook_prompt", "goal_context", "codex_internal_context", "recommended_plugins",
}

// wordTags are the elements that clients put what the user wrote into.
var wordTags = []string{"user_input", "user_query", "userRequest", "user_request", "user_command", "user_message"}

// ideContext and ideRequest are the headings that Codex has before the state of an editor and the user's words.
const ideContext, ideRequest = "# Context from my IDE setup:", "\n## My request for Codex:\n"

// agentContext is how Google's ADK reports what other agents did in the user's name.
var agentContext = lazy.Regexp(
	"^For context:\\s*(?:$|\\[[^\\]\n]+\\] (?:said: |called tool |`[^`]*` tool returned))")

// Words splits a text in the user's name into what the user wrote and what the client put around it, such as the time,
// the state of an editor or a reminder. tags are further elements that the client puts what the user wrote into. A text
// that is all the user's is returned as it is.
//
//	<current_datetime>2026-01-02</current_datetime> fix it   "fix it", "<current_datetime>2026-01-02</current_datetime>"
//	<user_input mode="act">fix it</user_input>               "fix it", `<user_input mode="act">`
func Words(text string, tags ...string) (own string, around []string) {
	rest := strings.TrimSpace(text)
	if agentContext().MatchString(rest) {
		return "", []string{rest}
	}
	if strings.HasPrefix(rest, "# AGENTS.md instructions") {
		_, after, _ := strings.Cut(rest, "</INSTRUCTIONS>")
		around, rest = append(around, rest[:len(rest)-len(after)]), strings.TrimSpace(after)
	}
	if before, after, ok := strings.Cut(rest, ideRequest); ok && strings.HasPrefix(rest, ideContext) {
		around, rest = append(around, before), strings.TrimSpace(after)
	}
	for _, tag := range append(tags, wordTags...) {
		start, end := strings.Index(rest, "<"+tag), strings.LastIndex(rest, "</"+tag+">")
		if start < 0 || end < start {
			continue
		}
		open, inner, closed := strings.Cut(rest[start:end], ">")
		before, plain := elements(rest[:start])
		after, plainToo := elements(rest[end+len(tag)+3:])
		if closed && plain && plainToo && (open == "<"+tag || open[len(tag)+1] == ' ') {
			if around = append(around, before...); open != "<"+tag {
				around = append(around, open+">")
			}
			rest, around = strings.TrimSpace(inner), append(around, after...)
			break
		}
	}
	for tag, e := element(rest); slices.Contains(contextTags, tag); tag, e = element(rest) {
		around, rest = append(around, e), strings.TrimSpace(rest[len(e):])
	}
	at := len(around)
	for {
		i := slices.IndexFunc(contextTags, func(tag string) bool { return strings.HasSuffix(rest, "</"+tag+">") })
		if i < 0 {
			break
		}
		start := strings.LastIndex(rest, "<"+contextTags[i])
		if start < 0 {
			break
		}
		around, rest = slices.Insert(around, at, rest[start:]), strings.TrimSpace(rest[:start])
	}
	if rest == strings.TrimSpace(text) {
		return text, nil
	}
	return rest, around
}

// elements returns the elements that a text consists of, and whether it consists of nothing else.
func elements(text string) (all []string, only bool) {
	text = strings.TrimSpace(text)
	for _, e := element(text); e != ""; _, e = element(text) {
		all, text = append(all, e), strings.TrimSpace(text[len(e):])
	}
	return all, text == ""
}

// element returns the element with which a text begins, and its tag; both are empty if it begins otherwise.
func element(text string) (tag, whole string) {
	open, _, _ := strings.Cut(text, ">")
	tag, ok := strings.CutPrefix(open, "<")
	if !ok {
		return "", ""
	}
	if !slices.Contains(contextTags, tag) { // it may have attributes
		tag, _, _ = strings.Cut(tag, " ")
	}
	end := strings.Index(text, "</"+tag+">")
	if tag == "" || end < 0 {
		return "", ""
	}
	return tag, text[:end+len(tag)+3]
}
