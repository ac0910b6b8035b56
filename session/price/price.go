// Package price estimates what tokens cost, by prices from a file that a user names: none
// are in the code, and nothing is fetched. [Read] takes the two lists that are kept up to
// date in public, models.dev's api.json and LiteLLM's
// model_prices_and_context_window.json.
//
// An estimate is what the list says of a model of that name, never what was billed: it
// knows no discount, subscription, batch or priority price, and no charge for what is not
// a token. Where it is not certain which model is meant there is none.
package price

import (
	"sync"

	"github.com/agenttrace/agenttrace/session"
)

// Table has prices of models. It does not change, and may be used by many goroutines.
type Table struct {
	// offers are those of a provider, by its canonical name, and then of a model id
	// in lower case. A nil offer is one that the list has twice, with two prices.
	offers map[string]map[string]*offer
	// undated are the ids of a provider's dated models, by their id without date.
	undated map[string]map[string][]string
	// models are the providers of a model, by its id.
	models map[string][]string
	found  sync.Map // session.Model -> *offer, nil where there is none
}

// offer is what a provider takes for a model.
type offer struct {
	rates
	// tiers are what it takes for requests of more input, the smallest first.
	tiers []tier
}

// rates are USD per token.
type rates struct{ input, output, reasoning, cacheRead, cacheWrite float64 }

// tier are the rates of a request whose whole input, cached or not, is above a number
// of tokens.
type tier struct {
	above int64
	rates
}

// Len is the number of models with a price, of all providers.
func (t *Table) Len() int {
	n := 0
	for _, models := range t.offers {
		for _, o := range models {
			if o != nil {
				n++
			}
		}
	}
	return n
}

// Cost is what one request took in USD, by the usage that it states: see
// [Table.Estimate].
func (t *Table) Cost(m session.Model, u session.Usage) (usd float64, ok bool) {
	return t.Estimate(m, u, 1)
}

// Estimate is what a number of requests took in USD that used u together; 0 requests are
// an unknown number. It is not ok where the list has no price for the model, or not one
// only.
//
// The five buckets are disjoint and each is paid for once: reasoning at its own price or
// else as output; what was read from or written to a cache at its own price or else as
// input, for a list leaves these out where a provider makes no difference. A price that
// is stated as 0 is 0.
//
// Where a request with a long input has another price, that of a list's tier, it is the
// whole request that has it. Of several requests only their sum is known: they are taken
// to be of one size, and an unknown number of them to be short. An estimate of several is
// thus too low where one of them was long and the others were not.
func (t *Table) Estimate(m session.Model, u session.Usage, requests int64) (usd float64, ok bool) {
	o := t.offer(m)
	if o == nil {
		return 0, false
	}
	r := &o.rates
	if requests > 0 {
		input := (u.Input + u.CacheRead + u.CacheWrite) / requests
		for i := range o.tiers {
			if input > o.tiers[i].above {
				r = &o.tiers[i].rates
			}
		}
	}
	return float64(u.Input)*r.input + float64(u.Output)*r.output + float64(u.Reasoning)*r.reasoning +
		float64(u.CacheRead)*r.cacheRead + float64(u.CacheWrite)*r.cacheWrite, true
}

// offer finds the one of a model, nil where there is none.
func (t *Table) offer(m session.Model) *offer {
	m.Variant = "" // an effort or a mode, which is paid for by its tokens
	if known, ok := t.found.Load(m); ok {
		return known.(*offer)
	}
	o := t.match(m.ProviderID, m.ModelID)
	t.found.Store(m, o)
	return o
}
