package assemble_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/ingest/assemble"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

var update = flag.Bool("update", false, "write the results of the scenarios")

// TestScenarios reads the scenarios of testdata. Each is a txtar file: what happened in prose, the facts in the
// notation of parseFacts, and what they come to: the sessions with their messages and parts, the decisions, and what
// became of each fact. Times are milliseconds since the scenario's beginning. Made-up ids are numbered in order of
// appearance.
//
// Every scenario is built again with its facts in other orders, and must come to the same.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			testscale.Must(t, err)
			if len(bytes.TrimSpace(archive.Comment)) == 0 {
				t.Error("the scenario has no description")
			}
			facts, err := parseFacts(section(archive, "facts"))
			testscale.Must(t, err)
			archive.Files = []txtar.File{archive.Files[0], {Name: "sessions", Data: []byte(build(t, facts))}}
			codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
		})
	}
}

func section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// build assembles the facts of a window in several orders, checks what comes of it and writes it down.
func build(t *testing.T, facts []fact.Fact) string {
	t.Helper()
	const owner = "home"
	rankTraces(facts)
	out := assemble.Assemble(owner, facts)
	verify(t, facts, &out)
	for seed := range 8 {
		if d := gocmp.Diff(out, shuffled(owner, facts, uint64(seed))); d != "" {
			t.Fatalf("in another order (-want +got):\n%s", d)
		}
	}
	return narrate(facts, &out)
}

// shuffled assembles the facts in another order, and returns the placements in the order given.
func shuffled(owner string, facts []fact.Fact, seed uint64) store.Assembly {
	order := rand.New(rand.NewPCG(seed, 5)).Perm(len(facts))
	mixed := make([]fact.Fact, len(facts))
	for i, j := range order {
		mixed[i] = facts[j]
	}
	out := assemble.Assemble(owner, mixed)
	attribution := make([]store.Attribution, len(facts))
	for i, j := range order {
		attribution[j] = out.Attribution[i]
	}
	out.Attribution = attribution
	return out
}

// verify checks what holds of every assembly.
func verify(t testing.TB, facts []fact.Fact, out *store.Assembly) {
	t.Helper()
	if len(out.Attribution) != len(facts) {
		t.Fatalf("%d placements for %d facts", len(out.Attribution), len(facts))
	}
	owned := make(map[string]bool)
	messages, parts, decisions := make(map[string]string), make(map[string]string), make(map[string]bool)
	for i := range out.Messages {
		m := &out.Messages[i]
		if messages[m.ID] != "" {
			t.Errorf("message %s is built twice", m.ID)
		}
		messages[m.ID] = m.SessionID
		for j := range m.Parts {
			p := &m.Parts[j]
			if parts[p.ID] != "" {
				t.Errorf("part %s is built twice", p.ID)
			}
			parts[p.ID] = m.ID
			if p.Index != int64(j) {
				t.Errorf("part %s has index %d at %d", p.ID, p.Index, j)
			}
		}
	}
	for i := range out.Decisions {
		d := &out.Decisions[i]
		if decisions[d.ID] {
			t.Errorf("decision %s is built twice", d.ID)
		}
		decisions[d.ID] = true
		if messages[d.MessageID] != d.SessionID || d.PartID != "" && parts[d.PartID] != d.MessageID {
			t.Errorf("decision %s hangs on message %s and part %s", d.ID, d.MessageID, d.PartID)
		}
	}
	for i := range out.Attribution {
		p := &out.Attribution[i]
		if p.SessionID == "" && (p.MessageID != "" || p.DecisionID != "" || p.SessionAttrs != nil) {
			t.Errorf("%s is placed in no session: %+v", facts[i].Source, *p)
		}
		for _, id := range append([]string{p.MessageID}, p.Others...) {
			if id != "" && messages[id] != p.SessionID {
				t.Errorf("%s of session %s is placed in message %q of session %q", facts[i].Source, p.SessionID, id,
					messages[id])
			}
			owned[id] = true
		}
		if p.PartID != "" && parts[p.PartID] == "" || p.DecisionID != "" && !decisions[p.DecisionID] {
			t.Errorf("%s is placed in part %s and decision %s", facts[i].Source, p.PartID, p.DecisionID)
		}
	}
	for i := range out.Messages {
		if m := &out.Messages[i]; !owned[m.ID] {
			t.Errorf("no fact is placed in the %s's message %s", m.Role, m.ID)
		}
	}
	for _, tr := range transcripts(out) {
		for _, v := range session.Check(tr) {
			t.Errorf("session %s: %s", tr.Session.ID, v)
		}
	}
}

