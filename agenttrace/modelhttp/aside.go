package modelhttp

import (
	"regexp"
	"strings"
	"unicode"
)

// setup is what the requests of a conversation have in common, and one beside it has not.
type setup struct {
	system, tools digest
	model         string
	limit         int
	form          string
	hasTools      bool
}

func (l *lookup) setup() setup {
	r := l.r
	return setup{l.system, l.tools, r.model.ID, r.limit, string(r.form), len(r.tools) > 0}
}

// aside finds the conversation that a request without a history is beside.
func (g *registry) aside(l *lookup, within []*conversation) (found *conversation) {
	g.recent(l, within, func(c *conversation) bool {
		near := l.isNear(within, c)
		if (near || c.scope == l.scope) && c.isAside(l, near) {
			found = c
		}
		return found == nil
	})
	return found
}

// isAside reports whether a request is for something beside the conversation, such as a title or a summary, and no step
// of it. It must differ from the conversation's own requests in more than what it asks, because users ask for titles and
// summaries, too. near reports that it comes from the same piece of work or has the conversation's history.
func (c *conversation) isAside(l *lookup, near bool) bool {
	if c.setup == (setup{}) {
		return false
	}
	s := l.setup()
	fresh := l.last < 0
	system, tools := s.system != c.setup.system, s.tools != c.setup.tools
	bare := !s.hasTools && c.setup.hasTools
	if fresh && c.open && near && bare && system {
		return true
	}
	small := s.limit > 0 && (c.setup.limit == 0 || s.limit < c.setup.limit)
	form := s.form != "" && s.form != c.setup.form
	word, sure := l.purpose()
	switch {
	case !fresh:
		return word && (bare || small || form) || sure && (system || tools || s.model != c.setup.model)
	case c.has(l.keys[len(l.keys)-1]): // the user's text itself
		return system && near && (bare || small || form) || word && (bare || small || form || near && (system || tools))
	case quotes(l, c.askedHead) || quotes(l, c.answerHead): // a transcript
		return word && (near || s != c.setup)
	}
	return near && sure && (system || bare || small || form)
}

// quotes reports whether a request has the letters of a text.
func quotes(l *lookup, head string) bool {
	return len(head) >= minHead && strings.Contains(l.letters(), head)
}

// has reports whether the conversation has the message.
func (c *conversation) has(key digest) bool {
	for i := range c.history {
		if c.history[i].key == key {
			return true
		}
	}
	return false
}

var (
	purposeWord = regexp.MustCompile(`(?i)\b(titles?|headline|summar(y|i[sz]e|i[sz]ing|i[sz]ation|ies)|compact(ion)?|` +
		`name (this|the|a|our) \w+)\b`)
	purposeForm = regexp.MustCompile(`(?i)"(title|headline|summary)"\s*:\s*\{`)
	purposeSure = regexp.MustCompile(`(?i)\b(titles?|headline|name|summar\w+|compact)\b[^.!?\n]{0,40}\b` +
		`(conversations?|chats?|sessions?|dialog(ue)?s?|discussion|thread|transcript|history|messages|above|so far)\b`)
)

// purpose reports whether the instructions of a request, the system prompt and the ends of the last text, or the form of
// its answer name a title or a summary, and whether it is one of the conversation.
func (l *lookup) purpose() (word, sure bool) {
	const most, longSystem = 600, 2000 // a longer prompt is that of an agent
	text := l.lastText()
	if len(text) > 2*most {
		text = text[:most] + "\n" + text[len(text)-most:]
	}
	system := l.r.system
	if len(system) > longSystem {
		system = ""
	}
	sure = purposeSure.MatchString(text) || purposeSure.MatchString(system)
	word = sure || purposeWord.MatchString(text) || purposeWord.MatchString(system) || purposeForm.Match(l.r.form)
	if len(l.r.tools) == 1 { // one that takes the answer
		word = word || purposeWord.MatchString(strings.ReplaceAll(l.r.tools[0].Name, "_", " "))
	}
	return word, sure
}

// asks states what a request asks for, if it is a title or a summary of the conversation.
func (l *lookup) asks(side bool) purpose {
	if _, sure := l.purpose(); !side && !sure {
		return ""
	}
	text := l.r.system[max(0, len(l.r.system)-2000):] + l.lastText() + string(l.r.form)
	switch {
	case asksSummary.MatchString(text):
		return summary
	case side && purposeWord.MatchString(text):
		return title
	}
	return ""
}

type purpose string

const title, summary purpose = "title", "summary"

var asksSummary = regexp.MustCompile(`(?i)\b(summar|compact)`)

// minHead and maxHead are how many letters of a text recognize it in another one.
const minHead, maxHead = 6, 40

// letters returns those of what a request begins with, the system prompt and the first message, to search for a text
// that may be wrapped and quoted there.
func (l *lookup) letters() string {
	if l.text == "" {
		var b strings.Builder
		b.WriteString(lettersOf(l.r.system, 1<<20))
		for i := range l.r.messages {
			for _, it := range l.r.messages[i].items {
				if it.kind == textItem {
					b.WriteString(lettersOf(it.text, 1<<20))
				}
			}
			if l.r.messages[i].role == user && l.last >= 0 {
				break
			}
		}
		l.text = b.String()
	}
	return l.text
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
	for _, it := range l.r.messages[i].items {
		b.WriteString(it.text)
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
