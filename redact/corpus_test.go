package redact

import (
	b64 "encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// entry is a text of the corpus with the secrets in it.
type corpusEntry struct {
	class, text string
	secrets     []string
}

// plainSecrets are the secrets as a view shows them.
func (e *corpusEntry) plainSecrets() (plain []string) {
	for _, s := range e.secrets {
		var v view
		if v.normalize(s); len(v.hidden) > 0 {
			s = string(v.text)
		}
		plain = append(plain, s)
	}
	return plain
}

// What people take for passwords: words with marks, digits, hyphens and dots, Base64, hexadecimal, a UUID, letters by
// chance, digits, words alone and with spaces. Where marks would end a value, others take their place.
var (
	kindsOfValues = strings.Fields("P1 P5 b32 h32 P4 P9 P10 P11 P12 P13 P14 P15 P16 P17 P19 P20 d6 d4 P18 P8 P21 P22 " +
		"P23 P24 P27 P28 P29 P30 P31 P32 P33 P34 P35 P36 P37 P39 P40 P41 P42 P43 P44 P45 P46 h12 P26 P38 P25")
	kindsOfBareValues = strings.Fields("P2 P5 s32 h32 P4 P9 P10 P11 P12 P13 P14 P7 P16 P17 P19 P20 d6 d8 P18 P8 P21 " +
		"P22 P23 P24 P27 P28 P29 P30 P31 P32 P33 P34 P35 P36 P37 P39 P40 P35 P36 P37 P44 P45 P46 h12 P9 P22 P22")
	quotedHole = regexp.MustCompile("[\"'`]‹~?›[\"'`]")
)

// readCorpus reads the texts of a file, each as often as times states, with other secrets.
func readCorpus(t testing.TB, name string, times int) []corpusEntry {
	t.Helper()
	b, err := os.ReadFile("testdata/corpus/" + name)
	testscale.Must(t, err)
	var entries []corpusEntry
	class := ""
	for i, line := range strings.Split(string(b), "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			class = name
		}
		if line == "" || strings.HasPrefix(line, "# ") && i < 10 || strings.HasPrefix(line, "## ") {
			continue
		}
		for n := range times {
			if n >= len(kindsOfValues)-2 && !quotedHole.MatchString(line) {
				break // words with spaces between them
			}
			line := strings.ReplaceAll(line, "‹›", "‹"+kindsOfValues[n]+"›")
			line = strings.ReplaceAll(line, "‹~›", "‹"+kindsOfBareValues[n]+"›")
			text, secrets := testscale.ExpandSecret(line, uint64(i)+uint64(n)<<20)
			if head, rest, ok := strings.Cut(text, "«"); ok {
				plain, tail, _ := strings.Cut(rest, "»")
				secrets = []string{b64.StdEncoding.EncodeToString([]byte(plain))}
				text = head + secrets[0] + tail
			}
			entries = append(entries, corpusEntry{class, text, secrets})
		}
	}
	return entries
}

// leaked returns what is left of a secret in out: eight bytes of it, or a short one whole.
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
// input of a tool, in strings of JSON within JSON and within the line of a log, in arguments, YAML, comments of code.
var ways = []struct {
	name string
	wrap func(text string) string
}{
	{"alone", func(s string) string { return s }},
	{"lines", func(s string) string { return "I ran it and saw this:\n" + s + "\nand then I went on.\n" }},
	{"tool input", func(s string) string { return asJSON(map[string]string{"command": s}) }},
	{"tool output", func(s string) string {
		return asJSON(map[string]any{"output": []any{map[string]string{"text": s}}})
	}},
	{"JSON in JSON", func(s string) string {
		return asJSON(map[string]string{"output": asJSON(map[string]string{"text": s})})
	}},
	{"JSON in JSON in a log", func(s string) string {
		return "12:00:01 got " + asJSON(map[string]string{"output": asJSON(map[string]string{"text": s})})
	}},
	{"arguments", func(s string) string { return asJSON([]string{"sh", "-c", s}) }},
	{"YAML", func(s string) string { return "run: |\n  " + strings.ReplaceAll(s, "\n", "\n  ") + "\nnext: 1\n" }},
	{"JavaScript", func(s string) string { return "function main() {\n  /* " + s + " */\n  run();\n}\n" }},
	{"Go", func(s string) string { return "func main() {\n\t// " + s + "\n\trun()\n}\n" }},
	{"Python", func(s string) string { return "def main():\n    # " + s + "\n    run()\n" }},
	{"Java", func(s string) string { return "class Main {\n  // " + s + "\n  int a = 1;\n}\n" }},
	{"Rust", func(s string) string { return "fn main() {\n    /// " + s + "\n    run();\n}\n" }},
	{"Ruby", func(s string) string { return "def main\n  # " + s + "\n  run\nend\n" }},
}

