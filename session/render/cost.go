package render

import (
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/printable"
)

// spent reports what a session used and cost, as far as it is known: "" where it is
// not.
func spent(u *session.Usage, stated, estimated *float64) string {
	tokens, cost := "", printable.Cost(stated, estimated)
	if u != nil {
		tokens = printable.Count(u.Total()) + " tokens"
	}
	if tokens != "" && cost != "" {
		return tokens + ", " + cost
	}
	return tokens + cost
}

// summedCost is costText of a sum that is 0 where nobody stated a cost.
func summedCost(stated float64, estimated *float64) string {
	if stated == 0 {
		return printable.Cost(nil, estimated)
	}
	return printable.Cost(&stated, estimated)
}
