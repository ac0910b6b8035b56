// Package price estimates the cost of tokens, with prices from a list. The code contains no prices. [Read] accepts the
// two maintained public lists, models.dev's api.json and LiteLLM's model_prices_and_context_window.json.
//
// An estimate is based on the list's price for a model of that name. It is not the billed amount: it does not include
// discounts, subscriptions, batch or priority prices, or charges for anything but tokens. If it is ambiguous which
// model is meant, there is no estimate.
//
// The lists are kept in a directory. [Update] fetches them, and nothing else in this module does: everything that
// estimates reads what is kept.
//
//	models.dev.json  https://models.dev/api.json
//	litellm.json     LiteLLM's model_prices_and_context_window.json
//	lists.json       where the others are from, and when that was
package price

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/agenttrace/agenttrace/session"
)

// Table has prices of models. It is immutable, and safe for concurrent use.
type Table struct {
	format string
	// offers are the prices by canonical provider and lower-case model id. Nil is an id
	// that the list has twice with different prices.
	offers map[string]map[string]*Rate
	// undated has the ids of a provider's dated models, by their id without the date.
	undated map[string]map[string][]string
	// models has the providers of a model, by its id.
	models map[string][]string
	found  sync.Map // session.Model -> *Rate, nil if there is none
}

// Rate is the price of a model at one provider. It is immutable.
type Rate struct {
	// Base are the rates, in USD per token, by kind: input, output, reasoning, cache reads, cache writes.
	Base [kinds]float64 `json:"base"`
	// Tiers are the rates for requests with more input, the smallest first.
	Tiers []Tier `json:"tiers,omitempty"`
}

// Kinds of tokens.
const (
	input = iota
	output
	reasoning
	cacheRead
	cacheWrite
	kinds
)

// Tier has the rates for requests whose whole input, cached or not, exceeds a number of tokens.
type Tier struct {
	Above int64          `json:"above"`
	Rates [kinds]float64 `json:"rates"`
}

// What [Table.Format] returns.
const (
	ModelsDev = "models.dev"
	LiteLLM   = "LiteLLM"
)

// Format returns which of the lists it was.
func (t *Table) Format() string { return t.format }

// Model is a model of a list with its price. Prices are in USD for a million tokens.
type Model struct {
	Provider   string  `json:"provider"`
	ID         string  `json:"model"`
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	Reasoning  float64 `json:"reasoning"`
	CacheRead  float64 `json:"cache_read"`
	CacheWrite float64 `json:"cache_write"`
}

// Models returns the models with a price, in order of providers and ids. The price is that of short requests.
func (t *Table) Models() []Model {
	all := make([]Model, 0, t.Len())
	for provider, models := range t.offers {
		for id, o := range models {
			if o == nil {
				continue
			}
			per := func(kind int) float64 { return math.Round(o.Base[kind]*perMillion*1e6) / 1e6 }
			all = append(all, Model{
				provider, id, per(input), per(output), per(reasoning), per(cacheRead), per(cacheWrite),
			})
		}
	}
	slices.SortFunc(all, func(a, b Model) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Len returns the number of models with a price, over all providers.
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

// Cost returns the estimated cost in USD of a number of requests that used u together; 0 means an unknown number.
//
// The five buckets are disjoint, and each is charged once: reasoning at its own price or
// else as output; cache reads and writes at their own price or else as input, because a
// list omits these prices if a provider makes no difference. A price of 0 is a price.
//
// If the list has a tier for long inputs, its price applies to the whole request. Only the sum of several requests is
// known: they are assumed to be of equal size, and short if their number is unknown. The estimate of several requests
// is therefore too low if one of them was long and the others were not.
func (r *Rate) Cost(u session.Usage, requests int64) (usd float64) {
	rates := &r.Base
	if requests > 0 {
		size := (u.Input + u.CacheRead + u.CacheWrite) / requests
		for i := range r.Tiers {
			if size > r.Tiers[i].Above {
				rates = &r.Tiers[i].Rates
			}
		}
	}
	for kind, n := range [kinds]int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite} {
		usd += float64(n) * rates[kind]
	}
	return usd
}

// Rate returns the price of a model. It is nil if the list has none, or an ambiguous one.
func (t *Table) Rate(m session.Model) *Rate {
	m.Variant = "" // an effort or a mode has no price of its own
	if known, ok := t.found.Load(m); ok {
		return known.(*Rate)
	}
	o := t.match(m.ProviderID, m.ModelID)
	t.found.Store(m, o)
	return o
}
