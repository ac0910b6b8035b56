package transcripts

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

const (
	aiderHeader  = "# aider chat started at "
	aiderHistory = ".aider.chat.history.md"
	aiderLog     = ".aider.llm.history"
)

// Aider reads a chat history of Aider, Markdown to which each chat in a directory is appended: a header with the time,
// what the user asked after "#### ", what the program reported after "> ", and the answers. The program ends its own
// lines with two spaces, which headings and quotes in answers do not.
//
// Only a chat has a time, without a zone. The log of model calls beside it, which few users have, has those of
// answers. Counts of tokens are rounded.
var Aider = decodeAider.reading(codec.Reading{
	SniffText:  func(text []byte) bool { return bytes.Contains(append([]byte("\n"), text...), []byte("\n"+aiderHeader)) },
	Extensions: []string{aiderHistory},
	Beside:     func(path string) []string { return siblings(path, aiderLog) },
})

var decodeAider decoder = func(from *source, text []byte) []*codec.Session {
	all, chats, log := []*codec.Session{}, make(map[string]int), from.aiderAnswers()
	var d *aider
	end := func() {
		if d != nil && d.end() {
			all = append(all, d.b.finish())
		}
		d = nil
	}
	line := 0
	for raw := range strings.Lines(valid(string(text))) {
		line++
		from.Place.Line = line
		at, isHeader := strings.CutPrefix(strings.TrimRight(raw, "\r\n"), aiderHeader)
		switch started := localMilli(strings.TrimSpace(at)); {
		case isHeader && started > 0:
			end()
			id := "aider-" + strings.NewReplacer("-", "", ":", "", " ", "-").Replace(strings.TrimSpace(at))
			if chats[id]++; chats[id] > 1 {
				id += fmt.Sprintf("-%d", chats[id])
			}
			d = newAider(from, id, started, &log)
		case d != nil:
			d.line(strings.TrimRight(raw, "\r\n"))
		case strings.TrimSpace(raw) != "":
			from.Problem("precedes the first chat: left out")
		}
	}
	if end(); len(chats) == 0 {
		return nil
	}
	return all
}

// aiderAnswer is a model call of the log, by the first line of the answer.
type aiderAnswer struct {
	began, ended int64
	first        string
}

var aiderCall = lazy.Regexp(`(?m)^(TO LLM|LLM RESPONSE) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\n(?:ASSISTANT (.*))?`)

// aiderAnswers reads the log of model calls beside the source.
func (s *source) aiderAnswers() (all []aiderAnswer) {
	if s.path == "" {
		return nil
	}
	text, _ := codec.ReadFile(siblings(s.path, aiderLog)[0]) // most users have none
	began := int64(0)
	for _, m := range aiderCall().FindAllStringSubmatch(valid(string(text)), -1) {
		at := localMilli(m[2])
		if m[1] == "TO LLM" {
			began = at
		} else {
			all = append(all, aiderAnswer{began, at, strings.TrimSpace(m[3])})
		}
	}
	return all
}

// aider builds the rows of a chat.
type aider struct {
	b *builder
	// kind is the mark before the lines that are being read.
	kind  string
	lines []string
	log   *[]aiderAnswer
	step  *step
	// said reports that the user or the model said something, and aborted that the user interrupted the turn.
	said, aborted bool
}

func newAider(from *source, id string, at int64, log *[]aiderAnswer) *aider {
	d := &aider{b: newBuilder(from, id, "aider"), log: log}
	if dir, err := filepath.Abs(filepath.Dir(from.path)); err == nil && filepath.Base(from.path) == aiderHistory {
		d.b.workspace(valid(dir))
	}
	d.b.see(at)
	return d
}

// line takes a line. A report of tokens and cost may be two lines, of which the second has the end of the mark.
func (d *aider) line(text string) {
	kind, content := "", text
	for _, mark := range []string{"#### ", ">"} {
		if own, ok := strings.CutPrefix(text, mark); ok && strings.HasSuffix(own, "  ") {
			kind, content = mark, strings.TrimSpace(own)
		}
	}
	if cost := strings.HasPrefix(text, "Cost: $") && strings.HasSuffix(text, "  "); cost ||
		strings.HasPrefix(text, "> Tokens: ") {
		kind, content = ">", strings.TrimPrefix(text, "> ")
	}
	if kind != d.kind {
		d.flush()
		d.kind = kind
	}
	d.lines = append(d.lines, content)
}

