package render

import (
	"archive/zip"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/alecthomas/chroma/v2"

	"github.com/agenttrace/agenttrace/session/document"
)

// Run is a piece of a text with the classes that it is shown with.
type Run struct{ Class, Text string }

// What document.Sanitize makes of the characters that begin and end sequences for terminals.
const (
	escapeMark     = "␛"
	bell           = "␇"
	carriageReturn = '␍'
)

// Runs are a text that a tool wrote for a terminal: its colors are classes, its other sequences are dropped, and of
// what a carriage return writes over the last is left. The lines of a unified diff have classes, too. The text has been
// made printable, so each piece of it is harmless; the raw row of the part has it as it was.
func Runs(s string) []Run {
	if strings.HasPrefix(s, "@@ -") || strings.Contains(s, "\n@@ -") || strings.HasPrefix(s, "*** Begin Patch") {
		return unifiedDiff(s)
	}
	if !strings.ContainsAny(s, escapeMark+string(carriageReturn)) {
		return []Run{{"", s}}
	}
	var t terminal
	for s != "" {
		at := strings.IndexAny(s, escapeMark+"\n"+string(carriageReturn))
		if at < 0 {
			t.write(s)
			break
		}
		t.write(s[:at])
		s = s[at:]
		switch {
		case s[0] == '\n':
			t.write("\n")
			s = s[1:]
			t.line = len(t.runs)
		case strings.HasPrefix(s, escapeMark):
			s = t.sequence(s[len(escapeMark):])
		default:
			s = s[len(string(carriageReturn)):]
			if !strings.HasPrefix(s, "\n") && s != "" {
				t.runs = t.runs[:t.line]
			}
		}
	}
	return t.runs
}

// terminal is the state of a terminal that is written to.
type terminal struct {
	runs []Run
	// line is the number of runs before the line that is written.
	line  int
	color string
	on    [len(styles)]bool
}

// styles are the classes of the parameters from 1 on, and off has those that a parameter ends.
var (
	styles = [...]string{"bold", "dim", "italic", "underlined"}
	off    = map[string]string{"22": "12", "23": "3", "24": "4"}
)

func (t *terminal) write(s string) {
	if s == "" {
		return
	}
	class := t.color
	for i, on := range t.on {
		if on {
			class = strings.TrimSpace(class + " " + styles[i])
		}
	}
	t.runs = append(t.runs[:t.line], appendRun(t.runs[t.line:], class, s)...)
}

