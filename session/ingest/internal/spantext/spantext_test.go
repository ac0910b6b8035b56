package spantext

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func TestParse(t *testing.T) {
	requests, err := Parse(`
# a run and its call
span session.run trace=7 id=5 at=1s for=20ms
	session.id = "s1"
span "chat m" parent=5 status=error "it broke"
	n = 1
	f = 1.5
	e = null
	list = ["a", "b"]
	map = {"at": @2, "text": "@2"}
	raw = bytes "\x00a"
	json := { "at": @3 }
	parts += {"id": "p1"}
	parts += {"id": "p2"}
scope "other"
span x at=unset
`, "first")
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != 3 {
		t.Fatalf("%d spans", len(requests))
	}
	span := func(i int) ptrace.Span {
		return requests[i].ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	}
	run, chat := span(0), span(1)
	if got := run.EndTimestamp() - run.StartTimestamp(); time.Duration(got) != 20*time.Millisecond ||
		int64(run.StartTimestamp()) != (Epoch+1000)*1e6 {
		t.Errorf("times %d, %d", run.StartTimestamp(), run.EndTimestamp())
	}
	if run.TraceID().String() != "00000000000000000000000000000007" || run.SpanID() != chat.ParentSpanID() ||
		chat.SpanID().String() != "0000000000000006" {
		t.Errorf("ids %v %v %v", run.TraceID(), run.SpanID(), chat.SpanID())
	}
	if chat.Name() != "chat m" || chat.Status().Code() != ptrace.StatusCodeError ||
		chat.Status().Message() != "it broke" {
		t.Errorf("chat: %q %v", chat.Name(), chat.Status())
	}
	want := map[string]any{
		"n": int64(1), "f": 1.5, "e": nil, "list": []any{"a", "b"},
		"map": map[string]any{"at": int64(Epoch + 2), "text": "@2"},
		"raw": []byte("\x00a"), "json": `{"at":1795219200003}`, "parts": []any{`{"id":"p1"}`, `{"id":"p2"}`},
	}
	if d := cmp.Diff(want, chat.Attributes().AsRaw()); d != "" {
		t.Error(d)
	}
	if span(2).StartTimestamp() != 0 || requests[2].ResourceSpans().At(0).ScopeSpans().At(0).Scope().Name() != "other" {
		t.Error("unset time or scope")
	}
	if n := Join(requests...).SpanCount(); n != 3 {
		t.Errorf("joined: %d spans", n)
	}
	for _, bad := range []string{" a = 1", "spin x", "span x at=soon", "span x y", "span x\n  a", "span x\n  a = {",
		"span x\n  a != 1", "span x\n  a := {"} {
		if _, err := Parse(bad, ""); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
