package assemble_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
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

// fieldsOf are the places in the JSON of a fact that keys of lines set which are not called like theirs.
var fieldsOf = map[string]string{
	"is": "name", "in": "span", "rooted": "requires_turn", "side": "purpose", "cost": "cost_usd",
	"response": "response_id", "basis": "usage.basis", "raw": "usage.raw",
	"name": "tool.name", "input": "tool.input", "output": "tool.output", "ok": "tool.succeeded", "denied": "tool.denied",
	"truncated": "tool.truncated", "size": "tool.output_size", "took": "tool.duration_ms",
	"decides": "decision.tool", "action": "decision.action", "outcome": "decision.outcome", "reply": "decision.reply",
	"by": "decision.source", "reason": "decision.reason", "pattern": "decision.pattern", "waited": "decision.waited_ms",
	"summary": "compacted.summary", "auto": "compacted.auto", "trigger": "compacted.trigger",
	"before": "compacted.tokens_before", "after": "compacted.tokens_after", "summarized": "compacted.summarized_messages",
	"title": "session_attrs.title", "mode": "session_attrs.mode", "workspace": "session_attrs.workspace_root",
	"client": "session_attrs.client", "user": "session_attrs.user_id", "rules": "session_attrs.rules",
	"parent-session": "session_attrs.parent_session",
}

// set sets one field of a fact.
func set(f *fact.Fact, key, word string) (err error) {
	text := plain(word)
	switch key {
	case "server":
		f.FromServer, f.Dialect = true, "proxy"
	case "session":
		f.Session, f.SessionKey = text, "session.id"
	case "rank":
		f.SessionKey = "key." + word
		f.SessionRank, err = strconv.Atoi(word)
	case "model":
		provider, model, both := strings.Cut(text, "/")
		if f.Model = (&session.Model{ProviderID: provider, ModelID: model}); !both {
			f.Model = &session.Model{ModelID: text}
		}
	case "usage":
		if f.Usage == nil {
			f.Usage = new(fact.Usage)
		}
		t := &f.Usage.Tokens
		_, err = fmt.Sscanf(word, "%d/%d/%d/%d/%d", &t.Input, &t.Output, &t.Reasoning, &t.CacheRead, &t.CacheWrite)
	case "system":
		f.SystemPromptDigest = digest(text)
	case "tools":
		f.ToolCatalogDigest = digest(text)
	case "error":
		f.Failed, f.Error = true, text
	case "error-type":
		f.Failed, f.ErrorType = true, text
	case "problem":
		f.Problems = append(f.Problems, text)
	default:
		if err = setJSON(f, key, value(cmp.Or(word, "true"))); err != nil {
			quoted, _ := json.Marshal(word) // a text that is JSON of another type
			err = setJSON(f, key, quoted)
		}
	}
	return err
}

// setJSON sets the field of a key to a value.
func setJSON(f *fact.Fact, key string, value json.RawMessage) error {
	path := strings.Split(cmp.Or(fieldsOf[key], key), ".")
	slices.Reverse(path)
	for _, name := range path {
		value = fmt.Appendf(nil, "{%q:%s}", name, value)
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	return d.Decode(f)
}
