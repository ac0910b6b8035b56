package replay

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// epoch is when every story begins: a message follows the one before by a second.
const epoch = 1795198540000

// story is a session in a form that a person can write. "prompt" and "catalog" in
// the metadata of a message stand for the digests of the story's own.
type story struct {
	Prompt   string          `json:"prompt"`
	Catalog  json.RawMessage `json:"catalog"`
	Turn     int             `json:"turn"`
	Messages []struct {
		Role     string            `json:"role"`
		Hidden   *int64            `json:"hidden_at"`
		Metadata json.RawMessage   `json:"metadata"`
		Parts    []json.RawMessage `json:"parts"`
	} `json:"messages"`
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func compacted(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	if raw == nil {
		return "{}"
	}
	var b bytes.Buffer
	testscale.Must(t, json.Compact(&b, raw))
	return b.String()
}

// readStory makes what a store would have of the story.
func readStory(t *testing.T, text string) (in document.Input, turn int) {
	t.Helper()
	var s story
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("read story: %v", err)
	}
	var pairs []string
	blob := func(kind store.BlobKind, name, body string) {
		in.Blobs = append(in.Blobs, store.Blob{Kind: kind, Digest: digest(body), Body: body, Exact: true})
		pairs = append(pairs, `"`+name+`"`, `"`+digest(body)+`"`)
	}
	if s.Prompt != "" {
		blob(store.BlobSystemPrompt, "prompt", s.Prompt)
	}
	if s.Catalog != nil {
		blob(store.BlobToolCatalog, "catalog", compacted(t, s.Catalog))
	}
	refs := strings.NewReplacer(pairs...)
	in.Transcript = &session.Transcript{Session: session.Session{
		ID: "ses_1", Title: "Story", Agent: "coder", PermissionsJSON: "[]", MetadataJSON: "{}", CreatedAt: epoch,
		UpdatedAt: epoch,
	}}
	for i, m := range s.Messages {
		at := int64(epoch + 1000*i)
		x := session.MessageAndParts{Message: session.Message{
			ID: fmt.Sprintf("msg_%d", i+1), SessionID: "ses_1", Role: m.Role, HiddenAt: m.Hidden, CreatedAt: at,
			UpdatedAt:    at,
			MetadataJSON: refs.Replace(compacted(t, m.Metadata)),
		}}
		for k, raw := range m.Parts {
			var head struct {
				Type       string  `json:"type"`
				ToolCallID *string `json:"toolCallId"`
				State      *string `json:"state"`
			}
			testscale.Must(t, json.Unmarshal(raw, &head))
			p := session.Part{
				ID: fmt.Sprintf("prt_%d_%d", i+1, k), MessageID: x.Message.ID, SessionID: "ses_1", Index: int64(k),
				Type:     head.Type,
				DataJSON: compacted(t, raw), ToolCallID: head.ToolCallID, CreatedAt: at, UpdatedAt: at,
			}
			if head.ToolCallID != nil {
				p.ToolState = head.State
			}
			x.Parts = append(x.Parts, p)
		}
		in.Transcript.Messages = append(in.Transcript.Messages, x)
	}
	return in, s.Turn
}

// bundleOf makes the bundle of the story's turn.
func bundleOf(t *testing.T, text string) *Bundle {
	t.Helper()
	in, turn := readStory(t, text)
	b, err := New(document.Build(in), in.Transcript, turn)
	testscale.Must(t, err)
	return b
}
