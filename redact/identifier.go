package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"sync"
)

// Identifier returns s without secrets, for a text by which things are distinguished: an id, a name, a key. It is s
// itself when it has none. Otherwise a tag follows the redacted text, "ses-[redacted:github-token]~3f9c0a1b2c4d5e6f",
// so that the same identifier always becomes the same, and two that differ stay different, wherever they are redacted.
// What Identifier returned it leaves as it is.
//
// The tag is a digest, and must not confirm a guess. Of a token that is recognized by its shape nobody can guess the
// rest, so its digest is the same everywhere. Anything else may be a short password: its digest is keyed by the id of
// the machine, which is not part of what is stored or sent, and where there is none by a random key of the process.
func (r *Redactor) Identifier(s string) string {
	if r == nil || s == "" {
		return s
	}
	// The whole is searched, as a secret may have a shape that the tag continues.
	out := r.words(s)
	if out == s || r.tagged(s) {
		return s
	}
	return out + identifierMark + tag(s, out)
}

// words redacts an identifier as a whole, and what follows each "-" and "_" in it: one
// that is put together may have a token behind a prefix, where no text has one.
func (r *Redactor) words(s string) string {
	const short, long = 20, 256 // no token is shorter; what is longer is no identifier, and would take its square
	out := r.byRules(s, strings.IndexByte(s, ' ') > 0)
	for i := 0; out == s && i < len(s)-short && len(s) <= long; i++ {
		if s[i] != '-' && s[i] != '_' {
			continue
		}
		if tail := r.byRules(s[i+1:], false); tail != s[i+1:] {
			out = s[:i+1] + tail
		}
	}
	return out
}

const (
	identifierMark = "~"
	tagLength      = 16
)

// tagged reports whether s is what Identifier returned before.
func (r *Redactor) tagged(s string) bool {
	base := untagged(s)
	return len(base) < len(s) && (strings.Contains(base, "[redacted:") || strings.Contains(base, Marker)) &&
		r.words(base) == base
}

// untagged returns what is before the tag of a redacted identifier; s itself where it has none.
func untagged(s string) string {
	at := len(s) - tagLength - len(identifierMark)
	if at <= 0 || s[at:at+len(identifierMark)] != identifierMark || strings.Trim(s[at+1:], "0123456789abcdef") != "" {
		return s
	}
	return s[:at]
}

// tag is the digest of an identifier that was redacted to out.
func tag(s, out string) string {
	// Two collectors on two machines must give the same id to a session whose id has a token in it.
	mac := hmac.New(sha256.New, nil)
	if !unguessable(s, out) {
		mac = hmac.New(sha256.New, identifierKey())
	}
	mac.Write([]byte("agenttrace identifier\x00"))
	mac.Write([]byte(s))
	return hex.EncodeToString(mac.Sum(nil))[:tagLength]
}

// unguessable reports whether everything that was taken out of s to make out was a token
// or key of a known shape, and long.
func unguessable(s, out string) bool {
	const long = 20
	if strings.Contains(out, Marker) {
		return false
	}
	removed, markers := len(s)-len(out), 0
	for {
		_, rest, found := strings.Cut(out, "[redacted:")
		if !found {
			break
		}
		name, rest, _ := strings.Cut(rest, "]")
		if !strings.HasSuffix(name, "-token") && !strings.HasSuffix(name, "-key") && name != "jwt" {
			return false
		}
		markers, removed, out = markers+1, removed+len("[redacted:")+len(name)+len("]"), rest
	}
	return markers > 0 && removed >= long*markers
}

// identifierKey is secret to everybody who does not have this machine.
var identifierKey = sync.OnceValue(func() []byte {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		// The id is confidential: what is derived from it must not give it away.
		if id, err := os.ReadFile(path); err == nil && len(strings.TrimSpace(string(id))) >= 32 {
			mac := hmac.New(sha256.New, []byte(strings.TrimSpace(string(id))))
			mac.Write([]byte("agenttrace identifier key"))
			return mac.Sum(nil)
		}
	}
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return key
})
