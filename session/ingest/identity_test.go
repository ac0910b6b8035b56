package ingest_test

import (
	"slices"
	"testing"

	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestSessionKeysOfOnesOwn: a key that is set up names the session before any other; one that is not set up names none.
// Which session a trace is in otherwise is in testdata/stories/identity.txtar.
func TestSessionKeysOfOnesOwn(t *testing.T) {
	o := ingest.Options{SessionKeys: []string{"app.chat", "session.id"}}
	all := parsed(t, `
span "invoke_agent coder" id=1 for=90ms
  gen_ai.operation.name = "invoke_agent"
  session.id = "other"
span "chat m" id=2 parent=1 at=10ms for=30ms
  gen_ai.operation.name = "chat"
  app.chat = "s1"
  threadId = "t1"
`)
	s := openStore(t)
	deliverTo(t, s, o, join(all))
	testOrderWith(t, s, o, all, 4)
	if got := storetest.Sessions(t, s); len(got) != 1 || got[0].ID != "s1" {
		t.Errorf("sessions %+v, want s1", got)
	}
}

// TestIdentityOfRecords: an agent's log records report the same session as its spans, whichever come first.
func TestIdentityOfRecords(t *testing.T) {
	all := readCapture(t, "testdata/captures/claude-code-2.1.329/print-bash")
	var records, spans []request
	for _, r := range all {
		if r.isLogs {
			records = append(records, r)
		} else {
			spans = append(spans, r)
		}
	}
	want := ""
	for _, order := range [][]request{slices.Concat(records, spans), slices.Concat(spans, records),
		slices.Concat(records[1:], spans, records[:1])} {
		s := openStore(t)
		for i := range order {
			deliver(t, s, order[i:i+1])
			if got := storetest.Sessions(t, s); len(got) != 1 {
				t.Errorf("%d sessions after %d requests", len(got), i+1)
			}
		}
		if got := dump(t, s.Path()); want == "" {
			want = got
		} else if got != want {
			t.Errorf("tables differ (-want +got):\n%s", differ(want, got))
		}
	}
}
