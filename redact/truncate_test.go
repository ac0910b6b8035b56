package redact

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTruncateText(t *testing.T) {
	r := mustNew(t, Config{MaxBytes: 100})
	short := strings.Repeat("é", 50)
	if got, res := r.Truncate(short); got != short || res.Truncated || res.Size != 100 || res.SHA256 != "" {
		t.Errorf("within the limit: %q %+v", got, res)
	}
	long := strings.Repeat("é", 500)
	got, res := r.Truncate(long)
	if len(got) > 100 || !utf8.ValidString(got) || !strings.HasPrefix(got, "éé") ||
		!strings.HasSuffix(got, "__TRUNCATED__[1000 bytes]") {
		t.Errorf("got %q", got)
	}
	if !res.Truncated || res.Size != 1000 || res.SHA256 != digest(long) || len(res.SHA256) != 64 {
		t.Errorf("result %+v", res)
	}
	if again, res := r.Truncate(got); again != got || res.Truncated {
		t.Errorf("cut again: %q %+v", again, res)
	}
	first, _ := mustNew(t, Config{MaxBytes: 300}).Truncate(long)
	if second, res := r.Truncate(first); !strings.HasSuffix(second, "__TRUNCATED__[1000 bytes]") || res.Size != 1000 ||
		strings.Count(second, "TRUNC") != 1 {
		t.Errorf("cut further, the first size is lost: %q %+v", second, res)
	}
}

func TestTruncateJSON(t *testing.T) {
	doc := asJSON(map[string]any{
		"path": "/src/a.go", "content": strings.Repeat("é\n\"😀", 4000), "lines": func() (a []map[string]any) {
			for i := range 500 {
				a = append(a, map[string]any{"n": i, "text": strings.Repeat("x", i%40)})
			}
			return a
		}(),
	})
	for _, limit := range []int{100, 101, 150, 300, 1000, 5000, 20000, len(doc) - 1, len(doc)} {
		r := mustNew(t, Config{MaxBytes: limit})
		out, res := r.TruncateJSON([]byte(doc))
		if len(out) > limit || !json.Valid(out) || !utf8.Valid(out) {
			t.Errorf("limit %d: %d bytes, valid %t: %.200s", limit, len(out), json.Valid(out), out)
		}
		if want := limit < len(doc); res.Truncated != want || res.Size != len(doc) ||
			want != (res.SHA256 == digest(doc)) ||
			want != strings.Contains(string(out), TruncatedMarker) {
			t.Errorf("limit %d: %+v", limit, res)
		}
		if again, _ := r.TruncateJSON(out); string(again) != string(out) {
			t.Errorf("limit %d: cut again", limit)
		}
	}
	// What is written like half of a pair is none behind a backslash.
	for pad := range 6 {
		doc := `"` + strings.Repeat("x", pad) + strings.Repeat(`\\ud83d`, 60) + `"`
		if out, _ := mustNew(t, Config{MaxBytes: 200}).TruncateJSON([]byte(doc)); !json.Valid(out) || len(out) < 100 {
			t.Errorf("got %s", out)
		}
	}
	// Strings go before elements.
	out, _ := mustNew(t, Config{MaxBytes: 300}).TruncateJSON(
		[]byte(`{"path":"/src/a.go","content":"` + strings.Repeat("x", 5000) + `","mode":"r"}`))
	if s := string(out); !strings.Contains(s, `"path":"/src/a.go"`) || !strings.Contains(s, `"mode":"r"`) ||
		!strings.Contains(s, `__TRUNCATED__[5000 bytes]"`) {
		t.Errorf("got %s", s)
	}
	out, _ = mustNew(t, Config{MaxBytes: 200}).TruncateJSON([]byte(`[` + strings.Repeat("1,", 1000) + `1]`))
	var list []any
	if err := json.Unmarshal(out, &list); err != nil || len(list) < 10 ||
		!strings.HasSuffix(list[len(list)-1].(string), " more]") {
		t.Errorf("array: %v %s", err, out)
	}
	// Rows go until the rest fits, not most of what does.
	out, _ = mustNew(t, Config{MaxBytes: 1 << 16}).TruncateJSON([]byte(`[` + strings.Repeat(`{"row":1},`, 10000) + `1]`))
	if len(out) < 1<<15 || len(out) > 1<<16 {
		t.Errorf("%d bytes of 64 KiB are left", len(out))
	}
	if out, res := mustNew(t, Config{MaxBytes: 100}).TruncateJSON([]byte(strings.Repeat("not JSON ", 50))); len(
		out) > 100 || !res.Truncated || !strings.HasPrefix(string(out), "not JSON") {
		t.Errorf("not JSON: %s", out)
	}
}

