package price

import (
	"cmp"
	_ "embed" // of the names of providers
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

// MaxBytes is how large a list may be, which is far more than either has.
const MaxBytes = 64 << 20

// Formats names the formats that [Read] accepts.
const Formats = "models.dev's api.json or LiteLLM's model_prices_and_context_window.json"

// Read reads a list of prices. It detects the format from the content.
//
// Models without a price for input or output, such as image models, are skipped, and so are prices that are negative or
// not numbers. An id that a provider has twice with different prices has no price. Read returns an error if the content
// has neither format, has no price, or is larger than 64 MiB.
func Read(r io.Reader) (*Table, error) {
	t, _, err := read(r)
	return t, err
}

// read is Read, and returns what it has read, too.
func read(r io.Reader) (*Table, []byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, nil, err
	}
	if len(b) > MaxBytes {
		return nil, nil, fmt.Errorf("more than %d MiB; use %s", MaxBytes>>20, Formats)
	}
	var list map[string]json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, nil, fmt.Errorf("no JSON object (%w); use %s", err, Formats)
	}
	t := &Table{offers: map[string]map[string]*Rate{}, undated: map[string]map[string][]string{},
		models: map[string][]string{}}
	known := false
	for name, raw := range list {
		// The format of an entry shows in its content: it is a provider with its models, or a model.
		var entry map[string]json.RawMessage
		if json.Unmarshal(raw, &entry) != nil {
			continue
		}
		var models map[string]json.RawMessage
		if json.Unmarshal(entry["models"], &models) == nil && models != nil {
			known, t.format = true, ModelsDev
			for id, model := range models {
				t.addModelsDev(name, id, model)
			}
			continue
		}
		if t.addLiteLLM(name, entry) {
			known, t.format = true, cmp.Or(t.format, LiteLLM)
		}
	}
	switch {
	case !known:
		return nil, nil, errors.New("of no format that is known; use " + Formats)
	case t.Len() == 0:
		return nil, nil, errors.New("no model has a price; use " + Formats)
	}
	t.index()
	return t, b, nil
}

// add adds a price to the table.
func (t *Table) add(provider, id string, o *Rate) {
	for _, p := range strings.Split(provider, "|") {
		models := t.offers[p]
		if models == nil {
			models = map[string]*Rate{}
			t.offers[p] = models
		}
		if before, twice := models[id]; twice && (before == nil || !before.equal(o)) {
			models[id] = nil
			continue
		}
		models[id] = o
	}
}

func (t *Table) index() {
	for provider, models := range t.offers {
		t.undated[provider] = map[string][]string{}
		for id := range models {
			if bare := undate(id); bare != id {
				t.undated[provider][bare] = append(t.undated[provider][bare], id)
				if !slices.Contains(t.models[bare], provider) {
					t.models[bare] = append(t.models[bare], provider)
				}
			}
			if !slices.Contains(t.models[id], provider) {
				t.models[id] = append(t.models[id], provider)
			}
		}
	}
}

// number returns a price, or nil if it is absent or invalid.
func number(raw json.RawMessage) *float64 {
	text := strings.Trim(string(raw), `"`)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n < 1e9) {
		return nil
	}
	return &n
}

// stated has the prices that a list has for one kind of request. Absent prices are nil.
type stated [kinds]*float64

// keys are the members of a list's objects with the prices.
type keys [kinds]string

func (k keys) stated(values map[string]json.RawMessage) (s stated) {
	for kind, key := range k {
		s[kind] = number(values[key])
	}
	return s
}

// over returns the prices of s, and those of base where s has none.
func (s stated) over(base stated) stated {
	for kind, price := range base {
		s[kind] = cmp.Or(s[kind], price)
	}
	return s
}

// rates returns the prices per token, or nil unless both input and output have one.
func (s stated) rates(unit float64) *[kinds]float64 {
	if s[input] == nil || s[output] == nil {
		return nil
	}
	var r [kinds]float64
	for kind, otherwise := range [kinds]int{reasoning: output, cacheRead: input, cacheWrite: input} {
		r[kind] = *cmp.Or(s[kind], s[otherwise]) / unit
	}
	return &r
}

