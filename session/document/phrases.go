package document

import (
	"cmp"
	_ "embed"
	"reflect"
	"strings"
	"text/template"
)

// Phrases are templates of what is put into words, in a file of their own. See [NewPhrases].
type Phrases struct{ templates *template.Template }

// NewPhrases parses phrases, which have [Functions].
func NewPhrases(text string) Phrases {
	return Phrases{template.Must(template.New("").Funcs(Functions()).Parse(text))}
}

// Functions are for numbers, names and texts from outside in templates. Of these, line and oneline keep a fact in its
// line.
func Functions() map[string]any {
	number := func(n any) int64 { return reflect.Indirect(reflect.ValueOf(n)).Int() }
	return map[string]any{
		"line": Line, "oneline": OneLine, "plain": Sanitize, "capital": Capital, "short": Short, "head": Head,
		"model": FullModelName, "name": ModelName, "tokens": Tokens, "cost": Cost, "spent": Spent, "turns": Turns,
		"join":     func(all []string) string { return Join(all...) },
		"tool":     func(name string) string { return cmp.Or(OneLine(name), Unnamed) },
		"words":    func(a Activity) string { return strings.ReplaceAll(string(a), "_", " ") },
		"plus":     func(a, b any) int64 { return number(a) + number(b) },
		"minus":    func(a, b any) int64 { return number(a) - number(b) },
		"known":    func(list []string) bool { return list != nil },
		"plural":   func(n any, one string) string { return Plural(int(number(n)), one, one+"s") },
		"count":    func(n any) string { return Count(number(n)) },
		"brief":    func(n any) string { return Brief(number(n)) },
		"bytes":    func(n any) string { return Bytes(number(n)) },
		"ms":       Duration,
		"duration": OptionalDuration,
	}
}

// Text is a phrase about a value.
func (p Phrases) Text(name string, of any) string {
	var b strings.Builder
	if err := p.templates.ExecuteTemplate(&b, name, of); err != nil {
		b.WriteString(err.Error()) // of a phrase that does not fit the type of its value
	}
	return b.String()
}

// Facts are the lines of a phrase that are not empty.
func (p Phrases) Facts(name string, of any) []string {
	lines := strings.Split(p.Text(name, of), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return Present(lines...)
}

// Fields are the lines of a phrase that have a value after a colon.
func (p Phrases) Fields(name string, of any) (all []Field) {
	for _, line := range p.Facts(name, of) {
		if name, value, ok := strings.Cut(line, ": "); ok {
			all = append(all, Field{name, value})
		}
	}
	return all
}

//go:embed words.tmpl
var wordsFile string

var phrases = NewPhrases(wordsFile)

// timed is a value whose phrase has times.
type timed struct {
	Words
	Of any
}
