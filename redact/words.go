package redact

import (
	_ "embed" // of the lists
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

//go:embed data/words.txt
var wordsFile string

// load reads the tables of this package, each after those that it is made of, before the first use of one: a program
// that redacts nothing, as most commands, need not wait for them when it starts.
var load = sync.OnceFunc(func() {
	words = readWords()
	lists = setsOf(words)
	pairs, spokenNames = strings.Join(words["pairs"], ""), phrasesOf("spoken", true)
	readClues()
	phrases = readPhrases()
	encodedRunes, common, vendorKeys = encodeRunes(), readCommon(), readVendors()
	tools, commandLiterals = readTools()
	patterns = readPatterns()
	rules = readRules()
})

// words are the lists of data/words.txt by name, and lists the same as sets.
var (
	words map[string][]string
	lists map[string]map[string]bool
)

func readWords() map[string][]string {
	all, name := map[string][]string{}, ""
	for line := range strings.SplitSeq(wordsFile, "\n") {
		if head, ok := strings.CutPrefix(line, "## "); ok {
			name, _, _ = strings.Cut(head, ":")
		} else if !strings.HasPrefix(line, "#") {
			for word := range strings.FieldsSeq(line) {
				all[name] = append(all[name], strings.ReplaceAll(word, "·", " "))
			}
		}
	}
	return all
}

// tableRows are the lines of a file of data that are no comments.
func tableRows(file string) []string {
	lines := strings.Split(strings.TrimSpace(file), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return line[0] == '#' })
}

//go:embed data/patterns.txt
var patternsFile string

// form is a row of data/patterns.txt: a regular expression, and signs one of which is in what it matches.
type form struct {
	signs string
	whole *regexp.Regexp
}

// patterns are the rows of data/patterns.txt by name.
var patterns map[string][]form

func readPatterns() map[string][]form {
	all := map[string][]form{}
	for _, line := range tableRows(patternsFile) {
		column := strings.Split(line, "\t")
		all[column[0]] = append(all[column[0]], form{column[1], regexp.MustCompile(`(?s)^(?:` + column[2] + `)$`)})
	}
	return all
}

func setsOf(words map[string][]string) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for name, list := range words {
		all[name] = map[string]bool{}
		for _, word := range list {
			all[name][word] = true
		}
	}
	return all
}

// has reports whether word, in whatever case, is in the list of a name. It is asked for nearly every word near a label,
// so the word in lower case is made on the stack: no word of these lists is longer than what has room there.
func has(list, word string) bool {
	var buf [32]byte
	if len(word) > len(buf) {
		return false
	}
	for i := range len(word) {
		buf[i] = toLower(word[i])
	}
	return lists[list][string(buf[:len(word)])]
}

var (
	pairs       string   // how often a letter follows another
	spokenNames []string // of secrets in the languages that people speak
)

// phrasesOf are the phrases of a list; those that are said as they are in a line, begin it, and are shouted.
func phrasesOf(list string, said bool) (out []string) {
	for _, phrase := range words[list] {
		out = append(out, phrase)
		if said {
			first, size := utf8.DecodeRuneInString(phrase)
			out = append(out, strings.ToUpper(string(first))+phrase[size:], strings.ToUpper(phrase))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
