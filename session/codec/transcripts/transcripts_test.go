package transcripts_test

import (
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

type decoder func(io.Reader, func(codec.Problem)) iter.Seq2[*codec.Session, error]

// decoders read what testdata/NAME.txtar has.
var decoders = map[string]decoder{"claude": transcripts.Claude.Decode, "codex": transcripts.Codex.Decode,
	"gemini": transcripts.Gemini.Decode}

// claudeFile and codexFile have every kind of record.
var (
	claudeFile = story("claude", "every kind of record")
	codexFile  = story("codex", "every kind of record")
)

// story is a transcript of testdata.
func story(program, name string) string {
	archive, err := txtar.ParseFile("testdata/" + program + ".txtar")
	if err != nil {
		panic(err)
	}
	for _, section := range archive.Files {
		if section.Name == name {
			given, _, _ := strings.Cut(string(section.Data), "=>\n")
			return given
		}
	}
	panic(name)
}

// TestStories reads the transcripts of testdata/*.txtar. Behind => is what a reader sees of each row, and the problems.
func TestStories(t *testing.T) {
	for program, decode := range decoders {
		file := "testdata/" + program + ".txtar"
		archive, err := txtar.ParseFile(file)
		testscale.Must(t, err)
		for i, section := range archive.Files {
			t.Run(program+"/"+section.Name, func(t *testing.T) {
				given, _, _ := strings.Cut(string(section.Data), "=>\n")
				got := describe(t, decode, strings.ReplaceAll(given, `\xff`, "\xff"))
				archive.Files[i].Data = []byte(given + "=>\n" + got)
			})
		}
		codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
	}
}

// describe is the sessions as lines: what a reader would see of each row.
func describe(t *testing.T, decode decoder, text string) string {
	t.Helper()
	var b strings.Builder
	all, problems, err := valid(t, func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return decode(strings.NewReader(text), report)
	})
	for _, s := range all {
		row := &s.Session
		fmt.Fprintf(&b, "%s %q %s %d tokens, %d ms", row.ID, row.Title, row.Agent, row.TotalTokens,
			row.UpdatedAt-row.CreatedAt)
		if row.Mode != nil {
			b.WriteString(" mode=" + *row.Mode)
		}
		if row.ParentID != nil {
			b.WriteString(" parent=" + *row.ParentID)
		}
		if row.CostUSD != 0 {
			fmt.Fprintf(&b, " cost=%g", row.CostUSD)
		}
		b.WriteString("\n")
		for _, m := range s.Messages {
			fmt.Fprintf(&b, "  %s %s", m.Message.Role, m.Message.MetadataJSON)
			if m.Message.HiddenAt != nil {
				fmt.Fprintf(&b, " hidden at %d ms", *m.Message.HiddenAt-row.CreatedAt)
			}
			b.WriteString("\n")
			for _, p := range m.Parts {
				b.WriteString("    " + p.DataJSON + "\n")
			}
		}
		for _, d := range s.Decisions {
			fmt.Fprintf(&b, "  decision %s %s: %s %s by %s %s\n", d.ToolID, d.ToolCallID, d.Action, d.Outcome, d.Source,
				d.Reason)
		}
		for _, blob := range s.Blobs {
			fmt.Fprintf(&b, "  %s %.8s %q\n", blob.Kind, blob.Digest, blob.Body)
		}
	}
	for _, p := range problems {
		b.WriteString("problem " + p + "\n")
	}
	if err != nil {
		b.WriteString("error: " + err.Error() + "\n")
	}
	return b.String()
}

// TestGrowing has the rows of a file that has grown go on where those of the file before ended.
func TestGrowing(t *testing.T) {
	for name, tt := range map[string]struct {
		decode decoder
		text   string
	}{"claude": {transcripts.Claude.Decode, claudeFile}, "codex": {transcripts.Codex.Decode, codexFile}} {
		all := strings.SplitAfter(tt.text, "\n")
		var before []string // ids of the first session's parts
		for n := 4; n <= len(all); n++ {
			var now []string
			for s, err := range tt.decode(strings.NewReader(strings.Join(all[:n], "")), nil) {
				testscale.Must(t, err)
				for _, v := range session.Check(s.Transcript) {
					t.Errorf("%s, %d lines: %s", name, n, v)
				}
				for _, m := range s.Messages {
					for _, p := range m.Parts {
						now = append(now, p.ID)
					}
				}
				break
			}
			if len(now) < len(before) || !slices.Equal(before, now[:len(before)]) {
				t.Errorf("%s, %d lines: parts %q, before %q", name, n, now, before)
			}
			before = now
		}
	}
}