// everywhere is the last of the ways that all texts are tried in.
const everywhere = 5

// Secrets of the corpus and of the classes that leaked once leak nowhere; what is redacted once stays as it is.
func TestCorpusOfSecrets(t *testing.T) {
	r := mustNew(t, Config{})
	var all strings.Builder
	for _, name := range []string{"secrets.txt", "leaks.txt", "places.txt"} {
		total, left := map[string]int{}, map[string]int{}
		for _, e := range readCorpus(t, name, 1) {
			out := r.Text(e.text)
			all.WriteString(out + "\n")
			if again := r.Text(out); again != out {
				t.Errorf("%s: redacting again changes it\nin:    %q\nonce:  %q\ntwice: %q", e.class, e.text, out, again)
			}
			if name == "leaks.txt" && strings.Contains(out, Marker) && len(out) < len(e.text)-len(e.secrets[0])-8 {
				t.Errorf("%s: more than the secret is gone\nin:  %q\nout: %q", e.class, e.text, out)
			}
			for i, way := range ways {
				lines := way.name != "JavaScript" && strings.Contains(e.text, "\n")
				if i > everywhere && (name != "leaks.txt" || lines) {
					continue
				}
				in := way.wrap(e.text)
				total[e.class]++
				for _, out := range []string{r.Text(in), string(r.JSON([]byte(in)))} {
					if piece := leaked(out, e.secrets); piece != "" {
						left[e.class]++
						t.Errorf("%s in %s: %q is left\nin:  %q\nout: %q", e.class, way.name, piece, in, out)
					}
				}
			}
		}
		for class, n := range total {
			t.Logf("%s: %d of %d are left", class, left[class], n)
		}
	}
	// What is left is kept for "make secrets".
	if dir := os.Getenv("AGENTTRACE_EVIDENCE"); dir != "" {
		testscale.Must(t, os.WriteFile(filepath.Join(dir, "corpus.txt"), []byte(all.String()), 0o600))
	}
}

func TestCorpusOfHarmlessTexts(t *testing.T) {
	r := mustNew(t, Config{})
	for _, name := range []string{"harmless.txt", "damage.txt", "places_harmless.txt"} {
		for _, e := range readCorpus(t, name, 1) {
			for i, way := range ways {
				if i > everywhere && name != "damage.txt" {
					break
				}
				doc := way.wrap(e.text)
				for _, out := range []string{r.Text(doc), string(r.JSON([]byte(doc)))} {
					if out != doc {
						t.Errorf("%s in %s:\n got %s\nfrom %s", e.class, way.name, out, doc)
					}
				}
			}
		}
	}
}

// A text that grows is shown as far as it is settled. Of a secret in it nothing is ever
// shown, wherever the chunks of the stream end.
func TestNoChunkShowsASecret(t *testing.T) {
	r := mustNew(t, Config{})
	for _, e := range readCorpus(t, "secrets.txt", 1) {
		for _, before := range []string{"", "I looked at the file. Here it is:\n"} {
			text := before + e.text + "\nand that is all of it, I think.\n"
			for k := range len(text) + 1 {
				grown := text[:k]
				settled := Settled(grown)
				if settled > k {
					t.Fatalf("%d of %d bytes are settled", settled, k)
				}
				if piece := leaked(r.Text(grown[:settled]), e.secrets); piece != "" {
					t.Errorf("%s: %q is shown after %d bytes of %q: %q", e.class, piece, k, text,
						r.Text(grown[:settled]))
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
	for _, prose := range []string{"The agent read the file, found that the parser loses the last line, and wrote a " +
		"test for it. Then it ran them. "} {
		for k := range len(prose) + 1 {
			if word := prose[Settled(prose[:k]):k]; strings.Contains(word, " ") {
				t.Errorf("%q is held back", word)
			}
		}
	}
}
