package render

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// NewsPrinter prints news for a person, as they come. All that comes from a
// session is sanitized: see [document.Sanitize].
type NewsPrinter struct {
	// Grow prints what a text grows by word by word, as a person at a terminal likes
	// it. Otherwise a text is printed when it is whole or something else comes.
	Grow bool

	p *printer
	// session and title are those under whose heading the last line is.
	session string
	titles  map[string]string
	// fresh reports that nothing is under the heading yet.
	fresh bool
	// part is the text that the last line belongs to, column where it ends, held what of it is not printed yet.
	part   string
	column int
	held   string
	paint  paint
}

// NewNewsPrinter returns a printer of news.
func NewNewsPrinter(o Options) *NewsPrinter {
	p := newPrinter(o)
	p.noHint = true
	return &NewsPrinter{p: p, titles: make(map[string]string)}
}

// Print returns what there is to print. The last line may be open: see Flush.
func (n *NewsPrinter) Print(news []document.News) string {
	for i := range news {
		n.one(&news[i])
	}
	return n.take()
}

// Flush ends a line that is open.
func (n *NewsPrinter) Flush() string {
	n.endText()
	return n.take()
}

// take returns what was printed since the last time.
func (n *NewsPrinter) take() string {
	defer n.p.b.Reset()
	return n.p.b.String()
}

