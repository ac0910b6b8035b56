package render

import (
	"strings"
	"testing"
)

// TestBounds parses texts of a megabyte, most of which a parser of Markdown may need
// minutes for. Those that somebody may write are read, all others shown as they are.
func TestBounds(t *testing.T) {
	const size = 1 << 20
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	around := func(a, m, b string) string {
		n := size / (len(a) + len(b))
		return strings.Repeat(a, n) + m + strings.Repeat(b, n)
	}
	var ticks, nested strings.Builder
	for i := 1; ticks.Len() < size; i++ {
		ticks.WriteString("e" + strings.Repeat("`", i))
	}
	for i := 0; nested.Len() < size; i++ {
		nested.WriteString(strings.Repeat("  ", i) + "- a\n")
	}
	row := func(n int, s string) string { return strings.Repeat(s, n) + "\n" }
	const any, yes, no = 0, 1, 2
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"prose": {
			repeat(
				"The quick **brown** fox `jumps` over [the](http://x.y) lazy dog.\n- a *b*\n- c\n\n> d\n\n|a|b|\n" +
					"|-|-|\n|c|d|\n\n```\ne\n```\n\n"), yes},
		"a paragraph of words": {repeat("word "), yes},
		"code": {"Look:\n\n```c\n" +
			strings.Repeat("*a[i++] = (b_c < *d) ? `e` : ~f;\n", 900) + "```\n", yes},
		"an answer without lines": {strings.Repeat("It is **that** `thing` (here). ", 500), yes},
		"a table": {"|a|b|c|\n|-|-|-|\n" + strings.Repeat("| `some` | **cell** | of a table |\n", 500),
			yes},
		"a list":                  {strings.Repeat("- an **item** of `a` list\n", 5000), yes},
		"lines":                   {repeat("a\n"), any},
		"rows":                    {repeat("-|-\n"), any},
		"openers":                 {repeat("_a "), no},
		"closers":                 {repeat("a_ "), no},
		"mismatches":              {repeat("*a_ "), no},
		"emphasis in emphasis":    {around("*a **a ", "b", " a** a*"), no},
		"threes":                  {"a**b" + repeat("c* "), no},
		"brackets":                {around("[", "a", "]"), no},
		"links in links":          {around("[", "a", "](b)"), no},
		"open links":              {repeat("[a](<b"), no},
		"open addresses":          {repeat("[a](b"), no},
		"open titles":             {repeat("[a](b \"c"), no},
		"images":                  {repeat("![[]()"), no},
		"backticks":               {ticks.String(), no},
		"comments":                {repeat("a<!--"), no},
		"strikes":                 {repeat("a~ ~~b "), no},
		"quotations":              {repeat(">"), no},
		"quotations separator":    {repeat("> ") + "a", no},
		"items in items":          {repeat("- "), no},
		"numbers in numbers":      {repeat("1. "), no},
		"lists in lists":          {nested.String(), no},
		"columns":                 {row(size/8, "a|") + row(size/8, "-|") + repeat("a\n")[:size/2], no},
		"columns in a quotation":  {"> " + row(size/8, "a|") + "> " + row(size/8, "-|") + repeat("> a\n")[:size/2], no},
		"bars in code in cells":   {"|a|b|\n|-|-|\n" + repeat("|`a\\|b`|c|\n"), no},
		"addresses":               {repeat("http://a.b/"), any},
		"mail":                    {repeat("a.a@b-"), any},
		"entities":                {repeat("&amp;"), any},
		"rules":                   {repeat("- - -\n"), any},
		"a fence in an item":      {"- ```\n" + repeat("*a_ "), no},
		"a fence in a fence":      {" ~~~\n```\n~~~\n" + repeat("*a_ "), no},
		"a fence with a backtick": {"``` `\n" + repeat("*a_ "), no},
		"a fence that is closed":  {"```\n   ````  \n" + repeat("*a_ "), no},
	} {
		t.Log(name) // the last one is what does not end
		_, ok := parseText(c.text)
		if c.want == yes && !ok || c.want == no && ok {
			t.Errorf("%s: parsed %t", name, ok)
		}
	}
}
