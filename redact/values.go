package redact

import (
	"slices"
	"strings"
)

// passwordMarks are signs that passwords have and names do not.
const passwordMarks = "!@#$%^&*?~+"

// kind is what a value looks like. Of the kinds that a value is, the first counts.
type kind uint8

const (
	aStop       kind = iota // a word that follows the name of a secret in prose, code and schemas
	aPin                    // four to twelve digits
	aNumber                 // a number, a version
	aUUID                   // a UUID
	aURL                    // a URL, an address of mail
	aPath                   // the path of a file
	anAlgorithm             // the name of a hash, a cipher or an encoding
	aCode                   // a call, a type, an expression
	aLabel                  // names a secret itself: user_password, "Enter your API key"
	aHash                   // hexadecimal, as digests are
	aToken                  // long and mixed, as machines make keys
	aStrong                 // a password as people make them where one is asked for
	aChancy                 // made by chance
	aJumble                 // letters that follow each other as they do by chance
	aText                   // several words
	aWords                  // two words or more without those that sentences are made with
	aWord                   // words and names, joined by hyphens, dots or capitals, also with digits
	anOther
)

// kindNames are what clues call the kinds.
var kindNames = strings.Fields("stop-word pin number uuid url path algorithm code label hash token strong chancy " +
	"jumble text words word other")

// kindOf returns the kind of c.s[lo:hi], a string in quotes or a word.
//
// The order is that of certainty: a UUID also has the length and the mixture of a token, a path may have a word of
// chance in it, and a hash is a token to who does not look at its alphabet.
func (c *scan) kindOf(lo, hi int, quoted bool) kind {
	v := c.s[lo:min(hi, lo+maxJudged)]
	switch k := known(v); {
	case k != anOther:
		return k
	case is("constant", v), is("code", v), !quoted && is("expression", v), // or vault kv get
		tools[v[:max(0, strings.IndexByte(v, ' '))]] != nil:
		return aCode
	case c.isLabel(lo, hi):
		return aLabel
	case len(v) >= 7 && run(v, 0, digit|hexLower) == len(v) && digits(v):
		return aHash
	case tokenLike(v):
		return aToken
	case strong(v):
		return aStrong
	case chancy(v):
		return aChancy
	case spaceJoined(v) && (quoted || strings.Count(v, " ") > 1):
		return aWords
	case strings.IndexByte(v, ' ') >= 0 || wordy(v[strings.LastIndexByte(v, ',')+1:]) && strings.IndexByte(v, ',') > 0:
		return aText
	case byChance(v, 48):
		return aJumble
	case run(v, 0, slug|dot|foreign) == len(v):
		return aWord
	}
	return anOther
}

// isLabel reports whether c.s[lo:hi] names a secret itself, in good part of it.
func (c *scan) isLabel(lo, hi int) bool {
	for _, l := range c.labels[c.firstLabel:] {
		if l.lo >= hi {
			break
		}
		if l.lo >= lo && l.hi <= hi && 3*(l.hi-l.lo) >= hi-lo && l.class != hint {
			return true
		}
	}
	return false
}

// is reports whether all of v has the form that data/patterns.txt describes by a name.
func is(name, v string) bool {
	// Most words are of letters and digits only, and none of these forms is but those that a digit begins.
	if v != "" && run(v, 0, alnum) == len(v) && class[v[0]]&letter != 0 {
		return false
	}
	return slices.ContainsFunc(patterns[name], func(f form) bool {
		return strings.ContainsAny(v, f.signs) && f.whole.MatchString(v)
	})
}

// known returns the kind of what is no secret in most places, anOther for the rest.
func known(v string) kind {
	switch {
	case uuid(v), len(v) >= 16 && isID(v):
		return aUUID
	case stops(v):
		return aStop
	case filePath(v):
		return aPath
	case algorithm(v):
		return anAlgorithm
	}
	for _, k := range [...]kind{aPin, aNumber, aURL, aPath} {
		if is(kindNames[k], v) {
			return k
		}
	}
	return anOther
}

