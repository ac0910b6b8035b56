package agenttrace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/spans"
)

// Redactor takes secrets out of content before it leaves the process. [*redact.Redactor] is one.
//
// Both methods get the kind of content and the key that it is under, "" where there is none. They must be safe for
// concurrent use and must not call back. A Redactor that panics takes the whole value out.
type Redactor interface {
	// Apply returns the text as it may be sent, in valid UTF-8.
	Apply(kind redact.Content, key, text string) (string, redact.Result)
	// ApplyJSON returns the JSON value as it may be sent, and it is JSON then too.
	// It must neither change nor keep raw, which may be returned.
	ApplyJSON(kind redact.Content, key string, raw []byte) ([]byte, redact.Result)
}

var _ Redactor = (*redact.Redactor)(nil)

// withheld replaces what a redactor that failed may have left in.
const withheld = redact.Marker

// filter is what everything passes that goes to a span or an event: secrets go out, then what is too long is cut.
type filter struct {
	redactor Redactor         // nil changes nothing
	cutter   *redact.Redactor // cuts and redacts nothing; nil is no limit
	limit    int
	panics   *atomic.Int64 // of the redactor
}

// defaultMaxPartBytes is far beyond what a person reads, and keeps a batch of spans below what receivers take.
const defaultMaxPartBytes = 1 << 20

func newFilter(o Options) filter {
	f := filter{panics: new(atomic.Int64)}
	switch {
	case o.DisableRedaction:
	case o.Redact != nil:
		f.redactor = o.Redact
	default:
		f.redactor = builtin()
	}
	if limit := cmp.Or(o.MaxPartBytes, defaultMaxPartBytes); limit > 0 {
		f.limit = max(limit, redact.MinLimit)
		// The limit is in range and nothing else is configured that may be wrong.
		f.cutter, _ = redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: f.limit})
	}
	return f
}

// text returns s as it may be sent.
func (f *filter) text(kind redact.Content, key, s string) string {
	s, _ = f.apply(kind, key, s, false)
	return s
}

// json returns JSON text as it may be sent.
func (f *filter) json(kind redact.Content, key, s string) string {
	s, _ = f.apply(kind, key, s, true)
	return s
}

// apply takes the secrets out of a text or a JSON value.
func (f *filter) apply(kind redact.Content, key, s string, isJSON bool) (out string, res redact.Result) {
	if f.redactor == nil || s == "" {
		return s, res
	}
	defer func() {
		if p := recover(); p != nil {
			f.failed(p)
			if out, res = withheld, (redact.Result{Redacted: true}); isJSON {
				out = emptied(s)
			}
		}
	}()
	if !isJSON {
		return f.redactor.Apply(kind, key, s)
	}
	b, res := f.redactor.ApplyJSON(kind, key, []byte(s))
	if out = string(b); out != s && !jsonscan.Valid(out) {
		out = quote(out)
	}
	return out, res
}

// failed reports that the redactor panicked: the first time, the second, the fourth and so on.
func (f *filter) failed(p any) {
	if n := f.panics.Add(1); bits.OnesCount64(uint64(n)) == 1 {
		otel.Handle(fmt.Errorf("redact: panic: %s", spans.Printed(p)))
	}
}

// emptied returns what replaces a JSON value that must not be sent: an object for an object, an array for an array.
func emptied(s string) string {
	switch s = strings.TrimLeft(s, " \t\r\n"); {
	case strings.HasPrefix(s, "{"):
		return `{"` + withheld + `":true}`
	case strings.HasPrefix(s, "["):
		return "[]"
	}
	return `"` + withheld + `"`
}

// raw is json for an object or an array that may be absent, and stays one.
func (f *filter) raw(kind redact.Content, key string, v json.RawMessage) json.RawMessage {
	if len(v) == 0 || f.redactor == nil {
		return v
	}
	out := f.json(kind, key, string(v))
	if out[:1] != string(v[:1]) {
		out = emptied(string(v))
	}
	return json.RawMessage(out)
}

// content is text for the text of a part, which has a limit.
func (f *filter) content(kind redact.Content, s string) string {
	s, _ = f.bounded(kind, s, false)
	return s
}

// value is content for a value: JSON, or text that becomes a JSON string. cut describes the whole of what
// was cut here or by the redactor, nil when nothing was.
func (f *filter) value(kind redact.Content, s string, isText bool) (out string, cut *Truncated) {
	if s, cut = f.bounded(kind, s, !isText); isText {
		s = quote(s)
	}
	return s, cut
}

// bounded takes out secrets, and cuts what is then too long.
func (f *filter) bounded(kind redact.Content, s string, isJSON bool) (out string, cut *Truncated) {
	if kind == redact.ToolOutput {
		s = omitFiles(s)
	}
	s, res := f.apply(kind, "", s, isJSON)
	if f.cutter != nil && len(s) > f.limit {
		whole := res
		if isJSON {
			var b []byte
			b, res = f.cutter.TruncateJSON([]byte(s))
			s = string(b)
		} else {
			s, res = f.cutter.Truncate(s)
		}
		if whole.Truncated { // an earlier cut was of more
			res = whole
		}
	}
	if res.Truncated {
		cut = &Truncated{Size: int64(res.Size), SHA256: res.SHA256}
	}
	return s, cut
}

// settled returns the head of a text that grows which what comes next cannot change: what follows it may be the
// beginning of a secret, or a secret whose name comes after it, the last bytes that of a rune.
func (f *filter) settled(s string) string {
	if f.redactor == nil {
		for i := 1; i <= utf8.UTFMax && i <= len(s); i++ {
			if b := s[len(s)-i]; utf8.RuneStart(b) {
				if !utf8.FullRuneInString(s[len(s)-i:]) {
					return s[:len(s)-i]
				}
				break
			}
		}
		return s
	}
	return s[:redact.Settled(s)]
}
