package cli

import (
	"context"
	"io"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// ranSession is a session that a command has recorded, for the phrase of that name.
type ranSession struct {
	*document.Document
	State, Title string
}

// runSummary prints a line for each session: what became of it, and how to open it.
func runSummary(ctx context.Context, w io.Writer, r document.Reader, ids []string) error {
	for _, id := range ids {
		doc, err := r.LoadAll(ctx, id)
		if err != nil {
			return err
		}
		st, err := r.LoadStatus(ctx, id)
		if err != nil {
			return err
		}
		state := string(doc.Session.State)
		if st.State.Waiting() || st.State.Trouble() || state == "" {
			state = string(st.State)
		}
		if _, words := document.OutcomeWords(state); words != "" {
			state = words
		}
		title := doc.Session.Title
		if title == session.Untitled {
			title = ""
		}
		facts := phrases.Facts("ran", ranSession{doc, state, title})
		if _, err := io.WriteString(w, "agenttrace: "+document.Join(facts...)+"\n"); err != nil {
			return err
		}
	}
	return nil
}