// transcripts makes of an assembly what a store would hold of it.
func transcripts(out *store.Assembly) []*session.Transcript {
	of := make(map[string]*session.Transcript)
	var all []*session.Transcript
	open := func(id string) *session.Transcript {
		if of[id] == nil {
			of[id] = &session.Transcript{Session: session.Session{ID: id, Title: "-", PermissionsJSON: "[]",
				MetadataJSON: "{}"}}
			all = append(all, of[id])
		}
		return of[id]
	}
	for i := range out.Messages {
		tr := open(out.Messages[i].SessionID)
		tr.Messages = append(tr.Messages, session.MessageAndParts{Message: out.Messages[i].Message,
			Parts: out.Messages[i].Parts})
	}
	for i := range out.Attribution {
		if p := &out.Attribution[i]; p.SessionID != "" {
			open(p.SessionID)
		}
	}
	for _, tr := range all {
		slices.SortFunc(tr.Messages, func(x, y session.MessageAndParts) int { return x.Message.Compare(&y.Message) })
		var sum session.Usage
		for _, m := range tr.Messages {
			if len(m.Parts) > 0 && m.Parts[0].Type == session.TypeCompaction {
				sum = session.Usage{}
			}
			usage, cost := session.UsageOf(m.Message.MetadataJSON)
			if m.Message.Role == session.RoleAssistant {
				sum = sum.Add(usage)
			}
			tr.Session.CostUSD += cost
		}
		tr.Session.SetUsage(sum)
		fold(&tr.Session, out)
	}
	slices.SortFunc(all, func(x, y *session.Transcript) int { return cmp.Compare(x.Session.ID, y.Session.ID) })
	return all
}

// fold writes to a session's row what the attributions report of it.
func fold(s *session.Session, out *store.Assembly) {
	won := make(map[string]store.Value)
	set := func(column string, v *store.Value, write func(string)) {
		if v == nil {
			return
		}
		if old, given := won[column]; !given || v.TakesPrecedence(old) {
			won[column] = *v
			write(v.Text)
		}
	}
	first := func(v *store.Value) *store.Value {
		if v == nil {
			return nil
		}
		turned := v.First()
		return &turned
	}
	metadata := make(map[string]json.RawMessage)
	for i := range out.Attribution {
		c := out.Attribution[i].SessionAttrs
		if c == nil || c.ID != s.ID {
			continue
		}
		set("title", c.Title, func(text string) { s.Title = text })
		set("agent", first(c.Agent), func(text string) { s.Agent = text })
		set("model", c.Model, func(text string) { s.ModelJSON = &text })
		set("mode", c.Mode, func(text string) { s.Mode = &text })
		set("root", c.WorkspaceRoot, func(text string) { s.WorkspaceRoot = &text })
		set("rules", c.Permissions, func(text string) { s.PermissionsJSON = text })
		set("parent", first(c.ParentID), func(text string) { s.ParentID = &text })
		set("at", first(c.ParentMessageID), func(text string) { s.ParentMessageID = &text })
		for key, v := range c.Metadata {
			set("metadata."+key, &v, func(text string) { metadata[key] = json.RawMessage(text) })
		}
	}
	raw, _ := json.Marshal(metadata)
	s.MetadataJSON = string(raw)
}

// made is an id that was made of a hash.
var made = regexp.MustCompile(`(ses_|call_)[0-9a-f]{12}[0-9A-Za-z]{14}`)

