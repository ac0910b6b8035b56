package render

import (
	"cmp"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// NewsPrinter prints news for a person, as they come. All that comes from a
// session is sanitized: see [document.Sanitize].
type NewsPrinter struct {
	p *printer
	// session and title are those under whose heading the last line is.
	session string
	titles  map[string]string
	// fresh reports that nothing is under the heading yet.
	fresh bool
	// part is the text that is printed, held what is known of it, lines how many of its lines are printed, and lead what
	// is before the next.
	part, held string
	lines      int
	lead       span
	paint      paint
}

// NewNewsPrinter returns a printer of news.
func NewNewsPrinter(o Options) *NewsPrinter {
	p := newPrinter(o)
	p.noHint = true
	return &NewsPrinter{p: p, titles: make(map[string]string)}
}

// Print returns what there is to print. The end of a text may be left: see Flush.
func (n *NewsPrinter) Print(news []document.News) string {
	for i := range news {
		n.one(&news[i])
	}
	return n.take()
}

// Flush prints what is left.
func (n *NewsPrinter) Flush() string {
	n.endText()
	return n.take()
}

func (n *NewsPrinter) take() string {
	defer n.p.b.Reset()
	return n.p.b.String()
}

// givenTitle is the title that somebody gave; otherwise what the user says follows.
func givenTitle(title string) string {
	if title == session.Untitled {
		return ""
	}
	return title
}

func (n *NewsPrinter) one(x *document.News) {
	p := n.p
	if x.Event == document.NewsText && x.Delta == "" && !x.Replaced && x.PartID != n.part {
		return // it has only begun, or is over and was printed
	}
	if x.Event == document.NewsSession {
		n.titles[x.SessionID] = givenTitle(x.Title)
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
		p.line(p.did(string(brief.State)), span{prefixed(" · ", p.statusLine(&brief)), p.dim})
	case document.NewsText:
		n.text(x)
	case document.NewsTool:
		part := *x.Part
		tool := *part.Tool
		tool.Decisions = nil // they are printed by themselves
		part.Tool = &tool
		if tool.Open() && !tool.Stub {
			text := map[string]string{session.StateApprovalRequested: "? waits for approval",
				session.StateApprovalResponded: "approved …", session.StateInputStreaming: "input …"}[tool.State]
			p.callLine(tool.Name, tool.Subject(), span{cmp.Or(text, "…"), p.warn})
		} else {
			p.tool(nil, &part)
		}
	case document.NewsPart:
		p.part(nil, &document.Message{ID: x.MessageID, Role: x.Role}, x.Part)
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

func (n *NewsPrinter) messageEnd(x *document.News) {
	p := n.p
	facts := document.Join(document.OptionalDuration(x.DurationMS), document.Tokens(x.Usage),
		document.OneLine(x.StopReason))
	p.line(p.did(string(x.State)), span{prefixed(" · ", facts), p.dim})
	if x.Error != "" {
		p.block(span{"  ", p.plain}, x.Error, p.bad, p.Lines)
	}
}

func (n *NewsPrinter) text(x *document.News) {
	p := n.p
	if x.Replaced {
		n.endText()
		p.line(span{"  (rewritten)", p.dim})
	}
	if x.PartID != n.part {
		n.part, n.lead, n.paint = x.PartID, span{"● ", p.plain}, p.plain
		switch {
		case x.Kind == document.KindReasoning:
			n.lead, n.paint = span{"∴ ", p.reasoning}, p.reasoning
		case x.Role == session.RoleUser:
			n.lead = span{"❯ ", p.user}
		case x.Role != session.RoleAssistant:
			n.lead = span{"# ", p.dim}
		}
		if n.held = x.Delta; !x.Replaced && x.Part != nil && len(x.Part.Text) > len(x.Delta) {
			n.held = "… " + strings.TrimLeft(x.Delta, " \n") // the rest is printed above
		}
	} else {
		n.held += x.Delta
	}
	if x.Done {
		n.endText()
	} else {
		n.write(false)
	}
}

// write prints what is new of the text: all of it, or the lines to which no word can come any more.
func (n *NewsPrinter) write(whole bool) {
	lines := wrap(strings.TrimRight(document.Sanitize(n.held), " \n"), n.p.Width-2)
	if !whole {
		lines = lines[:len(lines)-1]
	}
	for ; n.lines < len(lines); n.lines++ {
		n.p.line(n.lead, span{lines[n.lines], n.paint})
		n.lead = span{"  ", n.p.plain}
	}
}

func (n *NewsPrinter) endText() {
	if n.part != "" {
		n.write(true)
	}
	n.part, n.held, n.lines = "", "", 0
}

// did is an [document.Activity] or a [document.State] in words, after a sign.
func (p *printer) did(of string) span {
	sign, words := document.OutcomeWords(of)
	if sign == "" {
		return span{}
	}
	in := p.warn
	switch sign {
	case "►", "✓":
		in = p.good
	case "✗":
		in = p.bad
	case "·":
		in = p.dim
	}
	return span{sign + " " + words, in}
}

// statusWords is a status with what its phrases need besides: the age of a time, and the call that a human is asked
// about, which is Open if it is known.
type statusWords struct {
	*document.Status
	Ago      func(ms int64) string
	WaitsFor string
	Open     bool
}

func (p *printer) statusWords(st *document.Status) statusWords {
	w := statusWords{Status: st, Ago: p.ago}
	if st.State.Waiting() {
		w.WaitsFor = st.ToolCallID
	}
	for _, c := range st.OpenCalls {
		if w.WaitsFor != "" && c.CallID == st.ToolCallID {
			what, _ := document.Subject(c.Input)
			w.WaitsFor, w.Open = strings.TrimSpace(cmp.Or(c.Tool, document.Unnamed)+"  "+what), true
			break
		}
	}
	return w
}

// statusLine is a status in one line, without its mark: since when, and what the matter is.
func (p *printer) statusLine(st *document.Status) string {
	return document.Join(phrases.Facts("status", p.statusWords(st))...)
}

// ago is a moment and its age.
func (p *printer) ago(ms int64) string {
	text := p.moment(ms)
	if !p.Now.IsZero() {
		text += ", " + p.age(ms)
		if !strings.HasSuffix(text, "now") {
			text += " ago"
		}
	}
	return text
}

// Status prints the status on one screen.
func Status(w io.Writer, st *document.Status, o Options) error {
	p := newPrinter(o)
	for _, l := range wrap(document.OneLine(st.Title), p.Width) {
		p.line(span{l, p.title})
	}
	p.line(p.did(string(st.State)), span{" · " + document.OneLine(st.Agent), p.dim})
	p.blank()
	for _, f := range phrases.Fields("status fields", p.statusWords(st)) {
		p.field(f.Name, f.Value)
	}
	if len(st.OpenCalls) > 0 {
		p.blank()
		for _, c := range st.OpenCalls {
			what, _ := document.Subject(c.Input)
			state := cmp.Or(document.OneLine(c.State), "state not known") + " " + p.clock(c.UpdatedAt)
			p.callLine(c.Tool, what, span{state, p.warn})
		}
	}
	if m := st.LastMessage; m != nil {
		lead := span{"● ", p.plain}
		if m.Role == session.RoleUser {
			lead = span{"❯ ", p.user}
		}
		text := m.Text
		if m.Incomplete && m.Role == session.RoleAssistant {
			text = strings.TrimRight(text, "\n ") + " …"
		}
		if strings.TrimSpace(text) != "" {
			p.blank()
			text = strings.TrimRight(document.Sanitize(text), "\n ") // of which the last line that is not blank is shown
			p.line(lead, span{strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]), p.plain})
		}
	}
	return p.writeTo(w)
}