// TestNoSecretIsHalvedWhereALongValueIsCut has texts that shrink so much that what stays ends where they were cut.
func TestNoSecretIsHalvedWhereALongValueIsCut(t *testing.T) {
	r, cutter := mustNew(t, Config{}), mustNew(t, Config{MaxBytes: 10_000, DisableKeys: true, DisablePatterns: true})
	bound := func(s string, isJSON bool) (string, Result) {
		return cutter.Bound(s, isJSON, func(head string) (string, Result) {
			if isJSON {
				raw, res := r.ApplyJSON(ToolOutput, "", []byte(head))
				return string(raw), res
			}
			return r.Apply(ToolOutput, "", head)
		})
	}
	line := "key sk-ant-api03-" + strings.Repeat("aB3", 500) + " psql postgres://bob:" + password + "@db.example.com/x\n"
	for pad := 0; pad < len(line); pad += 11 {
		text := strings.Repeat(".", pad) + strings.Repeat(line, 60)
		list := asJSON(map[string]any{"out": text, "n": 1})
		for isJSON, in := range map[bool]string{false: text, true: list} {
			out, res := bound(in, isJSON)
			if again, _ := bound(out, isJSON); again != out || isJSON && !json.Valid([]byte(out)) {
				t.Errorf("again %.300s", again)
			}
			if found := survives(out, password); found != "" || strings.Contains(out, "aB3aB3") {
				t.Fatalf("pad %d, JSON %t: %q is left of %d bytes, the end %q", pad, isJSON, found, len(out), out[len(out)-99:])
			}
			if !res.Truncated || !res.Redacted || res.Size != len(in) || res.SHA256 != "" || len(out) < 2000 {
				t.Errorf("%d bytes, result %+v", len(out), res)
			}
		}
	}
	rows, _ := bound(`[`+strings.Repeat(`{"row":1},`, 50_000)+`1]`, true)
	if left := strings.Count(rows, "{"); !strings.Contains(rows, fmt.Sprintf("[%d more]", 50_001-left)) {
		t.Errorf("%d rows are left: %s", left, rows[len(rows)-50:])
	}
}

func TestTruncateDepth(t *testing.T) {
	r := mustNew(t, Config{MaxDepth: 2})
	for in, want := range map[string]string{
		`{"a":{"b":{"c":1}}}`: `{"a":{"b":"__TRUNCATED__[7 bytes]"}}`,
		`[[[1,2]],[[]],3]`:    `[["__TRUNCATED__[5 bytes]"],[[]],3]`,
		`{"a": {"b": 1}}`:     `{"a":{"b":1}}`,
	} {
		got, res := r.TruncateJSON([]byte(in))
		if string(got) != want && !(string(got) == in && !res.Truncated && !strings.Contains(want, "TRUNC")) {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestOmit(t *testing.T) {
	r := mustNew(t, Config{Omit: Omit{Prompts: true, ToolOutputs: true}, MaxBytes: 100})
	for kind, want := range map[Content]bool{Other: false, Prompt: true, Reasoning: false, ToolInput: false,
		ToolOutput: true, Content(99): false} {
		got, res := r.Apply(kind, "", "hello")
		if (got == "[omitted: 5 bytes]") != want || res.Omitted != want || res.Size != 5 || res.SHA256 != "" {
			t.Errorf("kind %d: %q %+v", kind, got, res)
		}
		if again, _ := r.Apply(kind, "", got); again != got {
			t.Errorf("kind %d, again: %q", kind, again)
		}
		doc, _ := r.ApplyJSON(kind, "", []byte(`{"a":1}`))
		if (string(doc) == `"[omitted: 7 bytes]"`) != want {
			t.Errorf("kind %d: %s", kind, doc)
		}
		if again, _ := r.ApplyJSON(kind, "", doc); string(again) != string(doc) {
			t.Errorf("kind %d, again: %s", kind, again)
		}
	}
	if got, res := r.Apply(Prompt, "", ""); got != "" || res.Omitted {
		t.Errorf("nothing was omitted: %q %+v", got, res)
	}
	// The digest must not confirm a guess.
	_, res := r.Apply(ToolOutput, "", "password="+password)
	if !res.Redacted || res.SHA256 == digest("password="+password) {
		t.Errorf("digest of the secret itself: %+v", res)
	}
	if got, res := r.ApplyJSON(ToolInput, "password", []byte(`{"x":1}`)); string(got) != `"__REDACTED__"` ||
		!res.Redacted {
		t.Errorf("by key: %s %+v", got, res)
	}
	if got, res := r.Apply(ToolInput, "", "password="+password+strings.Repeat(" x", 100)); !res.Redacted ||
		!res.Truncated || len(got) > 100 || survives(got, password) != "" {
		t.Errorf("redacted and cut: %q %+v", got, res)
	}
}
