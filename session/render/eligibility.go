package render

import (
	"cmp"
	"io"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
)

// Eligibility prints which turns can be rerun, and what is missing of the others.
func Eligibility(w io.Writer, r *document.Eligibility, o Options) error {
	p := newPrinter(o)
	shown, good := 0, 0
	widest := len("MODEL")
	for _, t := range r.Turns {
		if !t.Hidden || p.Full {
			shown++
			widest = max(widest, width(turnModel(t)))
			if t.Eligible {
				good++
			}
		}
	}
	widest = min(widest, p.Width/3)
	switch {
	case shown == 0:
		p.line(span{"✗ ", p.bad}, span{"there is no turn to rerun", p.title})
	case good == shown:
		p.line(span{"✓ ", p.good}, span{"replay-eligible", p.title},
			span{": of " + every(shown) + " everything that the model was given is known", p.plain})
	default:
		of := strconv.Itoa(shown-good) + " of " + strconv.Itoa(shown) + " turns"
		if good == 0 {
			of = every(shown)
		}
		p.line(span{"✗ ", p.bad}, span{"not replay-eligible", p.title},
			span{": of " + of + " something is missing", p.plain})
	}
	if shown > 0 {
		p.blank()
		p.line(span{"TURN  " + pad("MODEL", widest) + "  GIVEN", p.title})
	}
	for _, t := range r.Turns {
		if !t.Hidden || p.Full {
			p.turnReplay(t, widest)
		}
	}
	if hidden := len(r.Turns) - shown; hidden > 0 {
		p.line(span{"      " + document.Plural(hidden, "rewound turn", "rewound turns") + " left out (--full)", p.dim})
	}
	return p.writeTo(w)
}

func every(turns int) string {
	if turns == 1 {
		return "the turn"
	}
	return "all " + strconv.Itoa(turns) + " turns"
}

func turnModel(r *document.TurnEligibility) string {
	return cmp.Or(document.FullModelName(r.Model), absent)
}

func (p *printer) turnReplay(t *document.TurnEligibility, widest int) {
	given := document.Plural(t.Context, "message", "messages")
	if t.Compacted {
		given = "summary + " + document.Plural(t.Context-1, "message", "messages")
	}
	if t.Hidden {
		given += " (rewound)"
	}
	state := span{"✓", p.good}
	if !t.Eligible {
		state = span{"✗", p.bad}
	}
	p.line(span{padLeft(strconv.Itoa(t.Turn), 4) + "  " + pad(truncate(turnModel(t), widest), widest) + "  ", p.plain},
		state, span{" " + given, p.plain})
	for _, m := range t.Missing {
		why := document.Sanitize(m.Why)
		if m.ToolCallID != "" {
			why += " (" + document.Sanitize(m.ToolCallID) + ")"
		}
		lead := pad(strings.ReplaceAll(m.What, "_", " "), 13)
		p.block(span{"      " + lead + "  ", p.warn}, why, p.plain, 0)
	}
	for _, n := range t.Notes {
		p.block(span{"      note           ", p.dim}, n, p.dim, 0)
	}
}
