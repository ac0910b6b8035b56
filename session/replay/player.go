package replay

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/internal/modelapi/answers"
	"github.com/agenttrace/agenttrace/session/document"
)

// Player answers the requests that an agent sends to a model with what the model answered in a session, step by step,
// and notes where the agent says something else than it did then. It answers in the API that a request is of. Use it
// as an [http.Handler]; requests may come concurrently, and are answered in the order in which they come.
type Player struct {
	// Live answers the requests from turn From on; nil answers all of them from the session.
	Live http.Handler
	From int
	// Shells is a directory for what shells execute in the place of commands. Its path needs no quotes.
	Shells string

	// run is in the ids of answers and calls: by those of the session, what is recorded of the replay would be taken for a
	// part of it.
	run string

	mu      sync.Mutex
	steps   []playStep
	next    int
	last    []byte // the body of the request before, which a client may send again
	isLive  bool   // the live model answers
	missing []string
	found   []Parting

	calls []*playedCall
	tools []string // whose calls are answered
}

// playStep is an answer of the model, and what the agent says before it: a text of the user, or the results of calls.
type playStep struct {
	turn    int
	user    string
	results []*playedCall
	answers.Step
}

// Parting is where an agent does something else than in the session. Step counts the answers of the model from 1, and
// is 0 for a request that belongs to none.
type Parting struct {
	Turn int    `json:"turn,omitempty"`
	Step int    `json:"step,omitempty"`
	What string `json:"what"`
}

func (p Parting) String() string {
	if p.Step == 0 {
		return p.What
	}
	return fmt.Sprintf("turn %d, step %d: %s", p.Turn, p.Step, p.What)
}

// NewPlayer returns a Player of the turns of a session that no rewind hid.
func NewPlayer(doc *document.Document) *Player {
	p := &Player{run: strings.ToLower(rand.Text()[:8])}
	for _, t := range doc.Turns {
		if t.Hidden {
			continue
		}
		first := len(p.steps)
		for _, m := range t.Messages {
			if m.Role == "assistant" && !m.Marker && m.HiddenAt == nil {
				p.message(t, m)
			}
		}
		if len(p.steps) == first {
			p.missing = append(p.missing, fmt.Sprintf("turn %d has no answer", t.Number))
		} else {
			p.steps[first].user = t.UserText()
		}
	}
	return p
}

// message adds the answers that a message consists of.
func (p *Player) message(t *document.Turn, m *document.Message) {
	lacks := func(what string, args ...any) {
		p.missing = append(p.missing, fmt.Sprintf("turn %d: ", t.Number)+fmt.Sprintf(what, args...))
	}
	first := len(p.steps)
	add := func() *playStep {
		s := playStep{turn: t.Number, Step: answers.Step{Model: cmp.Or(modelOf(m, t), "unknown")}}
		if n := len(p.steps); n > first {
			s.results = p.callsOf(n)
		}
		p.steps = append(p.steps, s)
		return &p.steps[len(p.steps)-1]
	}
	var s *playStep
	for _, part := range m.Parts {
		if s == nil || part.Kind == document.KindStep && (s.Text != "" || s.Reasoning != "" || len(s.Calls) > 0) {
			s = add()
		}
		switch {
		case part.Kind == document.KindText:
			s.Text += part.Text
		case part.Kind == document.KindReasoning:
			s.Reasoning += part.Text
		case part.Tool != nil && part.Tool.ProviderExecuted:
			lacks("the call of %s was made by the model's server, and is left out", part.Tool.Name)
		case part.Tool != nil:
			c := part.Tool
			if c.Stub || c.InputWithheld {
				lacks("the input of %s is not recorded", c.Name)
			}
			p.calls = append(p.calls, &playedCall{ToolCall: c, command: commandOf(c), turn: t.Number, step: len(p.steps)})
			s.Calls = append(s.Calls, answers.Call{ID: p.idOf(c), Name: c.Name, Input: cmp.Or(string(c.Input), "{}")})
		}
		if part.Truncated {
			lacks("a text is recorded in part")
		}
	}
	// The calls of the model are as many as the answers, or else the last one has what all used.
	for i := range p.steps[first:] {
		s, u := &p.steps[first+i], m.Usage
		if len(m.Calls) == len(p.steps)-first {
			u = m.Calls[i].Usage
		} else if first+i < len(p.steps)-1 {
			u = nil
		}
		if u != nil {
			s.Input, s.Output = int(u.Input+u.CacheRead+u.CacheWrite), int(u.Output+u.Reasoning)
			s.CacheRead, s.Reasoned = int(u.CacheRead), int(u.Reasoning)
		}
	}
}

