package spans_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/spans"
)

// TestCutPartKeepsWhatStandsBeforeTheCut truncates a part at every byte.
func TestCutPartKeepsWhatStandsBeforeTheCut(t *testing.T) {
	whole := spans.Part{
		ID: "prt_1", Index: 3, Type: "tool-bash", ToolCallID: "call_1", ToolState: "input-available", CreatedAt: 10,
		UpdatedAt: 20,
		Data:      json.RawMessage(`{"type":"tool-bash","input":{"cmd":"echo \"é\""}}`),
	}
	text := string(whole.AppendJSON(nil))
	if got, err := spans.ParsePart(text); err != nil {
		t.Fatal(err)
	} else if diff := cmp.Diff(whole, got); diff != "" {
		t.Fatalf("ParsePart of AppendJSON (-want +got):\n%s", diff)
	}
	for cut := range len(text) {
		p, err := spans.ParsePart(text[:cut])
		if err == nil {
			// The cut is between two closing braces, which only the data reveals.
			if json.Valid(p.Data) {
				t.Fatalf("ParsePart(%q) reports nothing", text[:cut])
			}
			continue
		}
		if p.Damaged != text[:cut] {
			t.Fatalf("ParsePart(%q).Damaged = %q", text[:cut], p.Damaged)
		}
		if cut > strings.Index(text, `,"index"`) && p.ID != "prt_1" {
			t.Fatalf("ParsePart(%q) lost the id", text[:cut])
		}
		if p.Data != nil {
			t.Fatalf("ParsePart(%q) has data", text[:cut])
		}
	}
}
