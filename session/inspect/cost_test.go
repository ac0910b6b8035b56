package inspect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
)

// TestEstimate: a stated cost stands, and what has a mark is an estimate.
func TestEstimate(t *testing.T) {
	tl := conversation("a", 0, "one", "1", "two", "2", "three", "3", "four", "4")
	usage := &session.Usage{Input: 100}
	for i, model := range []string{"known", "known", "other", "known"} {
		m := &tl.Turns[i].Messages[1]
		m.Usage, m.Model, m.ModelCalls = usage, &session.Model{ProviderID: "p", ModelID: model, Variant: "high"}, 2
		tl.Turns[i].Usage = usage
	}
	stated := 0.5
	tl.Turns[1].Messages[1].CostUSD, tl.Turns[1].CostUSD, tl.Totals.CostUSD = &stated, &stated, &stated
	tl.Turns[3].Messages[1].Compaction, tl.Turns[3].Messages[1].marker = &Compaction{}, true
	tl.Estimate(func(m session.Model, u session.Usage, requests int64) (float64, bool) {
		return float64(u.Input*requests) / 1000, m.ModelID == "known"
	})
	want := 0.2
	if d := cmp.Diff([]*float64{&want, nil, nil, nil}, []*float64{tl.Turns[0].EstimatedCostUSD, tl.Turns[1].EstimatedCostUSD, tl.Turns[2].EstimatedCostUSD, tl.Turns[3].EstimatedCostUSD}); d != "" {
		t.Errorf("turns (-want +got):\n%s", d)
	}
	if got := tl.Totals.EstimatedCostUSD; got == nil || *got != want || *tl.Totals.CostUSD != stated {
		t.Errorf("total estimated %v, stated %v", got, *tl.Totals.CostUSD)
	}
	if d := cmp.Diff([]string{"p/other"}, tl.UnpricedModels); d != "" {
		t.Errorf("without a price (-want +got):\n%s", d)
	}
	var out strings.Builder
	if err := tl.RenderTokens(&out, Options{Width: 100}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{" ~$0.20\n", " $0.50\n", " ~$0.70\n", " –\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
}

// TestCostOfTheWhole: a cost that the session alone states is told as its total, and
// nothing is estimated besides.
func TestCostOfTheWhole(t *testing.T) {
	model := `{"model":{"provider_id":"p","model_id":"m"},"usage":{"input":1,"output":2,"reasoning":0,"cache_read":0,"cache_write":0}}`
	tl := Build(Input{Transcript: &session.Transcript{
		Session:  session.Session{ID: "s", CostUSD: 0.01},
		Messages: []session.MessageAndParts{{Message: session.Message{ID: "m", Role: "assistant", MetadataJSON: model}}},
	}})
	tl.Estimate(func(session.Model, session.Usage, int64) (float64, bool) { return 1, true })
	if got := tl.Totals; got.CostUSD == nil || *got.CostUSD != 0.01 || got.EstimatedCostUSD != nil {
		t.Errorf("stated %v, estimated %v", got.CostUSD, got.EstimatedCostUSD)
	}
}