func modelOf(m *document.Message, t *document.Turn) string {
	if m.Model != nil {
		return m.Model.ModelID
	} else if t.Model != nil {
		return t.Model.ModelID
	}
	return ""
}

// idOf is the id of a call in the replay.
func (p *Player) idOf(c *document.ToolCall) string {
	const longest = 40 // of the ids that servers of models give
	return document.Head(c.CallID, longest-len(p.run)-1) + "_" + p.run
}

// callsOf are the calls of an answer, by its number.
func (p *Player) callsOf(step int) (all []*playedCall) {
	for _, c := range p.calls {
		if c.step == step {
			all = append(all, c)
		}
	}
	return all
}

// Missing states what the session lacks of a replay.
func (p *Player) Missing() []string { return p.missing }

// Partings are where the agent did something else so far, and how many of the answers it did not ask for. A call of a tool
// that was chosen by its name, or that could have been answered, is something else if the agent has made it by itself.
func (p *Player) Partings() (all []Parting, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.steps[p.next:] {
		if p.From == 0 || s.turn < p.From {
			left++
		}
	}
	all = append(all, p.found...)
	for _, c := range p.open() {
		reached := slices.ContainsFunc(p.calls, func(o *playedCall) bool { return o.used && o.Name == c.Name })
		if c.command == "" && !reached && slices.Contains(p.tools, AllTools) {
			continue // the agent itself executes it, and Missing says so
		}
		all = append(all, Parting{c.turn, c.step, fmt.Sprintf("nobody asked for the recorded output of %s %s", c.Name,
			brief(canonicalInput(c.Input)))})
	}
	return all, left
}

// played are the APIs by what their paths contain.
var played = []struct {
	path, name string
	api        *modelapi.API
}{
	{"/chat/completions", "chat", modelapi.Chat}, {"/responses", "responses", modelapi.Responses},
	{"enerateContent", "gemini", modelapi.Gemini}, {"/converse", "bedrock converse", modelapi.Converse},
	{"/invoke", "bedrock invoke", modelapi.Anthropic}, {"/messages", "anthropic", modelapi.Anthropic},
	{"/api/chat", "ollama", modelapi.Chat},
}

// ServeHTTP implements [http.Handler].
func (p *Player) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "agenttrace replay answers this by HTTP", http.StatusUpgradeRequired) // clients fall back to that
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxReply))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, of := range played {
		if !strings.Contains(r.URL.Path, of.path) || strings.HasSuffix(r.URL.Path, "/count_tokens") {
			continue
		}
		request := of.api.Request(body)
		if request == nil {
			break
		}
		step, n := p.answer(request, body)
		if step == nil {
			r.Body = io.NopCloser(bytes.NewReader(body))
			p.Live.ServeHTTP(w, r)
			return
		}
		stream := gjson.GetBytes(body, "stream").Bool() || strings.Contains(r.URL.Path, "stream")
		kind, chunks := answers.Named(of.name).Chunks(step, fmt.Sprintf("replay_%s_%04d", p.run, n), stream)
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(bytes.Join(chunks, nil)) // who has gone needs no answer
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/count_tokens") {
		_, _ = io.WriteString(w, `{"input_tokens":1}`)
	} else if r.Method == http.MethodGet { // lists of models, settings
		_, _ = io.WriteString(w, `{"data":[],"models":[]}`)
	} else {
		http.Error(w, `{"error":{"message":"agenttrace replay has no answer to this"}}`, http.StatusNotFound)
	}
}

