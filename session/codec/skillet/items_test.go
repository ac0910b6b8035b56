package skillet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// FuzzItems: whatever the rows of a store hold decodes to a valid session, and
// what is written of it reads as something that is written the same.
func FuzzItems(f *testing.F) {
	const result = `{"type":"function_call_result","callId":"c","name":"t","status":"completed",` +
		`"output":{"type":"text","text":"x"}}`
	for _, text := range []string{
		`{"role":"user","content":"what's on my list?"}`,
		`{"type":"message","role":"user","content":[{"type":"audio","audio":"A","format":"b"},{"type":"input_file",` +
			`"file":{"url":"u"}}]}`,
		`{"type":"reasoning","id":"rs_1","content":[{"type":"input_text","text":"think"}]}`,
		`{"type":"function_call","id":"f","callId":"c","name":"t","arguments":"{\"a\": 1}","status":"completed"}`,
		`{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"1"}]}`,
		`{"type":"compaction","id":1}`,
		`{"type":"hosted_tool_call","name":"n"}`,
	} {
		f.Add(text, result, int64(1))
		f.Add(result, text, int64(-1))
	}
	f.Fuzz(func(t *testing.T, a, b string, at int64) {
		if at < -1<<40 || at > 1<<43 {
			return // no time that a program of today writes
		}
		items := []item{{1, at, a}, {2, at, b}, {3, at + 1, a}, {4, at + 1, b}}
		s := decodeItems(names{"u", "s"}, items, "", func(codec.Problem) {})
		for _, v := range session.Check(s.Transcript) {
			t.Error(v)
		}
		Losses.Of(s)
		written := itemsOf(s.Transcript)
		drafted := decodeItems(names{"u", "s"}, written, "", func(codec.Problem) {})
		for _, v := range session.Check(drafted.Transcript) {
			t.Errorf("written and read: %v", v)
		}
		if diff := cmp.Diff(texts(written), texts(itemsOf(drafted.Transcript))); diff != "" {
			t.Errorf("written again (-want +got):\n%s", diff)
		}
	})
}

func texts(items []item) (all []string) {
	for _, i := range items {
		all = append(all, i.text)
	}
	return all
}
