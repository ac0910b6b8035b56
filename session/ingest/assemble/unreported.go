package assemble

import (
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// texts returns the text parts that were written so far.
func (w *writer) texts() []string {
	var all []string
	for i := range w.Parts {
		if w.Parts[i].Type == fact.PartText {
			if p, err := session.ParseUIPart(w.Parts[i].DataJSON); err == nil && p.Text != nil {
				all = append(all, *p.Text)
			}
		}
	}
	return all
}

// unreported returns what a text adds to what was reported: a root's may be the last
// answer, or all of them, with other blanks between.
func unreported(text string, written []string) string {
	rest := strings.TrimSpace(text)
	if rest == "" || len(written) == 0 {
		return rest
	}
	// It may be one of the texts, or some of them in a row.
	if slices.ContainsFunc(written, func(given string) bool { return strings.Contains(given, rest) }) ||
		strings.Contains(strings.Join(written, "\n"), rest) {
		return ""
	}
	// It may begin with all of them, and go on with an answer of which nothing else reports.
	all := true
	for _, given := range written {
		cut, begins := strings.CutPrefix(rest, strings.TrimSpace(given))
		if !begins {
			all = false
			break
		}
		rest = strings.TrimSpace(cut)
	}
	if all {
		return rest
	}
	// Some frameworks join the answers with other blanks than they came with.
	if strings.Contains(squeeze(text), squeeze(strings.Join(written, ""))) {
		return ""
	}
	return strings.TrimSpace(text)
}
