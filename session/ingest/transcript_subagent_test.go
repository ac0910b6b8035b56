package ingest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	programs "github.com/agenttrace/agenttrace/session/codec/transcripts"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// delegatedRun is a run of a client with sub-agents, of which there are the telemetry and
// the transcripts, one file for each agent.
type delegatedRun struct {
	decode codec.FileDecoder
}

// wanted is the file sessions.txt of a run: a line for each session, with its parent, its agent and its
// tokens, and a line for each of its messages.
func wanted(t *testing.T, name string) []string {
	t.Helper()
	text := testscale.ReadFile(t, filepath.Join("testdata/delegated", name, "sessions.txt"))
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// delegatedRuns are by their folder of testdata/delegated.
var delegatedRuns = map[string]delegatedRun{
	"claude-code":       {decode: programs.Claude.DecodeFile},
	"claude-code-older": {decode: programs.Claude.DecodeFile},
	"codex":             {decode: programs.Codex.DecodeFile},
	"codex-v2":          {decode: programs.Codex.DecodeFile},
}

// files are the transcripts of the run, and a copy of each that ends earlier.
func (r *delegatedRun) files(t testing.TB, name string) (whole, begun []string) {
	t.Helper()
	root, dir := filepath.Join("testdata/delegated", name, "transcripts"), t.TempDir()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".jsonl") {
			whole = append(whole, path)
			lines := bytes.SplitAfter(text, []byte("\n"))
			text = bytes.Join(lines[:(len(lines)+1)/2], nil)
			path = filepath.Join(dir, strings.TrimPrefix(path, root))
			begun = append(begun, path)
		} else {
			path = filepath.Join(dir, strings.TrimPrefix(path, root))
		}
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600))
	})
	if err != nil || len(whole) == 0 {
		t.Fatalf("no transcripts of %s: %v", name, err)
	}
	return whole, begun
}

// importFile imports a transcript as the command does: with what telemetry reports of the
// session, or of the one that started it, or as rows.
func (r *delegatedRun) importFile(t testing.TB, s *sqlitestore.Store, path string) {
	t.Helper()
	reported := func(id string) bool {
		row, err := s.Session(t.Context(), id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil && strings.Contains(row.MetadataJSON, `"dialect"`)
	}
	for in, err := range r.decode(t.Context(), path, nil, func(p codec.Problem) { t.Logf("%s: %v", path, p) }) {
		testscale.Must(t, err)
		if reported(in.Session.ID) || in.Session.ParentID != nil && reported(*in.Session.ParentID) {
			_, err = ingest.New(s, ingest.Options{}).Transcript(t.Context(), in)
		} else {
			_, err = s.Import(t.Context(), in)
		}
		testscale.Must(t, err)
	}
}

// briefID is a session's id in the expectations: the characters that distinguish them.
func briefID(id *string) string {
	switch {
	case id == nil:
		return "-"
	case len(*id) > 37:
		return (*id)[:4] + "-" + (*id)[37:41]
	case strings.HasPrefix(*id, "01a2"): // what else there is in the time of a minute is the same
		return (*id)[:13]
	}
	return (*id)[:4]
}

// delegated is what the store holds, in the form of [wanted].
func delegated(t testing.TB, s *sqlitestore.Store) []string {
	t.Helper()
	var lines []string
	for _, tr := range rowsOf(t, s) {
		row := tr.Session
		lines = append(lines, fmt.Sprintf("%s below %s by %s: %d tokens", briefID(&row.ID), briefID(row.ParentID),
			row.Agent,
			row.Usage().Total()))
		for _, m := range tr.Messages {
			var parts []string
			for _, p := range m.Parts {
				parts = append(parts, partOutline(p)...)
			}
			lines = append(lines, "  "+m.Message.Role+" "+strings.Join(parts, " | "))
		}
	}
	return lines
}

func partOutline(p session.Part) []string {
	_, text, _ := strings.Cut(p.DataJSON, `"text":"`)
	text, _, _ = strings.Cut(text, `\n`)
	text, _, _ = strings.Cut(text, `"`)
	switch {
	case p.Type == "text":
		return []string{strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(text)}
	case p.Type == "step-start":
		return nil
	case !session.IsToolType(p.Type):
		return []string{p.Type}
	}
	name := strings.TrimPrefix(p.Type, "tool-")
	if _, child, found := strings.Cut(p.DataJSON, `"child_session_id":"`); found {
		child, _, _ = strings.Cut(child, `"`)
		name += " → " + briefID(&child)
	}
	return []string{name}
}

// sessionLines are the sessions of an outline, without their messages and agents, which one source may call otherwise.
func sessionLines(lines []string) []string {
	agent := regexp.MustCompile(` by [^:]*`)
	var sessions []string
	for _, line := range lines {
		if !strings.HasPrefix(line, " ") {
			sessions = append(sessions, agent.ReplaceAllString(line, ""))
		}
	}
	return sessions
}

// totals are the tokens of the sessions of an outline, in order.
func totals(lines []string) []string {
	var all []string
	for _, line := range sessionLines(lines) {
		_, tokens, _ := strings.Cut(line, ": ")
		all = append(all, tokens)
	}
	slices.Sort(all)
	return all
}

// TestSubagentThatOneSourceReportsIsComplete has the telemetry of a run with sub-agents, or
// its transcripts, come to the same sessions alone.
func TestSubagentThatOneSourceReportsIsComplete(t *testing.T) {
	for name, run := range delegatedRuns {
		t.Run(name, func(t *testing.T) {
			lines := sessionLines
			if name == "claude-code-older" {
				lines = totals // without an id, telemetry has another for the session, and the files name no parent
			}
			want := lines(wanted(t, name))
			compare := func(source string, fill func(*sqlitestore.Store)) {
				s := openStore(t)
				fill(s)
				storetest.CheckSessions(t, s)
				if d := cmp.Diff(want, lines(delegated(t, s))); d != "" {
					t.Errorf("%s (-want +got):\n%s", source, d)
				}
			}
			compare("telemetry", func(s *sqlitestore.Store) {
				deliver(t, s, readCapture(t, filepath.Join("testdata/delegated", name, "telemetry")))
			})
			compare("transcripts", func(s *sqlitestore.Store) {
				whole, _ := run.files(t, name)
				for _, path := range whole {
					run.importFile(t, s, path)
				}
			})
		})
	}
}

// TestSubagentOfTranscriptAndTelemetryIsOneSession imports the transcripts of a run with
// sub-agents, and delivers its telemetry, in many orders and several times, also while the
// transcripts grow: each sub-agent is one session, below the call that started it.
func TestSubagentOfTranscriptAndTelemetryIsOneSession(t *testing.T) {
	for name, run := range delegatedRuns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			telemetry := readCapture(t, filepath.Join("testdata/delegated", name, "telemetry"))
			single := split(telemetry)
			whole, begun := run.files(t, name)
			first := openStore(t)
			deliver(t, first, telemetry)
			for _, path := range whole {
				run.importFile(t, first, path)
			}
			storetest.CheckSessions(t, first)
			if d := cmp.Diff(wanted(t, name), delegated(t, first)); d != "" {
				t.Errorf("sessions (-want +got):\n%s", d)
			}
			want := strings.Split(dump(t, first.Path()), "\n")

			for seed := range uint64(testscale.Rounds(1, 10)) {
				r := rand.New(rand.NewPCG(seed, 1))
				s := openStore(t)
				order := run.shuffled(t, r, s, single, whole, begun)
				storetest.CheckSessions(t, s)
				if d := cmp.Diff(want, strings.Split(dump(t, s.Path()), "\n")); d != "" {
					t.Fatalf("seed %d, %s: tables differ (-want +got):\n%s", seed, strings.Join(order, ", "), d)
				}
			}
		})
	}
}

