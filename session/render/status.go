package render

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// activity is what a session does, in its color. A session that does nothing has no mark.
func (p *printer) activity(a document.Activity) span {
	return map[document.Activity]span{
		document.ActivityBusy: {"► busy", p.good}, document.ActivityRetrying: {"↻ retrying", p.warn},
		document.ActivityWaitingApproval:  {"? waiting for approval", p.warn},
		document.ActivityWaitingUserInput: {"? waiting for an answer", p.warn},
		document.ActivityError:            {"✗ error", p.bad}, document.ActivityInterrupted: {"◌ interrupted", p.warn},
		document.ActivityIdle: {"· idle", p.dim},
	}[a]
}

// statusLine is a status in one line, without its mark: since when, and what the matter is.
func (p *printer) statusLine(st *document.Status) string {
	var facts []string
	if st.State == document.ActivityInterrupted {
		facts = append(facts, "was "+strings.ReplaceAll(string(st.Was), "_", " "), "last seen "+p.ago(st.Since))
	} else if st.Since != 0 {
		facts = append(facts, "since "+p.ago(st.Since))
	}
	if st.Attempt > 0 {
		facts = append(facts, "attempt "+strconv.FormatInt(st.Attempt, 10))
	}
	if slices.ContainsFunc(st.OpenCalls, func(c document.OpenCall) bool { return c.CallID == st.ToolCallID }) {
		facts = append(facts, document.OneLine(waitsFor(st)))
	}
	return document.Join(append(facts, document.OneLine(st.Detail))...)
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
	for _, l := range wrap(cmp.Or(document.OneLine(st.Title), "(no title)"), p.Width) {
		p.line(span{l, p.title})
	}
	p.line(p.activity(st.State), span{" · " + document.OneLine(st.Agent), p.dim})
	p.blank()
	p.field("session", document.Sanitize(st.SessionID))
	if st.State == document.ActivityInterrupted {
		p.field("was", strings.ReplaceAll(string(st.Was), "_", " "))
	} else if st.Since != 0 {
		p.field("since", p.ago(st.Since))
	}
	p.field("last seen", p.ago(st.UpdatedAt))
	if st.Attempt > 0 {
		p.field("attempt", strconv.FormatInt(st.Attempt, 10))
	}
	p.field("detail", document.OneLine(st.Detail))
	p.field("waits for", document.OneLine(waitsFor(st)))
	if !st.Declared {
		p.field("source", "derived from the messages; the agent reports no state")
	}
	if len(st.OpenCalls) > 0 {
		p.blank()
		const maximum = 8
		for _, c := range st.OpenCalls[:min(maximum, len(st.OpenCalls))] {
			what, _ := document.Subject(c.Input)
			state := cmp.Or(document.OneLine(c.State), "state not known") + " " + p.clock(c.UpdatedAt)
			p.callLine(c.Tool, what, span{state, p.warn})
		}
		if more := len(st.OpenCalls) - maximum; more > 0 {
			p.line(span{"  … " + document.Plural(more, "more open call", "more open calls") + " (--json)", p.dim})
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
			p.line(lead, span{lastLine(text), p.plain})
		}
	}
	return p.writeTo(w)
}

// waitsFor names the call that a human is asked about.
func waitsFor(st *document.Status) string {
	if !st.State.Waiting() || st.ToolCallID == "" {
		return ""
	}
	for _, c := range st.OpenCalls {
		if c.CallID == st.ToolCallID {
			what, _ := document.Subject(c.Input)
			return strings.TrimSpace(cmp.Or(c.Tool, document.Unnamed) + "  " + what)
		}
	}
	return st.ToolCallID
}

// lastLine is the last line of a text that is not blank.
func lastLine(text string) string {
	text = strings.TrimRight(document.Sanitize(text), "\n ")
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
