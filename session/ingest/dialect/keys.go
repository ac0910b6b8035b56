package dialect

import (
	_ "embed"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

//go:embed words.txt
var wordList string

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

// meanings returns what each word of a section means: the name of its list, "" where that is none.
func meanings[T ~string](section string) map[string]T {
	all := make(map[string]T)
	for name, words := range wordsOf(section) {
		for _, word := range words {
			all[word] = T(strings.TrimPrefix(name, "none"))
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

// keyLists are the keys of attributes by what they are of, and wordLists lists of other words.
var keyLists, wordLists = wordsOf("keys"), wordsOf("words")

// SessionKeys are the attribute keys under which agents, frameworks and back ends write the id of a session, the most
// exact first.
var SessionKeys = keyLists["session"]

// Keys looks sessions up. It is safe for concurrent use.
type Keys struct {
	names []string
	rank  map[string]int
}

// NewKeys looks up the names, the first that is set winning; nil means SessionKeys.
func NewKeys(names []string) *Keys {
	if names == nil {
		names = SessionKeys
	}
	k := &Keys{names: names, rank: make(map[string]int, len(names))}
	for i, name := range names {
		if _, twice := k.rank[name]; !twice {
			k.rank[name] = i
		}
	}
	return k
}

// Len is how many names there are: ranks of one place.
func (k *Keys) Len() int { return len(k.names) }

// Find returns the id, the key that gave it and the key's rank: the best on the first of the maps that has one. A rank
// counts places before keys.
func (k *Keys) Find(places ...pcommon.Map) (id, key string, rank int) {
	for i, m := range places {
		best := len(k.names)
		for name, v := range m.All() {
			if r, ok := k.rank[name]; ok && r < best {
				if text := Text(v.AsString()); text != "" {
					id, best = text, r
				}
			}
		}
		if best < len(k.names) {
			return id, k.names[best], i*len(k.names) + best
		}
	}
	return "", "", 0
}