// answer is the next answer of the session, or nil if the live model is to be asked. What the agent says otherwise
// than in the session is noted. A request without tools beside one that has some, such as one for a title, gets an
// answer of its own.
func (p *Player) answer(r *modelapi.Request, body []byte) (*answers.Step, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next > 0 && bytes.Equal(body, p.last) { // the client did not get the answer
		p.next--
	}
	users, results := said(r)
	if p.next >= len(p.steps) {
		if p.Live != nil {
			p.isLive = true
			return nil, 0
		}
		p.found = append(p.found, Parting{What: "the agent goes on after the end: " + brief(strings.Join(users, " "))})
		return &answers.Step{Model: cmp.Or(r.Model, "unknown"), Text: "The recording ends here."}, len(p.steps)
	}
	s := &p.steps[p.next]
	if p.Live != nil && s.turn >= p.From {
		p.isLive = true
		return nil, 0
	}
	asks := s.user != "" && strings.Contains(strings.Join(users, "\n\n"), s.user)
	if len(r.Tools) == 0 && !asks && len(results) == 0 && len(p.calls) > 0 {
		p.found = append(p.found, Parting{What: "a request beside the conversation: " + brief(strings.Join(users, " "))})
		return &answers.Step{Model: cmp.Or(r.Model, "unknown"), Text: "Replay"}, len(p.steps)
	}
	p.last = body
	p.next++
	note := func(text string, args ...any) {
		p.found = append(p.found, Parting{s.turn, p.next, fmt.Sprintf(text, args...)})
	}
	if s.user != "" && !asks && len(users) > 0 {
		note("the user says %q instead of %q", brief(users[len(users)-1]), brief(s.user))
	}
	for i, c := range s.results {
		have, found := results[p.idOf(c.ToolCall)]
		if !found {
			have, found = results[fmt.Sprint("#", i)]
		}
		if !found {
			note("%s was not called, or its result is not sent", c.Name)
		} else if want := c.result(); !c.resultsIn(have, want) {
			have, want := whereDiffer(have, want)
			note("%s results in %q instead of %q", c.Name, brief(have), brief(want))
		}
	}
	return &s.Step, p.next - 1
}

// result is what the call resulted in.
func (c *playedCall) result() string {
	want := cmp.Or(c.Error, document.Value(c.Output))
	if c.used && c.command != "" {
		want, _ = printed(c.ToolCall) // clients add other things to it than they did then, such as the id of a process
	}
	return strings.TrimSpace(want)
}

// resultsIn reports whether the result that the request has for the call is the recorded one. It does so too where the
// recording does not have the whole result.
func (c *playedCall) resultsIn(have, want string) bool {
	if want == "" || c.Withheld || c.Truncated {
		return true
	}
	var o document.CompareOptions
	has, wants := o.Key(have), o.Key(want)
	// Clients say more to the model than they keep, and keep more in an object than they say.
	isText := c.Error == "" && bytes.HasPrefix(c.Output, []byte(`"`))
	return strings.Contains(has, wants) || !isText && have != "" && strings.Contains(wants, has)
}

// said are the texts that follow the last answer in a request, and the results of calls there, by call and by place.
func said(r *modelapi.Request) (users []string, results map[string]string) {
	results = map[string]string{}
	place := 0
	last := len(r.Messages)
	for last > 0 && r.Messages[last-1].Role != modelapi.Assistant {
		last--
	}
	for _, m := range r.Messages[last:] {
		for _, item := range m.Items {
			switch {
			case item.Value != nil:
				text := document.Value(item.Value)
				results[fmt.Sprint("#", place)] = text
				if place++; item.ID != "" {
					results[item.ID] = text
				}
			case item.Text != "":
				users = append(users, item.Text)
			}
		}
	}
	return users, results
}

// whereDiffer are the lines of two texts from the first that differs on.
func whereDiffer(a, b string) (string, string) {
	for {
		lineA, restA, moreA := strings.Cut(a, "\n")
		lineB, restB, moreB := strings.Cut(b, "\n")
		if lineA != lineB || !moreA || !moreB {
			return a, b
		}
		a, b = restA, restB
	}
}

func brief(text string) string { return document.OneLine(document.Head(text, 80)) }

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
