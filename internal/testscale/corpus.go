package testscale

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The corpus of package redact holds no secrets: what would be one is random, and made here for the tests of all that
// redact.

// alphabets of what the corpus leaves to chance. No scanner takes its files for leaks then.
var alphabets = map[byte]string{
	'a': "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", 'l': "abcdefghijklmnopqrstuvwxyz0123456789",
	'h': "0123456789abcdef", 'H': "0123456789ABCDEF",
	'b': "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/",
	'u': "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 'd': "0123456789",
	's': "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_",
	'r': "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
	'x': "abcdefghijklmnopqrstuvwxyz", 'w': "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789",
	'p': "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789!*-_.+",
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
var words = strings.Fields("falcon winter dragon sunset orchid copper marble tundra pepper violet saddle harbor " +
	"lantern meadow cobalt walnut summit glacier ember thistle pigeon velvet canyon anchor bramble cactus domino " +
	"fennel gopher hazel indigo jasper kettle lagoon magnet nectar oyster parsley quartz raven")

// styles are how people make passwords: of words (w), with a capital (T), in the spelling of crackers (l, L, and $ with
// marks), digits (as many), and one of some marks (m); 16, 17 and 20 are made by chance.
var styles = [...]string{6: "T T 4", 1: "T m 4", 2: "w - T - 2", 3: "L ! 1", 4: "w - w - w - w", 5: "w w 2", 7: "w 1 w",
	8: "w", 9: "w T 2", 10: "l _ 3 w", 11: "w . w . 3", 12: "T _ T _ 2", 13: "w - w - w", 14: "w w 1", 15: "T ß- w -ü 1",
	18: "w . w . w", 19: "l - l", 21: "w _ w", 22: "w . w", 23: "w T", 24: "T - T", 25: "? \u00a0 ? \u00a0 ?", 26: "$",
	27: "k 1", 28: "n 3", 29: "a n", 30: "c", 31: "k", 32: "a n n", 33: "a - n - n", 34: "n - n - 3",
	35: "w _ w 1", 36: "w 1 - w", 37: "T 1 . 1", 38: "? \u00a0 ?", 39: "w - T",
	40: "T _ w _ w", 41: "T !", 42: "w m w", 43: "T = T", 44: "x", 45: "T", 46: "w w"}

// Words of passwords that are used most: animals, games and names (k), and what password means in words (n), after what
// makes it one's own (a), or in the spelling of crackers (c).
var (
	known = strings.Fields("buster ranger panther cookies pepper ginger tigger maggie killer hockey rabbit wizard eagle " +
		"cowboy lion wolf misty daisy")
	named  = strings.Fields("password secret pass admin root token key test")
	adding = strings.Fields("my our super top very dev")
)

// human returns a password as people make them, in one of the styles.
func human(style int, rng *rand.Rand) string {
	word := func() string { return words[rng.IntN(len(words))] }
	title := func() string { w := word(); return strings.ToUpper(w[:1]) + w[1:] }
	digits := strconv.Itoa(1000 + rng.IntN(9000))
	mark := "!#$%&*+-.?@^_~"[rng.IntN(14):][:1]
	switch style {
	case 16: // letters, or with a digit, of both cases
		return chance('r', 6+rng.IntN(4), rng)
	case 17: // a UUID
		x := chance('h', 36, rng)
		return x[:8] + "-" + x[9:13] + "-4" + x[15:18] + "-a" + x[20:23] + "-" + x[24:]
	case 20:
		return chance('x', 6+rng.IntN(3), rng)
	case 44: // as licences have it
		x := chance("hHu"[rng.IntN(3)], 19, rng)
		return x[:4] + "-" + x[5:9] + "-" + x[10:14] + "-" + x[15:]
	}
	var out strings.Builder
	for piece := range strings.SplitSeq(styles[style], " ") {
		switch piece {
		case "w":
			piece = word()
		case "T":
			piece = title()
		case "?":
			if piece = word(); rng.IntN(3) == 0 {
				piece = title()
			}
		case "L":
			piece = strings.NewReplacer("a", "4", "e", "3", "o", "0").Replace(title() + title())
		case "l":
			piece = strings.NewReplacer("a", "4", "e", "3", "o", "0", "i", "1").Replace(title())
		case "k":
			piece = known[rng.IntN(len(known))]
		case "n":
			piece = named[rng.IntN(len(named))]
		case "a":
			piece = adding[rng.IntN(len(adding))]
		case "c":
			piece = strings.NewReplacer("a", "4", "e", "3", "o", "0").Replace(named[rng.IntN(3)])
		case "$":
			piece = strings.NewReplacer("a", "@", "e", "3", "o", "0", "s", "$").Replace(word() + title())
		case "m":
			piece = mark
		case "1", "2", "3", "4":
			piece = digits[:piece[0]-'0']
		case "\u00a0":
			piece = " "
		}
		out.WriteString(piece)
	}
	return out.String()
}

// ExpandSecret replaces what a line of the corpus leaves to chance: ‹KINDn› is a secret of n random bytes, ⟨KINDn⟩ a
// random part that may stay. The same seed gives the same text. It panics if the line is not of the corpus's form.
func ExpandSecret(line string, seed uint64) (text string, secrets []string) {
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
