package replay

import (
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// A server may repeat the key that it was sent: in an error, in an answer, in an id. Its shape may be none that anybody
// knows, but its value is known here, and goes from all that the server reports, in whatever notation it is there,
// before anything else reads it.

// keyMarker replaces the key.
const keyMarker = "[redacted:api-key]"

// secrets are the values that a request is sent with, in the notations in which they may come back.
type secrets struct {
	forms []string       // longest first
	short *regexp.Regexp // values so short that they count as words only
}

func (c *Client) secrets() *secrets {
	values := []string{c.Key}
	for name, all := range c.Header {
		for _, v := range all {
			if scheme, credentials, ok := strings.Cut(v, " "); ok &&
				(strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "basic") ||
					strings.EqualFold(name, "authorization")) {
				values = append(values, credentials)
			}
			if proves(name, v) {
				values = append(values, v)
			}
		}
	}
	if u, err := url.Parse(c.Endpoint); err == nil {
		if password, ok := u.User.Password(); ok {
			values = append(values, password, u.User.Username()+":"+password)
		} else if u.User != nil {
			values = append(values, u.User.Username())
		}
		for name, all := range u.Query() {
			for _, v := range all {
				if proves(name, v) {
					values = append(values, v)
				}
			}
		}
	}
	return newSecrets(values)
}

// proves reports whether a header or a parameter may prove who asks: by its name, or as
// it is long and of one word, like no other.
func proves(name, value string) bool {
	const long = 20
	return secretName().MatchString(name) || len(value) >= long && !strings.ContainsAny(value, " \t,;/")
}

var secretName = lazy.Regexp(`(?i)key|token|secret|auth|cookie|passw|sig|session|credential|jwt|bearer`)

func newSecrets(values []string) *secrets {
	const word, least = 8, 3
	s := new(secrets)
	var words []string
	for _, v := range values {
		switch v = strings.TrimSpace(v); {
		case len(v) < least, v == "true", v == "false", v == "none", v == "null":
		case len(v) < word:
			words = append(words, regexp.QuoteMeta(v))
		default:
			s.forms = append(s.forms, notations(v)...)
		}
	}
	slices.SortFunc(s.forms, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	s.forms = slices.Compact(s.forms)
	if len(words) > 0 {
		s.short = regexp.MustCompile(`(^|[^0-9A-Za-z])(` + strings.Join(words, "|") + `)($|[^0-9A-Za-z])`)
	}
	return s
}

// notations are a value as it may be written.
func notations(v string) []string {
	plain, escaped := string(jsonscan.AppendString(nil, v)), string(modelapi.Quote(v)) // the latter with <, > and & as escapes
	return []string{v, url.QueryEscape(v), url.PathEscape(v), plain[1 : len(plain)-1], escaped[1 : len(escaped)-1]}
}

// text returns a text without the values: also where strings of JSON have them in escapes that nobody needs, or are in
// strings themselves.
func (s *secrets) text(t string) string {
	for _, form := range s.forms {
		t = strings.ReplaceAll(t, form, keyMarker)
	}
	if s.short != nil {
		for range 2 { // matches share what is between them
			t = s.short.ReplaceAllString(t, "${1}"+keyMarker+"${3}")
		}
	}
	if len(s.forms) == 0 && s.short == nil || !strings.Contains(t, `\`) {
		return t
	}
	return literal().ReplaceAllStringFunc(t, func(quoted string) string {
		var plain string
		if json.Unmarshal([]byte(quoted), &plain) != nil || s.text(plain) == plain {
			return quoted
		}
		return string(jsonscan.AppendString(nil, s.text(plain)))
	})
}

// literal is a string in JSON.
var literal = lazy.Regexp(`"(?:[^"\\]|\\.)*"`)

// reply takes the values out of a reply: a stream may bring one in pieces.
func (s *secrets) reply(r *reply) {
	if r == nil {
		return
	}
	for _, t := range []*string{&r.stop, &r.id, &r.model} {
		*t = s.text(*t)
	}
	r.usageRaw = s.raw(r.usageRaw)
	for i := range r.blocks {
		b := &r.blocks[i]
		for _, t := range []*string{&b.text, &b.id, &b.name} {
			*t = s.text(*t)
		}
		b.input = s.raw(b.input)
		if b.result != nil {
			b.result.text, b.result.output = s.text(b.result.text), s.raw(b.result.output)
		}
		for name, raw := range b.meta {
			b.meta[name] = s.raw(raw)
		}
	}
}

func (s *secrets) raw(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	if out := json.RawMessage(s.text(string(raw))); json.Valid(out) {
		return out
	}
	return json.RawMessage(`"` + keyMarker + `"`)
}

// err is an error whose text has none of the values. What it wraps can be recognized as before.
func (s *secrets) err(err error) error {
	if err == nil || s.text(err.Error()) == err.Error() {
		return err
	}
	return &cleanError{s.text(err.Error()), err}
}

type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string { return e.text }
func (e *cleanError) Unwrap() error { return e.err }
