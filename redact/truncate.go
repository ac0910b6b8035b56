package redact

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// Truncate cuts s to the configured limit, marker included. It keeps the head, cuts between runes, and states the
// original size; what it cut before keeps the size it had then. Without a limit, or within it, it returns s itself.
func (r *Redactor) Truncate(s string) (string, Result) {
	if r == nil || r.maxBytes == 0 || len(s) <= r.maxBytes {
		return s, Result{Size: len(s)}
	}
	note, size := sizeNote(s, len(s))
	keep := max(0, r.maxBytes-len(note))
	if k := strings.LastIndex(s[:keep], TruncatedMarker); k >= 0 && keep-k < len(note)+16 {
		keep = k
	}
	return s[:boundary(s, keep)] + note, Result{Truncated: true, SHA256: digest(s), Size: size}
}

// TruncateJSON cuts raw to the configured limit and depth and keeps it JSON: first what is too deep, then long strings,
// then elements, each with a marker where something is missing; where even that is too long a single string remains.
// What is not JSON is cut as by Truncate. Without a limit, or within it, it returns raw itself.
func (r *Redactor) TruncateJSON(raw []byte) ([]byte, Result) {
	res := Result{Size: len(raw)}
	if r == nil || r.maxDepth == 0 && (r.maxBytes == 0 || len(raw) <= r.maxBytes) {
		return raw, res
	}
	s := string(raw)
	if end := skipJSON(s, jsonscan.Space(s, 0)); end < 0 || jsonscan.Space(s, end) != len(s) {
		out, res := r.Truncate(s)
		return []byte(out), res
	}
	limit := r.maxBytes
	if limit == 0 { // only what is too deep goes
		limit = math.MaxInt
	}
	out := jsonscan.Cut(s, limit, r.maxDepth, TruncatedMarker, noteOf, nil)
	if string(out) == s {
		return raw, res
	}
	res.Truncated, res.SHA256 = true, digest(s)
	return out, res
}

// ahead is what more than a value may keep is redacted of one that is far longer.
const ahead = 64 << 10

// Bound returns what clean makes of a value, cut to the configured limit as by Truncate or TruncateJSON. Of one that is
// far longer clean gets the head, or JSON with shorter strings and fewer elements: no secret is halved there. The Size
// is then that of the value as it was, and there is no SHA256, which could confirm a guess of what clean did not see.
// Without clean, the value is cut only.
func (r *Redactor) Bound(s string, isJSON bool, clean func(string) (string, Result)) (string, Result) {
	long, note := clean != nil && r != nil && r.maxBytes > 0 && len(s) > 2*r.maxBytes+ahead, ""
	head, size := s, len(s)
	if long && isJSON && jsonscan.Valid(s) {
		head = string(jsonscan.Cut(s, 2*r.maxBytes+ahead, r.maxDepth, TruncatedMarker, noteOf, Settled))
	} else if long {
		note, size = sizeNote(s, size)
		head = s[:Settled(s[:boundary(s, r.maxBytes+ahead)])]
	}
	out, cleaned := head, Result{Size: size}
	if clean != nil {
		out, cleaned = clean(head)
	}
	switch {
	case cleaned.Omitted && long:
		return clean(s)
	case cleaned.Redacted && strings.Trim(out, `"`) == Marker:
		return out, cleaned
	}
	var res Result
	if k := strings.LastIndex(out, TruncatedMarker); note != "" && cleaned.Truncated && k >= 0 {
		out = out[:k] // it states the size of the head
	}
	if isJSON && note == "" {
		var b []byte
		b, res = r.TruncateJSON([]byte(out))
		out = string(b)
	} else {
		out, res = r.Truncate(out + note)
	}
	switch {
	case long:
		res = Result{Truncated: true, Size: size}
	case cleaned.Truncated || cleaned.Omitted || !res.Truncated: // an earlier cut was of more
		return out, cleaned
	}
	res.Redacted = cleaned.Redacted
	return out, res
}

func noteOf(cut string) string {
	note, _ := sizeNote(cut, len(cut))
	return note
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// sizeNote returns the marker that ends what is left of s, and the size that it states: what an earlier marker at the
// end of s states, otherwise size.
func sizeNote(s string, size int) (string, int) {
	if k := strings.LastIndex(s, TruncatedMarker+"["); k >= 0 {
		before, ok := strings.CutSuffix(s[k+len(TruncatedMarker)+1:], " bytes]")
		if n, err := strconv.Atoi(before); ok && err == nil && n > len(s) {
			size = n
		}
	}
	return TruncatedMarker + "[" + strconv.Itoa(size) + " bytes]", size
}

// boundary returns the last start of a rune at or before i.
func boundary(s string, i int) int {
	for n := i; n > 0 && n < len(s) && n > i-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return n
		}
	}
	return i
}

// omit replaces s by a marker with its size.
func omit(s string, redacted bool) (string, Result) {
	res := Result{Size: len(s), Omitted: true, Redacted: redacted}
	if Omitted(strings.Trim(s, `"`)) {
		return s, res
	}
	return "[omitted: " + strconv.Itoa(len(s)) + " bytes]", res
}

// OmittedPrompt is the marker of a system prompt. Prompts are stored by their digests, which would confirm a guess, so
// all that are omitted have this one.
const OmittedPrompt = "[omitted: system prompt]"

// Omitted reports whether a text is the marker of one that was omitted.
func Omitted(s string) bool {
	size, ok := strings.CutPrefix(s, "[omitted: ")
	size, bytes := strings.CutSuffix(size, " bytes]")
	return s == OmittedPrompt || ok && bytes && size != "" && strings.Trim(size, "0123456789") == ""
}

// Fit returns the length to which texts must be cut, the longest first, so that all of them together are shorter by
// excess bytes. It is never less than [MinLimit], which may be too much. With no excess it returns the greatest length.
func Fit(lengths []int, excess int) (limit int) {
	longest := slices.Max(append([]int{MinLimit}, lengths...))
	return longest - sort.Search(longest-MinLimit, func(less int) bool {
		saved := 0
		for _, n := range lengths {
			saved += max(0, n-(longest-less))
		}
		return saved >= excess
	})
}

// maxHeadline is the most characters of a headline, about what a list shows.
const maxHeadline = 80

// Headline returns the first line of a text as a title, of at most 80 characters. What is longer is cut before a word
// or a member of a list, never within one: a redactor that gets the title does not recognize half of a secret.
func Headline(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.TrimSpace(line)
	runes := []rune(line)
	if len(runes) <= maxHeadline {
		return line
	}
	// "Deploy with password sunflo…" would keep most of a password that nothing recognizes any more.
	at := maxHeadline - 1
	parts := func(r rune) bool { return r >= utf8.RuneSelf || strings.ContainsRune(" \t,;&?", r) }
	for at > 0 && !parts(runes[at]) && !parts(runes[at-1]) {
		at--
	}
	if head := strings.TrimSpace(string(runes[:at])); head != "" {
		return head + "…"
	}
	return ""
}
