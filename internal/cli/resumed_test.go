package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
)

// TestReplayOfAResumedConversationSaysWhatWasNotRecorded: a client that resumed a
// conversation repeats in its first recorded request what the store does not have. No turn
// that was given it is eligible, and the count of the messages is reported.
func TestReplayOfAResumedConversationSaysWhatWasNotRecorded(t *testing.T) {
	chat := func(trace, at, input, answer string) string {
		return `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"app"}}]},` +
			`"scopeSpans":[{"scope":{"name":"app"},"spans":[{` +
			`"traceId":"` + strings.Repeat(trace, 32) + `","spanId":"` + strings.Repeat(trace, 16) +
			`","name":"chat m","kind":3,` +
			`"startTimeUnixNano":"` + at + `000000000","endTimeUnixNano":"` + at + `500000000","attributes":[` +
			`{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},{"key":"gen_ai.request.model",` +
			`"value":{"stringValue":"m"}},` +
			`{"key":"gen_ai.provider.name","value":{"stringValue":"openai"}},{"key":"gen_ai.conversation.id",` +
			`"value":{"stringValue":"c"}},` +
			`{"key":"gen_ai.system_instructions","value":{"stringValue":"[{\"type\":\"text\",\"content\":\"Be ` +
			`brief.\"}]"}},` +
			`{"key":"gen_ai.tool.definitions",` +
			`"value":{"stringValue":"[{\"type\":\"function\",\"name\":\"ls\",` +
			`\"parameters\":{\"type\":\"object\"}}]"}},` +
			`{"key":"gen_ai.input.messages","value":{"stringValue":"` + strings.ReplaceAll(input, `"`, `\"`) + `"}},` +
			`{"key":"gen_ai.output.messages","value":{"stringValue":"` +
			strings.ReplaceAll(list(message("assistant", answer)),
				`"`, `\"`) + `"}}]}]}]}]}`
	}
	one := message("user", "One?") + message("assistant", "1")
	two := one + message("user", "Two?") + message("assistant", "2")
	three := two + message("user", "Three?") + message("assistant", "3")
	four := three + message("user", "Four?") + message("assistant", "4")
	turns := []string{
		chat("a", "1795198540", list(message("user", "One?")), "1"),
		chat("b", "1795198550", list(one+message("user", "Two?")), "2"),
		chat("c", "1795198560", list(two+message("user", "Three?")), "3"),
		chat("d", "1795198570", list(three+message("user", "Four?")), "4"),
		chat("e", "1795198580", list(four+message("user", "Five?")), "5"),
	}
	for _, c := range []struct {
		name     string
		recorded []int
		want     []string // for each turn why it is not eligible
		notices  int
	}{
		{"all", []int{0, 1, 2, 3, 4}, []string{"", "", "", "", ""}, 0},
		{"resumed", []int{2, 3}, []string{
			"not recorded: 4 messages of 2 turns before turn 1, which its first request repeats",
			"not recorded: 4 messages of 2 turns before turn 1, which its first request repeats",
		}, 1},
		{"a gap", []int{0, 3, 4}, []string{
			"", "not recorded: 2 turns before turn 2, which its first request repeats",
			"not recorded: 2 turns before turn 2, which its first request repeats",
		}, 1},
		{"resumed, then a gap", []int{1, 3}, []string{
			"not recorded: 2 messages of 1 turn before turn 1, which its first request repeats",
			"not recorded: 2 messages of 1 turn before turn 1, which its first request repeats; not recorded: 1 turn " +
				"before turn 2, which its first request repeats",
		}, 2},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "s.db")
		for _, i := range c.recorded {
			body := filepath.Join(dir, "body.json")
			testscale.WriteFile(t, body, turns[i])
			command(t, 0, "--store", path, "import", body)
		}
		code := 0
		if c.notices > 0 {
			code = 1
		}
		got := decode[document.Eligibility](t, command(t, code, "--store", path, "replay", "last", "--json"))
		if len(got.Turns) != len(c.want) || got.Eligible != (c.notices == 0) {
			t.Errorf("%s: %d turns, eligible %t", c.name, len(got.Turns), got.Eligible)
			continue
		}
		for i, turn := range got.Turns {
			var why []string
			for _, m := range turn.Missing {
				why = append(why, m.Why)
			}
			if text := strings.Join(why, "; "); text != c.want[i] {
				t.Errorf("%s, turn %d: %q, want %q", c.name, i+1, text, c.want[i])
			}
		}
		if n := strings.Count(command(t, 0, "--store", path, "store", "check"), "[history]"); n != c.notices {
			t.Errorf("%s: check lists %d notices, want %d", c.name, n, c.notices)
		}
		if n := strings.Count(command(t, 0, "--store", path, "show", "last"), "… not recorded: "); n != c.notices {
			t.Errorf("%s: show says it %d times, want %d", c.name, n, c.notices)
		}
		if n := decode[[]document.Item](t, command(t, 0, "--store", path, "ls", "--json"))[0].Notices; n != c.notices {
			t.Errorf("%s: ls counts %d notices, want %d", c.name, n, c.notices)
		}
	}
}

func message(role, text string) string {
	return `{"role":"` + role + `","parts":[{"type":"text","content":"` + text + `"}]},`
}

func list(messages string) string { return "[" + strings.TrimSuffix(messages, ",") + "]" }