// narrate writes an assembly as a person would read it aloud.
func narrate(facts []fact.Fact, out *store.Assembly) string {
	var b strings.Builder
	ms := func(milli int64) int64 { return milli - epoch/1e6 }
	places := make(map[string]string)
	all := transcripts(out)
	for _, tr := range all {
		for i, m := range tr.Messages {
			places[m.Message.ID] = fmt.Sprintf("%s %d", m.Message.Role, i)
			for _, p := range m.Parts {
				places[p.ID] = fmt.Sprint("part ", p.Index)
			}
		}
	}
	for _, tr := range all {
		s := &tr.Session
		fmt.Fprintf(&b, "session %s %q", s.ID, s.Title)
		column := func(name string, text *string) {
			if text != nil && *text != "" {
				fmt.Fprintf(&b, " %s=%s", name, *text)
			}
		}
		column("agent", &s.Agent)
		column("model", s.ModelJSON)
		column("mode", s.Mode)
		column("root", s.WorkspaceRoot)
		column("parent", s.ParentID)
		if s.ParentMessageID != nil {
			column("at", new(places[*s.ParentMessageID]))
		}
		if s.PermissionsJSON != "[]" {
			column("rules", &s.PermissionsJSON)
		}
		u := s.Usage()
		fmt.Fprintf(&b, " tokens=%d/%d/%d/%d/%d cost=%g\n", u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite,
			s.CostUSD)
		for _, m := range tr.Messages {
			fmt.Fprintf(&b, "  %s %d..%d %s\n", m.Message.Role, ms(m.Message.CreatedAt), ms(m.Message.UpdatedAt),
				m.Message.MetadataJSON)
			for _, p := range m.Parts {
				fmt.Fprintf(&b, "    %d %s\n", p.Index, p.DataJSON)
			}
		}
		for _, d := range out.Decisions {
			if d.SessionID == s.ID {
				fmt.Fprintf(&b, "  decision @%d %s %s", ms(d.DecidedAt), d.ToolCallID, d.ToolID)
				for _, word := range []string{d.Pattern, d.Action, d.Outcome, d.Reply, d.Source, d.Reason} {
					fmt.Fprintf(&b, " %s", cmp.Or(word, "-"))
				}
				if d.WaitedMS != nil {
					fmt.Fprintf(&b, " waited %d", *d.WaitedMS)
				}
				fmt.Fprintf(&b, " -> %s %s\n", places[d.MessageID], places[d.PartID])
			}
		}
	}
	for i := range facts {
		p := &out.Attribution[i]
		fmt.Fprintf(&b, "%s", strings.TrimPrefix(facts[i].Source, fact.RecordPrefix))
		if p.SessionID == "" {
			b.WriteString(" is told of nowhere\n")
			continue
		}
		fmt.Fprintf(&b, " %s ->", p.Kind)
		if len(all) > 1 {
			fmt.Fprintf(&b, " %s", p.SessionID)
		}
		for _, id := range append([]string{p.MessageID}, append(p.Others, p.PartID)...) {
			if id != "" {
				fmt.Fprintf(&b, " %s", places[id])
			}
		}
		if p.DecisionID != "" {
			b.WriteString(" decision")
		}
		b.WriteByte('\n')
	}
	number := make(map[string]string)
	return made.ReplaceAllStringFunc(b.String(), func(id string) string {
		if number[id] == "" {
			number[id] = fmt.Sprintf("%s#%d", id[:strings.IndexByte(id, '_')], len(number)+1)
		}
		return number[id]
	})
}

// rankTraces does what the store does: it gives each fact the rank of the best key of its trace.
func rankTraces(facts []fact.Fact) {
	best := make(map[string]int)
	for i := range facts {
		if f := &facts[i]; f.Session != "" {
			if rank, known := best[f.TraceID]; !known || f.SessionRank < rank {
				best[f.TraceID] = f.SessionRank
			}
		}
	}
	for i := range facts {
		facts[i].TraceRank = best[facts[i].TraceID]
	}
}