func (n *NewsPrinter) one(x *document.News) {
	p := n.p
	if x.Event == document.NewsText && x.Delta == "" && !x.Replaced && x.PartID != n.part {
		return // it has only begun, or is over and was printed
	}
	if x.Event == document.NewsSession {
		n.titles[x.SessionID] = x.Title
		n.heading(x, document.Join(document.OneLine(x.Agent), p.clock(x.At)))
		return
	}
	if x.SessionID != n.session {
		n.heading(x, p.clock(x.At))
	}
	if x.Event != document.NewsText || x.PartID != n.part {
		n.endText()
	}
	if x.Event == document.NewsText && x.Role == session.RoleUser && x.PartID != n.part && !n.fresh {
		p.blank() // a turn begins
	}
	n.fresh = n.fresh && x.Event == document.NewsMessage
	switch x.Event {
	case document.NewsStatus:
		brief := *x.Status
		if brief.State != document.ActivityInterrupted {
			brief.Since = 0 // it has just begun
		}
		p.line(p.activity(brief.State), span{prefixed(" · ", p.statusLine(&brief)), p.dim})
	case document.NewsText:
		n.text(x)
	case document.NewsTool:
		part := *x.Part
		tool := *part.Tool
		tool.Decisions = nil // they are printed by themselves
		part.Tool = &tool
		if tool.Open() && !tool.Stub {
			p.openLine(&tool)
		} else {
			p.tool(nil, &part, nil)
		}
	case document.NewsPart:
		p.part(nil, &document.Message{ID: x.MessageID, Role: x.Role}, x.Part, nil)
	case document.NewsDecision:
		p.decision("◇ ", x.Decision, x.Decision.ToolID, p.good, p.Lines)
	case document.NewsHidden:
		p.line(span{"⟲ rewound " + p.clock(x.At), p.warn})
	case document.NewsShown:
		p.line(span{"⟲ a rewind is undone", p.warn})
	case document.NewsMessageEnd:
		n.messageEnd(x)
	}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func (n *NewsPrinter) heading(x *document.News, fact string) {
	n.endText()
	if n.session != "" {
		n.p.blank()
	}
	n.session, n.fresh = x.SessionID, true
	id := document.Head(document.Sanitize(strings.TrimPrefix(x.SessionID, "ses_")), 8)
	label := id + "  " + document.OneLine(n.titles[x.SessionID])
	label = truncate(label, max(n.p.Width-width(fact)-10, 20))
	n.p.header("─", span{strings.TrimRight(label, " "), n.p.title}, span{}, fact)
}

// openLine is a call that has not ended, in one line.
func (p *printer) openLine(c *document.ToolCall) {
	text := map[string]string{session.StateApprovalRequested: "? waits for approval",
		session.StateApprovalResponded: "approved …", session.StateInputStreaming: "input …"}[c.State]
	p.callLine(c.Name, c.Subject(), span{cmp.Or(text, "…"), p.warn})
}

func (n *NewsPrinter) messageEnd(x *document.News) {
	p := n.p
	facts := document.Join(document.OptionalDuration(x.DurationMS), document.Tokens(x.Usage),
		document.OneLine(x.StopReason))
	p.line(p.state(x.State), span{prefixed(" · ", facts), p.dim})
	if x.Error != "" {
		p.block(span{"  ", p.plain}, x.Error, p.bad, p.Lines)
	}
}

// text prints what a text has grown by: wrapped, and what may be the head of a word only when the rest of it is there.
func (n *NewsPrinter) text(x *document.News) {
	p := n.p
	lead := span{"● ", p.plain}
	n.paint = p.plain
	switch {
	case x.Kind == document.KindReasoning:
		lead, n.paint = span{"∴ ", p.reasoning}, p.reasoning
	case x.Role == session.RoleUser:
		lead = span{"❯ ", p.user}
	case x.Role != session.RoleAssistant:
		lead = span{"# ", p.dim}
	}
	if x.Replaced {
		n.endText()
		p.line(span{"  (rewritten)", p.dim})
	}
	if x.PartID != n.part {
		n.part, n.column = x.PartID, 2
		p.b.WriteString(lead.Styled(lead.text))
		if already := !x.Replaced && x.Part != nil && len(x.Part.Text) > len(x.Delta); already {
			p.b.WriteString(p.dim.Styled("… "))
			n.column += 2
			n.held = strings.TrimLeft(x.Delta, " \n")
		} else {
			n.held = x.Delta
		}
	} else {
		n.held += x.Delta
	}
	if n.Grow && !x.Done {
		// What follows the last space may be the head of a word, and what spaces are
		// for is known when something follows them.
		if i := strings.LastIndexAny(n.held, " \n"); i >= 0 {
			whole := strings.TrimRight(n.held[:i], " \n")
			n.write(whole)
			n.held = n.held[len(whole):]
		}
		return
	}
	if x.Done {
		n.endText()
	}
}

// write prints text, wrapped, from the column on where the line ends.
func (n *NewsPrinter) write(text string) {
	p := n.p
	for i, line := range strings.Split(document.Sanitize(text), "\n") {
		if i > 0 {
			n.newline()
		}
		for line != "" {
			if n.column == 0 {
				p.b.WriteString("  ")
				n.column = 2
			}
			spaces := len(line) - len(strings.TrimLeft(line, " "))
			end := strings.IndexByte(line[spaces:], ' ')
			if end < 0 {
				end = len(line) - spaces
			}
			gap, word := line[:spaces], line[spaces:spaces+end]
			line = line[spaces+end:]
			if n.column > 2 && n.column+spaces+width(word) > p.Width {
				n.newline()
				p.b.WriteString("  ")
				n.column, gap = 2, ""
			}
			if n.column+len(gap) <= p.Width {
				p.b.WriteString(gap)
				n.column += len(gap)
			}
			for word != "" {
				part, rest := cut(word, max(p.Width-n.column, 0))
				if part == "" && n.column > 2 {
					n.newline()
					p.b.WriteString("  ")
					n.column = 2
					continue
				}
				if part == "" { // a character wider than the line
					_, size := utf8.DecodeRuneInString(word)
					part, rest = word[:size], word[size:]
				}
				p.b.WriteString(n.paint.Styled(part))
				n.column += width(part)
				word = rest
			}
		}
	}
}

func (n *NewsPrinter) newline() {
	n.p.b.WriteByte('\n')
	n.column = 0
}

// endText ends the line of a text.
func (n *NewsPrinter) endText() {
	if n.part == "" {
		return
	}
	n.write(strings.TrimRight(n.held, " \n"))
	n.p.b.WriteByte('\n')
	n.part, n.held, n.column = "", "", 0
}
