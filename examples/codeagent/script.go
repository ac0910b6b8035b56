package codeagent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// demoPrompts are the user messages of the demo. Those that begin with a slash are
// commands for the agent.
func demoPrompts(model string) []string {
	prompts := []string{"/plan", askWhy, "/build", askFix, askCheck, askPush}
	if model == defaultModel {
		prompts = append(prompts[:4:4], "/model gpt-5 high", askCheck, askPush)
	}
	return prompts
}

const (
	askWhy   = "The tests of this project fail. Find out why, but change nothing yet."
	askFix   = "Fix it."
	askCheck = "Check it against the sample text, and have the change reviewed."
	askPush  = "Remove what you left behind, then push."
)

// rateLimited is the request that the scripted model refuses once.
const rateLimited = "fix_0"

// reply is the output of the model: reasoning, text and tool calls; or the reason why the
// script cannot go on.
type reply struct {
	reasoning, text string
	calls           []scriptedCall
	stuck           string
}

// stuck is the reply to a step that did not happen as the script expects it.
func stuck(step, got string) reply {
	got = strings.Join(strings.Fields(got), " ")
	return reply{stuck: fmt.Sprintf("the script of the demo cannot go on: %s: got %.300q", step, got)}
}

type scriptedCall struct {
	name string
	args map[string]any
}

func (c scriptedCall) arguments() string {
	if c.args == nil {
		return "{}"
	}
	b, _ := json.Marshal(c.args) // never fails for strings and numbers
	return string(b)
}

// conversation is what a model gets: the messages of one request.
type conversation struct {
	scene    string
	step     int // answers since the last user message
	messages []message
}

func newConversation(req chatRequest) *conversation {
	c := &conversation{scene: "other", messages: req.Messages}
	system := ""
	for _, m := range req.Messages {
		switch m.Role {
		case "system":
			system = m.Content
		case "assistant":
			c.step++
		case "user":
			c.step = 0
			c.scene = "other"
			if s, ok := scenes[m.Content]; ok {
				c.scene = s
			}
		}
	}
	switch system {
	case summaryPrompt:
		c.scene = "summary"
	case reviewPrompt:
		c.scene = "review"
	}
	return c
}

var scenes = map[string]string{askWhy: "why", askFix: "fix", askCheck: "check", askPush: "push"}

// key identifies a request: the scene and the step in it.
func (c *conversation) key() string { return fmt.Sprintf("%s_%d", c.scene, c.step) }

// result returns the output of the i-th call of a step of this scene.
func (c *conversation) result(step, i int) string {
	id := fmt.Sprintf("call_%s_%d_%d", c.scene, step, i)
	for _, m := range c.messages {
		if m.ToolCallID == id {
			return m.Content
		}
	}
	return ""
}

// find searches the conversation for a pattern and returns the last match.
func (c *conversation) find(re *regexp.Regexp) string {
	for i := len(c.messages) - 1; i >= 0; i-- {
		if s := re.FindString(c.messages[i].Content); s != "" {
			return s
		}
	}
	return ""
}

var (
	// culprit counts bytes instead of characters.
	culprit  = regexp.MustCompile(`\bn := len\(word\)`)
	repaired = regexp.MustCompile(`\bn := len\(\[\]rune\(word\)\)`)
	patched  = regexp.MustCompile(`(?m)^\+.*len\(\[\]rune\(word\)\)`)
	failing  = regexp.MustCompile(`FAIL: TestLines/\w+`)
	passing  = regexp.MustCompile(`(?m)^ok\s+example.com/wrap\b`)
)

// verdict is what the sub-agent says of the change.
const verdict = "the change is right. " +
	"Runes are not yet what a reader sees as characters, though: a combining accent counts as one."