// rateOf returns the rate from the prices and those of the tiers, or nil if a price is missing.
func rateOf(base stated, above map[int64]stated, unit float64) *Rate {
	r := base.rates(unit)
	if r == nil {
		return nil
	}
	o := &Rate{Base: *r}
	if base[reasoning] != nil && *base[reasoning] == *base[output] {
		base[reasoning] = nil // reasoning is charged as output, in tiers as well
	}
	for size, s := range above {
		if r := s.over(base).rates(unit); r != nil && size > 0 {
			o.Tiers = append(o.Tiers, Tier{size, *r})
		}
	}
	slices.SortFunc(o.Tiers, func(a, b Tier) int { return cmp.Compare(a.Above, b.Above) })
	return o
}

// perMillion is the unit of prices in models.dev.
const perMillion = 1e6

var modelsDevKeys = keys{"input", "output", "reasoning", "cache_read", "cache_write"}

// addModelsDev adds a model of models.dev: USD per million tokens, with tiers by the size of the context.
func (t *Table) addModelsDev(provider, id string, raw json.RawMessage) {
	var model struct {
		Cost map[string]json.RawMessage `json:"cost"`
	}
	if json.Unmarshal(raw, &model) != nil || model.Cost == nil {
		return
	}
	above := map[int64]stated{}
	var long map[string]json.RawMessage
	if json.Unmarshal(model.Cost["context_over_200k"], &long) == nil && long != nil {
		above[200_000] = modelsDevKeys.stated(long)
	}
	var tiers []map[string]json.RawMessage
	if json.Unmarshal(model.Cost["tiers"], &tiers) == nil && len(tiers) > 0 {
		clear(above) // the older key is less precise about where the tier begins
		for _, entry := range tiers {
			var bound struct {
				Type string `json:"type"`
				Size int64  `json:"size"`
			}
			if json.Unmarshal(entry["tier"], &bound) == nil && bound.Type == "context" {
				above[bound.Size] = modelsDevKeys.stated(entry)
			}
		}
	}
	if o := rateOf(modelsDevKeys.stated(model.Cost), above, perMillion); o != nil {
		t.add(canonical(provider), strings.ToLower(id), o)
	}
}

// aboveTokens matches LiteLLM's keys of a tier. Keys with other endings are priority, batch or hourly prices.
var aboveTokens = lazy.Regexp(`^(.+)_above_(\d{1,7})k_tokens$`)

// addLiteLLM adds a model of LiteLLM's list: USD per token. It reports whether the entry has that format.
func (t *Table) addLiteLLM(name string, entry map[string]json.RawMessage) bool {
	var provider string
	_ = json.Unmarshal(entry["litellm_provider"], &provider)
	_, priced := entry["input_cost_per_token"]
	if provider == "" && !priced {
		return false
	}
	if name == "sample_spec" { // documents the keys
		return true
	}
	keys := map[int64]map[string]json.RawMessage{0: {}}
	for key, raw := range entry {
		size := int64(0)
		if !strings.Contains(key, "_cost") {
			continue
		}
		if m := aboveTokens().FindStringSubmatch(key); m != nil {
			thousands, _ := strconv.ParseInt(m[2], 10, 64) // at most seven digits
			key, size = m[1], thousands*1000
		}
		if keys[size] == nil {
			keys[size] = map[string]json.RawMessage{}
		}
		keys[size][key] = raw
	}
	above := map[int64]stated{}
	for size, values := range keys {
		if s := liteLLMKeys.stated(values); s != (stated{}) {
			above[size] = s
		}
	}
	// Some have a list of ranges. The first one is the default for all.
	var ranges []map[string]json.RawMessage
	_ = json.Unmarshal(entry["tiered_pricing"], &ranges)
	for _, r := range ranges {
		var bounds []*float64
		if json.Unmarshal(r["range"], &bounds) == nil && len(bounds) > 0 && bounds[0] != nil && *bounds[0] >= 0 &&
			*bounds[0] < 1e12 {
			from := int64(*bounds[0])
			above[from] = liteLLMKeys.stated(r).over(above[from])
		}
	}
	base := above[0]
	delete(above, 0)
	o := rateOf(base, above, 1)
	if o == nil {
		return true
	}
	id := strings.ToLower(name)
	who := canonical(provider)
	if head, rest, ok := strings.Cut(id, "/"); ok && (who == "" || canonical(head) == who) {
		who, id = canonical(head), rest
	}
	if who != "" {
		t.add(who, id, o)
	}
	return true
}

