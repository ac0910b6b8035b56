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
	pairs, spokenNames = strings.Join(words["pairs"], ""), phrasesOf("spoken")
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

// patterns are the regular expressions of data/patterns.txt by name, of all rows of a name.
var patterns map[string]*regexp.Regexp

func readPatterns() map[string]*regexp.Regexp {
	rows, all := map[string][]string{}, map[string]*regexp.Regexp{}
	for _, line := range tableRows(patternsFile) {
		name, pattern, _ := strings.Cut(line, "\t")
		rows[name] = append(rows[name], pattern)
	}
	for name, list := range rows {
		all[name] = regexp.MustCompile(`(?s)^(?:` + strings.Join(list, "|") + `)$`)
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

// phrasesOf are the phrases of a list; those that people speak as they are in a line, begin it, and are shouted.
func phrasesOf(list string) (out []string) {
	for _, phrase := range words[list] {
		out = append(out, phrase)
		if list == "spoken" {
			first, size := utf8.DecodeRuneInString(phrase)
			out = append(out, strings.ToUpper(string(first))+phrase[size:], strings.ToUpper(phrase))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
