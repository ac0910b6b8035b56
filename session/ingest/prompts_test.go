package ingest_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestPromptThatIsJSON: what the user typed is a message and begins a turn, whatever it looks like. In every capture, or
// every third, and in every crew each of the user's texts is replaced by JSON, wherever and however often it is encoded.
func TestPromptThatIsJSON(t *testing.T) {
	runs := make(map[string]func() []request)
	for i, dir := range captures(t) {
		if i%testscale.Rounds(3, 1) != 0 {
			continue
		}
		runs[filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir)] = func() []request { return readCapture(t, dir) }
	}
	for program, all := range crews(t) {
		runs[program] = func() (copied []request) {
			for _, r := range all {
				td := ptrace.NewTraces()
				r.traces.CopyTo(td)
				copied = append(copied, request{traces: td})
			}
			return copied
		}
	}
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t)
			deliver(t, s, run())
			want := talk(recount(t, s))
			for i, line := range want {
				prompt, ok := strings.CutPrefix(line, "user ")
				if !ok || strings.IndexAny(prompt, `{"`) == 0 || slices.Index(want, line) < i {
					continue
				}
				prompt, _, _ = strings.Cut(prompt, " | ")
				texts := []string{`{"a":1}`, `{"role":"user","content":"x"}`, `[{"b":2}]`, `{"prompt":"x"}`, "7"}
				for n := range testscale.Rounds(1, len(texts)) {
					typed, all := texts[(i+n)%len(texts)], run()
					for _, r := range all {
						retype(r, prompt, typed)
					}
					s := openStore(t)
					deliver(t, s, all)
					asked := slices.Clone(want)
					for i := range asked {
						asked[i] = strings.ReplaceAll(asked[i], prompt, typed)
					}
					if d := cmp.Diff(asked, talk(recount(t, s))); d != "" {
						t.Errorf("%q instead of %q (-typed +session):\n%s", typed, prompt, d)
					}
				}
			}
		})
	}
}

// talk are the lines of sessions, users and answers.
func talk(facts string) (lines []string) {
	for line := range strings.SplitSeq(facts, "\n") {
		if strings.HasPrefix(line, "user ") || strings.HasPrefix(line, "assistant ") || strings.HasPrefix(line, "session ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// retype replaces a text in a request.
func retype(r request, old, typed string) {
	if r.isLogs {
		testscale.EachRecord(r.logs, func(rec plog.LogRecord, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
			retypeMap(rec.Attributes(), old, typed)
			retypeValue(rec.Body(), old, typed)
		})
		return
	}
	testscale.EachSpan(r.traces, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		retypeMap(s.Attributes(), old, typed)
		for _, e := range s.Events().All() {
			retypeMap(e.Attributes(), old, typed)
		}
	})
}

func retypeMap(m pcommon.Map, old, typed string) {
	for _, v := range m.All() {
		retypeValue(v, old, typed)
	}
}

func retypeValue(v pcommon.Value, old, typed string) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		v.SetStr(retypeText(v.Str(), old, typed))
	case pcommon.ValueTypeMap:
		retypeMap(v.Map(), old, typed)
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			retypeValue(e, old, typed)
		}
	}
}

// retypeText replaces a text in another, also within JSON.
func retypeText(s, old, typed string) string {
	var v any
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if !strings.Contains(s, old) || s == old || !json.Valid([]byte(s)) || d.Decode(&v) != nil {
		return strings.ReplaceAll(s, old, typed)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(retypeJSON(v, old, typed))
	return strings.TrimSuffix(b.String(), "\n")
}

func retypeJSON(v any, old, typed string) any {
	switch v := v.(type) {
	case string:
		return retypeText(v, old, typed)
	case []any:
		for i := range v {
			v[i] = retypeJSON(v[i], old, typed)
		}
	case map[string]any:
		for key := range v {
			v[key] = retypeJSON(v[key], old, typed)
		}
	}
	return v
}
