package render

import (
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/printable"
)

// spent reports what a session used and cost, as far as it is known: "" where it is
// not.
func spent(u *session.Usage, stated, estimated *float64) string {
	return strings.Join(printable.Present(printable.Tokens(u), printable.Cost(stated, estimated)), ", ")
}

// summedCost is costText of a sum that is 0 where nobody stated a cost.
func summedCost(stated float64, estimated *float64) string {
	if stated == 0 {
		return printable.Cost(nil, estimated)
	}
	return printable.Cost(&stated, estimated)
}
