package modelhttp

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// setup is what the requests of a conversation have in common, and one beside it has not.
type setup struct {
	system, tools digest
	model         string
	limit         int
	form          string
	hasTools      bool
}

// setup returns how a request is made. One that follows a response goes on with what the conversation has.
func (l *lookup) setup(c *conversation) setup {
	r := l.r
	s := setup{l.system, l.tools, r.Model, r.Limit, string(r.Form), len(r.Tools) > 0}
	if l.isChained() && r.System == "" {
		s.system = c.setup.system
	}
	if l.isChained() && !s.hasTools {
		s.tools, s.hasTools = c.setup.tools, c.setup.hasTools
	}
	return s
}

// isBare reports whether a request is without the tools that the conversation has.
func (s setup) isBare(of setup) bool { return !s.hasTools && of.hasTools }

// isLess reports whether a request leaves the model less to do than the conversation does: without tools, in fewer
// tokens, or in another form.
func (s setup) isLess(of setup) bool {
	small := s.limit > 0 && (of.limit == 0 || s.limit < of.limit)
	form := s.form != "" && s.form != of.form
	return s.isBare(of) || small || form
}

// isChained reports whether a request continues what the provider keeps.
func (l *lookup) isChained() bool { return l.r.Previous+l.r.Conversation != "" }

// aside finds the conversation that a request without a history is beside.
func (g *registry) aside(l *lookup, within []*conversation) *conversation {
	for _, c := range g.recent(l, within) {
		if near := l.isNear(within, c); (near || c.scope == l.scope) && c.isAside(l, near) {
			return c
		}
	}
	return nil
}

// isAside reports whether a request is for something beside the conversation, such as a title or a summary, and no
// step of it. It must differ from the conversation's own requests in more than what it asks, because users ask for
// titles and summaries, too. near reports that it comes from the same piece of work or has the conversation's history.
func (c *conversation) isAside(l *lookup, near bool) bool {
	s := l.setup(c)
	if len(l.keys) == 0 || c.setup == (setup{}) || !near && (s == c.setup || !l.purpose().word) {
		return false
	}
	if c.summary != "" && l.beginsWith(c.summary) {
		return false
	}
	return c.differs(l, s, near)
}

// differs is the last of isAside: whether what a request asks and how it is made distinguish it from the others
// of the conversation.
func (c *conversation) differs(l *lookup, s setup, near bool) bool {
	system, tools, model := s.system != c.setup.system, s.tools != c.setup.tools, s.model != c.setup.model
	bare, less := s.isBare(c.setup), s.isLess(c.setup)
	switch {
	case l.hasHistory():
		return less && l.purpose().word || (system || tools || model) && l.purpose().sure
	case c.open && near && bare && system:
		return true
	case c.has(l.keys[len(l.keys)-1]): // the user's text itself
		return near && system && less || (less || near && (system || tools)) && l.purpose().word
	case quotes(l, c.askedHead) || quotes(l, c.answerHead): // a transcript
		return l.purpose().word
	}
	return near && (system || less) && l.purpose().sure
}

// titleOf returns the title in an answer: its first line or, of JSON, the member of that name.
func titleOf(answer []byte) string {
	text := strings.TrimSpace(string(answer))
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(text, "```"), "json"), "```"))
	var named struct{ Title, Headline, Name string }
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &named) == nil {
		text = cmp.Or(named.Title, named.Headline, named.Name)
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	const most = 80
	if runes := []rune(strings.Trim(text, `"*# `)); len(runes) <= most {
		return string(runes)
	}
	return "" // no title
}

// quotes reports whether a request has the letters of a text.
func quotes(l *lookup, head string) bool {
	return len(head) >= minHead && strings.Contains(l.letters(), head)
}

// has reports whether the conversation has the message.
func (c *conversation) has(key digest) bool {
	return slices.ContainsFunc(c.history, func(m mark) bool { return m.key == key })
}

var (
	purposeWord = lazy.Regexp(`(?i)\b(titles?|headline|summar(y|i[sz]e|i[sz]ing|i[sz]ation|ies)|compact(ion)?|` +
		`name (this|the|a|our) \w+)\b`)
	purposeForm = lazy.Regexp(`(?i)"(title|headline|summary)"\s*:\s*\{`)
)

// purposes states whether the instructions of a request name a title or a summary, and surely one of the conversation.
type purposes struct{ word, sure bool }

