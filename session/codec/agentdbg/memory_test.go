package agentdbg_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
)

// TestRetains bounds what is held in memory beside the session when it is yielded, be
// it of events or of what agentdbg export writes: a run may have hundreds of megabytes.
func TestRetains(t *testing.T) {
	const run = "f0ca8552-c91a-473d-a112-286a75226e66"
	event := func(i int, typ, name, payload string) string {
		return fmt.Sprintf(`{"spec_version":"0.1","event_id":"bef57a0d-bd0e-45b8-bbc1-%012x","run_id":"%s",`+
			`"parent_id":null,"event_type":"%s","ts":"2026-11-20T10:00:00.000Z","duration_ms":null,"name":"%s",`+
			`"payload":%s,"meta":{}}`,
			i, run, typ, name, payload)
	}
	var events []string
	for i := range 300 {
		events = append(events, event(i, "TOOL_CALL", "bash",
			`{"tool_name":"bash","args":{},"result":"`+strings.Repeat("word ", 2000)+`","status":"ok","error":null}`))
	}
	for name, text := range map[string]string{
		"events": strings.Join(events, "\n") + "\n",
		"export": `{"spec_version":"0.1",` + "\n" + `"run":{"run_id":"` + run + `","status":"running"},"events":[` +
			strings.Join(events, ",\n") + "]}",
	} {
		held := func() float64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc)
		}
		before := held()
		for s, err := range agentdbg.Decode(strings.NewReader(text), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if times := (held() - before) / float64(len(text)); times > 1.6 {
				t.Errorf("%s: %.2f times its size is held, want that of the session", name, times)
			}
			if n := len(s.Messages[0].Parts); n != len(events) {
				t.Errorf("%s: %d parts, want %d", name, n, len(events))
			}
		}
		runtime.KeepAlive(text)
	}
}
