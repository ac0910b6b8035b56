package price

import (
	"regexp"
	"slices"
	"strings"
)

// aliases are the names that telemetry, the OpenTelemetry conventions, the AI SDK and the
// lists have for a provider, by one of them. A name that is not here is itself.
var aliases = map[string][]string{
	"openai":               {"openai.chat", "openai.responses", "openai.completion", "text-completion-openai"},
	"azure":                {"azure.ai.openai", "az.ai.openai", "azure-openai", "azure.openai", "azure-text"},
	"azure-ai":             {"azure.ai.inference", "az.ai.inference"},
	"anthropic":            {"anthropic.messages"},
	"google":               {"gemini", "gcp.gemini", "google.generative-ai", "googleai", "google-ai", "google-genai", "google-generative-ai", "google-ai-studio", "google-ai.studio"},
	"google-vertex":        {"vertex-ai", "vertexai", "gcp.vertex-ai", "google.vertex.chat", "google-vertex-anthropic", "vertex", "google.vertex", "google-vertexai", "vertex.anthropic.messages"},
	"amazon-bedrock":       {"bedrock", "aws.bedrock", "aws-bedrock", "bedrock-converse"},
	"xai":                  {"x-ai", "xai.chat", "grok"},
	"mistral":              {"mistral-ai", "mistralai", "mistral.chat"},
	"cohere":               {"cohere-chat", "cohere.chat"},
	"deepseek":             {"deepseek.chat"},
	"groq":                 {"groq.chat"},
	"fireworks-ai":         {"fireworks", "fireworks.chat"},
	"togetherai":           {"together-ai", "together", "togetherai.chat"},
	"perplexity":           {"perplexity-ai"},
	"moonshotai":           {"moonshot", "moonshot-ai"},
	"alibaba":              {"dashscope", "alibaba-cloud"},
	"zai":                  {"z-ai", "z.ai"},
	"vercel":               {"vercel-ai-gateway", "gateway"},
	"ibm-watsonx":          {"ibm.watsonx.ai", "watsonx"},
	"github-copilot":       {"copilot", "github.copilot"},
	"cloudflare":           {"cloudflare-workers-ai", "workers-ai"},
	"deepinfra":            {"deepinfra.chat"},
	"openrouter":           {"openrouter.chat"},
	"cerebras":             {"cerebras.chat"},
	"nvidia":               {"nvidia-nim"},
	"google|google-vertex": {"gcp.gen-ai", "gcp"}, // either of the two
}

var canonicalNames = func() map[string]string {
	names := map[string]string{}
	for canonical, others := range aliases {
		for _, name := range others {
			names[name] = canonical
		}
	}
	return names
}()

// canonical is the one name of a provider: several with "|" between them where the name
// leaves it open, "" where there is none.
func canonical(provider string) string {
	name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(provider)), "_", "-")
	if known, ok := canonicalNames[name]; ok {
		return known
	}
	// LiteLLM names what Vertex AI serves by its makers: vertex_ai-anthropic_models.
	if strings.HasPrefix(name, "vertex-ai-") {
		return "google-vertex"
	}
	return name
}

// dated is an id that ends in a date or a version of a model: the lists have some with
// and some without.
var dated = regexp.MustCompile(`^(.+?)(?:[-@](?:20\d{6}|20\d\d-[01]\d-[0-3]\d|latest|default)(?:-v\d+(?::\d+)?)?|-v\d+:\d+)$`)

// undate is an id without a date or version at its end.
func undate(id string) string {
	if m := dated.FindStringSubmatch(id); m != nil {
		return m[1]
	}
	return id
}

// match finds what a provider takes for a model, nil where that is not certain.
func (t *Table) match(provider, id string) *offer {
	id = strings.ToLower(strings.TrimSpace(id))
	id = strings.TrimPrefix(id, "models/") // as the Gemini API writes it
	name := canonical(provider)
	if head, rest, ok := strings.Cut(id, "/"); ok && rest != "" {
		// An id may begin with its provider, and is all there is where none is named.
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

// alike is what all of the providers that have the model take. Those that take nothing
// are left out when charged is set: a subscription has the model too, and says nothing of
// its price.
func (t *Table) alike(providers []string, id string, charged bool) *offer {
	var one *offer
	for _, provider := range providers {
		o, known := t.of(provider, id)
		switch {
		case !known, charged && o != nil && o.rates == rates{}:
		case o == nil, one != nil && !one.equal(o):
			return nil
		default:
			one = o
		}
	}
	return one
}

// of finds what one provider takes: for the very id; for the id without its date; or for
// every dated version of an id without one. known says that it has the model, and a nil
// offer that its price is not certain.
func (t *Table) of(provider, id string) (o *offer, known bool) {
	models := t.offers[provider]
	if o, known = models[id]; known {
		return o, true
	}
	bare := undate(id)
	if bare != id {
		if o, known = models[bare]; known {
			return o, true
		}
		// Of two dates neither is the other.
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

func (o *offer) equal(p *offer) bool {
	return o.rates == p.rates && slices.Equal(o.tiers, p.tiers)
}
