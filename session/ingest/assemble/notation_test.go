package assemble_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// epoch is the time 0 of every scenario, in Unix nanoseconds: 2025-06-01 10:00 UTC.
const epoch = 1748772000_000_000_000

// parseFacts reads facts as scenarios write them, one to a line:
//
//	turn r 0..900 agent=coder
//	  < user "List the files"
//	  call a 10..200 usage=100/20/0/0/0 finish=tool_calls
//	    > call c1 ls {"path":"."}
//	  tool x 210..300 call=c1 name=ls output="a.go"
//	  call log @200 usage=100/20/0/0/0
//
// A line is a kind, a name, the time in milliseconds, and key=value pairs. A fact is below the span whose line is
// indented less. "@" makes it a record. Lines with < and > are messages of the input and parts of the output, several
// parts of a message with | between. A line "trace t" is for what follows; trace - is none.
func parseFacts(text string) ([]fact.Fact, error) {
	var p notation
	p.trace = "t1"
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d %q: %w", i+1, line, err)
		}
	}
	return p.facts, nil
}

type notation struct {
	trace string
	facts []fact.Fact
	// open are the spans above, with their indentation; here the line that messages belong to.
	open []struct {
		indent int
		span   string
	}
	here int
}

var kinds = map[string]fact.Kind{
	"turn": fact.Turn, "step": fact.Step, "call": fact.ModelCall, "tool": fact.ToolCall, "permission": fact.Permission,
	"compaction": fact.Compaction, "prompt": fact.Prompt, "answer": fact.Answer, "session": fact.Session,
}

func (p *notation) line(line string) error {
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	switch {
	case body == "" || body[0] == '#':
		return nil
	case strings.HasPrefix(body, "trace "):
		if p.trace = strings.TrimSpace(body[6:]); p.trace == "-" {
			p.trace = ""
		}
		p.open = nil
		return nil
	}
	words, err := tokens(body)
	if err != nil {
		return err
	}
	switch words[0] {
	case "<":
		return p.input(words[1:])
	case ">":
		part, err := parsePart(words[1:])
		p.facts[p.here].Output = append(p.facts[p.here].Output, part)
		return err
	}
	if len(words) < 3 || kinds[words[0]] == "" {
		return fmt.Errorf("want a kind, a name and a time")
	}
	f := fact.Fact{Kind: kinds[words[0]], Dialect: "story", Name: words[1], TraceID: p.trace}
	for len(p.open) > 0 && p.open[len(p.open)-1].indent >= indent {
		p.open = p.open[:len(p.open)-1]
	}
	above := ""
	if len(p.open) > 0 {
		above = p.open[len(p.open)-1].span
	}
	if at, record := strings.CutPrefix(words[2], "@"); record {
		if f.Start, err = moment(at); err != nil {
			return err
		}
		f.End, f.SpanID, f.Source = f.Start, above, fact.RecordPrefix+words[1]
	} else {
		from, to, _ := strings.Cut(words[2], "..")
		if f.Start, err = moment(from); err != nil {
			return err
		}
		if f.End, err = moment(to); err != nil {
			return err
		}
		f.SpanID, f.Source, f.ParentID = words[1], words[1], above
		p.open = append(p.open, struct {
			indent int
			span   string
		}{indent, words[1]})
	}
	for _, w := range words[3:] {
		key, value, _ := strings.Cut(w, "=")
		if err := set(&f, key, value); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	p.here = len(p.facts)
	p.facts = append(p.facts, f)
	return nil
}

func moment(s string) (int64, error) {
	ms, err := strconv.ParseFloat(s, 64)
	return epoch + int64(ms*1e6), err
}

// tokens cuts a line at blanks outside of JSON values.
func tokens(s string) ([]string, error) {
	var words []string
	for s = strings.TrimLeft(s, " "); s != ""; s = strings.TrimLeft(s, " ") {
		end := strings.IndexAny(s, " \"{[")
		if end < 0 {
			end = len(s)
		}
		word := s[:end]
		if s = s[end:]; s != "" && s[0] != ' ' {
			d := json.NewDecoder(strings.NewReader(s))
			var raw json.RawMessage
			if err := d.Decode(&raw); err != nil {
				return nil, err
			}
			word += string(raw)
			s = s[d.InputOffset():]
		}
		words = append(words, word)
	}
	return words, nil
}

// plain is the text that a word represents: of a JSON string its text.
func plain(word string) string {
	var s string
	if json.Unmarshal([]byte(word), &s) == nil {
		return s
	}
	return word
}

// value is the JSON value that a word represents: a bare word is a string.
func value(word string) json.RawMessage {
	if json.Valid([]byte(word)) {
		return json.RawMessage(word)
	}
	raw, _ := json.Marshal(word)
	return raw
}

func (p *notation) input(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("want a role")
	}
	m := fact.Message{Role: words[0]}
	var part []string
	for _, w := range append(words[1:], "|") {
		if id, ok := strings.CutPrefix(w, "id="); ok {
			m.ID = id
			continue
		}
		if w != "|" {
			part = append(part, w)
			continue
		}
		if len(part) > 0 {
			read, err := parsePart(part)
			if err != nil {
				return err
			}
			m.Parts = append(m.Parts, read)
		}
		part = nil
	}
	p.facts[p.here].Input = append(p.facts[p.here].Input, m)
	return nil
}

