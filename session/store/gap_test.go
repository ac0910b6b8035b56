package store

import (
	"testing"

	"github.com/agenttrace/agenttrace/session"
)

// TestMarkStoredGap: metadata that another store spells is marked, and is what it was when the mark is taken back.
func TestMarkStoredGap(t *testing.T) {
	for _, metadata := range []string{`{}`, `{ }`, `{"a":{"agenttrace":1}}`, `{"agenttrace":{}}`,
		`{"agenttrace":{ }, "a":1}`,
		` { "x" : [1,2], "agenttrace" : { "cost_usd" : 1 } , "y": 2 }`} {
		marked := markStoredGap(metadata, true)
		if !isIncomplete(marked) || len(session.Object(marked)) == 0 {
			t.Errorf("%s is marked as %s", metadata, marked)
		}
		if got := markStoredGap(marked, false); got != metadata {
			t.Errorf("%s has become %s, and then %s", metadata, marked, got)
		}
	}
}
