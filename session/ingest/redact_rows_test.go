package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// plantedSession has a secret in every string of a session that is read from a file.
func plantedSession(partType string) *store.Imported {
	in, p := new(store.Imported), new(planter)
	p.fill(reflect.ValueOf(in).Elem())
	s := func() string { return p.secret() }
	for i := range in.Messages {
		m := &in.Messages[i]
		m.Message.MetadataJSON = fmt.Sprintf(`{"model":{"modelID":%q,%q:1},"agent":"a_%s","compaction":{"x":%q},%q:1,`+
			`"agenttrace":{"source_id":"m_%s",`+
			`"steps":[{"response_id":"r_%s"}],"y":%q,%q:1}}`, s(), s(), s(), s(), s(), s(), s(), s(), s())
		for j := range m.Parts {
			row := &m.Parts[j]
			if partType != "" {
				row.Type = partType
			}
			*row.ToolCallID = "call_" + s()
			row.DataJSON = fmt.Sprintf(`{"type":"tool-%s","toolCallId":"call_%s","toolName":"x_%s","state":%q,`+
				`"approval":{"id":"a_%s","reason":%q,%q:1},`+
				`"data":{"type":%q,"a":[%q],%q:2},"text":%q,"input":{%q:%q},`+
				`"toolMetadata":{"agenttrace":{"response_id":%q,%q:3},%q:{"password":"Wq8zT3nR5mK1"}}}`,
				s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s())
		}
	}
	in.Session.PermissionsJSON = fmt.Sprintf(`[{"permission":"p_%s","pattern":%q,"action":%q,%q:1}]`, s(), s(), s(),
		s())
	*in.Session.ModelJSON = fmt.Sprintf(`{"providerID":%q,"modelID":"m_%s"}`, s(), s())
	in.Session.MetadataJSON = fmt.Sprintf(`{%q:%q,"agenttrace":{"x":%q,%q:[%q]}}`, s(), s(), s(), s(), s())
	return in
}

// Whatever field is added to a session, a secret in it is not imported.
func TestNoFieldIsImportedWithASecret(t *testing.T) {
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	for _, partType := range []string{"", "text", "tool-x", "dynamic-tool", "data-compaction", store.TypeDamaged,
		"data-permission", "file"} {
		in := plantedSession(partType)
		if n := RedactRows(r, in); n == 0 {
			t.Error("nothing was redacted")
		}
		var found []string
		if leaks(reflect.ValueOf(*in), "session", &found); len(found) > 0 {
			t.Errorf("with parts of type %q:\n%s", partType, strings.Join(found, "\n"))
		}
		once := fmt.Sprintf("%+v %+v", *in.Transcript, in.State)
		if n := RedactRows(r, in); n != 0 {
			t.Errorf("with parts of type %q: what was redacted is redacted again, %d values:\n%s", partType, n,
				cmp.Diff(once, fmt.Sprintf("%+v %+v", *in.Transcript, in.State)))
		}
	}
}

// A prompt with a secret is stored under the digest of what is left of it, and found there.
func TestAnImportedPromptWithASecretIsFoundByItsMessage(t *testing.T) {
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	sum := func(s string) string { d := sha256.Sum256([]byte(s)); return hex.EncodeToString(d[:]) }
	const prompt, catalog = "Use password=hunter2swordfish to log in.",
		`[{"name":"x","description":"token=ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"}]`
	in := &store.Imported{
		Transcript: &session.Transcript{Session: session.Session{ID: "ses", Title: "password=hunter2swordfish"},
			Messages: []session.MessageAndParts{{Message: session.Message{
				ID: "m", MetadataJSON: fmt.Sprintf(`{"system_prompt_digest":"%s",`+
					`"agenttrace":{"tool_catalog_digest":"%s"}}`,
					sum(prompt), sum(catalog))}}}},
		Blobs: []store.Blob{
			{Kind: store.BlobSystemPrompt, Digest: sum(prompt), Body: prompt, Exact: true},
			{Kind: store.BlobToolCatalog, Digest: sum(catalog), Body: catalog, Exact: true},
		},
		SpanRefs: []store.SpanRef{{TraceID: "ab", SpanID: "cd",
			TurnStats: &store.TurnStats{SystemPromptDigest: sum(prompt),
				Trace: session.MessageTrace{ToolCatalogDigest: sum(catalog)}}}},
		State: &store.State{Stamps: map[string]store.Stamp{
			"title": {At: 1, Sum: crc32.ChecksumIEEE([]byte("password=hunter2swordfish"))}}},
	}
	RedactRows(r, in)
	for _, b := range in.Blobs {
		if strings.Contains(b.Body, "hunter2") || strings.Contains(b.Body, "aZ3kQ9xW") || b.Digest != sum(b.Body) ||
			!b.Exact {
			t.Errorf("%+v", b)
		}
	}
	want := fmt.Sprintf(`{"system_prompt_digest":"%s","agenttrace":{"tool_catalog_digest":"%s"}}`, in.Blobs[0].Digest,
		in.Blobs[1].Digest)
	if got := in.Messages[0].Message.MetadataJSON; got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
	if f := in.SpanRefs[0].TurnStats; f.SystemPromptDigest != in.Blobs[0].Digest ||
		f.Trace.ToolCatalogDigest != in.Blobs[1].Digest {
		t.Errorf("facts %+v", f)
	}
	if got := in.State.Stamps; got != nil {
		t.Errorf("stamps %v are kept, with the checksum of a title that had a secret", got)
	}
}

// A note with a secret is stored without it, under an id that is no digest of it.
func TestAnImportedNoteHasNoSecret(t *testing.T) {
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	in := &store.Imported{Transcript: &session.Transcript{Session: session.Session{ID: "ses"}}}
	for _, text := range []string{"password=hunter2swordfish", "nothing to hide"} {
		n := store.Annotation{SessionID: "ses", Kind: store.AnnotationNote, Comment: text, Author: "ann", CreatedAt: 1}
		n.Identify()
		in.Annotations = append(in.Annotations, n)
	}
	before := slices.Clone(in.Annotations)
	RedactRows(r, in)
	if got := in.Annotations[0]; strings.Contains(got.Comment, "hunter2") || got.ID == before[0].ID {
		t.Errorf("the note is %+v", got)
	}
	if in.Annotations[1] != before[1] {
		t.Errorf("the note without a secret became %+v", in.Annotations[1])
	}
	if n := RedactRows(r, in); n != 0 {
		t.Errorf("%d values were redacted again", n)
	}
}
