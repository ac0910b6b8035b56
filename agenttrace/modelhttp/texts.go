package modelhttp

import (
	"hash/maphash"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// textSums remembers the digests of long messages: each request of a conversation repeats those of the one before. It
// has digests only, so the texts of one user are of no use to another one.
type textSums struct {
	mu sync.Mutex
	// recent are those that were used since older was replaced by it, the last time that it was full.
	recent, older map[textKey]digest
}

// textKey is a hash and the length of the texts of a message.
type textKey struct {
	sum  uint64
	size int
}

const (
	// maxTextSums bounds each of the maps, to some 0.5 MB.
	maxTextSums = 8192
	// longText is the size of texts that take longer to digest than to look up.
	longText = 256
)

// sum has c be the content of a message, but for long texts, and returns the digest of the texts.
func (t *textSums) sum(c *content, m *message) digest {
	c.reset()
	var key textKey
	var h maphash.Hash
	h.SetSeed(seed)
	for k := range m.items {
		i := &m.items[k]
		if i.kind != textItem {
			c.add(i)
			continue
		}
		h.WriteString(i.text)
		key.size += len(i.text)
	}
	key.sum = h.Sum64()
	if key.size >= longText {
		if sum, ok := t.lookUp(key); ok {
			return sum
		}
	}
	for k := range m.items {
		if i := &m.items[k]; i.kind == textItem {
			c.add(i)
		}
	}
	sum := c.sum()
	if key.size >= longText {
		t.add(key, sum)
	}
	return sum
}

// system returns the digest of a system prompt but for words with a digit and the names of days, months and halves of a
// day: what is left is the same at another time.
func (t *textSums) system(prompt string) digest {
	key := textKey{maphash.String(seed, prompt), -len(prompt)}
	if sum, ok := t.lookUp(key); ok {
		return sum
	}
	words := strings.FieldsFunc(prompt, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(",.:;()[]/-", r)
	})
	sum := digestOf(strings.Join(slices.DeleteFunc(words, func(w string) bool {
		return strings.ContainsAny(w, "0123456789") || timeWord.MatchString(w)
	}), " "))
	t.add(key, sum)
	return sum
}

var timeWord = regexp.MustCompile(`^(?i)(mon|tues?|wed(nes)?|thu(rs)?|fri|sat(ur)?|sun)(day)?$|` +
	`^(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)$|` +
	`^([ap]m|utc|gmt|z)$`)

func (t *textSums) lookUp(key textKey) (digest, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sum, ok := t.recent[key]; ok {
		return sum, true
	}
	sum, ok := t.older[key]
	if ok {
		t.set(key, sum)
	}
	return sum, ok
}

func (t *textSums) add(key textKey, sum digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(key, sum)
}

// set requires mu.
func (t *textSums) set(key textKey, sum digest) {
	if t.recent == nil || len(t.recent) >= maxTextSums {
		t.recent, t.older = make(map[textKey]digest), t.recent
	}
	t.recent[key] = sum
}