// reply is the script. It reads the output of the tools before it continues.
func (c *conversation) reply() reply {
	switch c.key() {
	case "why_0":
		return reply{
			reasoning: "I know nothing of this project. " +
				"The tests will say what is wrong, and the files where to look. Both at once.",
			text:  "I run the tests and look around.",
			calls: []scriptedCall{{"list", nil}, {"run", map[string]any{"command": "go test ./..."}}},
		}
	case "why_1":
		if !failing.MatchString(c.result(0, 1)) {
			return stuck(`"go test ./..." should report the failing test`, c.result(0, 1))
		}
		return reply{
			reasoning: "Plain English passes, accents and Greek do not: letters of more than one byte. " +
				"Somebody counts bytes. I read the code and look for len. There may be rules for contributors.",
			text: "Only text with letters beyond ASCII fails.",
			calls: []scriptedCall{
				{"read", map[string]any{"path": "wrap.go"}},
				{"grep", map[string]any{"pattern": `len\(`}},
				{"read", map[string]any{"path": "CONTRIBUTING.md"}},
			},
		}
	case "why_2":
		if c.find(culprit) == "" {
			return stuck("wrap.go should have the bug", c.result(1, 0))
		}
		return reply{
			reasoning: "There it is. CONTRIBUTING.md does not exist, which is fine.",
			text: "`Lines` measures a word by `" + c.find(culprit) +
				"`: its bytes. The width is in characters, and “é” is one character of two bytes, " +
				"so such lines break too early. Counting runes cures it: `n := len([]rune(word))`. I changed nothing.",
		}

	case "fix_0":
		line := c.find(culprit)
		if line == "" {
			return reply{text: "I do not know yet what to fix: ask me why the tests fail."}
		}
		return reply{
			reasoning: "One line, found before. It occurs once.",
			calls: []scriptedCall{{"edit", map[string]any{
				"path": "wrap.go", "old": line, "new": strings.Replace(line, "len(word)", "len([]rune(word))", 1),
			}}},
		}
	case "fix_1":
		if repaired.FindString(c.result(0, 0)) == "" {
			return stuck("the edit should change wrap.go", c.result(0, 0))
		}
		return reply{
			text:  "The line is changed. Now the tests.",
			calls: []scriptedCall{{"run", map[string]any{"command": "go test ./..."}}},
		}
	case "fix_2":
		if !passing.MatchString(c.result(1, 0)) {
			return stuck(`"go test ./..." should pass`, c.result(1, 0))
		}
		return reply{text: "Fixed: words are measured in characters now, and all tests pass."}

	case "check_0":
		return reply{
			reasoning: "The sample holds one text in many languages. The test that wraps it must pass; " +
				"I also want to see that the sample really has scripts other than Latin.",
			calls: []scriptedCall{
				{"read", map[string]any{"path": "testdata/sample.txt"}},
				{"run", map[string]any{"command": "go test -v -run Full ./..."}},
			},
		}
	case "check_1":
		if !strings.Contains(c.result(0, 0), "Ελληνικά") || !passing.MatchString(c.result(0, 1)) {
			return stuck("the sample should be wrapped right", c.result(0, 0)+c.result(0, 1))
		}
		return reply{
			text: "The sample has twelve languages, Greek and Cyrillic among them. Now a second pair of eyes.",
			calls: []scriptedCall{
				{"review", map[string]any{"question": "Does the change count characters wherever width is meant?"}}},
		}
	case "check_2":
		if c.result(1, 0) != verdict {
			return stuck("the review should approve the change", c.result(1, 0))
		}
		return reply{
			reasoning: "The reviewer agrees and names a limit that is worth passing on.",
			text:      "Every line of the sample is full. The reviewer says: " + c.result(1, 0),
		}

	case "push_0":
		return reply{
			reasoning: "What I left behind is the directory .agent. Then git push.",
			calls: []scriptedCall{
				{"run", map[string]any{"command": "rm -rf .agent"}},
				{"run", map[string]any{"command": "git push"}},
			},
		}
	case "push_1":
		for i := range 2 {
			if !strings.HasPrefix(c.result(0, i), "permission denied") {
				return stuck("the host should refuse both calls", c.result(0, i))
			}
		}
		return reply{
			reasoning: "Both refused. I do not work around that. A last check is still useful.",
			text:      "I may do neither.",
			calls:     []scriptedCall{{"run", map[string]any{"command": "go vet ./..."}}},
		}
	case "push_2":
		if got := c.result(1, 0); got != "" {
			return stuck(`"go vet ./..." should have nothing to say`, got)
		}
		return reply{
			text: "Done as far as I may: the fix is in place and go vet has nothing to say. " +
				"Removing .agent and pushing are yours to do; the host refused both."}
	}
	return c.replyBeside()
}

// replyBeside is the script of the sub-agent and of the compaction.
func (c *conversation) replyBeside() reply {
	switch c.key() {
	case "review_0":
		return reply{
			reasoning: "The patch touches one line. I read the function around it.",
			calls:     []scriptedCall{{"read", map[string]any{"path": "wrap.go"}}},
		}
	case "review_1":
		if repaired.FindString(c.result(0, 0)) == "" {
			return stuck("wrap.go should have the change", c.result(0, 0))
		}
		return reply{text: verdict}

	case "summary_0":
		summary := "The user asked why the tests of the Go package wrap fail. " +
			"Cause: Lines in wrap.go measures words in bytes (" + c.find(culprit) + "), width is in characters. " +
			"CONTRIBUTING.md does not exist."
		if c.find(patched) != "" {
			summary += " The line is changed to count runes, and the tests pass."
		}
		return reply{text: summary}
	}
	return reply{text: "I am a script and know only the conversation of the demo. " +
		"Set OPENAI_API_KEY to talk to a model."}
}
