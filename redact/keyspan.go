package redact

// This file finds the key around a literal of its name.

// keyBytes may be part of a key in text.
const keyBytes = slug | dot

// keySpan returns the bounds of the key around s[at:at+n]; none when the word goes on
// and is another: tokens, tokenizer, secretary. Only a plural may.
func keySpan(s string, floor, at, n int) (lo, hi int) {
	lo, hi = at, at+n
	if goesOn(s, at, hi) {
		return 0, 0
	}
	for lo > floor && class[s[lo-1]]&keyBytes != 0 {
		if lo--; at-lo > maxKey {
			return 0, 0
		}
	}
	for hi < len(s) && class[s[hi]]&keyBytes != 0 {
		if hi++; hi-at > maxKey {
			return 0, 0
		}
	}
	return trimKey(s, lo, hi, at, n)
}

// goesOn reports whether the word s[at:hi] goes on as another, or counts: "tokens": 12.
func goesOn(s string, at, hi int) bool {
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

func trimKey(s string, lo, hi, at, n int) (int, int) {
	return skip(s, lo, at, "-."), skipBack(s, hi, at+n, "-.")
}

// keyAround is keySpan, which walks over a long run of letters once.
func (c *scan) keyAround(at, n int) (lo, hi int) {
	if goesOn(c.s, at, at+n) {
		return 0, 0
	}
	if at < c.keyLo || at+n > c.keyHi || c.keyLo < c.floor {
		lo, hi = at, at+n
		for lo > c.floor && class[c.s[lo-1]]&keyBytes != 0 {
			lo--
		}
		for hi < len(c.s) && class[c.s[hi]]&keyBytes != 0 {
			hi++
		}
		c.looked += hi - lo
		c.keyLo, c.keyHi = lo, hi
	}
	if lo, hi = c.keyLo, c.keyHi; at-lo > maxKey || hi-at > maxKey {
		return 0, 0
	}
	return trimKey(c.s, lo, hi, at, n)
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
