package redact

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// entry is a text of the corpus with the secrets in it.
type corpusEntry struct {
	class, text string
	secrets     []string
}

// alphabets of what the corpus leaves to chance. No scanner takes its files for leaks
// then.
var alphabets = map[byte]string{
	'a': "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", 'l': "abcdefghijklmnopqrstuvwxyz0123456789",
	'h': "0123456789abcdef", 'H': "0123456789ABCDEF", 'b': "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/",
	'u': "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 'd': "0123456789", 's': "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_",
	'r': "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
	'x': "abcdefghijklmnopqrstuvwxyz", 'w': "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789", 'p': "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789!*-_.+",
}

// chance returns n bytes of an alphabet, with what tokens and passwords have: a digit
// and letters of both cases near the start, and a letter or digit at both ends.
func chance(kind byte, n int, rng *rand.Rand) string {
	if kind == 'P' {
		return human(n, rng)
	}
	set := alphabets[kind]
	b := make([]byte, n)
	for i := range b {
		b[i] = set[rng.IntN(len(set))]
	}
	plain := "abcdefghijkmnpqrstuvwxyz"
	switch kind {
	case 'r':
		return string(b)
	case 'H', 'u':
		plain = "ABCDEF"
	case 'h':
		plain = "abcdef"
	}
	if kind != 'd' && n > 0 {
		b[0], b[n-1] = plain[rng.IntN(len(plain))], plain[rng.IntN(len(plain))]
	}
	if n >= 5 && kind != 'd' && kind != 'x' {
		b[2] = "234567"[rng.IntN(6)]
		if strings.Contains(set, "A") && strings.Contains(set, "a") {
			b[1] = "ABCDEFGHJK"[rng.IntN(10)]
		}
	}
	if kind == 'p' && n >= 6 {
		b[4] = "!*-_.+"[rng.IntN(6)]
	}
	return string(b)
}

// words of which people make passwords.
var words = strings.Fields("falcon winter dragon sunset orchid copper marble tundra pepper violet saddle harbor lantern " +
	"meadow cobalt walnut summit glacier ember thistle pigeon velvet canyon anchor bramble cactus domino fennel gopher " +
	"hazel indigo jasper kettle lagoon magnet nectar oyster parsley quartz raven")

// human returns a password as people make them, in one of six styles.
func human(style int, rng *rand.Rand) string {
	word := func() string { return words[rng.IntN(len(words))] }
	title := func() string { w := word(); return strings.ToUpper(w[:1]) + w[1:] }
	digits := strconv.Itoa(1000 + rng.IntN(9000))
	mark := "!#$%&*+-.?@^_~"[rng.IntN(14):][:1]
	switch style {
	case 1:
		return title() + mark + digits
	case 2:
		return word() + "-" + title() + "-" + digits[:2]
	case 3:
		return strings.NewReplacer("a", "4", "e", "3", "o", "0").Replace(title()+title()) + "!" + digits[:1]
	case 4:
		return word() + "-" + word() + "-" + word() + "-" + word()
	case 5:
		return word() + word() + digits[:2]
	}
	return title() + title() + digits
}

// expand replaces what is left to chance, the same in every run.
func expand(line string, seed uint64) (text string, secrets []string) {
	rng := rand.New(rand.NewPCG(seed, 7))
	line = strings.NewReplacer("␤", "\n", "␛", "\x1b", "␍", "\r", "⇥", "\t").Replace(line)
	var out strings.Builder
	for line != "" {
		i := strings.IndexAny(line, "‹⟨")
		if i < 0 {
			out.WriteString(line)
			break
		}
		_, size := utf8.DecodeRuneInString(line[i:])
		closing := map[string]string{"‹": "›", "⟨": "⟩"}[line[i:i+size]]
		end := strings.Index(line[i:], closing)
		kind := line[i+size : i+end]
		n, err := strconv.Atoi(kind[1:])
		if err != nil {
			panic(line)
		}
		value := chance(kind[0], n, rng)
		out.WriteString(line[:i] + value)
		if closing == "›" {
			secrets = append(secrets, value)
		}
		line = line[i+end+len(closing):]
	}
	return out.String(), secrets
}

func readCorpus(t testing.TB, name string) []corpusEntry {
	t.Helper()
	b, err := os.ReadFile("testdata/corpus/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var entries []corpusEntry
	class := ""
	for i, line := range strings.Split(string(b), "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			class = name
		}
		if line == "" || strings.HasPrefix(line, "# ") && i < 10 || strings.HasPrefix(line, "## ") {
			continue
		}
		text, secrets := expand(line, uint64(i))
		entries = append(entries, corpusEntry{class, text, secrets})
	}
	return entries
}

// leaked returns what is left of a secret in out: eight bytes of it, or a short one
// whole.
func leaked(out string, secrets []string) string {
	for _, s := range secrets {
		if len(s) < 8 {
			if len(s) > 4 && strings.Contains(out, s) {
				return s
			}
		} else if piece := survives(out, s); piece != "" {
			return piece
		}
	}
	return ""
}

