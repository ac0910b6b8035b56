package codectest

import (
	_ "embed" // the texts
	"strconv"
	"strings"
)

//go:embed hostile.txt
var hostile string

// Hostile are texts that try to be something else than text where they are written, or
// not to end there.
var Hostile = readHostile()

func readHostile() (all []string) {
	for line := range strings.SplitSeq(hostile, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		text, err := strconv.Unquote(line)
		if err != nil {
			panic("hostile.txt: " + line)
		}
		all = append(all, text)
	}
	return append(all,
		strings.Repeat("> ", 200)+"deep", strings.Repeat("- ", 200)+"deep", strings.Repeat("*a **b ", 60),
		strings.Repeat("[", 200)+strings.Repeat("](http://x)", 200),
		strings.Repeat("![", 90)+"a"+strings.Repeat("](http://x.y)", 90),
	)
}
