package redact

import (
	_ "embed" // of the table
	"path"
	"slices"
	"strings"
)

// tool is a row of data/tools.txt.
type tool struct {
	near, options []string
	user          string // the byte between user and password
}

//go:embed data/tools.txt
var toolsFile string

// tools are the rows of each command, and commandLiterals what commands are found by: their names with what follows
// them, and as elements of a list.
var tools, commandLiterals = func() (map[string][]tool, []string) {
	byName, literals := map[string][]tool{}, []string{"echo ", "printf ", "<<<"}
	for _, row := range tableRows(toolsFile) {
		column := strings.Split(row, "\t")
		t := tool{near: strings.Split(column[1], "|"), options: strings.Fields(column[2])}
		for _, option := range t.options {
			if user, ok := strings.CutPrefix(option, "user"); ok {
				t.user = user
			}
		}
		for name := range strings.FieldsSeq(column[0]) {
			byName[name] = append(byName[name], t)
			literals = append(literals, `"`+name+`"`, `"`+name+`\`)
			for _, near := range t.near {
				literals = append(literals, name+near+" "[:min(1, max(0, 1-len(near)))])
			}
		}
	}
	slices.Sort(literals)
	return byName, slices.Compact(literals)
}()

// command notes the secrets of the command whose name is at at. A command is read once, however many names of tools are
// in it.
func (c *scan) command(at int) {
	if at < c.commands || !bounded(c.s, at) || at > 0 && oneByteOf("-.=", c.s[at-1]) {
		return
	}
	c.words, c.commands = c.commandWords(at, c.words[:0])
	c.looked += c.commands - at
	if len(c.words) == 0 {
		return
	}
	words, rest := c.words, c.s[c.words[0].hi:c.commands]
	c.m = mention{c: c, s: c.s, lo: words[0].lo, hi: words[0].hi, class: ofTool}
	switch name := path.Base(strings.Trim(c.text(words[0]), `"`)); {
	case strings.HasPrefix(name, "<<<"):
		from, _ := c.line(at)
		c.printed(words[min(1, len(name)-3):], c.s[max(from, at-maxStatement):at])
	case name == "echo" || name == "printf":
		if c.commands < len(c.s) && c.s[c.commands] == '|' {
			c.printed(words[1:], c.s[c.commands:until(c.s, c.commands, maxStatement, "\n")])
		}
	default:
		for _, t := range tools[name] {
			if slices.ContainsFunc(t.near, func(near string) bool {
				return strings.Contains(rest, strings.Trim(near, " \"")) // the name alone may be a word of prose
			}) {
				c.given(t, words)
			}
		}
	}
}

func (c *scan) text(w span) string { return c.s[w.lo:w.hi] }

const maxWords = 96

// commandWords returns the words of the command at i, with their quotes, and where it ends. They may be the strings of
// a list.
func (c *scan) commandWords(i int, words []span) ([]span, int) {
	s, list := c.s, c.s[i] == '"'
	for len(words) < maxWords {
		i = skip(s, i, len(s), " \t")
		if list {
			i = skip(s, i, len(s), " \t,\n")
		}
		if i == len(s) || oneByteOf("\n;|)`]", s[i]) || strings.HasPrefix(s[i:], "&&") || list && s[i] != '"' {
			break
		}
		lo := i
		for ; i < len(s) && !oneByteOf(blanks+";|)`", s[i]); i++ {
			if !oneByteOf("\"'", s[i]) {
				continue
			}
			stop := c.closing(i)
			if stop == len(s) || s[stop] != s[i] || stop-i > maxJudged || !list && c.endsString(i) {
				return append(words, span{lo, i}), i // the end of the string that the command is in
			}
			if i = stop; list {
				i++
				break
			}
		}
		words = append(words, span{lo, i})
	}
	return words, i
}

// endsString reports whether the quote at i ends a string of JSON, which the command is in.
func (c *scan) endsString(i int) bool {
	return c.s[i] == '"' && i > 0 && !oneByteOf(" =[", c.s[i-1]) && (i+1 == len(c.s) || oneByteOf(",}]:\n", c.s[i+1]))
}

// give notes a secret that a command is given: by a flag, or as one of its words. It may be what is after a user.
func (c *scan) give(user string, w span, by join) {
	const quotes = "\"'"
	w.lo = skip(c.s, w.lo, w.hi, quotes)
	w.hi = skipBack(c.s, w.hi, w.lo, quotes)
	if user != "" {
		k := strings.Index(c.text(w), user)
		if k < 0 {
			return
		}
		w.lo += k + 1
		if at := strings.LastIndexByte(c.text(w), '@'); user == "/" && at >= 0 { // of Oracle: user/password@host
			w.hi = w.lo + at
		}
		w.lo = skip(c.s, w.lo, w.hi, quotes)
	}
	if v := c.text(w); v != "" && v[0] != '-' && !noPassword(v) && !strings.HasSuffix(v, "...]") {
		c.m.join = by
		c.addLater(c.m.found(w.lo, w.hi))
	}
}

// given notes the secrets among the words of a command.
func (c *scan) given(t tool, words []span) {
	for i := 1; i < len(words); i++ {
		lo := skip(c.s, words[i].lo, words[i].hi, "\"'")
		w := c.s[lo:skipBack(c.s, words[i].hi, lo, "\"'")]
		switch at := t.value(w); {
		case at == len(w) && i+1 < len(words):
			i++
			c.give(t.user, words[i], flag)
		case at > 0:
			c.give(t.user, span{lo + at, words[i].hi}, flag)
		case at < 0 && slices.Contains(t.options, "words"):
			c.give(t.user, words[i], bare)
		}
	}
}

// value returns where in the flag w the password is: at its end where it is the next word, 0 where there is none; below
// 0 where w is no flag.
func (t tool) value(w string) int {
	for _, name := range t.options {
		name, stuck := strings.CutSuffix(name, "*")
		rest, found := strings.CutPrefix(w, name)
		switch {
		case found && (rest == "" && !stuck || len(name) <= 3 || name[0] == '/'):
			return len(name) + len(rest) - len(strings.TrimPrefix(rest, "="))
		case found && rest != "" && rest[0] == '=':
			return len(name) + 1
		case len(name) == 2 && !stuck && len(w) > 2 && w[0] == '-' && w[1] != '-' && w[len(w)-1] == name[1]:
			return len(w) // the last of several letters
		}
	}
	if w != "" && (w[0] == '-' || w[0] == '/' && t.options[0][0] == '/') {
		return 0
	}
	return -1
}

// printed notes what is printed, as words, into a command that reads passwords.
func (c *scan) printed(printed []span, command string) {
	for _, reader := range words["readers"] {
		if !strings.Contains(command, reader) {
			continue
		}
		for _, w := range printed {
			for line := range strings.SplitSeq(c.text(w), "\n") {
				user := ""
				if reader == "chpasswd" {
					user = ":"
				}
				c.give(user, span{w.lo, w.lo + len(line)}, flag)
				w.lo += len(line) + 1
			}
		}
		return
	}
}