// purpose looks for that in the system prompt, the ends of the last text, and the form of the answer.
func (l *lookup) purpose() purposes {
	if l.purposes != nil {
		return *l.purposes
	}
	text, system := l.instruction(), l.r.System
	if len(system) > 2000 { // that of an agent
		system = ""
	}
	p := purposes{sure: modelapi.Aside().MatchString(text) || modelapi.Aside().MatchString(system)}
	p.word = p.sure || purposeWord().MatchString(text) || purposeWord().MatchString(system) ||
		purposeForm().Match(l.r.Form) || purposeWord().MatchString(l.onlyTool())
	l.purposes = &p
	return p
}

// instruction returns the ends of the last text.
func (l *lookup) instruction() string {
	const most = 600
	text := l.lastText()
	if len(text) > 2*most {
		text = text[:most] + "\n" + text[len(text)-most:]
	}
	return text
}

// onlyTool returns the words of the name of the tool that takes the answer.
func (l *lookup) onlyTool() string {
	if len(l.r.Tools) != 1 {
		return ""
	}
	return strings.ReplaceAll(l.r.Tools[0].Name, "_", " ")
}

// asks states what a request asks for, if it is a title or a summary of the conversation.
func (l *lookup) asks(side bool) purpose {
	text := l.instruction()
	if side {
		text += "\n" + l.r.System[max(0, len(l.r.System)-2000):] + "\n" + string(l.r.Form) + "\n" + l.onlyTool()
	}
	text = strings.ToLower(text)
	switch about := strings.Contains(text, "summar") || strings.Contains(text, "compact"); {
	case about && (side || l.purpose().sure):
		return summary
	case side && purposeWord().MatchString(text):
		return title
	}
	return ""
}

type purpose string

const title, summary purpose = "title", "summary"

// minHead and maxHead are how many letters of a text recognize it in another one.
const minHead, maxHead = 6, 40

// letters returns those of what a request begins with, the system prompt and the first message, to search for a text
// that may be wrapped and quoted there.
func (l *lookup) letters() string {
	if l.text == "" {
		var b strings.Builder
		b.WriteString(lettersOf(l.r.System, 1<<20))
		for i := range l.r.Messages {
			for _, it := range l.r.Messages[i].Items {
				if it.Kind == modelapi.Text {
					b.WriteString(lettersOf(it.Text, 1<<20))
				}
			}
			if l.r.Messages[i].Role == modelapi.User && l.last >= 0 {
				break
			}
		}
		l.text = b.String()
	}
	return l.text
}

// withoutSummary returns what the user adds to a summary: what follows it in its text, and other texts. If that is
// nothing, and nothing may be left out, it is all.
func withoutSummary(said []modelapi.Item, summary string, mayBeNone bool) (rest []modelapi.Item) {
	head := lettersOf(summary, maxHead)
	for _, i := range said {
		if i.Kind == modelapi.Text && strings.Contains(lettersOf(i.Text, 1<<20), head) {
			_, i.Text, _ = strings.Cut(i.Text, strings.TrimSpace(summary))
			if lettersOf(i.Text, 1) == "" {
				continue
			}
			i.Text = strings.TrimSpace(i.Text)
		}
		rest = append(rest, i)
	}
	if len(rest) == 0 && !mayBeNone {
		return said
	}
	return rest
}

// beginsWith reports whether a request begins with a summary.
func (l *lookup) beginsWith(summary string) bool { return quotes(l, lettersOf(summary, maxHead)) }

// lettersOf returns the first letters and digits of a text.
func lettersOf(text string, most int) string {
	var b strings.Builder
	for _, r := range text {
		if b.Len() >= most {
			break
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// sketch has the runs of four letters of which the first letters of a text consist. An edited text keeps most of them.
type sketch map[string]bool

const sketched = 512

func sketchOf(text string) sketch {
	letters := lettersOf(text, sketched)
	s := make(sketch)
	for i := 0; i+4 <= len(letters); i++ {
		s[letters[i:i+4]] = true
	}
	return s
}

// resembles reports whether the i-th message of a request is the last answer in other words.
func (c *conversation) resembles(l *lookup, i int) bool {
	var b strings.Builder
	for _, it := range l.r.Messages[i].Items {
		b.WriteString(it.Text)
	}
	x, y := sketchOf(string(c.head)), sketchOf(b.String())
	common := 0
	for run := range x {
		if y[run] {
			common++
		}
	}
	return common > 0 && 2*common >= min(len(x), len(y))
}
