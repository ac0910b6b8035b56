package store

import (
	"strings"
	"testing"
)

// TestARegularExpressionThatIsWrongIsReportedWithItsPlace: the place is that of the character at fault, as it was
// typed.
func TestARegularExpressionThatIsWrongIsReportedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		`foo(bar`:     "character 4: missing closing )",
		`(a)(é(b)`:    "character 4: missing closing )",
		`((a)`:        "character 1: missing closing )",
		`é[a-`:        "character 2: missing closing ]",
		`ab)`:         "character 3: unexpected )",
		`a*b|*`:       "character 5: missing argument to repetition operator",
		`naïve\q`:     "character 7: invalid escape sequence",
		`x[z-a]y`:     "character 5: invalid character class range",
		`a{2000}`:     "character 7: invalid repeat count",
		`(?<n`:        "character 4: invalid",
		`(?P<n>a)(?Q`: "character 10: invalid or unsupported Perl syntax",
		"a\xff":       "character 2: invalid UTF-8",
	} {
		_, err := SearchQuery{Text: text, Regexp: true}.Compile()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