// stops reports whether v is a word that follows the name of a secret and is none, a date, a small number, a rule of
// validation, a tag of a struct.
func stops(v string) bool {
	return has("stopWords", strings.TrimRight(v, ".,:;!?")) || has("stateWords", v) ||
		has("stopWords", v[:max(0, strings.IndexAny(v, "|;,"))]) || strings.HasPrefix(v, "min:") || // required|min:8
		identifierPath(v) && has("validation", v[strings.LastIndexByte(v, '.')+1:]) || // Optional.empty
		number(v) && len(v) < 4 || strings.Contains(v, `:"`)
}

// spaceJoined reports whether v is of two words or more, some of which may be numbers: a pass phrase. If there are
// words among them that sentences are made with, then the others have to be such as nobody writes of programs.
func spaceJoined(v string) bool {
	n, stops, known := 0, 0, false
	for w := range strings.FieldsSeq(v) {
		n++
		w = strings.TrimSuffix(w, ",")
		if k := strings.IndexByte(w, '\''); k > 0 && k+1 < len(w) { // Oma's Apfelstrudel
			w = w[:k]
		}
		if run(w, 0, letter|foreign) < len(w) && run(w, 0, digit) < len(w) && w != "&" || has("asking", w) {
			return false
		}
		if has("stopWords", w) {
			stops++
		} else {
			known = known || familiar(w)
		}
	}
	return n >= 2 && n <= 24 && (stops == 0 || n-stops >= 2 && !known) // a wallet has 24
}

// byChance reports whether v is of letters that follow each other as chance has them, or of letters of both cases with
// digits among them, and no words: qnzvkp, A0buBP.
func byChance(v string, below int) bool {
	if len(v) < 6 || run(v, 0, alnum) < len(v) {
		return false
	}
	x := look(v)
	return jumbled(v, 4, below) || x.bothCases() && x.turns >= 2 && x.inWords == 0
}

// familiar reports whether v has a word that names in programs are made of: what people choose for a secret hardly ever
// has one, and nearly all other names have. Of several words apart it is half of them.
func familiar(v string) bool {
	n, known, shortest := 0, 0, 2
	if digits(v) { // with which three letters may be there by chance
		shortest = 3
	}
	for i := 0; i < len(v); {
		end := wordFrom(v, i, run(v, i, letter|foreign))
		if w := v[i:end]; len(w) > shortest {
			n++
			for _, ending := range [...]string{"", "s", "ed", "d", "ing"} {
				if stem, ok := strings.CutSuffix(w, ending); ok && len(stem) > 2 && has("familiar", stem) {
					known++
					break
				}
			}
		}
		i = max(end, i+1)
	}
	return known > 0 && (2*known >= n || strings.IndexByte(v, ' ') < 0)
}

// looks are the figures of a value that tell chance from words.
type looks struct {
	seen    charset
	longest int // letters and digits in a row
	turns   int // from digits to others and back
	cases   int // from lower case to upper and back
	marks   int // neither letters nor digits
	digits  int
	inWords int // lower-case letters, three or more in a row
}

func look(v string) (x looks) {
	length, small := 0, 0
	for i := range len(v) {
		c := class[v[i]]
		x.seen |= c
		length++
		small++
		if c&alnum == 0 {
			x.marks++
			length = 0
		}
		if c&digit != 0 {
			x.digits++
		}
		if i > 0 && (c^class[v[i-1]])&digit != 0 {
			x.turns++
		}
		if i > 0 && (c|class[v[i-1]])&letter == letter {
			x.cases++
		}
		switch {
		case c&lower == 0:
			small = 0
		case small == 3:
			x.inWords += 3
		case small > 3:
			x.inWords++
		}
		x.longest = max(x.longest, length)
	}
	return x
}

// bothCases reports whether the value has letters of both cases, mixed whether it has letters and digits.
func (x looks) bothCases() bool { return x.seen&lower != 0 && x.seen&upper != 0 }
func (x looks) mixed() bool     { return x.seen&letter != 0 && x.digits > 0 }

func countDigits(s string) int { return look(s).digits }

func digits(s string) bool { return holds(s, digit) }

// random reports whether body has what chance gives a token and words lack: a digit, or letters of both cases. Dense
// has a long run without separators, or digits and both cases.
func random(body string, dense bool) bool {
	x := look(body)
	if len(body) >= 8 && strings.Count(body, body[:1]) == len(body) {
		return false // xxxxxxxx
	}
	if dense {
		return x.digits > 0 && (x.longest >= 16 || x.bothCases())
	}
	return x.digits > 0 || x.bothCases() || gibberish(body)
}

