package render

import (
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/printable"
)

// costText writes what something cost: as stated, or with a mark where any of it is an
// estimate; "" where nobody knows.
func costText(stated, estimated *float64) string {
	switch {
	case estimated != nil && stated != nil:
		return "~" + printable.Dollars(*stated+*estimated)
	case estimated != nil:
		return "~" + printable.Dollars(*estimated)
	case stated != nil:
		return printable.Dollars(*stated)
	}
	return ""
}

// spent says what a session used and cost, as far as it is known: "" where it is
// not.
func spent(u *session.Usage, stated, estimated *float64) string {
	tokens, cost := "", costText(stated, estimated)
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
		return costText(nil, estimated)
	}
	return costText(&stated, estimated)
}
