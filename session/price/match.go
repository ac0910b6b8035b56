package price

import (
	_ "embed" // of the names of providers
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

//go:embed providers.txt
var providers string

// canonicalNames has the name of a provider by its other names.
var canonicalNames = func() map[string]string {
	names := map[string]string{}
	for line := range strings.Lines(providers) {
		name, others, _ := strings.Cut(line, ":")
		for _, other := range strings.Fields(others) {
			names[other] = name
		}
	}
	return names
}()

// canonical returns the canonical name of a provider: several, separated by "|", if the
// name is ambiguous, or "" for no provider.
func canonical(provider string) string {
	name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(provider)), "_", "-")
	if known, ok := canonicalNames[name]; ok {
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
