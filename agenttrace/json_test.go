package agenttrace

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

var jsonSeeds = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `nullx`, `0`, `-0`, `01`, `-`, `1.`, `1.5`, `.5`, `1e5`, `1E+5`, `1e`,
	`1e-`, `-1.2e-3`,
	`"a"`, `"a`, `"\u00e9"`, `"\u00g9"`, `"\x"`, `"\"`, "\"a\nb\"", `"0123456789abcdef"`, `"01234567\n89"`, `"é世界"`,
	"\"\xff\"", "\"\x7f\"",
	`[]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[`, `]`, `{}`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{a:1}`, `{"a":}`,
	`{"a":[{"b":null}]} `, `{} {}`, `{"a" : "b" , "c":[ ]}`,
}

// maxDepth is how deep encoding/json reads.
const maxDepth = 10000

func TestValidJSONAgreesWithEncodingJSON(t *testing.T) {
	check := func(s string) {
		t.Helper()
		if got, want := jsonscan.Valid(s), json.Valid([]byte(s)); got != want {
			t.Errorf("jsonscan.Valid(%.200q) = %v, want %v", s, got, want)
		}
	}
	for _, s := range jsonSeeds {
		check(s)
	}
	for _, n := range []int{100, maxDepth - 1, maxDepth, maxDepth + 1, 20000} {
		check(strings.Repeat("[", n) + strings.Repeat("]", n))
	}
	r := rand.New(rand.NewPCG(1, 2))
	const alphabet = `{}[]",:\u0e-1.tn ` + "\n\x00aé"
	for range 20000 {
		base := []byte(jsonSeeds[r.IntN(len(jsonSeeds))] + jsonSeeds[r.IntN(len(jsonSeeds))])
		for range r.IntN(4) {
			if len(base) > 0 {
				base[r.IntN(len(base))] = alphabet[r.IntN(len(alphabet))]
			}
		}
		check(string(base))
	}
}

func FuzzValidJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := jsonscan.Valid(s), json.Valid([]byte(s)); got != want {
			t.Errorf("jsonscan.Valid(%q) = %v, want %v", s, got, want)
		}
	})
}
