package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/store"
)

const planted = "ghp_" + "aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"

// tagged is what an identifier becomes that is the secret. Its tag is the same anywhere.
const tagged = "[redacted:github-token]~e66c084457c32182"

func newRedaction(t *testing.T, c redact.Config) *redaction {
	t.Helper()
	r, err := redact.New(c)
	testscale.Must(t, err)
	return &redaction{Redactor: r}
}

func TestRedactPart(t *testing.T) {
	long := strings.Repeat("x", 300)
	text := strings.NewReplacer("SECRET", planted, "TAGGED", tagged, "LONG", long, "DIGEST", digestOf(long),
		"CUT", long[:76]+"__TRUNCATED__[300 bytes]",
		"ALL", `{"omit":{"prompts":true,"reasoning":true,"tool_inputs":true,"tool_outputs":true}}`,
	).Replace(string(testscale.ReadFile(t, "testdata/redact_parts.txt")))
	for _, c := range strings.Split(text, "\n\n")[1:] {
		lines := strings.Split(strings.TrimSpace(c), "\n")
		t.Run(lines[0], func(t *testing.T) {
			var config redact.Config
			role := ""
			if with, ok := strings.CutPrefix(lines[1], "with "); ok {
				with, role, _ = strings.Cut(with, " of")
				testscale.Must(t, json.Unmarshal([]byte(with), &config))
				lines = lines[1:]
			}
			part := store.PartChange{MessageID: "m", Type: lines[1], Data: []byte(lines[2])}
			for again := range 2 { // a request that is retried, or redacted in the SDK before
				b := store.Batch{Messages: []store.MessageChange{{ID: "m", Role: strings.TrimSpace(role)}},
					Parts: []store.PartChange{part}}
				newRedaction(t, config).batch(&b)
				part.Data = b.Parts[0].Data
				if d := cmp.Diff(strings.TrimPrefix(lines[3], "> "), string(part.Data)); d != "" {
					t.Errorf("pass %d (-want +got):\n%s", again, d)
				}
			}
		})
	}
}

func TestRulesAndQuestionsGoWithTheInputsThatTheyRepeat(t *testing.T) {
	b := store.Batch{Sessions: []store.SessionChange{{
		Permissions: &store.Value{Text: `[{"permission":"bash","pattern":"ls private"},{"permission":"web","pattern":"*"}]`},
		Metadata:    map[string]store.Value{statusKey: {Text: `{"detail":"bash ls private","tool_call_id":"c"}`}},
	}}, Decisions: []store.Decision{{Pattern: "ls private"}, {Pattern: "*"}}}
	newRedaction(t, redact.Config{Omit: redact.Omit{ToolInputs: true}}).batch(&b)
	s, marker := b.Sessions[0], "[omitted: 10 bytes]"
	if got := s.Permissions.Text; !strings.Contains(got, `"bash","pattern":"`+marker) ||
		!strings.Contains(got, `"web","pattern":"*"`) || b.Decisions[0].Pattern != marker || b.Decisions[1].Pattern != "*" ||
		s.Metadata[statusKey].Text != `{"detail":"[omitted: 15 bytes]","tool_call_id":"c"}` {
		t.Errorf("%s, %+v, %+v", got, b.Decisions, s.Metadata)
	}
}

// A prompt is found by the digest that its source sent, also where the rest of what it sent is known no more.
func TestRedactPrompt(t *testing.T) {
	body := "use " + planted
	b := store.Batch{
		Blobs: []store.Blob{{Kind: store.BlobSystemPrompt, Digest: digestOf(body), Body: body, Exact: true},
			{Kind: store.BlobToolCatalog, Digest: digestOf("[]"), Body: "[]", Exact: true}},
		SpanRefs: []store.SpanRef{{TurnStats: &store.TurnStats{SystemPromptDigest: digestOf(body)}}},
	}
	newRedaction(t, redact.Config{}).batch(&b)
	want := []store.Blob{{Kind: store.BlobSystemPrompt, Digest: digestOf(body), Body: "use [redacted:github-token]"},
		{Kind: store.BlobToolCatalog, Digest: digestOf("[]"), Body: "[]", Exact: true}}
	if d := cmp.Diff(want, b.Blobs); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := b.SpanRefs[0].TurnStats.SystemPromptDigest; got != want[0].Digest {
		t.Errorf("the message has digest %s", got)
	}
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
