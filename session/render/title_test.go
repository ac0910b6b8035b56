package render

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

func TestASessionWithoutATitleIsShownUnderTheNameThatListsGiveIt(t *testing.T) {
	doc := talk("s", 1, "Fix the test\nplease", "Done.")
	doc.Session.Title, doc.Session.Opening = session.Untitled, "Fix the test\nplease"
	var terminal, markdown bytes.Buffer
	testscale.Must(t, Document(&terminal, doc, Options{Width: 80}))
	testscale.Must(t, Markdown(&markdown, doc, document.Words{}))
	for _, shown := range []string{terminal.String(), markdown.String()} {
		if head, _, _ := strings.Cut(shown, "\n"); strings.TrimPrefix(head, "# ") != "Fix the test please" {
			t.Errorf("the first line is %q", head)
		}
	}
}
