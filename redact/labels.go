package redact

import (
	_ "embed" // of the table
	"strings"
)

// label is the name of a secret in a text, or a word near which secrets are.
type label struct {
	lo, hi int
	class  string // what it promises: the name of a keyClass, or what data/phrases.txt says
}

// phrase is a row of data/phrases.txt.
type phrase struct {
	literals []string
	where    placing
	class    string
}

// hint is the class of phrases that name no secret; but one is near them more often than elsewhere.
const hint = "hint"

//go:embed data/phrases.txt
var phrasesFile string

// phrases are the rows of the table of labels that are not names of keys.
var phrases []phrase

func readPhrases() (rows []phrase) {
	spaces := strings.NewReplacer("·", " ", "␤", "\n")
	for _, line := range tableRows(phrasesFile) {
		column := strings.Split(spaces.Replace(line), "\t")
		p := phrase{strings.Split(column[0], "|"), placingOf(column[1]), column[2]}
		if list, ok := strings.CutPrefix(column[0], "@"); ok {
			p.literals = phrasesOf(list, p.where&said != 0)
		}
		rows = append(rows, p)
	}
	return rows
}

// named notes the name of the key that e found at begin.
func (c *scan) named(e *entry, begin int) {
	lo, hi := keySpan(c.s, c.floor, begin+e.from, e.n)
	// Of markers only that of an id leads on: its key is beside it.
	if hi <= lo || strings.HasSuffix(c.s[:lo], "[redacted:") && c.s[lo:hi] != "aws-key" {
		return
	}
	if class := c.r.classify(c.s[lo:hi]); class != notSecret {
		c.label(lo, hi, class.String())
	}
}

// label notes a label.
func (c *scan) label(lo, hi int, class string) {
	if n := len(c.labels); n > 0 && c.labels[n-1].lo == lo && c.labels[n-1].hi >= hi {
		return // apiKey has a key in it
	}
	c.labels = append(c.labels, label{lo, hi, class})
}

// phrased notes the phrase that e found at begin.
func (c *scan) phrased(e *entry, begin int) {
	promise, lo, hi := e.phrase.class, begin+strings.LastIndexByte(e.literal, '\n')+1, begin+len(e.literal)
	switch {
	case promise == hint && !c.far:
		return
	case promise == "data" || promise == "members":
		c.members(lo, hi, promise)
	case promise == "pgpass": // host:port:database:user:password
		end, fields := c.wordEnd(hi), 2
		if strings.Contains(e.literal, "*:*:") { // the last * is the database
			fields = 1
		}
		for ; fields > 0 && hi < end; fields-- {
			hi = until(c.s, hi, end-hi, ":") + 1
		}
		c.give(hi, end, promise)
	case e.phrase.where&said != 0:
		if hi-lo <= 4 && anID(c.s[runBack(c.s, lo, c.floor, alnum):run(c.s, hi, alnum)]) {
			return // msg_22f38c211007yq3MnPlIaasMDP ends like the name of a password by chance
		}
		if from, to := identifierAround(c.s, c.floor, lo, hi); to > 0 {
			lo, hi, promise = from, to, secret.String()
			break
		}
		// What people say is inflected and followed by words: "Das Passwort für den Server lautet SECRET".
		hi = inflected(c.s, lo, hi)
		if id := c.s[hi:min(len(c.s), hi+4)]; partOfWord(c.s, lo, hi) || len(id) > 2 && oneByteOf("-_ ", id[0]) &&
			equalFold(id[1:3], "id") && (len(id) < 4 || !holds(id[3:], letter)) {
			return // Schlüssel-ID
		}
	}
	c.label(lo, hi, promise)
}

// members notes the members of the object around the label s[lo:hi]: the data of a Secret of Kubernetes, in JSON or
// YAML; the private ones of a JSON Web Key, whose others identify it.
func (c *scan) members(lo, hi int, promise string) {
	from, to := max(c.floor, lo-maxHeader), min(len(c.s), hi+maxHeader)
	if !c.afford((to - from) / 8) {
		return
	}
	names := jwkMembers[:]
	if promise == "data" {
		if end := c.eol(hi); c.s[hi-1] != '"' && strings.TrimSpace(c.s[hi:end]) != "" {
			return // a SecretStore
		}
		from += strings.LastIndex(c.s[from:lo], "\n---") + 1
		to = hi + strings.Index(c.s[hi:to]+"\n---", "\n---")
		names = nil
		for _, head := range [...]string{"\ndata:", `"data":`} {
			if at := strings.Index(c.s[from:to], head); at >= 0 {
				from += at + len(head)
				names = []string{":"}
				break
			}
		}
	} else {
		from, to = since(c.s, lo, from, "{"), until(c.s, hi, maxHeader, "}")
	}
	for _, name := range names {
		for i := from; i < to; {
			at := strings.Index(c.s[i:to], name)
			if at < 0 || promise == "data" && strings.IndexByte(c.s[i:i+at], '}') >= 0 {
				break
			}
			i += at + len(name)
			value := skip(c.s, i, to, ": ")
			var end int
			if value < to && oneByteOf(quotes, c.s[value]) {
				end = c.closing(value)
			} else {
				end = c.wordEnd(value)
			}
			c.give(value, end, promise)
			i = max(i, end)
		}
	}
}

// jwkMembers are the private members of a JSON Web Key, and what others have their value in.
var jwkMembers = [...]string{`"d"`, `"p"`, `"q"`, `"dp"`, `"dq"`, `"qi"`, `"k"`, `"value"`}

// identifierAround returns the bounds of the identifier that the name s[lo:hi] is a word of, senhaBanco, parola_utente;
// 0, 0 where there is none.
func identifierAround(s string, floor, lo, hi int) (from, to int) {
	from, to = lo, hi
	if hi < len(s) && (s[hi] == '_' || class[s[hi]]&upper != 0 && class[s[hi-1]]&lower != 0) {
		rest := strings.TrimLeft(s[hi:run(s, hi, word|foreign)], "_")
		if has("describing", rest[:wordFrom(rest, 0, len(rest))]) {
			return 0, 0
		}
		to = run(s, hi, word|foreign)
	}
	if lo > floor && (s[lo-1] == '_' || class[s[lo-1]]&lower != 0 && class[s[lo]]&upper != 0) {
		from = runBack(s, lo, max(floor, lo-maxKey), word|foreign)
	}
	return unless(from == lo && (to == hi || lo > 0 && class[s[lo-1]]&alnum != 0) ||
		to < len(s) && class[s[to]]&word != 0, from, to)
}

// inflected returns the end of the name s[lo:hi] with up to six more letters: Lösenordet, пароля, şifresini.
func inflected(s string, lo, hi int) int {
	end := hi
	if hi-lo < 5 || strings.HasPrefix(s[lo:hi], "the ") { // the pin, not the pinned
		return hi
	}
	for n := 0; n < 6 && end < len(s); n++ {
		switch c := s[end]; {
		case class[c]&lower != 0 && class[s[hi-1]]&lower != 0:
			end++
		case c >= 0xd0 && c <= 0xd3 && end+2 <= len(s): // Cyrillic
			end += 2
		}
	}
	return end
}

// partOfWord reports whether letters go on before or after s[lo:hi].
func partOfWord(s string, lo, hi int) bool {
	return lo > 0 && hi-lo < 7 && class[s[lo-1]]&alnum != 0 && s[lo] < 0x80 || hi < len(s) &&
		(class[s[hi]]&word != 0 || s[hi] == 0xc3) && s[hi-1] < 0x80 // Schlüsselübergabe
}
