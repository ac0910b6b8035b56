package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// epoch is when every story begins: times in stories are milliseconds since.
const epoch = 1795198540000

// storyFile is a session in a form that a person can write. Ids are made up in order where none are given.
type storyFile struct {
	Session struct {
		ID            string          `json:"id"`
		Title         string          `json:"title"`
		Agent         string          `json:"agent"`
		Model         json.RawMessage `json:"model"`
		Mode          *string         `json:"mode"`
		WorkspaceRoot *string         `json:"workspace_root"`
		ParentID      *string         `json:"parent_id"`
		ParentMessage *string         `json:"parent_message_id"`
		Permissions   json.RawMessage `json:"permissions"`
		Metadata      json.RawMessage `json:"metadata"`
		Usage         session.Usage   `json:"usage"`
		At            int64           `json:"at"`
		UpdatedAt     int64           `json:"updated_at"`
		Archived      *int64          `json:"archived_at"`
	} `json:"session"`
	Messages []struct {
		ID       string            `json:"id"`
		Role     string            `json:"role"`
		At       int64             `json:"at"`
		Hidden   *int64            `json:"hidden_at"`
		Metadata json.RawMessage   `json:"metadata"`
		Parts    []json.RawMessage `json:"parts"`
	} `json:"messages"`
	Decisions []store.Decision  `json:"decisions"`
	SpanRefs  []store.SpanRef   `json:"span_refs"`
	Prompts   []string          `json:"prompts"`
	Catalogs  []json.RawMessage `json:"catalogs"`
	Children  []struct {
		ID       string          `json:"id"`
		Title    string          `json:"title"`
		Agent    string          `json:"agent"`
		Metadata json.RawMessage `json:"metadata"`
		Tokens   int64           `json:"tokens"`
		At       int64           `json:"at"`
	} `json:"children"`
	Parent *struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	} `json:"parent"`
}

// digest is what a message names a prompt or catalog by. A story writes
// "prompt-0" and "catalog-0" for those of its own first ones.
func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func orObject(raw json.RawMessage, otherwise string) string {
	if raw == nil {
		return otherwise
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	// A story may hold a column that is not JSON, as a string.
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return b.String()
}

func readStory(t testing.TB, text string) document.Input {
	t.Helper()
	var s storyFile
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("read story: %v", err)
	}
	var in document.Input
	var pairs []string
	for i, p := range s.Prompts {
		pairs = append(pairs, fmt.Sprintf(`"prompt-%d"`, i), `"`+digest(p)+`"`)
		in.Blobs = append(in.Blobs, store.Blob{Kind: store.BlobSystemPrompt, Digest: digest(p), Body: p, Exact: true})
	}
	for i, c := range s.Catalogs {
		body := orObject(c, "")
		pairs = append(pairs, fmt.Sprintf(`"catalog-%d"`, i), `"`+digest(body)+`"`)
		in.Blobs = append(in.Blobs, store.Blob{Kind: store.BlobToolCatalog, Digest: digest(body), Body: body,
			Exact: true})
	}
	refs := strings.NewReplacer(pairs...)
	row := session.Session{
		ID: s.Session.ID, Title: s.Session.Title, Agent: s.Session.Agent, Mode: s.Session.Mode,
		WorkspaceRoot: s.Session.WorkspaceRoot,
		ParentID:      s.Session.ParentID, ParentMessageID: s.Session.ParentMessage,
		PermissionsJSON: orObject(s.Session.Permissions, "[]"),
		MetadataJSON:    orObject(s.Session.Metadata, "{}"), CreatedAt: epoch + s.Session.At,
		UpdatedAt:  epoch + max(s.Session.At, s.Session.UpdatedAt),
		ArchivedAt: s.Session.Archived,
	}
	if s.Session.Model != nil {
		model := orObject(s.Session.Model, "")
		row.ModelJSON = &model
	}
	row.SetUsage(s.Session.Usage)
	in.Transcript = &session.Transcript{Session: row}
	for i, m := range s.Messages {
		id := m.ID
		if id == "" {
			id = fmt.Sprintf("msg_%d", i)
		}
		if m.Hidden != nil {
			*m.Hidden += epoch
		}
		x := session.MessageAndParts{Message: session.Message{
			ID: id, SessionID: row.ID, Role: m.Role, HiddenAt: m.Hidden,
			MetadataJSON: refs.Replace(orObject(m.Metadata, "{}")),
			CreatedAt:    epoch + m.At, UpdatedAt: epoch + m.At,
		}}
		for k, raw := range m.Parts {
			data := orObject(raw, "")
			var head struct {
				Type       string  `json:"type"`
				ToolCallID *string `json:"toolCallId"`
				State      *string `json:"state"`
				At         int64   `json:"at"`
			}
			_ = json.Unmarshal([]byte(data), &head)
			p := session.Part{
				ID: fmt.Sprintf("prt_%d_%d", i, k), MessageID: id, SessionID: row.ID, Index: int64(k), Type: head.Type,
				DataJSON:   data,
				ToolCallID: head.ToolCallID, CreatedAt: epoch + max(head.At, m.At), UpdatedAt: epoch + max(head.At, m.At),
			}
			if head.ToolCallID != nil {
				p.ToolState = head.State
			}
			x.Parts = append(x.Parts, p)
		}
		in.Transcript.Messages = append(in.Transcript.Messages, x)
	}
	in.Decisions = s.Decisions
	in.SpanRefs = s.SpanRefs
	for _, c := range s.Children {
		child := session.Session{
			ID: c.ID, Title: c.Title, Agent: c.Agent, MetadataJSON: orObject(c.Metadata, "{}"),
			ParentID: &row.ID, CreatedAt: epoch + c.At, UpdatedAt: epoch + c.At,
		}
		in.Children = append(in.Children, child)
		if in.ChildTokens == nil {
			in.ChildTokens = map[string]store.Spent{}
		}
		in.ChildTokens[c.ID] = store.Spent{Tokens: session.Tokens{Used: &session.Usage{Input: c.Tokens}}}
	}
	if s.Parent != nil {
		in.Parent = &session.Session{ID: s.Parent.ID, Title: s.Parent.Title}
	}
	return in
}

