package redact

import (
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// skipJSON returns the end of the value at i, below 0 when there is none.
func skipJSON(s string, i int) int { return jsonscan.Value(s, i, maxLevels) }

// embedded redacts the arrays and objects of JSON within a text, as a line of a log or of
// JSON Lines has them.
func (r *Redactor) embedded(s string, nested int) string {
	var edits walker
	spent := 0 // on what turned out to be no JSON
	object, array := nextByte(s, 0, '{'), nextByte(s, 0, '[')
	for i := min(object, array); i < len(s) && spent <= len(s)/2+4096; i = min(object, array) {
		next := jsonscan.Space(s, i+1)
		end := -1
		if next < len(s) && strings.IndexByte(`"{[`, s[next]) >= 0 {
			if end = skipJSON(s, i); end < 0 {
				spent += ^end - i
			}
		}
		after := max(end, i+1)
		if object < after {
			object = nextByte(s, after, '{')
		}
		if array < after {
			array = nextByte(s, after, '[')
		}
		if end < 0 {
			continue
		}
		if part := s[i:end]; r.suspect(part) {
			if out, ok := r.document(part, nested); ok && out != part {
				edits.replace(i, end, out)
			}
		}
	}
	if len(edits.edits) == 0 {
		return s
	}
	edits.s = s
	return string(edits.written())
}

// nextByte returns where c is next in s at or after i, or the length of s.
func nextByte(s string, i int, c byte) int {
	if k := strings.IndexByte(s[i:], c); k >= 0 {
		return i + k
	}
	return len(s)
}

// truncatedJSON reports whether the value at i is JSON up to the end of s, where it
// breaks off. What is long is taken for it unread.
func truncatedJSON(s string, i int) bool {
	s = s[:min(len(s), i+16<<10)]
	for depth := 0; i < len(s); {
		switch c := s[i]; c {
		case '"':
			end := jsonscan.String(s, i)
			if end < 0 {
				return !strings.ContainsAny(s[i:], "\n\r")
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return false
			}
		case ':', ',', ' ', '\t', '\n', '\r', '.', '-', '+':
		default:
			if class[c]&alnum == 0 {
				return false
			}
		}
		i++
	}
	return true
}

// unescape returns the bytes that the body of a JSON string means. Half a surrogate
// pair becomes the three bytes it would have in UTF-8, which escape turns back.
func unescape(s string) string {
	out, _ := jsonscan.AppendUnescaped(make([]byte, 0, len(s)), s)
	return string(out)
}

// escape returns s as the body of a JSON string.
func escape(s string) string {
	const hexDigits = "0123456789abcdef"
	out := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c < ' ':
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c == 0xed && i+2 < len(s) && s[i+1] >= 0xa0 && s[i+1] < 0xc0 && s[i+2] >= 0x80 && s[i+2] < 0xc0:
			v := rune(c&15)<<12 | rune(s[i+1]&0x3f)<<6 | rune(s[i+2]&0x3f)
			out = append(out, '\\', 'u', hexDigits[v>>12], hexDigits[v>>8&15], hexDigits[v>>4&15], hexDigits[v&15])
			i += 2
		default:
			out = append(out, c)
		}
	}
	return string(out)
}