// wordy reports whether most of v is in runs of letters such as words have.
func wordy(v string) bool { return 2*look(v).inWords > len(v) && !gibberish(v) }

// gibberish reports whether the letters of v, a dozen or more, follow each other as they do by chance and not as they
// do in words: what distinguishes a random password in lower case from a name.
func gibberish(v string) bool {
	// The average of what chance makes is lower than that of words, and the longer a run of letters is, the less it has to
	// differ from theirs to be sure.
	return jumbled(v, 11, 50) || jumbled(v, 14, 53) || len(v) >= 12 && jumbled(v, 8, 45)
}

// jumbled reports whether v has pairs of letters, as many as atLeast or more, and they are as seldom in words as below
// says: ten times the average of what data for pairs has.
func jumbled(v string, atLeast, below int) bool {
	sum, n := 0, 0
	for i := 1; i < len(v); i++ {
		a, b := class[v[i-1]], class[v[i]]
		if a&letter != 0 && b&letter != 0 && !(a&lower != 0 && b&upper != 0) {
			sum += int(pairs[26*int(v[i-1]|0x20-'a')+int(v[i]|0x20-'a')] - '0')
			n++
		}
	}
	return n >= atLeast && 10*sum < below*n
}

// strong reports whether v is a password as people make them where one is asked for, Sunflower42! or sun$flower7:
// letters, a digit, and capitals or a mark that names do not have.
func strong(v string) bool {
	x := look(v)
	if len(v) < 7 || len(v) > 64 || !x.mixed() && x.cases < 4 || strings.ContainsAny(v, " \t\n(){}[]<>|\"'`\\/") ||
		strings.Contains(v, "::") || number(v) || algorithm(v) {
		return false
	}
	// Of other alphabets those count that have cases: Cyrillic, Greek, letters with accents.
	return x.mixed() && !camelCase(v) && (x.bothCases() || strings.ContainsAny(v, passwordMarks) ||
		x.seen&foreign != 0 && strings.IndexFunc(v, func(c rune) bool { return c >= 0x590 }) < 0) ||
		len(v) >= 10 && x.cases >= 4 && !wordy(v) // lQngPU_CMLZKo
}

// camelCase reports whether v is a name of several words with a digit among them: K8SReplicaSet, readU64, x_v1_y.
func camelCase(v string) bool {
	second := wordFrom(v, 0, len(v))
	return second < len(v) && run(v, 0, word|dot) == len(v) && wordy(v) && look(v).turns < 4 && (countDigits(v) == 1 ||
		class[v[len(v)-1]]&digit == 0 || class[v[0]]&lower != 0 || strings.ContainsAny(v, "._"))
}

// chancy reports whether v looks made by chance: a password or token that no person
// made of words.
//
// The figures are of many passwords and many names: names have their digits together (utf8, node18, 2026-01-02), and
// most of their letters in runs of one case; what chance makes goes to and fro between both.
func chancy(v string) bool {
	x := look(v)
	if len(v) < 8 || len(v) > 200 || !x.mixed() || number(v) || uuid(v) {
		return false
	}
	return len(v) >= 14 && x.turns >= 3 && x.marks == 0 || !wordy(v) && x.turns >= 2 && x.marks*3 <= len(v) &&
		(x.bothCases() || x.turns >= 4 || x.marks > 0 && x.seen&lower != 0)
}

// tokenLike reports whether v has the length and mixture of a key that a machine made.
func tokenLike(v string) bool {
	// Sixteen bytes are the shortest keys that machines make; what is shorter may be strong or chancy.
	if len(v) < 16 || run(v, 0, ofToken|equals|colonAt) < len(v) || uuid(v) || filePath(v) {
		return false
	}
	x := look(v)
	return (x.mixed() || gibberish(v)) && !wordy(v) && (x.longest >= 16 || x.bothCases())
}

// anID reports whether v, in which the name of a secret is, has it by chance, as an id has.
func anID(v string) bool { return tokenLike(v) || chancy(v) && !familiar(v) }

// passLike reports whether v may be a password where its name means other things too.
func passLike(v string) bool {
	return len(v) >= 4 && known(v) == anOther && !strings.ContainsAny(v, " \t\n(){}[]<>|") &&
		!(strings.IndexByte(v, '_') > 0 && identifierPath(v) && wordy(v)) // a test that passes
}

