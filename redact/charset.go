package redact

import "strings"

// charset is a set of kinds of bytes.
type charset uint32

const (
	digit charset = 1 << iota
	lower
	upper
	hexLower // a-f; digits are digit
	hexUpper
	under
	dash
	dot
	plusSlash
	equals
	tilde
	percent
	dollar
	comma
	colonAt
	star
	visible // what passwords are made of
	space   // also line ends
	ofToken // of what may be a password or a key without a label
	apartBy // ends a word, or begins one
	inURL   // goes on with a URL
	foreign // of a rune that is not ASCII

	letter = lower | upper
	alnum  = digit | letter
	word   = alnum | under
	slug   = word | dash
	hexSet = digit | hexLower | hexUpper
	base64 = alnum | plusSlash | equals
)

// class has the sets that each byte is in. Nearly all of the package looks at bytes through it: a byte of UTF-8 that is
// not ASCII is foreign and nothing else, so that words of all languages are read without decoding them.
var class = func() (t [256]charset) {
	for set, chars := range map[charset]string{digit: "0123456789", lower: "abcdefghijklmnopqrstuvwxyz",
		upper: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", hexLower: "abcdef", hexUpper: "ABCDEF", under: "_", dash: "-", dot: ".",
		plusSlash: "+/", equals: "=", tilde: "~", percent: "%", dollar: "$", comma: ",", colonAt: ":@", star: "*",
		space: blanks, apartBy: wordStops + ",;()[]{}<>|"} {
		for i := range len(chars) {
			t[chars[i]] |= set
		}
	}
	for b := range t {
		if !oneByteOf(wordStops+"<>\\", byte(b)) {
			t[b] |= inURL
		}
		if b >= 0x80 {
			t[b] |= foreign
		} else if b < ' ' {
			t[b] |= apartBy
		}
	}
	for b := byte('!'); b <= '~'; b++ {
		if !oneByteOf(quotes+"<,;)|", b) {
			t[b] |= visible
		}
		if !oneByteOf(quotes+"<>,;()[]{}|:=", b) {
			t[b] |= ofToken
		}
	}
	return t
}()

// run returns the end of the bytes of set that begin at i. It stops before a marker, whose bytes may be of the set:
// in token=abc__REDACTED__ the value that is still there is abc, and to redact it must not make the marker part of it.
func run(s string, i int, set charset) int {
	start := i
	for i < len(s) && class[s[i]]&set != 0 {
		i++
	}
	if set&under != 0 && i-start >= len(Marker) && strings.Contains(s[start:i], "__") {
		for _, marker := range [...]string{TruncatedMarker, Marker} {
			if m := strings.Index(s[start:i], marker); m >= 0 {
				i = start + m
			}
		}
	}
	return i
}

// holds reports whether s has a byte of set.
func holds(s string, set charset) bool {
	for i := range len(s) {
		if class[s[i]]&set != 0 {
			return true
		}
	}
	return false
}

// until returns where the first byte of stop is in s at or after i, or the end of the limit bytes that are looked at.
func until(s string, i, limit int, stop string) int {
	end := min(len(s), i+limit)
	if k := strings.IndexAny(s[i:end], stop); k >= 0 {
		return i + k
	}
	return end
}

// since returns where what ends at i begins, after the last byte of stop at or after floor.
func since(s string, i, floor int, stop string) int {
	return floor + strings.LastIndexAny(s[floor:i], stop) + 1
}

const (
	blanks    = " \t\r\n"
	quotes    = "\"'`"
	wordStops = blanks + quotes
)

// oneByteOf is strings.IndexByte(chars, c) >= 0, inlined: chars are few.
func oneByteOf(chars string, c byte) bool {
	for i := range len(chars) {
		if chars[i] == c {
			return true
		}
	}
	return false
}

// runBack returns where the bytes of set begin that end at i, at or after floor.
func runBack(s string, i, floor int, set charset) int {
	for i > floor && class[s[i-1]]&set != 0 {
		i--
	}
	return i
}

// skip returns the end of the bytes of chars that begin at i, at the latest at limit.
func skip(s string, i, limit int, chars string) int {
	for i < len(s) && i < limit && oneByteOf(chars, s[i]) {
		i++
	}
	return i
}

// skipBack returns where the bytes of chars begin that end at i, at or after floor.
func skipBack(s string, i, floor int, chars string) int {
	for i > floor && oneByteOf(chars, s[i-1]) {
		i--
	}
	return i
}

// sets are the charsets by the names that data/rules.txt has for them.
var sets = map[string]charset{"digit": digit, "lower": lower, "alnum": alnum, "word": word, "slug": slug, "hex": hexSet,
	"lowhex": digit | hexLower, "caps": digit | upper, "base36": digit | lower, "base64": base64, "dot": dot,
	"dash": dash, "under": under, "slash": plusSlash, "equals": equals, "tilde": tilde, "percent": percent,
	"dollar": dollar, "colon": colonAt, "comma": comma, "visible": visible}

// indexFold is strings.Index without regard to the case of s.
func indexFold(s, lowerCase string) int {
	for i := 0; i+len(lowerCase) <= len(s); i++ {
		if s[i]|0x20 == lowerCase[0] && equalFold(s[i:i+len(lowerCase)], lowerCase) {
			return i
		}
	}
	return -1
}
