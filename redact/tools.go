package redact

import (
	_ "embed" // of the table
	"regexp"
	"slices"
	"strings"
)

// tool is a row of data/tools.txt, where its options are described.
type tool struct {
	near  []string
	flags *regexp.Regexp // a flag and what is before its value
	user  string
	words bool
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
		t := tool{strings.Split(column[1], "|"), flagsOf(strings.Fields(column[2])), column[3], column[4] == "words"}
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

// flagsOf returns what finds one of the flags in a command, and the first byte of its value; nil where there are none.
func flagsOf(flags []string) *regexp.Regexp {
	// mysql -pSECRET has the password stuck to its flag; the word after mysql -p is the name of a database.
	const between = `["',\s]+`
	var list []string
	for _, flag := range flags {
		name, stuck := strings.CutSuffix(flag, "*")
		switch name = regexp.QuoteMeta(name); {
		case stuck:
			list = append(list, name+`["']?`)
		case name[0] == '-' && len(name) > 3:
			list = append(list, name+`(?:=|`+between+`)`)
		default: // -pSECRET, -p SECRET; -xp SECRET, of several letters
			list = append(list, name+`(?:=|`+between+`)?`, `-[A-Za-z]+`+name[1:]+between)
		}
	}
	if list == nil {
		return nil
	}
	return regexp.MustCompile(`["',\s](?:` + strings.Join(list, "|") + `)([^"',\s@-])`)
}

// command notes the secrets of the command whose name is at at: the values of flags with a password, and for some tools
// the words that are no flags. A command is read once, however many names of tools are in it.
//
// curl -s -u bob:SECRET https://… has the row of curl, whose flag -u has a user, a colon and a password. A name such
// as "zip" may be a word of prose, so its row states what follows it where it is a command.
func (c *scan) command(at int) {
	if at < c.commands || !bounded(c.s, at) || at > 0 && oneByteOf("-.=", c.s[at-1]) && at-1 > c.head(at) {
		return // a line of a diff begins with a dash
	}
	end := c.commandEnd(at)
	c.commands = end
	c.looked += end - at
	name := skip(c.s, at, at+1, quotes)
	from, stops := run(c.s, name, slug), " \t\n"
	if name > at {
		stops += quotes // of the elements of a list
	}
	if from >= end {
		return
	}
	rest := c.s[from:end]
	for _, t := range tools[c.s[name:from]] {
		if !slices.ContainsFunc(t.near, func(near string) bool { return strings.Contains(rest, strings.Trim(near, " \"")) }) {
			continue
		}
		if t.flags != nil && t.flags.MatchString(rest) { // which costs no allocation, and most have none
			for _, flag := range t.flags.FindAllStringSubmatchIndex(rest, -1) {
				if t.user == "=" { // the pairs of cookies
					c.label(from+flag[0]+1, from+flag[2]-1, credential.String())
					continue
				}
				lo, hi := c.commandWord(from+flag[2], end, stops)
				if at := from + flag[0]; oneByteOf("\"'", c.s[at]) && c.closing(at) > lo { // '-ptwo words'
					hi = min(end, c.closing(at))
				}
				c.argument(t, lo, hi, "flag")
			}
		}
		for i := from; t.words && i < end; {
			lo, hi := c.commandWord(i, end, stops)
			c.argument(t, lo, hi, "argument")
			i = hi + 1
		}
	}
}

// commandEnd returns where the command at i ends: where the next one begins, or the string of JSON that it is in ends.
// mysql -u root -p"SECRET" shop; ["mysql", "-u", "root", "-pSECRET"], as processes are started in code.
func (c *scan) commandEnd(i int) int {
	s, list := c.s, oneByteOf(quotes, c.s[i])
	for ; i < len(s); i++ {
		switch b := s[i]; {
		case oneByteOf("\"'", b):
			stop := c.closing(i)
			if stop == len(s) || s[stop] != b || stop-i > maxJudged || !list && b == '"' && i > 0 &&
				!oneByteOf(" =[", s[i-1]) && (i+1 == len(s) || oneByteOf(",}]:\n", s[i+1])) {
				return i
			}
			i = stop
		case oneByteOf(";|)`]", b), b == '\n' && !list, strings.HasPrefix(s[i:], "&&"):
			return i
		}
	}
	return i
}

// commandWord returns the bounds of the word of a command at i, without its quotes.
func (c *scan) commandWord(i, end int, stops string) (lo, hi int) {
	lo = skip(c.s, i, end, "\"', \t\n[")
	if lo > 0 && oneByteOf("\"'", c.s[lo-1]) {
		return lo, min(end, c.closing(lo-1))
	}
	return lo, skipBack(c.s, until(c.s, lo, end-lo, stops), lo, "\"'")
}

// argument notes what may be a secret in the word c.s[lo:hi] of a command.
func (c *scan) argument(t tool, lo, hi int, by string) {
	if t.user != "" { // bob:SECRET; without the sign the word is a user alone
		k := strings.Index(c.s[lo:hi], t.user)
		if k < 0 || has("indirect", c.s[lo:lo+k]) {
			return
		}
		if hi == lo+k+1 { // a key in the place of the user: curl -u KEY:
			hi--
		} else {
			lo += k + 1
		}
		if lo < hi && oneByteOf(quotes, c.s[lo]) { // bob:"two words"
			lo, hi = lo+1, c.closing(lo)
		}
	}
	if lo < hi && !oneByteOf("-@", c.s[lo]) && !noPassword(c.s[lo:hi]) {
		c.give(lo, hi, by)
	}
}
