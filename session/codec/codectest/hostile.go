package codectest

import "strings"

// Hostile are texts that try to be something else than text where they are written, or
// not to end there.
var Hostile = []string{
	// HTML and what is in its attributes
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</pre></details></main>", "javascript:alert(1)",
	"{{.Title}}", "\x1b[31m\u202e\x00",
	"<!--", "]]>", "</style><style>", "&lt;script&gt;", "</div></article></section>",
	"<div>\n\n<b>\n\n</blockquote></details><h1>", "<pre>\n\n</pre>",
	"<?php", "<!DOCTYPE html>", "<![CDATA[", "<a href=javascript:alert(1)>", "<textarea>", "<plaintext>",
	"<iframe src=//evil>", "<input autofocus onfocus=alert(1)>",
	// links and images
	"[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](java\nscript:alert(1))",
	"[a](&#106;avascript:alert(1))", "[a](<javascript:alert(1)>)", "[a](data:text/html,<script>)",
	"[a](vbscript:x)", "[a](file:///etc/passwd)", "[a](//evil/)", "[a](x \"onclick=alert(1)\")",
	`[a](http://x/"onmouseover="alert(1))`, "[a](http://x/'onmouseover='y)", "<javascript:alert(1)>",
	"![x](http://evil/x.png)", "![x](data:image/svg+xml,<svg onload=alert(1)>)",
	"[![x](http://evil/x.png)](http://evil)", "![[a](http://b)](http://c)", "[a [b](http://c) d](http://e)",
	"<https://x/\u202e>", "http://x.y/<script>", "http://x.y/\"'`", "www.x.y/&lt;", "mailto:a@b.c?subject=<b>", "a@b.c",
	"[a](http://x/\\\"b)", "[a](<http://x/ y>)", "[](http://x)", "[](javascript:x)",
	"[a]: http://evil\n\n[a]", "[x]: javascript:alert(1)\n", "[^1]: note\n\n[^1]", "[a][b]",
	// entities
	"&#60;script&#62;", "&#x202e;&#27;&#0;&#10;# x", "&nbsp;&NewLine;&NewLine;# heading", "&#32;&#32;&#32;&#32;code",
	"&#45; item", "\\<b\\>", "&colon;&lpar;",
	// blocks that do not end
	"a\n# heading\n> quote\n| a | b |\n|---|---|", "a\n````\n<img src=x>\n```\n</details>", "```", "~~~html\n<script>",
	"````\n```\n", "> ```\n> a", "- ```\n  a", "- > 1. a\n\n\n      b", "    code\n\n    </details>",
	"a\n===", "a\n---", "---", "***", "___\n---\n***", "# h\n## i\n###### j\n####### k", "#", "-", "1.", "0) a\n1) b",
	"999999999. a\n1. b", "+ a\n* b\n- c\n\n1) d\n2. e",
	"> a\nlazy\n> b", ">", "> > > a\nlazy", "- [ ] a\n- [x] <b>\n1. [X] c", "[ ] no", "- - - a",
	"- a\n\n\n- b\n\n  c\n\n      d", "* * *", "- ***", "[!NOTE]\n> a", "> [!WARNING]\n> a",
	"| a |\n|---|\n| `b\\|c` | d |\n| <b> |", "|a|b\n-|-\n`x|y`\n", "a\n|-|\nb", "| |\n|-|\n",
	"x | y\n:-: | -:\n1 | 2 | 3\n\n| a |\n|:-|", "</td></tr></table>",
	// inlines that do not end
	"**a", "*a **b* c**", "`a", "``a`", "~~a", "~a ~~b~~~", "[a", "[a](", "[a](<", "![", "***a** b*", "_a_*b*",
	"*a*_b_", "****a****", "~~~~a~~~~", "**`a`**`b`", "`` ` ``", "` a `", "`<b>`", "`|`", "*a\nb*\\\nc  \nd",
	"`code` **bold** | cell | $x$", "$$x$$ $`y`$", ":smile: @user #12 a/b#3 GH-4 @a-b/c", "a\\", "\\", "\\\n\\\n",
	"  \n  ", "\u2028# a\u2029> b", "\r# a\r\n> b\v\f", "\ufeff# a", "\t- a", "{#id .class onclick=x}",
	"# a {#top onclick=alert(1)}",
	strings.Repeat("> ", 200) + "deep", strings.Repeat("- ", 200) + "deep", strings.Repeat("*a **b ", 60),
	strings.Repeat("[", 200) + strings.Repeat("](http://x)", 200),
	strings.Repeat("![", 90) + "a" + strings.Repeat("](http://x.y)", 90),
}
