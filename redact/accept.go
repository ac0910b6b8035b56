package redact

import "strings"

// This file decides whether the value of a key is a secret.

// secret decides whether v, which ends at end, is to be redacted.
func (a *assignment) secret(v string, end int) bool {
	if len(v) < 2 || blank(v) || strings.HasPrefix(v, "pk_live_") ||
		strings.HasPrefix(v, "pk_test_") || a.class == countable && number(v) {
		return false
	}
	if a.form == sure {
		return true
	}
	whole := v
	if v = v[:min(len(v), maxJudged)]; a.refused(v) {
		return false
	}
	switch a.form {
	case pair:
		return a.inList(v)
	case cell:
		return cellSecret(a.c.r, a.class, v)
	case bare:
		return a.bare(v, end)
	case setting:
		return a.ofSetting(v)
	case prose:
		return a.prose(v, end)
	case flag:
		return a.ofFlag(v)
	}
	switch {
	case a.class == credential:
		return a.header(v)
	case a.quoted:
		return !label(a.c.r, whole) && (a.class != countable || a.qualified() && len(v) >= 8 || looksRandom(v))
	}
	return a.plain(v, end)
}

// inList decides of the string after the key's in a list or in the arguments of a call.
func (a *assignment) inList(v string) bool {
	return len(v) >= 8 && random(v, mixed) && digits(v) && !strings.Contains(v, " ") &&
		(a.class != credential || len(v) >= 20 || a.scheme)
}

// ofFlag decides of the word after a flag.
func (a *assignment) ofFlag(v string) bool {
	if strings.HasPrefix(v, "env:") || strings.HasPrefix(v, "file:") || a.hi-a.lo > 3 &&
		equalFold(a.s[a.hi-3:a.hi], "-id") && !chancy(v) && !uuid(v) {
		return false
	}
	return v[0] != '-' && !has(stopWords, v) && !constant(v) && (digits(v) || len(v) >= 40 || !label(a.c.r, v))
}

// refused reports whether v cannot be what a key of this class promises.
func (a *assignment) refused(v string) bool {
	switch a.class {
	case weak:
		return !passLike(v)
	case keyed:
		return !tokenLike(v)
	case secret:
		return filePath(v)
	}
	return false
}

// before reports whether the text ends at end or goes on with one of chars.
func (a *assignment) before(end int, chars string) bool {
	return end == len(a.s) || strings.IndexByte(chars, a.s[end]) >= 0
}

func (a *assignment) prose(v string, end int) bool {
	if a.quoted {
		return !label(a.c.r, v) && len(v) >= 6 && (digits(v) || strings.Count(v, " ") >= 2) && a.class != countable ||
			tokenLike(v)
	}
	if a.class == countable || a.class == keyed {
		return len(v) >= 16 && tokenLike(v)
	}
	if equalFold(a.s[max(a.lo, a.hi-6):a.hi], "phrase") && strings.Count(v, "-") >= 3 {
		return true
	}
	return len(v) >= 6 && (digits(v) || gibberish(v)) && (chancy(v) || a.before(end, "\n\r.,;)!`\"'") || strong(v)) &&
		random(v, mixed) && !number(v) && !algorithm(v) && !strings.Contains(v, "://") && !call(v)
}

// cellSecret decides of the cell beside the key's in a table.
func cellSecret(r *Redactor, class keyClass, v string) bool {
	if len(v) < 6 || blank(v) || strings.ContainsAny(v, " \t(<>{}") || strings.Contains(v, "://") ||
		label(r, v) || algorithm(v) || has(stopWords, v) || filePath(v) {
		return false
	}
	if class <= countable && class != weak || class == credential {
		return tokenLike(v)
	}
	return digits(v) && !number(v) && !date(v)
}

// standsAlone reports whether v is a word, with no sign of code in it or after it.
func (a *assignment) standsAlone(v string, end int) bool {
	return a.before(end, " \t\r\n.,;)!") && !strings.ContainsAny(v, "=/\\(){}[]<>|")
}

// bare decides of the word after the key.
func (a *assignment) bare(v string, end int) bool {
	if a.class == keyed || a.class == credential || !a.quoted && !a.standsAlone(v, end) || v[0] == '-' {
		return false
	}
	if strings.Contains(v, "::") || call(v) || constant(v) || uuid(v) || label(a.c.r, v) {
		return false
	}
	if a.class == countable {
		return tokenLike(v) && chancy(v)
	}
	if a.quoted {
		return a.class == secret && len(v) >= 6 && digits(v) && !strings.Contains(v, " ")
	}
	if a.class != secret || chancy(v) || strong(v) {
		return a.class == secret
	}
	w, _ := a.wordBefore(a.lo)
	return len(v) >= 6 && digits(v) && !number(v) && !algorithm(v) && strings.Contains(" with using use ", " "+w+" ")
}

// ofSetting decides of the value of a name in a directive.
func (a *assignment) ofSetting(v string) bool {
	if v[0] == '-' || has(stopWords, v) || strings.IndexByte("?:(", v[0]) >= 0 || filePath(v) || call(v) {
		return false
	}
	if a.class == countable || a.class == credential {
		return looksRandom(v)
	}
	return digits(v) && !number(v) || a.shouts() && !label(a.c.r, v)
}

