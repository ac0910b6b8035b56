package document

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// ancestry is a store of sessions with decisions and without anything else.
type ancestry struct {
	store.Reader
	sessions  map[string]session.Session
	decisions map[string][]store.Decision
}

func (a ancestry) Session(_ context.Context, id string) (session.Session, error) {
	s, ok := a.sessions[id]
	if !ok {
		return s, fmt.Errorf("session %q: %w", id, store.ErrNotFound)
	}
	return s, nil
}

func (a ancestry) Decisions(_ context.Context, id string) ([]store.Decision, error) {
	return a.decisions[id], nil
}

// TestInherited: what was decided about a call that a fork copied is shown where the fork is shown, from however far
// back; about calls of its own its parents report nothing, though an id be used twice.
func TestInherited(t *testing.T) {
	parent, root := "parent", "root"
	r := ancestry{
		sessions: map[string]session.Session{
			// a circle, which no source should write
			"parent": {ID: "parent", ParentID: &root}, "root": {ID: "root", ParentID: &parent},
		},
		decisions: map[string][]store.Decision{
			"parent": {{ID: "p1", ToolCallID: "own"}, {ID: "p2"}},
			"root":   {{ID: "r1", ToolCallID: "copied", Action: "allow"}, {ID: "r2", ToolCallID: "left out"}},
		},
	}
	part := func(call string) []session.Part {
		return []session.Part{{Type: "tool-bash", ToolCallID: &call,
			DataJSON: `{"type":"tool-bash","toolCallId":"` + call + `","state":"output-available"}`}}
	}
	transcript := &session.Transcript{
		Session: session.Session{ID: "fork", ParentID: &parent, CreatedAt: 100},
		Messages: []session.MessageAndParts{
			{Message: session.Message{ID: "m1", Role: "assistant", CreatedAt: 50}, Parts: part("copied")},
			{Message: session.Message{ID: "m2", Role: "assistant", CreatedAt: 100}, Parts: part("own")},
		},
	}
	got, err := inherited(t.Context(), r, transcript)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]store.Decision{r.decisions["root"][0]}, got); diff != "" {
		t.Errorf("inherited (-want +got):\n%s", diff)
	}
	doc := Build(Input{Transcript: transcript, Inherited: got})
	var reported []string
	for i := range doc.Turns {
		for _, c := range doc.Turns[i].ToolCalls() {
			for _, d := range c.Decisions {
				reported = append(reported, c.CallID+" "+d.ID)
			}
		}
	}
	if diff := cmp.Diff([]string{"copied r1"}, reported); diff != "" || doc.Decisions != nil {
		t.Errorf("shown at the calls (-want +got):\n%s; decisions of the fork %v", diff, doc.Decisions)
	}

	transcript.Session.ParentID = new("gone")
	if got, err := inherited(t.Context(), r, transcript); err != nil || got != nil {
		t.Errorf("of a parent that is gone: %v, %v", got, err)
	}
}
