package render

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/alecthomas/chroma/v2"

	"github.com/agenttrace/agenttrace/session/document"
)

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
	if raw, _ = document.TakeMedia(raw); withheld || len(raw) > maxJSON {
		return Value{}
	}
	d, left := json.NewDecoder(bytes.NewReader(raw)), maxValues
	d.UseNumber()
	v, err := decode(d, &left)
	if err != nil || left < 0 {
		return Value{}
	}
	return v
}

// decode reads a value, with the fields of objects in their order.
func decode(d *json.Decoder, left *int) (v Value, err error) {
	token, err := d.Token()
	if *left--; err != nil || *left < 0 {
		return v, err
	}
	open, nested := token.(json.Delim)
	if !nested {
		v.Text = fmt.Sprint(token)
		switch text, isText := token.(string); {
		case token == nil:
			v.Text = "null"
		case isText:
			v.Text = document.Sanitize(text)
			v.Lines = len(text) > maxInline || strings.Contains(strings.TrimRight(text, "\n"), "\n")
		}
		return v, nil
	}
	for d.More() && *left >= 0 && err == nil {
		name := ""
		if open == '{' {
			if token, err = d.Token(); err != nil {
				return v, err
			}
			name, _ = token.(string)
		}
		var one Value
		one, err = decode(d, left)
		one.Name = document.Line(name)
		switch name {
		case "path", "file_path", "filePath", "filename", "file":
			v.Lang = path.Base(one.Text)
		case "command", "cmd", "script":
			one.Lang = "bash"
		}
		v.Values = append(v.Values, one)
	}
	for i := range v.Values {
		if v.Values[i].Lang == "" {
			v.Values[i].Lang = v.Lang
		}
	}
	if v.Gist = document.Plural(len(v.Values), "field", "fields"); open == '[' {
		v.Gist = document.Plural(len(v.Values), "element", "elements")
	}
	if err == nil {
		_, err = d.Token()
	}
	return v, err
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

//go:embed lexers/*.xml
var lexerFiles embed.FS

// lexers has a lexer for each language. They are read when the first text is colored: most commands color none.
var lexers = sync.OnceValue(func() *chroma.LexerRegistry {
	all := chroma.NewLexerRegistry()
	files, _ := fs.Glob(lexerFiles, "lexers/*.xml")
	for _, file := range files {
		all.Register(chroma.MustNewXMLLexer(lexerFiles, file))
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
