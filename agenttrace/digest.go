package agenttrace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"sync"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/spans"
)

// maxRemembered bounds what is remembered of prompts and catalogs. Past it the
// memory starts again: a digest is computed again, a body sent again.
const maxRemembered = 64

// digests remembers prompts as they are sent, by prompt, and catalogs, the last one last.
type digests struct {
	mu       sync.Mutex
	byText   map[string]digested
	catalogs []*catalog
}

type digested struct {
	digest, body string
}

// of returns a prompt as it may be sent, and the SHA-256 of that in lower-case
// hex, so that a reader of the body can check it.
func (d *digests) of(f *filter, text string) (digest, body string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if have, ok := d.byText[text]; ok {
		return have.digest, have.body
	}
	body = f.text(redact.Prompt, "", validUTF8(text))
	digest = sha256Hex(body)
	if d.byText == nil || len(d.byText) >= maxRemembered {
		d.byText = make(map[string]digested)
	}
	d.byText[text] = digested{digest, body}
	return digest, body
}

// catalog is a list of tools as it is sent.
type catalog struct {
	tools  []Tool
	json   string
	digest string
}

// sentBodies remembers which prompts and catalogs a run has sent.
type sentBodies struct {
	mu   sync.Mutex
	sent map[sentBody]bool
}

// sentBody names a body. kind keeps prompts and catalogs apart.
type sentBody struct{ kind, digest string }

// body returns the digest of a text and, if the run has not sent it yet, the text.
func (b *sentBodies) body(kind, digest, text string) (string, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := sentBody{kind, digest}
	if b.sent[key] {
		return digest, ""
	}
	if b.sent == nil || len(b.sent) >= maxRemembered {
		b.sent = make(map[sentBody]bool)
	}
	b.sent[key] = true
	return digest, text
}

// prompt is body for a system prompt.
func (b *sentBodies) prompt(d *digests, f *filter, text string) (digest, body string) {
	if text == "" {
		return "", ""
	}
	digest, body = d.of(f, text)
	return b.body("p", digest, body)
}

// tools is body for a tool catalog.
func (b *sentBodies) tools(c *catalog) (digest, body string) {
	if c == nil {
		return "", ""
	}
	return b.body("t", c.digest, c.json)
}

// catalogOf encodes a list of tools, unless it is remembered. No tools make no catalog.
func (d *digests) catalogOf(f *filter, tools []Tool) *catalog {
	if len(tools) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range slices.Backward(d.catalogs) {
		if slices.EqualFunc(c.tools, tools, Tool.equal) {
			return c
		}
	}
	c := &catalog{tools: make([]Tool, len(tools))}
	text := []byte{'['}
	for i, t := range tools {
		t.Parameters = bytes.Clone(t.Parameters)
		c.tools[i] = t
		if i > 0 {
			text = append(text, ',')
		}
		text = spans.AppendJSONMember(append(text, '{'), "name", t.Name)
		text = spans.AppendJSONMember(text, "description", t.Description)
		text = append(text, `,"parameters":`...)
		if len(t.Parameters) == 0 {
			text = append(text, "{}"...)
		} else {
			text = append(text, encodeJSON(json.RawMessage(t.Parameters))...)
		}
		text = append(text, '}')
	}
	c.json = f.json(redact.Other, "", string(append(text, ']')))
	c.digest = sha256Hex(c.json)
	if len(d.catalogs) >= maxRemembered {
		d.catalogs = nil
	}
	d.catalogs = append(d.catalogs, c)
	return c
}

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (t Tool) equal(o Tool) bool {
	return t.Name == o.Name && t.Description == o.Description && bytes.Equal(t.Parameters, o.Parameters)
}
