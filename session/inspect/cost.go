package inspect

import (
	"maps"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Estimate asks price for the cost of the messages that state usage and no cost, and
// fills in EstimatedCostUSD of these, of their turns and of the totals. What a source
// stated stays as it is: of a session whose cost is stated as a whole nothing is
// estimated. Compactions do not say their model and are not estimated.
//
// It is for a timeline as [Build] returns it, once.
func (tl *Timeline) Estimate(price store.Price) {
	if tl.costOfWhole {
		return
	}
	unpriced := map[string]bool{}
	for i := range tl.Turns {
		t := &tl.Turns[i]
		for k := range t.Messages {
			m := &t.Messages[k]
			if m.Role == session.RoleUser || m.marker || m.CostUSD != nil || m.Usage == nil || m.Usage.Total() == 0 {
				continue
			}
			var model session.Model
			if m.Model != nil {
				model = *m.Model
			}
			usd, ok := price(model, *m.Usage, m.ModelCalls)
			if !ok {
				model.Variant = ""
				unpriced[fullModelName(&model)] = true
				continue
			}
			m.EstimatedCostUSD = &usd
			addNumber(&t.EstimatedCostUSD, &usd)
			if !m.Copied {
				addNumber(&tl.Totals.EstimatedCostUSD, &usd)
			}
		}
	}
	if len(unpriced) > 0 {
		tl.UnpricedModels = slices.Sorted(maps.Keys(unpriced))
	}
}

// costText writes what something cost: as stated, or with a mark where any of it is an
// estimate; "" where nobody knows.
func costText(stated, estimated *float64) string {
	switch {
	case estimated != nil && stated != nil:
		return "~" + dollars(*stated+*estimated)
	case estimated != nil:
		return "~" + dollars(*estimated)
	case stated != nil:
		return dollars(*stated)
	}
	return ""
}

// spent says what a session used and cost, as far as it is known: "" where it is
// not.
func spent(u *session.Usage, stated, estimated *float64) string {
	tokens, cost := "", costText(stated, estimated)
	if u != nil {
		tokens = count(u.Total()) + " tokens"
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