// shuffled does all that there is to do in an order that r chooses, some of it twice, and returns the order.
func (r *delegatedRun) shuffled(t testing.TB, chance *rand.Rand, s *sqlitestore.Store, single []request, whole,
	begun []string) []string {
	type step struct {
		name string
		do   func()
	}
	var steps []step
	shuffled := slices.Clone(single)
	if chance.IntN(2) == 0 {
		chance.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	}
	pieces := 1 + chance.IntN(4)
	for i := range pieces {
		some := shuffled[i*len(shuffled)/pieces : (i+1)*len(shuffled)/pieces]
		steps = append(steps, step{fmt.Sprintf("telemetry %d of %d", i+1, pieces), func() { deliver(t, s, some) }})
	}
	for i := range whole {
		steps = append(steps, step{filepath.Base(whole[i]), func() { r.importFile(t, s, whole[i]) }})
	}
	again := slices.Clone(steps[chance.IntN(len(steps)):])
	for i := range begun { // what is imported before it has grown comes before what is whole
		steps = append(steps, step{"begun " + filepath.Base(begun[i]), func() { r.importFile(t, s, begun[i]) }})
	}
	chance.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	var order []string
	for _, some := range [][]step{steps, again} {
		for _, step := range some {
			order = append(order, step.name)
			step.do()
		}
	}
	return order
}

// TestSubagentOfOpencodeIsOneSession: its transcript has the name that its spans have in the trace of its parent.
func TestSubagentOfOpencodeIsOneSession(t *testing.T) {
	requests, err := parseText(`span SessionPrompt.run id=1 for=9s
	session.id = "home"
span Tool.execute id=2 parent=1 at=1s for=5s
	tool.call_id = "c"
span SessionPrompt.run id=3 parent=2 at=2s for=3s
span ai.streamText.doStream id=4 parent=3 at=3s for=1s
	session.id = "scout"
	ai.operationId = "ai.streamText.doStream"
	ai.usage.promptTokens = 10
`, "opencode")
	s := openStore(t)
	testscale.Must(t, err)
	deliver(t, s, requests)
	for range 2 { // the rows of telemetry, as a transcript has them
		in := storetest.Transcript(t, s, "scout")
		if in.Session.TotalTokens != 10 || session.Deref(in.Session.ParentID) != "home" {
			t.Fatalf("%d tokens, below %q", in.Session.TotalTokens, session.Deref(in.Session.ParentID))
		}
		in.Session.MetadataJSON = `{"agenttrace":{"transcript":"opencode"}}`
		_, err := ingest.New(s, ingest.Options{}).Transcript(t.Context(), &store.Imported{Transcript: in})
		testscale.Must(t, err)
	}
}
