package document

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// quoted is a text as a JSON string.
func quoted(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always encodes
	return raw
}

// subjects are the keys of an input that state what a call is about, in the order in which they are preferred.
var subjects = []string{
	"command", "cmd", "path", "file_path", "filePath", "filename", "pattern", "query", "url", "description", "prompt",
	"name", "title", "q",
}

// Subject finds what a call is about and what is left of the input besides.
func Subject(input json.RawMessage) (string, json.RawMessage) {
	if len(input) == 0 || string(input) == "null" {
		return "", nil
	}
	keys, values, ok := Object(input)
	if !ok {
		text := Value(input)
		if strings.Contains(strings.TrimSpace(text), "\n") {
			return text, input
		}
		return text, nil
	}
	for _, want := range subjects {
		at := slices.Index(keys, want)
		if at < 0 {
			continue
		}
		var text string
		if json.Unmarshal(values[at], &text) != nil || strings.TrimSpace(text) == "" {
			continue
		}
		switch {
		case strings.Contains(strings.TrimSpace(text), "\n"):
			return text, input
		case len(keys) == 1:
			return text, nil
		}
		return text, assemble(slices.Delete(keys, at, at+1), slices.Delete(values, at, at+1))
	}
	if len(keys) == 1 {
		if text := Value(values[0]); !strings.Contains(text, "\n") {
			return keys[0] + ": " + text, nil
		}
	}
	return "", input
}

// Outcome names for a viewer: what one word reports of a call.
const (
	OutcomeOK     = "ok"
	OutcomeFailed = "failed"
	OutcomeDenied = "denied"
	OutcomeLost   = "lost"
	OutcomeOpen   = "open"
)

// Outcome is what became of the call, in one word.
func (c *ToolCall) Outcome() string {
	switch {
	case c.Stub:
		return OutcomeLost
	case c.Denied:
		return OutcomeDenied
	case c.State == session.StateOutputAvailable:
		return OutcomeOK
	case c.State == session.StateOutputError:
		return OutcomeFailed
	}
	return OutcomeOpen
}

// Subject is what the call is about, such as its command or path, as far as its input shows it: "" where it does not.
func (c *ToolCall) Subject() string {
	what, _ := Subject(c.Input)
	return what
}