// readStoryOf reads a story of testdata in which said stands for SAID: in hostile.json wherever a session has a text.
func readStoryOf(t testing.TB, name, said string) document.Input {
	t.Helper()
	text := testscale.ReadFile(t, "testdata/"+name+".json")
	quoted, _ := json.Marshal(said) // a string always encodes
	words := string(quoted[1 : len(quoted)-1])
	return readStory(t, strings.NewReplacer("SAID", words, "120 LINES OF FAIL",
		strings.Repeat("FAIL "+words+`\n`, 120)).Replace(string(text)))
}

// story is a session with one of everything that a transcript shows, in which every text that telemetry may choose
// contains said.
func story(t testing.TB, said string) *document.Document {
	t.Helper()
	return document.Build(readStoryOf(t, "story", said))
}

// render prints a timeline as the name of a section wants: a width, and words that are options or name another view.
func printView(t *testing.T, in document.Input, section string) string {
	doc := document.Build(in)
	t.Helper()
	o := Options{Now: time.UnixMilli(epoch + 3_600_000)}
	print := Document
	for word := range strings.FieldsSeq(section) {
		switch word {
		case "full":
			o.Full = true
		case "color":
			o.Color = true
		case "prompts":
			print = Prompts
		case "tools":
			print = Tools
		case "permissions":
			print = Permissions
		case "provenance":
			print = Provenance
		case "tokens":
			print = Tokens
		case "errors":
			print = Errors
		case "status":
			print = func(w io.Writer, _ *document.Document, o Options) error {
				st := document.StatusOf(&in.Transcript.Session, in.Transcript, in.Decisions, o.Now, document.DefaultIdleTimeout)
				return Status(w, &st, o)
			}
		case "json":
			b, err := json.MarshalIndent(doc, "", "  ")
			if err != nil {
				t.Fatalf("encode timeline: %v", err)
			}
			return string(b) + "\n"
		default:
			if _, err := fmt.Sscan(word, &o.Width); err != nil {
				t.Fatalf("section %q: %q is neither an option nor a width", section, word)
			}
		}
	}
	var b strings.Builder
	if err := print(&b, doc, o); err != nil {
		t.Fatalf("render %q: %v", section, err)
	}
	checkLines(t, section, b.String(), o)
	return strings.ReplaceAll(b.String(), "\x1b", `\e`)
}

// TestStories prints the session of each story in the ways that its file has sections for.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			testscale.Must(t, err)
			var in document.Input
			for i := range a.Files {
				f := &a.Files[i]
				if f.Name == "story.json" {
					in = readStory(t, string(f.Data))
					continue
				}
				f.Data = []byte(printView(t, in, f.Name))
			}
			codectest.CheckGolden(t, file, string(txtar.Format(a)), *update)
		})
	}
}