// sequence reads a sequence whose escape character has been read, and returns what follows it. One that does not end is
// the rest of the text.
func (t *terminal) sequence(s string) string {
	switch {
	case strings.HasPrefix(s, "["): // a control sequence: parameters, and a letter that ends it
		end := strings.IndexFunc(s[1:], func(r rune) bool { return r < ' ' || r >= '@' }) + 1
		if end == 0 {
			return ""
		}
		if s[end] == 'm' {
			t.style(strings.FieldsFunc(s[1:end], func(r rune) bool { return r == ';' || r == ':' }))
		}
		if s[end] < ' ' || s[end] > '~' {
			return s[end:] // it was cut off
		}
		return s[end+1:]
	case strings.HasPrefix(s, "]"): // a command, such as a link or a title
		bellAt, escapeAt := strings.Index(s, bell), strings.Index(s, escapeMark+`\`)
		switch {
		case bellAt >= 0 && (escapeAt < 0 || bellAt < escapeAt):
			return s[bellAt+len(bell):]
		case escapeAt >= 0:
			return s[escapeAt+len(escapeMark)+1:]
		}
		return s
	case s != "" && s[0] >= ' ' && s[0] <= '~':
		return s[1:]
	}
	return s
}

// style applies the parameters of a sequence that selects how text is shown. Backgrounds have no class: a color of text
// may not be seen on them.
func (t *terminal) style(parameters []string) {
	if len(parameters) == 0 {
		parameters = []string{"0"}
	}
	for i := 0; i < len(parameters); i++ {
		switch p := strings.TrimLeft(parameters[i], "0"); {
		case p == "":
			*t = terminal{runs: t.runs, line: t.line}
		case len(p) == 1 && p >= "1" && p <= "4":
			t.on[p[0]-'1'] = true
		case off[p] != "":
			for _, style := range off[p] {
				t.on[style-'1'] = false
			}
		case p == "39":
			t.color = ""
		case p == "38" || p == "48": // a color of 256, or of red, green and blue
			skip := 2
			if i+1 < len(parameters) && parameters[i+1] == "2" {
				skip = 4
			}
			i += skip
		case len(p) == 2 && (p[0] == '3' || p[0] == '9') && p[1] >= '0' && p[1] <= '7':
			t.color = "c" + p[1:]
		}
	}
}

// unifiedDiff has the lines of a unified diff, those that follow each other and are of a kind in one piece.
func unifiedDiff(s string) (all []Run) {
	for line := range strings.SplitAfterSeq(s, "\n") {
		class := ""
		switch {
		case strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++ "):
			class = "add"
		case strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "--- "):
			class = "del"
		case strings.HasPrefix(line, "@@"):
			class = "dim"
		}
		all = appendRun(all, class, line)
	}
	return all
}

func appendRun(all []Run, class, text string) []Run {
	if n := len(all); n > 0 && all[n-1].Class == class {
		all[n-1].Text += text
		return all
	}
	return append(all, Run{class, text})
}

// Edit is what a call replaces in a file.
type Edit struct {
	Runs []Run
	// Added and Removed count lines.
	Added, Removed int
}

// Gist is the size of the change.
func (e Edit) Gist() string { return fmt.Sprintf("+%d −%d", e.Added, e.Removed) }

const (
	// maxEdit is the size in bytes of texts up to which they are compared.
	maxEdit = 20 << 10
	// openEdit is the number of changed lines up to which an edit is not folded.
	openEdit = 40
)

// replacements are the names that tools have for a text and what replaces it.
var replacements = [][2]string{{"old_string", "new_string"}, {"old_str", "new_str"}, {"oldString", "newString"},
	{"old_text", "new_text"}, {"oldText", "newText"}, {"old", "new"}}

// edits finds what a call replaces, if its input has it as pairs of texts, and they are not too long to be compared.
func edits(p *document.Part) *Edit {
	var input map[string]json.RawMessage
	if p == nil || p.Tool == nil || len(p.Tool.Input) > maxEdit || json.Unmarshal(p.Tool.Input, &input) != nil {
		return nil
	}
	all := []map[string]json.RawMessage{input}
	var several []map[string]json.RawMessage
	if json.Unmarshal(input["edits"], &several) == nil {
		all = append(all, several...)
	}
	var e Edit
	for _, one := range all {
		for _, names := range replacements {
			var before, after string
			if json.Unmarshal(one[names[0]], &before) == nil && json.Unmarshal(one[names[1]], &after) == nil {
				e.compare(before, after)
				break
			}
		}
	}
	if e.Runs == nil {
		return nil
	}
	return &e
}

func (e *Edit) compare(before, after string) {
	rows := document.DiffTexts(document.Sanitize(before), document.Sanitize(after))
	for _, h := range document.Hunks(rows, len(rows), 1) {
		for _, r := range h.Rows {
			if h.Same {
				e.Runs = appendRun(e.Runs, "", "  "+document.Joined(r.A)+"\n")
			} else if r.A != nil {
				e.Runs, e.Removed = appendRun(e.Runs, "del", "- "+document.Joined(r.A)+"\n"), e.Removed+1
			}
		}
		for _, r := range h.Rows {
			if !h.Same && r.B != nil {
				e.Runs, e.Added = appendRun(e.Runs, "add", "+ "+document.Joined(r.B)+"\n"), e.Added+1
			}
		}
	}
}

const (
	// JSON of more than maxJSON bytes, or with more than maxValues values, is shown as it is.
	maxJSON   = 32 << 10
	maxValues = 300
	// maxInline is the length in bytes up to which a text without line breaks is shown in the line of its name.
	maxInline = 120
	// maxCode is the size in bytes up to which code has colors.
	maxCode = 100 << 10
	// maxFenced is that of a block in a text: a byte costs 5 µs.
	maxFenced = 4 << 10
)

// MaxFenced is the size in bytes up to which the blocks of code in the texts of a page have colors, all together.
const MaxFenced = 20 << 10

// Value is a value of JSON as pages show it: a string as the text that it is, an object or a list unfolded.
type Value struct {
	// Name is that of a field, "" of an element of a list.
	Name string
	// Text is a string, or another value as it is in JSON. With Lines it has a box of its own.
	Text  string
	Lines bool
	// Lang is a language or the name of a file, by which Text is colored; "" where none is known. An object has that of a
	// file that it names.
	Lang string
	// Values are those of an object or a list, and Gist is how many there are.
	Values []Value
	Gist   string
}

// section is the input or the output of a call, unfolded if the section has all of an object or a list.
func section(b document.Block, s document.Section) Value {
	v := Value{Text: s.Text.Body, Lines: true}
	if b.Part == nil || b.Part.Tool == nil {
		return v
	}
	c := b.Part.Tool
	input := unfolded(c.Input, c.InputWithheld)
	switch s.Title {
	case "Input":
		v.Values = input.Values
	case "Output":
		out := unfolded(c.Output, c.Withheld)
		v.Values, v.Lang = out.Values, input.Lang
	}
	if s.Text.Cut != "" {
		v.Values = nil
	}
	return v
}

func unfolded(raw json.RawMessage, withheld bool) Value {
	if raw, _ = document.TakeMedia(bytes.TrimSpace(raw)); withheld || len(raw) > maxJSON {
		return Value{}
	}
	left := maxValues
	if v := unfold(raw, &left); left >= 0 {
		return v
	}
	return Value{}
}

// unfold is a value with the fields of objects in their order, if no more than so many are left.
func unfold(raw json.RawMessage, left *int) (v Value) {
	if *left--; *left < 0 {
		return v
	}
	names, values, isObject := document.Object(raw)
	if !isObject && (!bytes.HasPrefix(raw, []byte("[")) || json.Unmarshal(raw, &values) != nil) {
		v.Text = string(raw)
		if text := ""; bytes.HasPrefix(raw, []byte(`"`)) && json.Unmarshal(raw, &text) == nil {
			v.Text = document.Sanitize(text)
			v.Lines = len(text) > maxInline || strings.Contains(strings.TrimRight(text, "\n"), "\n")
		}
		return v
	}
	for i := 0; i < len(values) && *left >= 0; i++ {
		one := unfold(values[i], left)
		if isObject {
			one.Name = document.Line(names[i])
			switch names[i] {
			case "path", "file_path", "filePath", "filename", "file":
				v.Lang = path.Base(one.Text)
			case "command", "cmd", "script":
				one.Lang = "bash"
			}
		}
		v.Values = append(v.Values, one)
	}
	for i := range v.Values {
		v.Values[i].Lang = cmp.Or(v.Values[i].Lang, v.Lang)
	}
	if v.Gist = document.Plural(len(v.Values), "field", "fields"); !isObject {
		v.Gist = document.Plural(len(v.Values), "element", "elements")
	}
	return v
}