// plain decides of a value without quotes. It may be code: a call, a path of names, a
// type, a variable.
func (a *assignment) plain(v string, end int) bool {
	if a.code(v, end) || has(stopWords, v) || v[0] == '!' && a.form == colon || label(a.c.r, v) ||
		strings.Contains(v, "://") {
		return false
	}
	if a.nextLine(v, end) || a.class == weak && a.wordOnly(v) {
		return false
	}
	if identifierPath(v) && !digits(v) {
		return a.named(v, end)
	}
	if identifierPath(v) && (strings.IndexByte(v, '.') > 0 && !looksRandom(v) || a.operand(end)) {
		return false
	}
	if a.class == countable && !(a.form == tight && (a.query || a.shouts())) {
		return looksRandom(v)
	}
	if number(v) {
		return len(v) >= 4 && a.class == secret
	}
	return true
}

// wordOnly reports whether v is a name or a word, such as a state.
func (a *assignment) wordOnly(v string) bool {
	return !a.shouts() && run(v, 0, letter|under|dash|dot) == len(v) &&
		!(a.query && len(v) >= 10 && strings.ToLower(v) != v)
}

// code reports whether v, which ends at end, is an expression rather than a value.
func (a *assignment) code(v string, end int) bool {
	if strings.IndexByte("([{<*&:", v[0]) >= 0 && !(a.form == tight && a.shouts() && digits(v)) {
		return true
	}
	return call(v) || constant(v) || end < len(a.s) && a.s[end] == '('
}

// operand reports whether the name that ends at end goes on as an expression where the
// key is a short one.
func (a *assignment) operand(end int) bool {
	return a.class == weak && !a.sureName() && a.form == spaced && !a.before(end, "\n ")
}

// nextLine reports whether v is in the line after its key and may be anything.
func (a *assignment) nextLine(v string, end int) bool {
	start := end - len(v)
	if from, _ := a.c.line(end - 1); from <= a.hi {
		return false
	}
	return a.form != colon || !made(v) || !a.before(end, "\n\r") ||
		a.class == countable && !tokenLike(v) || start < a.hi
}

// sureName reports whether the key is in capitals or names whose it is.
func (a *assignment) sureName() bool { return a.class == secret || a.shouts() }

// named decides of a value that is a name or names joined by dots.
func (a *assignment) named(v string, end int) bool {
	if strings.IndexByte(v, '.') > 0 || a.class == weak && !a.sureName() {
		return false
	}
	last := a.before(end, "\n\r")
	switch {
	case gibberish(v), a.form == tight && (a.query || a.shouts()):
		return true
	case a.class == countable:
		return looksRandom(v)
	case a.form == tight:
		return end == len(a.s) || strings.IndexByte("),", a.s[end]) < 0
	case a.form == colon:
		return last && !strings.ContainsAny(v, "_") && a.startsLine()
	}
	from, _ := a.c.line(a.lo)
	return last && a.lo == from && !strings.Contains(v, "_")
}

// header reports whether v is a header's credential rather than talk of one.
func (a *assignment) header(v string) bool {
	if !a.quoted && (a.form == spaced || identifierPath(v) && strings.IndexByte(v, '.') > 0 && !digits(v) || call(v)) {
		return false
	}
	if eq := strings.IndexByte(strings.TrimRight(v, "="), '='); eq > 0 && !strings.ContainsAny(v[:eq], " (") {
		return pairsHold(v)
	}
	if k := strings.IndexByte(v, ' '); k >= 0 {
		return a.quoted && looksRandom(v[:k])
	}
	return looksRandom(v) || a.form != spaced && len(v) >= 8 && digits(v) || a.scheme && len(v) >= 6
}

// pairsHold reports whether one of the pairs of a header, such as cookies, may be secret.
func pairsHold(v string) bool {
	for pair := range strings.FieldsFuncSeq(v, func(c rune) bool { return c == ';' || c == ',' || c == '&' }) {
		name, value, _ := strings.Cut(strings.TrimLeft(pair, " "), "=")
		if run(name, 0, slug|dot) < len(name) {
			return true // no pair at all
		}
		value = strings.Trim(value, "\"' ")
		if len(value) >= 6 && (digits(value) || len(value) >= 16 || gibberish(value)) &&
			!strings.EqualFold(name, "expires") && !strings.EqualFold(name, "domain") && !marked(value) {
			return true
		}
	}
	return false
}

// qualified reports whether more words are before the one that makes the key a
// token: access_token rather than token.
func (a *assignment) qualified() bool {
	key := a.s[a.lo:a.hi]
	return wordFrom(key, 0, len(key)) < len(key) || a.shouts()
}

// shouts reports whether the key is in capitals, as environment variables are.
func (a *assignment) shouts() bool {
	for i := a.lo; i < a.hi; i++ {
		if class[a.s[i]]&lower != 0 {
			return false
		}
	}
	return true
}

// startsLine reports whether only indentation, a list's dash or a quote precedes the
// key in its line.
func (a *assignment) startsLine() bool {
	from, _ := a.c.line(a.lo)
	return a.lo-from < 200 && strings.Trim(a.s[from:a.lo], " \t-\"'") == ""
}
