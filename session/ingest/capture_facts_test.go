package ingest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestCaptureFacts holds the session of each capture to what happened in the run: the files *.facts are written by hand
// from what the program did and from what its telemetry reports of that, never from our output. Lines that begin with #
// are remarks.
//
//	session ID input/output/reasoning/cache read/cache write
//	user TEXT
//	assistant calls=MODEL CALLS usage=AS ABOVE end=END REASON stop=STOP REASON model=MODEL answered=ANSWERING MODEL
//	  system SYSTEM PROMPT
//	  tools NAMES OF THE CATALOG
//	  text, reasoning TEXT
//	  tool CALL ID NAME INPUT = OUTPUT, or ! ERROR
//
// What the assistant's line lacks, the telemetry does not report.
func TestCaptureFacts(t *testing.T) {
	for _, dir := range captures(t) {
		want, err := os.ReadFile(dir + ".facts")
		if err != nil {
			continue // the prose at the head of its golden file states the facts
		}
		t.Run(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), func(t *testing.T) {
			s := openStore(t)
			deliver(t, s, readCapture(t, dir))
			storetest.CheckSessions(t, s)
			lines := slices.DeleteFunc(strings.Split(string(want), "\n"),
				func(l string) bool { return strings.HasPrefix(l, "#") })
			if d := cmp.Diff(lines, strings.Split(recount(t, s), "\n")); d != "" {
				t.Errorf("the session is not what happened (-happened +session):\n%s", d)
			}
		})
	}
}

// recount writes the facts of every session of a store.
func recount(t testing.TB, s *sqlitestore.Store) string {
	t.Helper()
	var b strings.Builder
	for _, tr := range rowsOf(t, s) {
		row := tr.Session
		fmt.Fprintf(&b, "session %s %s", row.ID, buckets(tr.Session.Usage()))
		if row.ParentID != nil {
			fmt.Fprintf(&b, " parent=%s", *row.ParentID)
		}
		b.WriteByte('\n')
		var system, catalog string
		for i := range tr.Messages {
			m := &tr.Messages[i]
			if m.Message.Role == session.RoleUser {
				var texts []string
				for _, p := range m.Parts {
					texts = append(texts, textOfPart(p))
				}
				fmt.Fprintf(&b, "user %s\n", strings.Join(texts, " | "))
				continue
			}
			recountAnswer(t, s, &b, m, &system, &catalog)
		}
		recountScores(t, s, &b, tr)
	}
	return b.String()
}

// recountScores writes a line for each score, with the number of the message that it is of and the type of the part.
func recountScores(t testing.TB, s *sqlitestore.Store, b *strings.Builder, tr *session.Transcript) {
	t.Helper()
	all, err := s.Annotations(t.Context(), tr.Session.ID)
	testscale.Must(t, err)
	for i := range all {
		n, of := document.AnnotationOf(&all[i]), "session"
		for k, m := range tr.Messages {
			if m.Message.ID == n.MessageID {
				of = fmt.Sprintf("%s %d", m.Message.Role, k)
			}
			for _, p := range m.Parts {
				if p.ID == n.PartID {
					of += " " + p.Type
				}
			}
		}
		fmt.Fprintf(b, "score of %s: %s\n", of, n.Text())
	}
}

func recountAnswer(t testing.TB, s *sqlitestore.Store, b *strings.Builder, m *session.MessageAndParts, system,
	catalog *string) {
	t.Helper()
	var meta session.MessageMetadata
	testscale.Must(t, json.Unmarshal([]byte(m.Message.MetadataJSON), &meta))
	fmt.Fprintf(b, "%s calls=%d", m.Message.Role, meta.Trace.ModelCalls)
	put := func(key, value string) {
		if value != "" {
			fmt.Fprintf(b, " %s=%s", key, value)
		}
	}
	if meta.Usage != nil {
		put("usage", buckets(*meta.Usage))
	}
	put("end", meta.Trace.EndReason)
	put("stop", meta.Trace.StopReason)
	if meta.Model != nil {
		put("model", meta.Model.ModelID)
	}
	put("answered", meta.Trace.ResponseModel)
	if meta.Trace.Incomplete {
		b.WriteString(" incomplete")
	}
	b.WriteByte('\n')
	if d := meta.SystemPromptDigest; d != "" {
		text := blobText(t, s, store.BlobSystemPrompt, d)
		if text != *system {
			fmt.Fprintf(b, "  system %s\n", short(text))
		}
		*system = text
	}
	if d := meta.Trace.ToolCatalogDigest; d != "" {
		if names := catalogNames(blobText(t, s, store.BlobToolCatalog, d)); names != *catalog {
			fmt.Fprintf(b, "  tools %s\n", names)
			*catalog = names
		}
	}
	for _, p := range m.Parts {
		recountPart(b, p)
	}
	if meta.Trace.Error != "" {
		fmt.Fprintf(b, "  error %s\n", short(meta.Trace.Error))
	}
	for _, problem := range meta.Trace.Problems {
		fmt.Fprintf(b, "  problem %s\n", problem)
	}
}

func blobText(t testing.TB, s *sqlitestore.Store, kind store.BlobKind, digest string) string {
	t.Helper()
	blob, err := s.Blob(t.Context(), kind, digest)
	testscale.Must(t, err)
	return blob.Body
}

func recountPart(b *strings.Builder, p session.Part) {
	var tool struct {
		ToolCallID string          `json:"toolCallId"`
		State      string          `json:"state"`
		Input      json.RawMessage `json:"input"`
		Output     json.RawMessage `json:"output"`
		ErrorText  string          `json:"errorText"`
	}
	switch {
	case p.Type == "step-start":
	case p.ToolCallID != nil:
		_ = json.Unmarshal([]byte(p.DataJSON), &tool)
		id := tool.ToolCallID
		if strings.HasPrefix(id, "call_") && len(id) > 24 {
			id = "-" // made up: the source gives none
		}
		fmt.Fprintf(b, "  tool %s %s %s", id, strings.TrimPrefix(p.Type, "tool-"), tool.Input)
		switch tool.State {
		case session.StateOutputAvailable:
			fmt.Fprintf(b, " = %s", tool.Output)
		case session.StateOutputError:
			fmt.Fprintf(b, " ! %s", short(tool.ErrorText))
		default:
			fmt.Fprintf(b, " %s", tool.State)
		}
		b.WriteByte('\n')
	case p.Type == "text" || p.Type == "reasoning":
		fmt.Fprintf(b, "  %s %s\n", p.Type, short(textOfPart(p)))
	case p.Type == session.TypeError || p.Type == session.TypeWithheld || p.Type == session.TypeUnfinished:
		var absent struct {
			Data session.Absence `json:"data"`
		}
		_ = json.Unmarshal([]byte(p.DataJSON), &absent)
		fmt.Fprintf(b, "  %s %s\n", p.Type, short(absent.Data.Text))
	default:
		fmt.Fprintf(b, "  %s %s\n", p.Type, short(p.DataJSON))
	}
}

func textOfPart(p session.Part) string {
	var data struct {
		Text string `json:"text"`
	}
	if json.Unmarshal([]byte(p.DataJSON), &data) != nil || data.Text == "" {
		return p.DataJSON
	}
	return data.Text
}

// short is the first line of a text.
func short(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if more {
		line += " …"
	}
	return line
}

func buckets(u session.Usage) string {
	return fmt.Sprintf("%d/%d/%d/%d/%d", u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite)
}

func catalogNames(raw string) string {
	var tools []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	_ = json.Unmarshal([]byte(raw), &tools)
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name+tool.Function.Name)
	}
	return strings.Join(names, ", ")
}