// flush takes the lines of one kind that were read.
func (d *aider) flush() {
	text := strings.TrimSpace(strings.Join(d.lines, "\n"))
	switch d.lines = nil; {
	case text == "":
	case d.kind == "#### ":
		d.close()
		d.b.message(session.RoleUser, rows.TextPart("text", text))
		if d.said = true; strings.HasPrefix(d.b.Asked, "/") { // a command is no title
			d.b.Asked = text
		}
	case d.kind == ">":
		d.report(text)
	default:
		d.answer(text)
	}
}

// close ends the turn.
func (d *aider) close() {
	if d.aborted {
		d.b.ended("abort", "")
	} else {
		d.b.ended("finish", "")
	}
	d.aborted = false
}

// end ends the chat, and reports whether there is anything in it.
func (d *aider) end() bool {
	d.flush()
	d.close()
	return d.said
}

var aiderThinking = lazy.Regexp(`(?s)^<think(?:ing-content-\w+)?>(.*?)(?:</think(?:ing-content-\w+)?>|$)`)

// answer adds a model call.
func (d *aider) answer(text string) {
	first, _, _ := strings.Cut(text, "\n")
	called := slices.IndexFunc(*d.log, func(a aiderAnswer) bool {
		return a.ended >= d.b.At && a.first == strings.TrimSpace(first)
	})
	d.step, d.said = d.b.step(""), true
	d.b.setModel(d.b.Model)
	if called >= 0 {
		d.step.StartedAt = (*d.log)[called].began
		d.b.see((*d.log)[called].ended)
		*d.log = (*d.log)[called+1:]
	}
	if m := aiderThinking().FindStringSubmatch(text); m != nil {
		d.b.text("reasoning", strings.TrimSpace(m[1]))
		text = strings.TrimSpace(text[len(m[0]):])
	}
	d.b.text("text", text)
}

var (
	aiderModel  = lazy.Regexp(`^(?:Main model|Model): (\S+) with `)
	aiderTokens = lazy.Regexp(`^Tokens: (\S+) sent(?:, (\S+) cache write)?(?:, (\S+) cache hit)?, (\S+) received`)
	aiderCost   = lazy.Regexp(`Cost: \$(\d+\.\d+) (?:message|request)`)
)

// report takes what the program reported: the model, what a call used, or anything else.
func (d *aider) report(text string) {
	var rest []string
	for _, line := range strings.Split(text, "\n") {
		model, tokens, cost := aiderModel().FindStringSubmatch(line), aiderTokens().FindStringSubmatch(line),
			aiderCost().FindStringSubmatch(line)
		if tokens != nil && d.step != nil {
			u := session.Usage{CacheWrite: aiderCount(tokens[2]), CacheRead: aiderCount(tokens[3])}
			u.Input, u.Output = max(0, aiderCount(tokens[1])-u.CacheRead-u.CacheWrite), aiderCount(tokens[4])
			d.step.count(modelUse{usage: u}, semconv.BasisInclusive)
		}
		if cost != nil && d.step != nil {
			d.step.in.paid(rows.USD([]byte(cost[1])))
		}
		if model != nil {
			d.b.model("", model[1])
		}
		d.aborted = d.aborted || line == "^C KeyboardInterrupt"
		if tokens == nil && cost == nil {
			rest = append(rest, line)
		}
	}
	if text = strings.TrimSpace(strings.Join(rest, "\n")); text != "" && d.b.turn != nil {
		d.b.part(rows.DataPart("data-notice", rows.Of("text", text)))
	} else if text != "" {
		d.b.notice(text)
	}
}

// aiderCount reads a count such as 1,234 or 1.2k.
func aiderCount(text string) int64 {
	digits, thousands := strings.CutSuffix(strings.ReplaceAll(text, ",", ""), "k")
	n, err := strconv.ParseFloat(digits, 64)
	if thousands {
		n *= 1000
	}
	if err != nil || !(n >= 0) || n > maxCount {
		return 0
	}
	return int64(math.Round(n))
}
