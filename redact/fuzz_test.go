package redact

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

func seeds(f *testing.F) {
	for _, s := range cleanTexts {
		f.Add(s)
		f.Add(asJSON(map[string]string{"a": s}))
	}
	for _, x := range ruleExamples {
		whole := x.whole()
		f.Add(whole)
		f.Add(asJSON([]any{map[string]string{"password": whole, "note": asJSON([]string{whole})}}))
	}
	for _, s := range []string{"password=", "password=\\", `{"password":`, `{"token":"`, "Authorization: ", "://:@",
		"sshpass -p", `["-p",`, "curl -u", "password: |\n", "\xff password=\xff1abcdef", `"\ud83d"`} {
		f.Add(s)
	}
}

func FuzzText(f *testing.F) {
	seeds(f)
	r := mustNew(f, Config{})
	f.Fuzz(func(t *testing.T, s string) {
		out := r.Text(s)
		if again := r.Text(out); again != out {
			t.Errorf("not idempotent:\nin    %q\nonce  %q\ntwice %q", s, out, again)
		}
		if utf8.ValidString(s) && !utf8.ValidString(out) {
			t.Errorf("not UTF-8 any more: %q from %q", out, s)
		}
		if json.Valid([]byte(s)) && holdsJSON(s) && !json.Valid([]byte(out)) {
			t.Errorf("not JSON any more: %s from %s", out, s)
		}
		adds(t, s, out)
	})
}

func FuzzJSON(f *testing.F) {
	seeds(f)
	r := mustNew(f, Config{})
	f.Fuzz(func(t *testing.T, s string) {
		out := r.JSON([]byte(s))
		if again := r.JSON(out); string(again) != string(out) {
			t.Errorf("not idempotent:\nin    %q\nonce  %q\ntwice %q", s, out, again)
		}
		if json.Valid([]byte(s)) && !json.Valid(out) {
			t.Errorf("not JSON any more: %s from %s", out, s)
		}
		if (skipJSON(s, jsonscan.Space(s, 0)) >= 0 && jsonscan.Space(s, skipJSON(s, jsonscan.Space(s, 0))) == len(s)) != json.Valid(
			[]byte(s)) && strings.Count(s, "[")+strings.Count(s, "{") < maxLevels {
			t.Errorf("JSON or not, encoding/json disagrees: %q", s)
		}
	})
}

func FuzzTruncate(f *testing.F) {
	seeds(f)
	r := mustNew(f, Config{MaxBytes: 120, MaxDepth: 4})
	f.Fuzz(func(t *testing.T, s string) {
		text, _ := r.Truncate(s)
		raw, _ := r.TruncateJSON([]byte(s))
		if len(text) > 120 || len(raw) > 120 {
			t.Errorf("%d and %d bytes", len(text), len(raw))
		}
		if utf8.ValidString(s) && (!utf8.ValidString(text) || !utf8.Valid(raw)) {
			t.Errorf("not UTF-8 any more: %q, %q", text, raw)
		}
		if json.Valid([]byte(s)) && !json.Valid(raw) {
			t.Errorf("not JSON any more: %s from %s", raw, s)
		}
		if again, _ := r.TruncateJSON(raw); json.Valid(raw) && string(again) != string(raw) {
			t.Errorf("not idempotent: %s, then %s", raw, again)
		}
	})
}

// adds fails when redaction wrote something that is neither of the input nor a marker.
func adds(t *testing.T, in, out string) {
	if holdsJSON(in) || strings.Contains(in, `\`) {
		return // escapes, also those of JSON within the text, may be spelt otherwise
	}
	rest := out
	for _, x := range append([]*rule{{marker: quotedMarker}, {marker: Marker}}, rules...) {
		rest = strings.ReplaceAll(rest, x.marker, "\x00")
	}
	i := 0
	for piece := range strings.SplitSeq(rest, "\x00") {
		k := strings.Index(in[i:], piece)
		if k < 0 {
			if strings.Contains(in, "\x00") || strings.Contains(in, "__") || strings.Contains(in, "[redacted:") {
				return // the input has what represents a marker here
			}
			t.Errorf("%q is in the output and not in the input, in this order:\nin  %q\nout %q", piece, in, out)
			return
		}
		i += k + len(piece)
	}
}
