package redact

import (
	_ "embed" // of the lists
	"slices"
	"strings"
)

//go:embed data/words.txt
var wordsFile string

// words are the lists of data/words.txt, by name.
var words = func() map[string][]string {
	all, name := map[string][]string{}, ""
	for line := range strings.SplitSeq(wordsFile, "\n") {
		if head, ok := strings.CutPrefix(line, "## "); ok {
			name, _, _ = strings.Cut(head, ":")
		} else if !strings.HasPrefix(line, "#") {
			all[name] = append(all[name], strings.Fields(line)...)
		}
	}
	return all
}()

// tableRows are the lines of a file of data that are no comments.
func tableRows(file string) []string {
	lines := strings.Split(strings.TrimSpace(file), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return line[0] == '#' })
}

// has reports whether word, in whatever case, is in the list of a name.
func has(list map[string]bool, word string) bool {
	if len(word) > 16 {
		return false
	}
	var buf [16]byte
	for i := range len(word) {
		buf[i] = toLower(word[i])
	}
	return list[string(buf[:len(word)])]
}

func wordSet(name string) map[string]bool {
	set := map[string]bool{}
	for _, w := range words[name] {
		set[w] = true
	}
	return set
}

// The lists, which data/words.txt describes.
var (
	describing     = wordSet("describing")
	valued         = wordSet("valued")
	countingTokens = wordSet("countingTokens")
	tokenOwners    = wordSet("tokenOwners")
	passOwners     = wordSet("passOwners")
	otherKeys      = wordSet("otherKeys")
	otherPasses    = wordSet("otherPasses")
	stopWords      = wordSet("stopWords")
	stateWords     = wordSet("stateWords")
	standIns       = wordSet("standIns")
	passwordWords  = wordSet("passwordWords")
	schemaWords    = wordSet("schemaWords")
	schemaValues   = wordSet("schemaValues")
	schemaTypes    = wordSet("schemaTypes")
	isVerb         = wordSet("isVerb")
	linking        = wordSet("linking")
	states         = wordSet("states")
	changes        = wordSet("changes")
	determiners    = wordSet("determiners")
	verbs          = wordSet("verbs")
	uses           = wordSet("uses")
	owners         = wordSet("owners")
	nameWords      = wordSet("nameWords")
	pairs          = words["pairs"]
)

// spoken are the names of secrets in the languages of people, as they are in a line, begin it, and are shouted.
func spoken() (out []string) {
	for _, name := range words["spoken"] {
		name = strings.ReplaceAll(name, "·", " ")
		title := strings.ToUpper(string([]rune(name)[:1])) + string([]rune(name)[1:])
		out = append(out, name, title, strings.ToUpper(name))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