// algorithm reports whether v names a hash, cipher or encoding.
func algorithm(v string) bool {
	for _, p := range words["algorithms"] {
		if len(v) >= len(p) && equalFold(v[:len(p)], p) &&
			(len(v) == len(p) || class[v[len(p)]]&lower == 0 || class[p[len(p)-1]]&digit != 0) {
			return true
		}
	}
	return false
}

// identifierPath reports whether v is a name or names joined by dots.
func identifierPath(v string) bool {
	return v != "" && class[v[0]]&(letter|under) != 0 && v[len(v)-1] != '.' && run(v, 0, word|dot) == len(v)
}

// number reports whether v is a number, as counts of tokens are, a version or a date.
func number(v string) bool {
	return digits(v) && (class[v[0]]&letter == 0 || v[0] == 'v') && is("number", v)
}

// uuid reports whether v is a UUID.
func uuid(v string) bool {
	return len(v) == 36 && v[8] == '-' && v[13] == '-' && v[18] == '-' && v[23] == '-' && run(v, 0, hexSet|dash) == 36
}

// filePath reports whether v is the path of a file.
func filePath(v string) bool {
	k := strings.IndexAny(v, `/\`) // /, ~/, ./, ../, C:\
	if len(v) < 2 || k != 0 && !(k > 0 && k < 3 && (strings.Trim(v[:k], ".~") == "" || v[1] == ':' && len(v) > 3)) {
		return strings.HasPrefix(v, "file:")
	}
	for i := 0; i < len(v); {
		end := until(v, i, len(v), `/\`)
		if end-i >= 12 && chancy(v[i:end]) {
			return false // a key in Base64 may begin with a slash
		}
		i = end + 1
	}
	return v[0] != '\\'
}

// sentence reports whether v is one of a language without spaces, which few of its bytes in ASCII are.
func sentence(v string) bool {
	n := 0
	for i := range len(v) {
		n += int(v[i] >> 5 / 7 * 3) // a rune of three bytes; alphabets of two part words by spaces
	}
	return !digits(v) && (len(v) > 15 && 3*n > 2*len(v) || len(v) > 5 && n == len(v))
}

// marked reports whether v is a marker of this package, also with the tag of an identifier, or of others who were here
// before.
func marked(v string) bool { return equalFold(v, "redacted") || is("marker", v) }

// blank reports whether v is no value: a placeholder, redacted already, a command, a public key.
func blank(v string) bool {
	return sentence(v) || has("standIns", strings.Trim(v, "[]<>()")) || strings.Trim(v, "xX") == "" || marked(v) ||
		is("blank", v)
}

// namesSecret reports whether v, which has no digit, has the name of a secret in a language that people speak, as forms
// do.
func namesSecret(v string) bool {
	return len(v) <= 80 && !digits(v) &&
		slices.ContainsFunc(spokenNames, func(name string) bool { return strings.Contains(v, name) })
}

// noPassword reports whether v, in the place of a password, is not one.
func noPassword(v string) bool { return blank(v) || has("passwordWords", v) }

// message reports whether v says something about a secret: "required", "This field may not be blank."
func message(v string) bool {
	// Validation has it below the name of the field: {"password": "This field may not be blank."}. A pass phrase has
	// words, too, but hardly any that sentences are made with.
	n, stops, validates := wordsOfMessage(v)
	return has("validation", strings.TrimSuffix(v, ".")) || validates ||
		n >= 3 && stops > 0 && 4*stops >= n && !spaceJoined(v)
}

// validates reports whether v says what a secret must be: "must contain at least 1 number".
func validates(v string) bool {
	_, _, validates := wordsOfMessage(v)
	return validates
}

// wordsOfMessage counts the words of v and those that sentences are made with, and reports whether v validates; none
// where a word has a digit, as the words of messages have not.
func wordsOfMessage(v string) (n, stops int, validates bool) {
	says := 0
	for w := range strings.FieldsSeq(v) {
		if w = strings.Trim(w, ".,!?()"); digits(w) && run(w, 0, digit) < len(w) {
			return 0, 0, false
		}
		n++
		if has("validating", w) {
			says++
		} else if has("stopWords", w) {
			stops++
		}
	}
	return n, stops, says > 1 || says == 1 && 2*(stops+1) >= n && n > 1
}