// ways are how a text of the corpus reaches the store: as it is, among other lines, as the
// input of a tool, and in strings of JSON within JSON and within the line of a log.
var ways = []struct {
	name string
	wrap func(text string) string
}{
	{"lines", func(s string) string { return "I ran it and saw this:\n" + s + "\nand then I went on.\n" }},
	{"tool input", func(s string) string { return asJSON(map[string]string{"command": s}) }},
	{"tool output", func(s string) string { return asJSON(map[string]any{"output": []any{map[string]string{"text": s}}}) }},
	{"JSON in JSON", func(s string) string {
		return asJSON(map[string]string{"output": asJSON(map[string]string{"text": s})})
	}},
	{"JSON in JSON in a log", func(s string) string {
		return "12:00:01 got " + asJSON(map[string]string{"output": asJSON(map[string]string{"text": s})})
	}},
}

func TestCorpusOfSecretsInEveryWay(t *testing.T) {
	r := mustNew(t, Config{})
	for _, e := range readCorpus(t, "secrets.txt") {
		for _, way := range ways {
			in := way.wrap(e.text)
			out := r.Text(in)
			if piece := leaked(out, e.secrets); piece != "" {
				t.Errorf("%s in %s: %q is left\nin:  %q\nout: %q", e.class, way.name, piece, in, out)
			}
			if out := string(r.JSON([]byte(in))); leaked(out, e.secrets) != "" {
				t.Errorf("%s in %s as JSON:\nin:  %q\nout: %q", e.class, way.name, in, out)
			}
		}
	}
}

func TestCorpusOfSecrets(t *testing.T) {
	r := mustNew(t, Config{})
	total, left := map[string]int{}, map[string]int{}
	var all strings.Builder
	for _, e := range readCorpus(t, "secrets.txt") {
		total[e.class]++
		out := r.Text(e.text)
		all.WriteString(out + "\n")
		if piece := leaked(out, e.secrets); piece != "" {
			left[e.class]++
			t.Errorf("%s: %q is left\nin:  %q\nout: %q", e.class, piece, e.text, out)
		}
		if again := r.Text(out); again != out {
			t.Errorf("%s: redacting again changes it\nin:    %q\nonce:  %q\ntwice: %q", e.class, e.text, out, again)
		}
	}
	// What is left is kept for the judge of "make secrets".
	if dir := os.Getenv("AGENTTRACE_EVIDENCE"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "corpus.txt"), []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for class, n := range total {
		t.Logf("%s: %d of %d are left", class, left[class], n)
	}
}

func TestCorpusOfHarmlessTexts(t *testing.T) {
	r := mustNew(t, Config{})
	for _, e := range readCorpus(t, "harmless.txt") {
		if out := r.Text(e.text); out != e.text {
			t.Errorf("%s:\n got %q\nfrom %q", e.class, out, e.text)
		}
		for _, way := range ways {
			doc := way.wrap(e.text)
			if out := r.Text(doc); out != doc {
				t.Errorf("%s in %s:\n got %s\nfrom %s", e.class, way.name, out, doc)
			}
			if out := r.JSON([]byte(doc)); string(out) != doc {
				t.Errorf("%s in %s as JSON:\n got %s\nfrom %s", e.class, way.name, out, doc)
			}
		}
	}
}

// A text that grows is shown as far as it is settled. Of a secret in it nothing is ever
// shown, wherever the chunks of the stream end.
func TestNoChunkShowsASecret(t *testing.T) {
	r := mustNew(t, Config{})
	for _, e := range readCorpus(t, "secrets.txt") {
		for _, before := range []string{"", "I looked at the file. Here it is:\n"} {
			text := before + e.text + "\nand that is all of it, I think.\n"
			for k := range len(text) + 1 {
				grown := text[:k]
				settled := Settled(grown)
				if settled > k {
					t.Fatalf("%d of %d bytes are settled", settled, k)
				}
				if piece := leaked(r.Text(grown[:settled]), e.secrets); piece != "" {
					t.Errorf("%s: %q is shown after %d bytes of %q: %q", e.class, piece, k, text, r.Text(grown[:settled]))
					break
				}
			}
		}
	}
}

// Prose is shown as it comes, a word late.
func TestProseIsSettledAtEveryWord(t *testing.T) {
	text := ordinary(4000)
	late := 0
	for k := range len(text) + 1 {
		settled := Settled(text[:k])
		if !strings.HasPrefix(text, text[:settled]) {
			t.Fatal(settled)
		}
		late = max(late, k-settled)
	}
	if late > 2*maxHeld {
		t.Errorf("%d bytes are held back", late)
	}
	for _, prose := range []string{"The agent read the file, found that the parser loses the last line, and wrote a test for it. Then it ran them. "} {
		for k := range len(prose) + 1 {
			if word := prose[Settled(prose[:k]):k]; strings.Contains(word, " ") {
				t.Errorf("%q is held back", word)
			}
		}
	}
}
