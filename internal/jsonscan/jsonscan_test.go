package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

var texts = []string{
	"", " ", "null", "nul", "true ", " false", "0", "-0", "01", "-", "1.", "1.5", "1e", "1e+9", "1E-9", "1.5e", ".5", "+1",
	`""`, `"a`, `"\u00e4"`, `"\u00e"`, `"\x"`, `"\/\b\f\n\r\t\"\\"`, "\"a\nb\"", "\"12345678\\u1234\"", "\"1234567\x01\"",
	`{}`, `[]`, `[1,2]`, `[1 2]`, `[1,]`, `[,1]`, `{"a":1}`, `{"a":1,}`, `{"a" : [ {"b":null} ] , "c":"d"}`, `{"a"}`,
	`{a:1}`, `{"a":1}}`, `[[[[]]]]`, `[[[[]]]`, `{"\u0061":1}`, "{\"\xff\":1}", `"\ud83d\ude00"`, `"\ud83d"`,
	`"\ude00\ud83d"`, `"\ud83d\u0041"`, `{"ä":"é"}`, strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
}

// FuzzScan: what a scan accepts, and what it reads, is what encoding/json does.
func FuzzScan(f *testing.F) {
	for _, s := range texts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := Valid(s), json.Valid([]byte(s)); got != want {
			t.Fatalf("Valid(%q) is %v", s, got)
		}
		var members map[string]json.RawMessage
		want := json.Unmarshal([]byte(s), &members) == nil && members != nil
		got := map[string]json.RawMessage{}
		ok := Object([]byte(s), 500, func(key string, value json.RawMessage) { got[key] = value })
		odd := strings.Contains(s, `\u`) || !utf8.ValidString(s) // a name may be no characters
		if ok && !want || !ok && want && !odd && !NestsDeeper([]byte(s), 500) {
			t.Fatalf("Object(%q) is %v", s, ok)
		}
		for key, value := range got {
			if ok && string(members[key]) != string(value) {
				t.Fatalf("%q: %q is %q, want %q", s, key, value, members[key])
			}
		}
		var elements []json.RawMessage
		want = json.Unmarshal([]byte(s), &elements) == nil && elements != nil
		n := 0
		if ok := Array([]byte(s), 500, func(json.RawMessage) { n++ }); ok && (!want || n != len(elements)) {
			t.Fatalf("Array(%q) is %v with %d elements", s, ok, n)
		}
		var text string
		if got, ok := Unquote([]byte(s)); ok && (json.Unmarshal([]byte(s), &text) != nil || got != text) {
			t.Fatalf("Unquote(%q) is %q, want %q", s, got, text)
		} else if !ok && s != "" && s[0] == '"' && json.Unmarshal([]byte(s), &text) == nil && utf8.ValidString(s) &&
			!strings.Contains(text, "\uFFFD") && s[len(s)-1] == '"' {
			t.Fatalf("Unquote(%q) refuses a string", s)
		}
	})
}

func TestAppendString(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", `""`},
		{"plain", `"plain"`},
		{`"\`, `"\"\\"`},
		{"\b\f\n\r\t\x00\x1f\x7f", `"\b\f\n\r\t\u0000\u001f` + "\x7f" + `"`},
		{"<a> & </a>", `"<a> & </a>"`},
		{"é 世界 😀 \u2028\u2029", "\"é 世界 😀 \u2028\u2029\""},
		{"\xff", "\"\uFFFD\""},
		{"a\xe4\xb8b\xf0\x9f\x98", "\"a\uFFFD\uFFFDb\uFFFD\uFFFD\uFFFD\""},
		{"\uFFFD stays", "\"\uFFFD stays\""},
		{"\xed\xa0\x80 is a surrogate", "\"\uFFFD\uFFFD\uFFFD is a surrogate\""},
	} {
		if got := string(AppendString(nil, tt.in)); got != tt.want {
			t.Errorf("AppendString(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

// TestAppendStringAtEveryOffset puts every byte at every offset of a word of eight bytes,
// where the search for escapes could miss it or find it twice.
func TestAppendStringAtEveryOffset(t *testing.T) {
	for c := range 256 {
		for at := range 24 {
			in := []byte(strings.Repeat("!\x7f", 12))
			in[at] = byte(c)
			in[23-at] = byte(c) ^ 1
			checkString(t, string(in))
		}
	}
}

func checkString(t *testing.T, in string) {
	t.Helper()
	out := AppendString(nil, in)
	var got string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("AppendString(%q) = %s: %v", in, out, err)
	}
	if want := string([]rune(in)); got != want {
		t.Fatalf("AppendString(%q) reads back as %q, want %q", in, got, want)
	}
	if !utf8.Valid(out) {
		t.Fatalf("AppendString(%q) is not UTF-8: %q", in, out)
	}
	if again := AppendString(nil, got); string(again) != string(out) {
		t.Fatalf("AppendString(%q) = %s, and again %s", in, out, again)
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "12345678", `{"a":"b\n"}`, "\xff\xfe", "\u2028", strings.Repeat("é\"", 9)} {
		f.Add(s)
	}
	f.Fuzz(checkString)
}
