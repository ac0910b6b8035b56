package render

import (
	"cmp"
	"strconv"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/printable"
)

// notices prints what is doubtful in a session.
func (p *printer) notices(notices []session.Notice) {
	if len(notices) == 0 {
		return
	}
	const maximum = 5
	p.blank()
	p.line(span{"! " + printable.Plural(len(notices), "notice", "notices"), p.warn}, span{": valid, and may not be what happened", p.dim})
	shown := len(notices)
	if !p.Full {
		shown = min(shown, maximum)
	}
	indent := span{"    ", p.plain}
	for i := range notices[:shown] {
		n := notices[i]
		if n.Turn > 0 {
			n.MessageID = "" // the turn is below
		}
		p.block(span{"  ", p.plain}, indent, printable.OneLine(cmp.Or(n.Where(), "session"))+": "+printable.OneLine(n.Detail), p.plain, 0)
		p.block(indent, indent, printable.OneLine(n.Remedy), p.dim, 0)
	}
	if more := len(notices) - shown; more > 0 {
		p.line(span{"  … " + strconv.Itoa(more) + " more (--full)", p.dim})
	}
}