// classOf is the class of a kind of token, "" of most. Names of one kind are in one subcategory with all other names.
func classOf(t chroma.TokenType) string {
	switch {
	case t.InCategory(chroma.Comment):
		return "hc"
	case t.InCategory(chroma.Keyword):
		return "hk"
	case t.InSubCategory(chroma.LiteralString):
		return "hs"
	case t.InSubCategory(chroma.LiteralNumber):
		return "hn"
	case t == chroma.NameFunction, t == chroma.NameTag, t == chroma.NameAttribute:
		return "hf"
	}
	return ""
}

//go:embed lexers/lexers.zip
var lexersFile string

// lexers has a lexer for each language. They are read when the first text is colored: most commands color none.
var lexers = sync.OnceValue(func() *chroma.LexerRegistry {
	all := chroma.NewLexerRegistry()
	files, err := zip.NewReader(strings.NewReader(lexersFile), int64(len(lexersFile)))
	if err != nil {
		panic(err) // a mistake in this package
	}
	for _, f := range files.File {
		all.Register(chroma.MustNewXMLLexer(files, f.Name))
	}
	return all
})

// Code is code with the classes of its colors, by a language or the name of a file. What a tool wrote for a terminal
// has its own.
func Code(text, lang string) []Run {
	lexer := lexers().Get(lang)
	if lexer == nil {
		lexer = lexers().Match(lang)
	}
	plain := Runs(text)
	if lexer == nil || len(text) > maxCode || len(plain) > 1 {
		return plain
	}
	tokens, err := lexer.Tokenise(nil, text)
	if err != nil {
		return plain
	}
	var all []Run
	for t := tokens(); t != chroma.EOF; t = tokens() {
		all = appendRun(all, classOf(t.Type), t.Value)
	}
	return all
}
