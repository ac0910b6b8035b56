package redact

import (
	_ "embed" // of the table
	"path"
	"slices"
	"strings"
)

// tool is a row of data/tools.txt, where its options are described.
type tool struct {
	near, flags []string
	user        string
	words       bool
}

//go:embed data/tools.txt
var toolsFile string

// tools are the rows of each command, and commandLiterals what commands are found by: their names with what follows
// them, and as elements of a list.
var (
	tools           map[string][]tool
	commandLiterals []string
)

func readTools() (map[string][]tool, []string) {
	byName, literals := map[string][]tool{}, []string{}
	for _, row := range tableRows(toolsFile) {
		column := strings.Split(row, "\t")
		t := tool{strings.Split(column[1], "|"), strings.Fields(column[2]), column[3], column[4] == "words"}
		for name := range strings.FieldsSeq(column[0]) {
			byName[name] = append(byName[name], t)
			literals = append(literals, `"`+name+`"`, `"`+name+`\`, `'`+name+`'`)
			for _, near := range t.near {
				if near == "" {
					near = " "
				}
				literals = append(literals, name+near)
			}
		}
	}
	slices.Sort(literals)
	return byName, slices.Compact(literals)
}

// command notes the secrets of the command whose name is at at. A command is read once, however many names of tools are
// in it.
//
// curl -s -u bob:SECRET https://… has the row of curl, whose flag -u has a user, a colon and a password. A name such as
// "zip" may be a word of prose, so its row says what follows it where it is a command.
func (c *scan) command(at int) {
	if at < c.commands || !bounded(c.s, at) || at > 0 && oneByteOf("-.=", c.s[at-1]) && at-1 > c.head(at) {
		return // a line of a diff begins with a dash
	}
	c.words, c.commands = c.commandWords(at, c.words[:0])
	c.looked += c.commands - at
	if len(c.words) == 0 {
		return
	}
	words, rest := c.words, c.s[c.words[0].hi:c.commands]
	for _, t := range tools[path.Base(c.text(words[0]))] {
		if slices.ContainsFunc(t.near, func(near string) bool {
			return strings.Contains(rest, strings.Trim(near, " \"")) // the name alone may be a word of prose
		}) {
			c.arguments(t, words)
		}
	}
}

func (c *scan) text(w span) string { return c.s[w.lo:w.hi] }

const maxWords = 96

// commandWords returns the words of the command at i, without their quotes, and where it ends. They may be the strings
// of a list, of which the name may be before the others.
func (c *scan) commandWords(i int, words []span) ([]span, int) {
	// mysql -u root -p"SECRET" shop; ["mysql", "-u", "root", "-pSECRET"], as processes are started in code; both end
	// where the next command begins, or the string of JSON that the command is in ends.
	s, q, list := c.s, c.s[i], oneByteOf(quotes, c.s[i])
	for i < len(s) {
		if s[i] == ' ' || s[i] == '\t' || list && oneByteOf(",[\n", s[i]) {
			i++
			continue
		}
		if oneByteOf("\n;|)`]", s[i]) || strings.HasPrefix(s[i:], "&&") || list && s[i] != q ||
			!list && c.endsString(i) {
			break
		}
		lo, hi, next := c.commandWord(i)
		if len(words) < maxWords {
			words = append(words, span{lo, hi})
		}
		i = max(next, i+1)
		if next == hi && hi > lo && hi < len(s) && oneByteOf("\"'", s[hi]) {
			break // the end of the string that the command is in
		}
	}
	return words, min(i, len(s))
}

// commandWord returns the bounds of the word of a command at i, without its quotes, and where the next may begin.
func (c *scan) commandWord(i int) (lo, hi, next int) {
	s := c.s
	for hi = i; hi < len(s) && class[s[hi]]&space == 0 && !oneByteOf("`;|)", s[hi]); hi++ {
		if s[hi] != '"' && s[hi] != '\'' {
			continue
		}
		stop := c.closing(hi)
		switch {
		case hi == i:
			return i + 1, stop, stop + 1
		case hi == i+2 && s[i] == '-': // -p"…"
			return i, stop, stop + 1
		case c.endsString(hi) || stop >= len(s) || s[stop] != s[hi] || stop-hi > maxJudged:
			return i, hi, hi
		}
		hi = stop
	}
	return i, hi, hi
}

// endsString reports whether the quote at i ends a string of JSON, which the command is in.
func (c *scan) endsString(i int) bool {
	return c.s[i] == '"' && i > 0 && !oneByteOf(" =[", c.s[i-1]) && (i+1 == len(c.s) || oneByteOf(",}]:\n", c.s[i+1]))
}

// arguments notes what may be a secret among the words of a command: the values of flags with a password, and for some
// tools the words that are no flags.
func (c *scan) arguments(t tool, words []span) {
	for i := 1; i < len(words); i++ {
		w, by := c.text(words[i]), "flag"
		at, ok := t.value(w)
		if !ok && w != "" && w[0] != '-' {
			by, ok = "argument", t.words
		}
		if at < 0 && i+1 < len(words) && !strings.HasPrefix(c.text(words[i+1]), "-") {
			i, at = i+1, 0
		}
		if !ok || at < 0 {
			continue
		}
		lo, hi := words[i].lo+at, words[i].hi
		if t.user == "=" && by == "flag" { // the pairs of cookies
			c.label(words[i-1].lo, words[i-1].hi, credential.String())
			continue
		} else if t.user != "" { // bob:SECRET; without the sign the word is a user alone
			k := strings.Index(c.s[lo:hi], t.user)
			if k < 0 || has("indirect", c.s[lo:lo+k]) {
				continue
			}
			if hi == lo+k+1 { // a key in the place of the user: curl -u KEY:
				hi--
			} else {
				lo += k + 1
			}
		}
		if lo < hi && !oneByteOf("-@", c.s[lo]) && !noPassword(c.s[lo:hi]) {
			c.give(lo, hi, by)
		}
	}
}

// value reports whether w is a flag with a password, and where it is in it; -1 where it is the next word.
func (t tool) value(w string) (at int, ok bool) {
	// mysql -pSECRET has the password stuck to its flag; the word after mysql -p is the name of a database.
	for _, flag := range t.flags {
		name, stuck := strings.CutSuffix(flag, "*")
		switch rest, found := strings.CutPrefix(w, name); {
		case !found || rest == "" && stuck:
		case rest == "":
			return -1, true
		case len(name) <= 3 || name[0] == '/' || rest[0] == '=': // -pSECRET, -hpSECRET, /pass:SECRET
			return len(w) - len(strings.TrimPrefix(rest, "=")), true
		}
	}
	if len(w) > 2 && w[0] == '-' && w[1] != '-' && slices.Contains(t.flags, "-"+w[len(w)-1:]) { // of several letters
		return -1, true
	}
	return 0, false
}