var liteLLMKeys = keys{
	"input_cost_per_token", "output_cost_per_token", "output_cost_per_reasoning_token",
	"cache_read_input_token_cost", "cache_creation_input_token_cost",
}

//go:embed providers.txt
var providers string

// canonicalNames has the name of a provider by its other names.
var canonicalNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for line := range strings.Lines(providers) {
		name, others, _ := strings.Cut(line, ":")
		for _, other := range strings.Fields(others) {
			names[other] = name
		}
	}
	return names
})

// canonical returns the canonical name of a provider: several, separated by "|", if the
// name is ambiguous, or "" for no provider.
func canonical(provider string) string {
	name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(provider)), "_", "-")
	if known, ok := canonicalNames()[name]; ok {
		return known
	}
	// LiteLLM names models on Vertex AI after their makers: vertex_ai-anthropic_models.
	if strings.HasPrefix(name, "vertex-ai-") {
		return "google-vertex"
	}
	return name
}

// dated matches an id that ends in a date or a version. The lists have some models with one and some without.
var dated = lazy.Regexp(
	`^(.+?)(?:[-@](?:20\d{6}|20\d\d-[01]\d-[0-3]\d|latest|default)(?:-v\d+(?::\d+)?)?|-v\d+:\d+)$`)

// undate returns the id without a date or version at its end.
func undate(id string) string {
	if m := dated().FindStringSubmatch(id); m != nil {
		return m[1]
	}
	return id
}

// match returns the price of a provider for a model, or nil if that is ambiguous.
func (t *Table) match(provider, id string) *Rate {
	id = strings.ToLower(strings.TrimSpace(id))
	id = strings.TrimPrefix(id, "models/") // prefix in the Gemini API
	name := canonical(provider)
	if head, rest, ok := strings.Cut(id, "/"); ok && rest != "" {
		// An id may begin with its provider, which is the only hint if no provider is named.
		if who := canonical(head); who == name || name == "" && t.offers[who] != nil {
			name, id = who, strings.TrimPrefix(rest, "models/")
		}
	}
	if id == "" {
		return nil
	}
	if name == "" {
		sellers := t.models[id]
		if sellers == nil {
			sellers = t.models[undate(id)]
		}
		return t.alike(sellers, id, true)
	}
	return t.alike(strings.Split(name, "|"), id, false)
}

// alike returns the price that all providers with the model agree on. With charged it ignores providers with a price of
// zero: a subscription lists the model too, without a price per token.
func (t *Table) alike(providers []string, id string, charged bool) *Rate {
	var one *Rate
	for _, provider := range providers {
		o, known := t.of(provider, id)
		switch {
		case !known, charged && o != nil && o.Base == [kinds]float64{}:
		case o == nil, one != nil && !one.equal(o):
			return nil
		default:
			one = o
		}
	}
	return one
}

// of finds the price of one provider: for the exact id, for the id without its date, or for an id without a date if all
// dated versions agree. known reports whether the provider has the model; nil then means that its price is ambiguous.
func (t *Table) of(provider, id string) (o *Rate, known bool) {
	models := t.offers[provider]
	if o, known = models[id]; known {
		return o, true
	}
	bare := undate(id)
	if bare != id {
		if o, known = models[bare]; known {
			return o, true
		}
		// An id with one date is not the model of another date.
		if !strings.HasSuffix(id, "latest") && !strings.HasSuffix(id, "default") {
			return nil, false
		}
	}
	for _, version := range t.undated[provider][bare] {
		v := models[version]
		if v == nil || known && !o.equal(v) {
			return nil, true
		}
		o, known = v, true
	}
	return o, known
}

func (r *Rate) equal(o *Rate) bool {
	return r.Base == o.Base && slices.Equal(r.Tiers, o.Tiers)
}
