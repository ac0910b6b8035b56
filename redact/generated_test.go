package redact

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// vendorTexts returns them with n tokens each, some of which have no capitals, or look like a word.
func vendorTexts(n int) (texts []corpusEntry) {
	rng := rand.New(rand.NewPCG(7, 11))
	vendors := strings.Fields("okta twitter plaid zendesk looker travis sumo acme snyk kraken")
	values := strings.Fields("‹l16› ‹l20› ‹l24› ‹l25› ‹l32› ‹l40› ‹h32› ‹h8›-‹h4›-‹h4›-‹h4›-‹h12› ‹h8›:‹h8› " +
		"‹l6›-‹l13›-‹l11› ‹u14› ‹r16› ‹s40› ‹l14›")
	for _, shape := range templates("vendors") {
		for range n {
			text := strings.NewReplacer("L_TOKEN", strings.ToUpper(vendors[rng.IntN(len(vendors))])+"_TOKEN", "LToken",
				vendors[rng.IntN(len(vendors))]+"Token", "L_", vendors[rng.IntN(len(vendors))]+"_", "‹›",
				values[rng.IntN(len(values))]).Replace(shape)
			text, secrets := testscale.ExpandSecret(text, rng.Uint64())
			texts = append(texts, corpusEntry{shape, text, secrets})
		}
	}
	return texts
}

var (
	secretLabels = strings.Fields("password db_password apiKey api_key client_secret secret passphrase access_token " +
		"auth_token private_token")
	secretValues  = strings.Fields("‹P1› ‹P2› ‹P3› ‹P6› ‹r24› ‹r32› ‹s40› ‹h32› ‹w12› ‹p16›")
	harmlessWords = strings.Fields("required missing invalid stored hashed rotated read checked expired shown kept " +
		"optional")
	harmlessCalls = strings.Fields("generate read_it fetch lookup prompt vault.read")
)

// templates returns those of a class: texts with a label and ‹› where a secret is. Those that are held out show how
// well the weights do on texts that they do not know.
func templates(class string) (out []string) {
	b, err := os.ReadFile("testdata/corpus/shapes.txt")
	if err != nil {
		panic(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## "+class+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.Split(strings.TrimSpace(text), "\n")
}

// generated returns n texts of each template of a class, and their secrets.
func generated(class string, n int) (texts []corpusEntry) {
	rng := rand.New(rand.NewPCG(3, 5))
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	for _, x := range templates(class) {
		for range n {
			label := pick(secretLabels)
			words := []string{}
			for w := range splitWords(label) {
				words = append(words, w)
			}
			titles := []string{}
			for _, w := range words {
				titles = append(titles, strings.ToUpper(w[:1])+w[1:])
			}
			if strings.Contains(x, " label ") || strings.Contains(x, "label is") {
				label = strings.Join(words, " ")
			}
			line := strings.NewReplacer("LABEL", strings.ToUpper(strings.Join(words, "_")),
				"X-Label", "X-"+strings.Join(titles, "-"), "Label", strings.Join(titles, ""), "label", label,
				"‹›", pick(secretValues), "WORD", pick(harmlessWords), "CALL", pick(harmlessCalls), "NUMBER", "12").
				Replace(x)
			text, secrets := testscale.ExpandSecret(line, rng.Uint64())
			texts = append(texts, corpusEntry{x, text, secrets})
		}
	}
	return texts
}

// Of secrets in texts whose shapes the weights were not learned from, few are left, and few harmless texts change.
func TestGeneratedTextsThatAreHeldOut(t *testing.T) {
	r := mustNew(t, Config{})
	for _, heldOut := range []string{"", ", held out"} {
		secrets, left, changed := 0, map[string]int{}, map[string]int{}
		harmless, leaks, damaged := 0, 0, 0
		for _, e := range generated("secret"+heldOut, 40) {
			secrets++
			if leaked(r.Text(e.text), e.secrets) != "" {
				left[e.class]++
				leaks++
			}
		}
		for _, e := range generated("harmless"+heldOut, 40) {
			harmless++
			if r.Text(e.text) != e.text {
				changed[e.class]++
				damaged++
			}
		}
		recall, precision := 1-float64(leaks)/float64(secrets),
			float64(secrets-leaks)/float64(secrets-leaks+damaged)
		t.Logf("secret%s: recall %.3f of %d secrets, precision %.3f with %d harmless texts", heldOut, recall, secrets,
			precision, harmless)
		t.Log("left: ", left)
		t.Log("changed: ", changed)
		if recall < 0.97 || precision < 0.99 {
			t.Errorf("secret%s: recall %.3f, precision %.3f", heldOut, recall, precision)
		}
	}
}

// Of secrets in 34 places that nothing here was made for, few are left, and few harmless texts change.
func TestTextsOfOtherPlaces(t *testing.T) {
	r := mustNew(t, Config{})
	secrets, harmless := readCorpus(t, "third.txt", 2), readCorpus(t, "third_harmless.txt", 1)
	left, changed := 0, 0
	for _, e := range secrets {
		if out := r.Text(e.text); leaked(out, e.secrets) != "" {
			left++
			t.Logf("left: %s: %q becomes %q", e.class, e.text, out)
		}
	}
	for _, e := range harmless {
		if out := r.Text(e.text); out != e.text {
			changed++
			t.Logf("changed: %q becomes %q", e.text, out)
		}
	}
	t.Logf("%d of %d secrets are left, %d of %d harmless texts are changed", left, len(secrets), changed, len(harmless))
	if left*100 > 3*len(secrets) || changed*100 > len(harmless) {
		t.Error("more than 3 % of the secrets are left, or more than 1 % of the texts are changed")
	}
}
