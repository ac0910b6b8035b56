package render

import (
	"cmp"
	"io"
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
	for _, l := range wrap(cmp.Or(document.OneLine(st.Title), "(no title)"), p.Width) {
		p.line(span{l, p.title})
	}
	p.line(p.activity(st.State), span{" · " + document.OneLine(st.Agent), p.dim})
	p.blank()
	for _, f := range phrases.Fields("status fields", p.statusWords(st)) {
		p.field(f.Name, f.Value)
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
			text = strings.TrimRight(document.Sanitize(text), "\n ") // of which the last line that is not blank is shown
			p.line(lead, span{strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]), p.plain})
		}
	}
	return p.writeTo(w)
}
