package redact

// This file finds the key around a literal of its name.

// keyBytes may be part of a key in text.
const keyBytes = slug | dot

// keySpan returns the bounds of the key around s[at:at+n]; none when the word goes on
// and is another: tokens, tokenizer, secretary. Only a plural may.
func keySpan(s string, floor, at, n int) (lo, hi int) {
	if goesOn(s, at+n) {
		return 0, 0
	}
	return trimKey(s, keyRun(s, floor, at, n, maxKey+1), at, n)
}

// keyRun returns the bytes of keys around s[at:at+n], limit of them at most on either side.
func keyRun(s string, floor, at, n, limit int) span {
	hi := at + n
	for hi < len(s) && hi-at < limit && class[s[hi]]&keyBytes != 0 {
		hi++
	}
	return span{runBack(s, at, max(floor, at-limit), keyBytes), hi}
}

// goesOn reports whether the word that ends at hi goes on as another, or counts: "tokens": 12.
func goesOn(s string, hi int) bool {
	return continues(s, hi) && (s[hi]|0x20 != 's' || continues(s, hi+1) || counted(s, hi+1))
}

// counted reports whether a number is assigned to the name that ends at i.
func counted(s string, i int) bool {
	i = skip(s, i, len(s), `"\`)
	if i < len(s) && s[i] == '>' { // an element: <tokens>12</tokens>
		end := run(s, i+1, digit)
		return end > i+1 && end < len(s) && s[end] == '<'
	}
	if i == len(s) || s[i] != ':' && s[i] != '=' {
		return false
	}
	i = skip(s, i+1, len(s), " ")
	return i < len(s) && class[s[i]]&digit != 0
}

func trimKey(s string, key span, at, n int) (lo, hi int) {
	if at-key.lo > maxKey || key.hi-at > maxKey {
		return 0, 0
	}
	return skip(s, key.lo, at, "-."), skipBack(s, key.hi, at+n, "-.")
}

// keyAround is keySpan, which walks over a long run of letters once.
func (c *scan) keyAround(at, n int) (lo, hi int) {
	if goesOn(c.s, at+n) {
		return 0, 0
	}
	if at < c.key.lo || at+n > c.key.hi || c.key.lo < c.floor {
		c.key = keyRun(c.s, c.floor, at, n, len(c.s))
		c.looked += c.key.hi - c.key.lo
	}
	return trimKey(c.s, c.key, at, n)
}

// continues reports whether a word runs over i, in letters of one case.
func continues(s string, i int) bool {
	return i < len(s) && class[s[i]]&letter != 0 && class[s[i]]&letter == class[s[i-1]]&letter
}

// classifyAt classifies the key s[lo:hi] by its part at at that e found, and returns
// where it begins: an escape before it may have run into it.
func (r *Redactor) classifyAt(s string, lo, hi, at int, e *entry) (int, keyClass) {
	found := e.key.promise(s, lo, hi, at, e.n)
	if found == notSecret && lo > 0 && lo < at {
		switch {
		case s[lo-1] == '\\' && s[lo] == 'u' && at-lo >= 5: // "\u0026token=…"
			lo += 5
		case s[lo-1] == '\\': // "\ntoken=…"
			lo++
		case s[lo-1] == '%' && lo+2 <= at: // "%26token=…"
			lo += 2
		case s[lo-1] == '-' && (s[lo] == 'D' || s[lo] == 'P'): // java -Dname=…
			lo++
		default:
			return lo, notSecret
		}
		found = e.key.promise(s, lo, hi, at, e.n)
	}
	if found != notSecret && r.allowed(s[lo:hi]) {
		found = notSecret
	}
	return lo, found
}
