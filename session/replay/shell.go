package replay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/document"
)

// Clients have a shell execute the command of a call, often in the middle of a script of their own, which changes the
// directory before it and reads the exit code after it. So a shell that starts is told to execute the same script, in
// which the command is one that prints what the session has. The command is not executed, and the client's part is.

// ScriptAt is the place in the arguments of a shell of the script that it is to execute, the one for -c; it is -1 for
// other arguments.
func ScriptAt(args []string) int {
	has := false
	for i := 0; i < len(args); i++ {
		option, isOption := strings.CutPrefix(args[i], "-")
		switch {
		case isOption && strings.HasPrefix(option, "-"): // a long one
		case isOption:
			has = has || strings.Contains(option, "c")
			if strings.HasSuffix(strings.ToLower(option), "o") {
				i++ // its name
			}
		case has:
			return i
		default:
			return -1
		}
	}
	return -1
}

// commandOf is the command that a shell executes for a call, "" for a call of another kind. The input has it as a text,
// or as a shell and its arguments.
func commandOf(c *document.ToolCall) string {
	var in struct{ Command, Cmd, Script json.RawMessage }
	_ = json.Unmarshal(c.Input, &in) // another kind of input has none
	raw := slices.Concat(in.Command, in.Cmd, in.Script)
	var text string
	var args []string
	if json.Unmarshal(raw, &args) == nil && len(args) > 0 {
		if i := ScriptAt(args[1:]); i >= 0 {
			text = args[1+i]
		}
	} else {
		_ = json.Unmarshal(raw, &text)
	}
	return strings.TrimSpace(text)
}

// isAnswered reports whether a call gets its output from the session.
func (p *Player) isAnswered(c *playedCall) bool {
	return p.isChosen(c.Name) && !c.Denied && (p.From == 0 || c.turn < p.From)
}

// open are the calls that the model has made and the session answers, as far as nobody has asked for their output.
func (p *Player) open() (calls []*playedCall) {
	for _, c := range p.calls {
		if !c.used && c.step <= p.next && p.isAnswered(c) {
			calls = append(calls, c)
		}
	}
	return calls
}

// script returns the script that a shell is to execute in the place of another one, "" for the same. Of the open calls it
// answers the one with the longest command that the script has.
func (p *Player) script(script string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isLive {
		return "", nil
	}
	var call *playedCall
	from, until := 0, 0
	for _, c := range p.open() {
		if i, k := within(script, c.command); k-i > until-from {
			call, from, until = c, i, k
		}
	}
	if call == nil {
		return "", nil
	}
	call.used = true
	text, code := printed(call.ToolCall)
	path := filepath.Join(p.Shells, fmt.Sprint("output-", slices.Index(p.calls, call)))
	content := fmt.Sprintf("printf %%s '%s'\nexit %d\n", strings.ReplaceAll(text, "'", `'\''`), code)
	return script[:from] + "sh " + path + script[until:], os.WriteFile(path, []byte(content), 0o600)
}

// within is where a script has a command, as it is or inside of quotes, and not as a part of a longer word.
func within(script, command string) (from, until int) {
	forms := []string{command, strings.ReplaceAll(command, "'", `'\''`), strings.ReplaceAll(command, "'", `'"'"'`),
		strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "`", "\\`").Replace(command)}
	for i := range forms {
		forms[i] = regexp.QuoteMeta(forms[i])
	}
	const end = "[\\s;&|(){}'\"`]"
	m := regexp.MustCompile(`(?:^|` + end + `)(` + strings.Join(forms, "|") + `)(?:$|` + end + `)`).
		FindStringSubmatchIndex(script)
	if m == nil {
		return 0, 0
	}
	return m[2], m[3]
}

// What clients add to what a command printed: lines before it and lines after it, and those of Gemini CLI after it.
var (
	linesBefore = lazy.Regexp(`^(?:<untrusted_context>\n)?(?:(?:Command|Directory|Chunk ID|Wall time|` +
		`Original token count|Total output lines|Process exited with code|Exit code)(?::| \d).*\n+)*(?:Output:[ \n])?`)
	linesAfter = lazy.Regexp(`\n*(?:Command exited with code \d+|<exited with exit code \d+>)\s*$`)
	sections   = lazy.Regexp(`(?:\n+(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): .*)*` +
		`(?:\s*</untrusted_context>)?\s*$`)
	exitCode = lazy.Regexp(`(?i)\bexit(?:ed)?(?: with)?(?: exit)? code:? (\d+)`)
)

// printed is what a command printed, and its exit code: 1 for a call that failed without saying it.
func printed(c *document.ToolCall) (text string, code int) {
	if c.Failed() {
		code = 1
	}
	var blocks []struct{ Text string }
	_ = json.Unmarshal(resultOf(c).Content, &blocks) // it is a list of contents
	for _, b := range blocks {
		text += b.Text
	}
	before := linesBefore().FindString(text)
	text = text[len(before):]
	after := linesAfter().FindString(text)
	if strings.HasSuffix(before, "Output: ") {
		after = sections().FindString(text)
	}
	if m := exitCode().FindStringSubmatch(before + after); m != nil {
		n, _ := strconv.Atoi(m[1])
		code = n & 0xff
	}
	return strings.TrimSuffix(text, after), code
}
