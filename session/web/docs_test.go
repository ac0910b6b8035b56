package web

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// The examples in docs/api.md work, one after the other.
func TestDocumentedExamplesWork(t *testing.T) {
	page := testscale.ReadFile(t, "../../docs/api.md")
	s := newSite(t, false)
	_, exported := s.ask(http.MethodGet, Prefix+"sessions/lf-1/export", "")
	variables := strings.NewReplacer("$API/", Prefix, "$JSON", "Content-Type: application/json")
	examples := 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "curl ") {
			continue
		}
		examples++
		method, address, body, stream := http.MethodGet, "", "", false
		var header []string
		for words := wordsOf(line)[1:]; len(words) > 0; words = words[1:] {
			option := words[0]
			if strings.HasPrefix(option, "-") && option != "-N" {
				words = words[1:]
			}
			value := variables.Replace(words[0])
			switch option {
			case "-N":
				stream = true
			case "-X":
				method = value
			case "-H":
				name, value, _ := strings.Cut(value, ": ")
				header = append(header, name, value)
			case "-d":
				body = value
			case "--data-binary":
				body = string(exported)
			case "-o":
			default:
				address = value
			}
		}
		if stream {
			after := ""
			if len(header) > 0 {
				after = header[1]
			}
			s.listen(strings.TrimPrefix(address, Prefix), after).leave()
			continue
		}
		if answer, content := s.ask(method, address, body, header...); answer.StatusCode >= 300 {
			t.Errorf("%s: status %d\n%s", line, answer.StatusCode, content)
		}
	}
	if examples < 20 {
		t.Errorf("%d examples were found", examples)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	example, _, _ := strings.Cut(rest, "```")
	var want, got Problem
	_, content := s.ask(http.MethodGet, Prefix+"sessions?limit=many", "")
	if err := json.Unmarshal([]byte(example), &want); err != nil || json.Unmarshal(content, &got) != nil ||
		got != want {
		t.Errorf("the example of an error is %+v, and the error is %+v (%v)", want, got, err)
	}
}

// wordsOf splits a line as a shell does: quotes keep spaces.
func wordsOf(line string) (words []string) {
	word, quote := "", rune(0)
	for _, c := range line + " " {
		switch {
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && c == ' ':
			words = append(words, word)
			word = ""
		default:
			word += string(c)
		}
	}
	return words
}
