package agenttrace

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/spans"
)

// body is a system prompt or a tool catalog as it is sent. The digest is the SHA-256 of the text in lower-case hex, so
// that a reader of the text can check it.
type body struct{ text, digest string }

// maxRemembered bounds what is remembered of bodies. Past it the
// memory starts again: a digest is computed again, a body sent again.
const maxRemembered = 64

// memory has a value for each key that was asked for.
type memory[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

// of returns the value of a key, which is made if it is not remembered.
func (m *memory[K, V]) of(key K, make func() V) (value V, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, known = m.values[key]; known {
		return value, true
	}
	if m.values == nil || len(m.values) >= maxRemembered {
		m.values = map[K]V{}
	}
	value = make()
	m.values[key] = value
	return value, false
}

// body remembers what clean makes of a text, nil of none.
func (t *Tracer) body(
	text string, clean func(kind redact.Content, key, text string) string, kind redact.Content,
) *body {
	if text == "" {
		return nil
	}
	b, _ := t.bodies.of(text, func() *body {
		sent := clean(kind, "", text)
		sum := sha256.Sum256([]byte(sent))
		return &body{sent, hex.EncodeToString(sum[:])}
	})
	return b
}

// prompt returns a system prompt as it is sent.
func (t *Tracer) prompt(text string) *body {
	return t.body(validUTF8(text), t.filter.text, redact.Prompt)
}

// catalog returns a list of tools as it is sent. No tools make no catalog.
func (t *Tracer) catalog(tools []Tool) *body {
	if len(tools) == 0 {
		return nil
	}
	text := []byte{'['}
	for i, t := range tools {
		if i > 0 {
			text = append(text, ',')
		}
		text = spans.AppendJSONMember(append(text, '{'), "name", t.Name)
		text = spans.AppendJSONMember(text, "description", t.Description)
		text = append(text, `,"parameters":`...)
		if len(t.Parameters) == 0 {
			t.Parameters = json.RawMessage("{}")
		}
		text = append(append(text, encodeRaw(t.Parameters)...), '}')
	}
	return t.body(string(append(text, ']')), t.filter.json, redact.Other)
}

// sent returns the digest of a body and, if the run has not sent it yet, its text.
func (r *Run) sent(b *body) (digest, text string) {
	if b == nil {
		return "", ""
	}
	if _, known := r.bodies.of(b.digest, func() bool { return true }); known {
		return b.digest, ""
	}
	return b.digest, b.text
}