func TestNothing(t *testing.T) {
	for name, decode := range map[string]decoder{"claude": transcripts.Claude.Decode, "codex": transcripts.Codex.Decode} {
		for _, text := range []string{"", "{}\n", "[1]\n", "\xff\n"} {
			described := describe(t, decode, text)
			if _, last, _ := strings.Cut("\n"+described, "\nerror: read "); last == "" {
				t.Errorf("%s of %q: %q", name, text, described)
			}
		}
	}
}

// FuzzDecode has records in any order make valid sessions, and the same each time.
func FuzzDecode(f *testing.F) {
	f.Add(story("claude", "gone back"))
	f.Add(claudeFile)
	f.Add(codexFile)
	f.Fuzz(func(t *testing.T, in string) {
		for _, decode := range []decoder{transcripts.Claude.Decode, transcripts.Codex.Decode} {
			read := func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return decode(strings.NewReader(in), report)
			}
			first, _, _ := valid(t, read)
			again, _, _ := valid(t, read)
			if a, b := text(t, first), text(t, again); a != b {
				t.Errorf("%s\nthe second time\n%s", a, b)
			}
		}
	})
}

// TestClaudeTitledLater has a transcript that grew by a title alone be later than before.
func TestClaudeTitledLater(t *testing.T) {
	read := func(text string) session.Session {
		t.Helper()
		for s, err := range transcripts.Claude.Decode(strings.NewReader(text), nil) {
			testscale.Must(t, err)
			return s.Session
		}
		t.Fatal("no session")
		return session.Session{}
	}
	at := int64(0)
	text := `{"sessionId":"s1","type":"user","message":{"role":"user","content":"so"},"uuid":"u1",` +
		`"timestamp":"2026-01-02T03:04:05.000Z"}` + "\n"
	for _, grown := range []struct{ line, title string }{
		{"", "so"},
		{`{"type":"ai-title","sessionId":"s1","aiTitle":"Guessed"}`, "Guessed"},
		{`{"type":"custom-title","sessionId":"s1","customTitle":"Given"}`, "Given"},
		{`{"type":"custom-title","sessionId":"s1","customTitle":"Another"}`, "Another"},
	} {
		text += grown.line + "\n"
		row := read(text)
		if row.Title != grown.title || row.UpdatedAt <= at {
			t.Errorf("%q at %d, want %q after %d", row.Title, row.UpdatedAt, grown.title, at)
		}
		at = row.UpdatedAt
	}
	if row := read(text + `{"type":"custom-title","sessionId":"s1","customTitle":"Another"}`); row.UpdatedAt != at {
		t.Errorf("the same title again makes it later: %d, want %d", row.UpdatedAt, at)
	}
}

// TestClaudeSubagentFileNamesItsParent reads the file of a sub-agent that another one
// started, and what the program keeps beside it.
func TestClaudeSubagentFileNamesItsParent(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		testscale.WriteFile(t, path, text)
		return path
	}
	const file = `{"type":"user","sessionId":"s1","isSidechain":true,"agentId":"a2","uuid":"u0",` +
		`"timestamp":"2026-01-02T03:04:00.000Z","promptId":"p1","message":{"role":"user","content":"look"}}`
	for _, tt := range []struct {
		name, beside, parent, agent string
		want                        session.TranscriptTrace
	}{
		{"without a file beside it", "", "s1", "claude-code",
			session.TranscriptTrace{Transcript: "claude-code", SubagentOf: "s1", SubagentID: "a2"}},
		{"with one", `{"agentType":"Explore","toolUseId":"toolu_1","parentAgentId":"a1"}`, "s1-a1", "Explore",
			session.TranscriptTrace{Transcript: "claude-code", SubagentOf: "s1", SubagentID: "a2",
				ParentSubagentID: "a1",
				CallID:           "toolu_1"}},
	} {
		path := write("agent-a2.jsonl", file)
		if tt.beside != "" {
			write("agent-a2.meta.json", tt.beside)
		}
		for s, err := range transcripts.Claude.DecodeFile(t.Context(), path, nil, nil) {
			testscale.Must(t, err)
			row := &s.Session
			if row.ID != "s1-a2" || row.ParentID == nil || *row.ParentID != tt.parent || row.Agent != tt.agent {
				t.Errorf("%s: session %s by %s below %v", tt.name, row.ID, row.Agent, row.ParentID)
			}
			if d := cmp.Diff(tt.want, session.TranscriptTraceOf(row.MetadataJSON)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, d)
			}
		}
	}
}
