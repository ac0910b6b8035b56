package spans_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/spans"
)

func FuzzAppendJSONString(f *testing.F) {
	for _, s := range []string{"", "a", "\"", "\\", "\n\r\t\x00\x1f\x7f", "<&>", "1234567", "12345678", "123456789",
		"1234567\n", "12345678\"90", "é世界é世界", "\xff\xfe ok", strings.Repeat("a\"", 40), strings.Repeat("\x01", 40)} {
		f.Add(s, 0)
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, spare int) {
		prefix := make([]byte, 2, 2+max(0, min(spare, 64)))
		copy(prefix, "p:")
		out := spans.AppendJSONString(prefix, s)
		if string(out[:2]) != "p:" {
			t.Fatalf("prefix changed: %q", out)
		}
		var back string
		if err := json.Unmarshal(out[2:], &back); err != nil {
			t.Fatalf("AppendJSONString(%q) = %q: %v", s, out, err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); back != want {
			t.Fatalf("AppendJSONString(%q) reads back as %q, want %q", s, back, want)
		}
	})
}
