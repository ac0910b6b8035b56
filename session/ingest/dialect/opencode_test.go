package dialect

import (
	"strings"
	"testing"
)

func FuzzInspected(f *testing.F) {
	for _, s := range []string{`{"a":undefined}`, `{"a":"undefined \" undefined","b":[undefined]}`, `"\`, `undefine`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := inspected(s)
		if !strings.Contains(s, "undefined") && string(got) != Text(s) {
			t.Errorf("%q became %q", s, got)
		}
		if o, ok := objectOf(got); ok {
			openCodeRecord("created", o, new(Emitter))
			openCodeRecord("evaluated", o, new(Emitter))
			openCodeRecord("stream", o, new(Emitter))
		}
	})
}
