package document

import (
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
)

// TestCostOfTheWhole: a cost that the session alone states is shown as its total, and nothing is estimated besides.
func TestCostOfTheWhole(t *testing.T) {
	model := `{"model":{"provider_id":"p","model_id":"m"},"usage":{"input":1,"output":2,"reasoning":0,"cache_read":0,` +
		`"cache_write":0}}`
	doc := Build(Input{Transcript: &session.Transcript{
		Session: session.Session{ID: "s", CostUSD: 0.01},
		Messages: []session.MessageAndParts{
			{Message: session.Message{ID: "m", Role: "assistant", MetadataJSON: model}}},
	}})
	doc.Estimate(func(session.Model) *price.Rate { return &price.Rate{Base: [5]float64{1, 1, 1, 1, 1}} })
	if got := doc.Totals; got.CostUSD == nil || *got.CostUSD != 0.01 || got.EstimatedCostUSD != nil {
		t.Errorf("stated %v, estimated %v", got.CostUSD, got.EstimatedCostUSD)
	}
}
