package dialect

import (
	_ "embed"
	"strings"
)

//go:embed words.txt
var wordList string

// keyLists are the keys of attributes by what they are of.
var keyLists = wordsOf("keys")

// wordsOf returns the lists of a section of words.txt by their names.
func wordsOf(section string) map[string][]string {
	_, text, _ := strings.Cut(wordList, "["+section+"]\n")
	text, _, _ = strings.Cut(text, "\n[")
	lists, name := make(map[string][]string), ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if head, rest, begins := strings.Cut(line, ": "); begins {
			name, line = head, rest
		}
		lists[name] = append(lists[name], strings.Fields(line)...)
	}
	return lists
}

// meanings returns what each word of a section means: the name of its list.
func meanings(section string) map[string]string {
	all := make(map[string]string)
	for name, words := range wordsOf(section) {
		for _, word := range words {
			all[word] = name
		}
	}
	return all
}

func setOf(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, word := range words {
		set[word] = true
	}
	return set
}

// valuesOf returns what each word of a section means: the value of the name of its list.
func valuesOf[V any](section string, value func(name string) V) map[string]V {
	all := make(map[string]V)
	for name, words := range wordsOf(section) {
		for _, word := range words {
			all[word] = value(name)
		}
	}
	return all
}

// byWord returns the value of each word of lists of words.
func byWord[V comparable](lists map[V]string) map[string]V {
	all := make(map[string]V)
	for value, words := range lists {
		for word := range strings.FieldsSeq(words) {
			all[word] = value
		}
	}
	return all
}
