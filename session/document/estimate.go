package document

import (
	"maps"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/printable"
	"github.com/agenttrace/agenttrace/session/store"
)

// Estimate asks price for the cost of the messages that state usage and no cost, and
// fills in EstimatedCostUSD of these, of their turns and of the totals. What a source
// stated stays as it is: of a session whose cost is stated as a whole nothing is
// estimated. Compactions do not say their model and are not estimated.
//
// It is for a document as [Build] returns it, once.
func (doc *Document) Estimate(price store.Price) {
	if doc.costOfWhole {
		return
	}
	unpriced := map[string]bool{}
	for _, t := range doc.Turns {
		for _, m := range t.Messages {
			if m.Role == session.RoleUser || m.Marker || m.CostUSD != nil || m.Usage == nil || m.Usage.Total() == 0 {
				continue
			}
			var model session.Model
			if m.Model != nil {
				model = *m.Model
			}
			usd, ok := price(model, *m.Usage, m.ModelCalls)
			if !ok {
				model.Variant = ""
				unpriced[printable.FullModelName(&model)] = true
				continue
			}
			m.EstimatedCostUSD = &usd
			addNumber(&t.EstimatedCostUSD, &usd)
			if !m.Copied {
				addNumber(&doc.Totals.EstimatedCostUSD, &usd)
			}
		}
	}
	if len(unpriced) > 0 {
		doc.UnpricedModels = slices.Sorted(maps.Keys(unpriced))
	}
}
