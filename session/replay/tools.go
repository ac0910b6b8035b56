package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/agenttrace/agenttrace/session/document"
)

// AllTools is the name that chooses all tools in [Player.Tools].
const AllTools = "all"

// playedCall is a call of a tool in the session, of an answer that is counted from 1.
type playedCall struct {
	*document.ToolCall
	command    string // for a shell, "" for none
	turn, step int
	used       bool
}

// Tools has [Player.ServeTool] answer the calls of tools that are named as in the session or by their server, or of
// [AllTools]. It returns an error for a name of which the session has no call. What it lacks of them is in Missing.
func (p *Player) Tools(names ...string) error {
	var known []string
	for _, c := range p.calls {
		if !slices.Contains(known, c.Name) {
			known = append(known, c.Name)
		}
	}
	for _, name := range names {
		if name != AllTools && !slices.ContainsFunc(known, func(k string) bool { return isNamed(k, name) }) {
			return fmt.Errorf("the session has no call of a tool %q; its tools are %s", name,
				cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	p.tools = names
	for _, name := range known {
		what := "the output of %s is replayed only where the agent reaches it by agenttrace run --mcp or proxy --mcp"
		if slices.ContainsFunc(p.calls, func(c *playedCall) bool { return c.Name == name && c.command != "" }) {
			what = "commands of %s are replayed in bash, and in sh or zsh by PATH or SHELL: the agent runs others itself"
		}
		if p.isChosen(name) {
			p.missing = append(p.missing, fmt.Sprintf(what, name))
		}
	}
	for _, c := range p.calls {
		switch {
		case !p.isAnswered(c):
		case len(c.Output) == 0 && !c.Failed():
			p.missing = append(p.missing, fmt.Sprintf("turn %d: the output of %s is not recorded", c.turn, c.Name))
		case c.Truncated:
			p.missing = append(p.missing, fmt.Sprintf("turn %d: the output of %s is recorded in part", c.turn, c.Name))
		}
	}
	return nil
}

// isChosen reports whether calls of a tool, by its name in the session, are answered.
func (p *Player) isChosen(name string) bool {
	return slices.ContainsFunc(p.tools, func(t string) bool { return t == AllTools || isNamed(name, t) })
}

// isNamed reports whether the name of a tool in a session is that of its server, before which clients put a prefix.
// Some replace characters that models do not accept in names.
func isNamed(recorded, own string) bool {
	plain := func(name string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				return r
			}
			return '_'
		}, name)
	}
	recorded, own = plain(recorded), plain(own)
	return recorded == own || strings.HasSuffix(recorded, "_"+own)
}

// toolResult is the result of a call in the Model Context Protocol.
type toolResult struct {
	Content    json.RawMessage `json:"content"`
	Structured json.RawMessage `json:"structuredContent,omitempty"`
	IsError    bool            `json:"isError,omitempty"`
}

// ServeTool answers the request of a client of the Model Context Protocol to call a tool, the params of tools/call,
// with the result, or with the status 204 if the tool is to be executed. It answers the request of a shell, an object with
// its script, likewise with the one to execute instead.
func (p *Player) ServeTool(w http.ResponseWriter, r *http.Request) {
	var params struct {
		Name      string
		Arguments json.RawMessage
		Script    string
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReply)).Decode(&params); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if params.Script != "" {
		script, err := p.script(params.Script)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		} else if script == "" {
			w.WriteHeader(http.StatusNoContent)
		}
		_, _ = io.WriteString(w, script) // who has gone needs no answer
		return
	}
	result := p.result(params.Name, params.Arguments)
	if result == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result) // who has gone needs no answer
}

// result is the result of the next call of a tool with the input or, where there is none, of the next call: the model
// has answered already, and to execute a tool that was chosen not to be may do harm. It is nil for other tools, and
// from the turn on that the live model answers.
func (p *Player) result(name string, input json.RawMessage) *toolResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isLive {
		return nil
	}
	note := func(c *playedCall, text string, args ...any) {
		p.found = append(p.found, Parting{c.turn, c.step, fmt.Sprintf(text, args...)})
	}
	asked := canonicalInput(input)
	var names []string
	var same, next *playedCall
	for _, c := range p.calls {
		if !isNamed(c.Name, name) {
			continue
		}
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
		if c.used || c.Denied || p.From > 0 && c.turn >= p.From {
			continue
		}
		next = cmp.Or(next, c)
		if canonicalInput(c.Input) == asked {
			same = cmp.Or(same, c)
		}
	}
	isChosen := slices.Contains(p.tools, AllTools) || slices.ContainsFunc(names, p.isChosen)
	switch {
	case same != nil && !p.isChosen(same.Name):
		same.used = true // another tool, with the same name on its server
		return nil
	case same == nil && !isChosen:
		return nil
	case same == nil && len(names) > 1:
		note(&playedCall{}, "%s may be %s, of which no call has the input %s", name, strings.Join(names, " or "),
			brief(asked))
		return failure("agenttrace replay cannot tell which tool of the session this is")
	case same == nil && next == nil:
		note(&playedCall{}, "%s is called once more, with the input %s", name, brief(asked))
		return failure("agenttrace replay has no more calls of this tool")
	case same == nil:
		same = next
		note(same, "%s is called with %s instead of %s", same.Name, brief(asked), brief(canonicalInput(same.Input)))
	}
	same.used = true
	return resultOf(same.ToolCall)
}

// canonicalInput is an input in a form to be compared.
func canonicalInput(input json.RawMessage) string { return cmp.Or(document.Canonical(input), "{}") }

// textResult is a result that is a text.
func textResult(text string) *toolResult {
	content, _ := json.Marshal([]map[string]string{{"type": "text", "text": text}}) // which cannot fail
	return &toolResult{Content: content}
}

func failure(text string) *toolResult {
	r := textResult(text)
	r.IsError = true
	return r
}

// resultOf is what the server answered, as far as it is recorded. Clients keep the whole result, its content, or the
// text in it.
func resultOf(c *document.ToolCall) *toolResult {
	if c.Failed() {
		return failure(cmp.Or(c.Error, document.Value(c.PartialOutput)))
	}
	if len(c.Output) == 0 {
		return failure("the output of this call is not recorded")
	}
	var whole toolResult
	if json.Unmarshal(c.Output, &whole) == nil && isContent(whole.Content) {
		return &whole
	}
	if isContent(c.Output) {
		return &toolResult{Content: c.Output}
	}
	var text string
	if json.Unmarshal(c.Output, &text) == nil {
		return textResult(text)
	}
	r := textResult(string(c.Output))
	if c.Output[0] == '{' {
		r.Structured = c.Output
	}
	return r
}

// isContent reports whether a value is a list of contents.
func isContent(raw json.RawMessage) bool {
	var blocks []struct{ Type string }
	if json.Unmarshal(raw, &blocks) != nil || len(blocks) == 0 {
		return false
	}
	kinds := []string{"text", "image", "audio", "resource", "resource_link"}
	return !slices.ContainsFunc(blocks, func(b struct{ Type string }) bool { return !slices.Contains(kinds, b.Type) })
}