func parsePart(words []string) (fact.Part, error) {
	word := func(i int) string {
		if i < len(words) && words[i] != "-" {
			return words[i]
		}
		return ""
	}
	if strings.HasPrefix(words[0], `"`) {
		return fact.Part{Kind: fact.PartText, Text: plain(words[0])}, nil
	}
	p := fact.Part{Kind: words[0]}
	switch p.Kind {
	case fact.PartReasoning, fact.PartCompaction:
		p.Text = plain(word(1))
	case fact.PartCall:
		p.CallID, p.Name, p.Provider = word(1), word(2), word(4) == "provider"
		if word(3) != "" {
			p.Input = value(word(3))
		}
	case fact.PartResult:
		p.CallID, p.Name, p.Denied = word(1), word(2), word(4) == "denied"
		if text, failed := strings.CutPrefix(word(3), "error="); failed {
			p.Error = plain(text)
		} else if word(3) != "" {
			p.Output = value(word(3))
		}
	case fact.PartFile:
		p.MediaType, p.URL, p.Name = word(1), word(2), word(3)
	case fact.PartSource:
		p.URL, p.Name = word(1), plain(word(2))
	case fact.PartOther:
		p.Data = value(word(1))
	default:
		return p, fmt.Errorf("unknown part")
	}
	return p, nil
}

// digest represents a text that is kept once.
func digest(word string) string {
	sum := sha256.Sum256([]byte(word))
	return hex.EncodeToString(sum[:])
}

// set sets one field of a fact.
func set(f *fact.Fact, key, word string) (err error) {
	text := plain(word)
	number := func() int64 {
		var n int64
		n, err = strconv.ParseInt(word, 10, 64)
		return n
	}
	real := func() *float64 {
		var x float64
		x, err = strconv.ParseFloat(word, 64)
		return &x
	}
	tool := func() *fact.Tool {
		if f.Tool == nil {
			f.Tool = new(fact.Tool)
		}
		return f.Tool
	}
	decision := func() *fact.Decision {
		if f.Decision == nil {
			f.Decision = new(fact.Decision)
		}
		return f.Decision
	}
	compacted := func() *fact.Compacted {
		if f.Compacted == nil {
			f.Compacted = new(fact.Compacted)
		}
		return f.Compacted
	}
	about := func() *fact.SessionAttrs {
		if f.SessionAttrs == nil {
			f.SessionAttrs = new(fact.SessionAttrs)
		}
		return f.SessionAttrs
	}
	usage := func() *fact.Usage {
		if f.Usage == nil {
			f.Usage = new(fact.Usage)
		}
		return f.Usage
	}
	switch key {
	case "is":
		f.Name = text
	case "server":
		f.FromServer, f.Dialect = true, "proxy"
	case "transcript":
		f.Transcript = true
	case "parent":
		f.ParentID = text
	case "in":
		f.SpanID = text
	case "source":
		f.Source = text
	case "session":
		f.Session, f.SessionKey = text, "session.id"
	case "rank":
		f.SessionRank, f.SessionKey = int(number()), "key."+word
	case "turn":
		f.TurnID = text
	case "request":
		f.RequestID = text
	case "call":
		f.CallID = text
	case "rooted":
		f.RequiresTurn = true
	case "side":
		f.Purpose = text
	case "agent":
		f.Agent = text
	case "service":
		f.Service = text
	case "model":
		provider, model, both := strings.Cut(text, "/")
		if f.Model = (&session.Model{ProviderID: provider, ModelID: model}); !both {
			f.Model = &session.Model{ModelID: text}
		}
	case "history":
		f.History = int(number())
	case "usage":
		t := &usage().Tokens
		_, err = fmt.Sscanf(word, "%d/%d/%d/%d/%d", &t.Input, &t.Output, &t.Reasoning, &t.CacheRead, &t.CacheWrite)
	case "basis":
		usage().Basis = text
	case "raw":
		usage().Raw = value(word)
	case "cost":
		f.CostUSD = real()
	case "temperature":
		f.Temperature = real()
	case "system":
		f.SystemPromptDigest = digest(text)
	case "tools":
		f.ToolCatalogDigest = digest(text)
	case "response":
		f.ResponseID = text
	case "finish":
		f.Finish = text
	case "aborted":
		f.Aborted = true
	case "failed":
		f.Failed = true
	case "error":
		f.Failed, f.Error = true, text
	case "error-type":
		f.Failed, f.ErrorType = true, text
	case "name":
		tool().Name = text
	case "input":
		tool().Input = value(word)
	case "output":
		tool().Output = value(word)
	case "ok":
		tool().Succeeded = true
	case "denied":
		tool().Denied = true
	case "truncated":
		tool().Truncated = true
	case "size":
		tool().OutputSize = number()
	case "took":
		n := number()
		tool().DurationMS = &n
	case "decides":
		decision().ToolName = text
	case "action":
		decision().Action = text
	case "outcome":
		decision().Outcome = text
	case "reply":
		decision().Reply = text
	case "by":
		decision().Source = text
	case "reason":
		decision().Reason = text
	case "pattern":
		decision().Pattern = text
	case "waited":
		n := number()
		decision().WaitedMS = &n
	case "summary":
		compacted().Summary = text
	case "auto":
		yes := word != "false"
		compacted().Auto = &yes
	case "trigger":
		compacted().Trigger = text
	case "before":
		compacted().TokensBefore = number()
	case "after":
		compacted().TokensAfter = number()
	case "summarized":
		compacted().SummarizedMessages = number()
	case "title":
		about().Title = text
	case "mode":
		about().Mode = text
	case "workspace":
		about().WorkspaceRoot = text
	case "client":
		about().Client = text
	case "user":
		about().UserID = text
	case "parent-session":
		about().ParentSession = text
	case "rules":
		about().Rules = value(word)
	case "extra":
		f.Extra = value(word)
	case "problem":
		f.Problems = append(f.Problems, text)
	default:
		return fmt.Errorf("unknown key")
	}
	return err
}
