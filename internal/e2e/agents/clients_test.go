//go:build e2e

package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// absent is what the telemetry of a client does not report.
type absent struct {
	// prompt is what the user said in a turn that failed, failure why a tool did.
	prompt, failure bool
	// calls is how often the model was called: one span covers all calls of a turn, or all attempts of a call.
	calls, attempts bool
	// cache is how many tokens of the input came from a cache.
	cache bool
	// order is which of the calls of an answer was first, if they began in one millisecond.
	order bool
	// scout is what a sub-agent was asked and answered.
	scout bool
	// files is where transcripts are below the client's home directory, which report all of it.
	files string
	// sources is how many report of a coding agent that agenttrace run starts.
	sources int
}

// clients are the programs of the projects clients and programs.
var clients = map[string]absent{
	"langfuse": {}, "langgraph": {}, "mastra": {}, "openai-agents": {prompt: true, failure: true},
	"openinference-anthropic": {}, "strands": {},
	"voltagent": {calls: true},
	"tanstack":  {order: true}, "beeai": {cache: true}, "adk-go": {},
	"claude-code": {failure: true, attempts: true, scout: true, files: ".claude/projects", sources: 3},
	"copilot-cli": {scout: true, files: ".copilot/session-state", sources: 3},
}

// recorded are coding agents that are played by agenttrace run alone. Pi has its server in a file, so that the proxy
// sees nothing of it, and sends no telemetry. Qwen Code and opencode take 10 s of a processor for each turn, and have
// two.
var recorded = map[string]absent{
	"codex": {sources: 3}, "gemini-cli": {sources: 3}, "pi": {attempts: true, sources: 1},
	"qwen-code": {sources: 3}, "opencode": {attempts: true, sources: 3},
}

// play plays the script with clients and has each compared with what is stored of it: first of its telemetry, then with
// its transcripts, which report all that telemetry lacks. The store has so many sessions.
func play(t *testing.T, suffix string, sessions int, names []string,
	compare func(*testing.T, store.Reader, []Turn, absent)) {
	t.Helper()
	all, lacks, whole := make(map[string]*Program), make(map[string]absent), make(map[string]absent)
	var transcripts []string
	for _, name := range names {
		suite := others
		if _, err := projects.Open("programs/clients/" + name + ".mjs"); err == nil {
			suite = programs
		}
		all[name], lacks[name] = suite.Variant(name+suffix), clients[name]
		if files := clients[name].files; files != "" {
			whole[name] = absent{attempts: clients[name].attempts}
			transcripts = append(transcripts, filepath.Join(suite.project.Dir, "homes", name+suffix, files))
		}
	}
	saw, path := collect(t, all)
	reader := testscale.Open(t, sqlite.OpenReader, path)
	for round, lacks := range []map[string]absent{lacks, whole} {
		if round > 0 {
			im, err := importer.New(path, importer.Options{})
			if err == nil {
				_, err = im.Run(t.Context(), importer.Inputs(transcripts, nil, nil))
				err = errors.Join(err, im.Close())
			}
			testscale.Must(t, err)
		}
		checkAll(t, reader, sessions)
		for name, lacks := range lacks {
			t.Run(name, func(t *testing.T) { compare(t, reader, saw[name], lacks) })
		}
	}
}

// checkAll checks that agenttrace store check has nothing to say of the sessions, but of prompts that are absent.
func checkAll(t *testing.T, reader store.Reader, sessions int) {
	t.Helper()
	ids, err := document.Reader{Reader: reader}.SelectIDs(t.Context(), store.SessionFilter{}, "")
	if err != nil || len(ids) != sessions {
		t.Errorf("the store has the sessions %q (%v), want %d", ids, err, sessions)
	}
	for _, id := range ids {
		in, err := document.Reader{Reader: reader}.Collect(t.Context(), id)
		testscale.Must(t, err)
		for _, v := range session.Check(in.Transcript) {
			t.Errorf("session.Check: %s", v)
		}
		for _, n := range document.NoticesOf(in) {
			if !clients[strings.TrimSuffix(id, "-1")].prompt {
				t.Errorf("%s: %s", id, n.String())
			}
		}
	}
}

// TestClients: what a model server answered to a program and what the program's tools returned is what the store holds,
// whatever client package the program uses and a program that instrumented it, or whatever coding agent it is. The
// script has calls of equal input beside each other, a tool and a turn that fail, and the same words twice.
func TestClients(t *testing.T) {
	play(t, "", len(clients), slices.Collect(maps.Keys(clients)),
		func(t *testing.T, reader store.Reader, turns []Turn, lacks absent) {
			if len(turns) < 6 {
				t.Fatalf("the program had %d turns, want 6 or more", len(turns))
			}
			compare(t, reader, turns, lacks)
		})
}

// TestRunRecordsCodingAgents: the same for coding agents that agenttrace run starts, each process of which goes on with
// the session. The proxy, the telemetry and the files of each are one session, in which every fact is once.
func TestRunRecordsCodingAgents(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	dir := t.TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "agenttrace"), "../../../cmd/agenttrace")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	store := filepath.Join(dir, "sessions.db")
	t.Setenv("AGENTTRACE", filepath.Join(dir, "agenttrace"))
	t.Setenv("AGENTTRACE_STORE", store)
	agents := maps.Clone(recorded)
	for name, lacks := range clients {
		if lacks.sources > 0 {
			agents[name] = absent{attempts: lacks.attempts, sources: lacks.sources}
		}
	}
	saw := make(map[string][]Turn)
	var mu sync.Mutex
	var wg sync.WaitGroup
	running := make(chan bool, 2)
	for name := range agents {
		wg.Go(func() {
			running <- true
			turns, err := programs.Variant(name).Run(ctx, "")
			<-running
			mu.Lock()
			defer mu.Unlock()
			if saw[name] = turns; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	reader := testscale.Open(t, sqlite.OpenReader, store)
	checkAll(t, reader, len(saw))
	for name, lacks := range agents {
		t.Run(name, func(t *testing.T) {
			compareRun(t, reader, name, saw[name], lacks)
			if lacks.sources > 1 { // it goes through the proxy
				compareBytes(t, filepath.Join(programs.project.Dir, "homes", name))
			}
		})
	}
}

// compareBytes compares what a client sent and got with what the model's server got and sent: all that belongs to a
// request and its answer, and not to a connection, is the same, byte for byte.
func compareBytes(t *testing.T, dir string) {
	t.Helper()
	exchanges := func(side string) (all []string) {
		for line := range bytes.Lines(testscale.ReadFile(t, filepath.Join(dir, side))) {
			var e struct {
				Method, Path           string
				Headers, AnswerHeaders []string // names and values
				Body, Answer           []byte
				Status                 int
			}
			testscale.Must(t, json.Unmarshal(line, &e))
			if side == "inside" {
				server, path, _ := strings.Cut(strings.TrimPrefix(e.Path, "/"), "/")
				if !slices.Contains([]string{"openai", "anthropic", "gemini", "copilot"}, server) {
					continue // telemetry
				}
				e.Path = "/" + path
			}
			all = append(all, fmt.Sprintf("%s %s\n%s\n%s\n%d\n%s\n%s", e.Method, e.Path, ofMessage(e.Headers), e.Body,
				e.Status, ofMessage(e.AnswerHeaders), e.Answer))
		}
		slices.Sort(all)
		return all
	}
	got, passed := exchanges("inside"), exchanges("outside")
	if d := cmp.Diff(passed, got); d != "" || len(got) == 0 {
		t.Errorf("%d exchanges of the client (-server's side +client's side):\n%s", len(got), d)
	}
}

// ofMessage are the headers that do not belong to a connection, or state how long a body is, in the order of their
// names.
func ofMessage(pairs []string) (all []string) {
	for pair := range slices.Chunk(pairs, 2) {
		name := strings.ToLower(pair[0])
		if !slices.Contains([]string{"host", "connection", "keep-alive", "transfer-encoding", "content-length"}, name) {
			all = append(all, name+": "+pair[1])
		}
	}
	slices.Sort(all)
	return all
}

// compareRun compares what happened with the session that was in the client's directory, and that so many sources
// report.
func compareRun(t *testing.T, reader store.Reader, name string, turns []Turn, lacks absent) {
	t.Helper()
	for _, s := range storetest.List(t, reader, store.SessionQuery{Limit: -1}) {
		if strings.HasSuffix(session.Deref(s.WorkspaceRoot), filepath.Join("homes", name, "project")) {
			turns[0].Session = s.ID
		}
	}
	transcript := compare(t, reader, turns, lacks)
	succeeded, reports := 0, make(map[string]int) // messages by who report them
	for _, turn := range turns {
		if turn.Error == "" {
			succeeded++
		}
	}
	messages := 0
	for i := range transcript.Messages {
		sources := session.ParseMessageMetadata([]byte(transcript.Messages[i].Message.MetadataJSON)).Trace.Sources
		reports[strings.Join(sources, ", ")]++
		if len(sources) >= lacks.sources {
			messages++
		}
	}
	t.Logf("messages by their sources: %v", reports)
	if want := min(succeeded, 3); lacks.sources > 1 && messages < want {
		t.Errorf("%d messages have %d sources, want %d or more: %v", messages, lacks.sources, want, reports)
	}
}

// compare compares the turns of a session with what is stored of it.
func compare(t *testing.T, reader store.Reader, turns []Turn, lacks absent) *session.Transcript {
	t.Helper()
	transcript := storetest.Transcript(t, reader, turns[0].Session)
	for _, turn := range turns { // all coding agents have one of these exit codes, with agenttrace run and without
		if want := min(len(turn.Error), 1); lacks.sources > 0 && turn.Exit != want {
			t.Errorf("exit code %d after %q, want %d", turn.Exit, turn.User, want)
		}
	}
	want, got := happened(turns, lacks), storedOf(t, transcript, lacks)
	for _, lines := range [][]string{want, got} {
		for i := 1; i < len(lines) && lacks.order; i++ {
			for k := i; strings.HasPrefix(lines[k], "call ") && strings.HasPrefix(lines[k-1], "call ") &&
				lines[k] < lines[k-1]; k-- {
				lines[k], lines[k-1] = lines[k-1], lines[k]
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("session (-happened +stored):\n%s", d)
	}
	return transcript
}

// crews are the programs whose agent asks another one by a tool.
var crews = []string{"adk", "adk-go", "claude-code", "copilot-cli", "langgraph", "mastra", "openai-agents", "strands",
	"voltagent"}

// TestCrews: what the model server answered to a sub-agent is in a session of its own, below the tool call that asked
// it; what it was asked is no turn of the parent's, and what it used and did is not the parent's.
func TestCrews(t *testing.T) { play(t, "-crew", 4*len(crews), crews, compareCrew) }

func compareCrew(t *testing.T, reader store.Reader, saw []Turn, lacks absent) {
	t.Helper()
	var pilot, scout []Turn
	asked := 0 // by the user, and not by a scout that has finished
	for _, turn := range saw {
		if turn.Run == "Scout" {
			scout = append(scout, turn)
		} else if pilot = append(pilot, turn); turn.User != "" {
			asked++
		}
	}
	if asked != 3 || len(scout) != 3 {
		t.Fatalf("the pilot had %d turns and the scout %d, want 3 each", asked, len(scout))
	}
	transcript := compare(t, reader, pilot, lacks)
	for _, child := range children(t, transcript) {
		compareChild(t, reader, transcript.Session.ID, child, &scout, lacks)
	}
	if len(scout) > 0 {
		t.Errorf("no session has what the scout did for %q", scout[0].User)
	}
}

// asked is a tool call that started a session.
type asked struct{ session, message, input string }

// children returns the calls that started sessions.
func children(t *testing.T, transcript *session.Transcript) (all []asked) {
	t.Helper()
	for _, m := range transcript.Messages {
		for _, row := range m.Parts {
			var part struct {
				Input json.RawMessage
				Meta  struct {
					Trace session.ToolTrace `json:"agenttrace"`
				} `json:"toolMetadata"`
			}
			testscale.Must(t, json.Unmarshal([]byte(row.DataJSON), &part))
			if id := part.Meta.Trace.ChildSessionID; id != "" {
				all = append(all, asked{id, m.Message.ID, string(part.Input)})
			}
		}
	}
	return all
}

// compareChild compares a call's session with the turn of the scout's that answered it, and takes that turn away.
func compareChild(t *testing.T, reader store.Reader, parent string, call asked, scout *[]Turn, lacks absent) {
	t.Helper()
	transcript := storetest.Transcript(t, reader, call.session)
	if p := transcript.Session.ParentID; p == nil || *p != parent {
		t.Errorf("the session that %s started has the parent %v", call.input, p)
	}
	if p := transcript.Session.ParentMessageID; p == nil || *p != call.message {
		t.Errorf("the session that %s started is not below the message of the call", call.input)
	}
	got := storedOf(t, transcript, lacks)
	for i, turn := range *scout {
		if strings.Contains(call.input, turn.User) && cmp.Equal(happened([]Turn{turn}, lacks), got) {
			*scout = append((*scout)[:i:i], (*scout)[i+1:]...)
			return
		}
	}
	t.Errorf("what %s started is no turn of the scout's: %q", call.input, got)
}

// happened is a line for everything that a person would want to find in the session.
func happened(turns []Turn, lacks absent) []string {
	var lines []string
	for _, turn := range turns {
		if turn.User != "" && (turn.Error == "" || !lacks.prompt) && (turn.Run != "Scout" || !lacks.scout) {
			lines = append(lines, "user: "+turn.User)
		}
		for _, step := range turn.Steps {
			if step.Text != "" {
				lines = append(lines, "text: "+step.Text)
			}
			for _, c := range step.Calls {
				lines = append(lines, fmt.Sprintf("call %s %s %s -> %s", c.ID, c.Name, plain(c.Input),
					outcome(c.Output, lacks)))
			}
		}
		if turn.Error != "" {
			lines = append(lines, "error: the model is on fire")
			continue
		}
		if lacks.calls {
			turn.Calls = 1
		}
		if lacks.attempts {
			turn.Calls -= turn.Failures
		}
		used := *turn.Usage
		if lacks.cache {
			used = session.Usage{Input: used.Input + used.CacheRead, Output: used.Output}
		}
		lines = append(lines, fmt.Sprintf("%d calls, usage %+v", turn.Calls, used))
	}
	return lines
}

// storedOf is the same of what is stored.
func storedOf(t *testing.T, transcript *session.Transcript, lacks absent) []string {
	t.Helper()
	var lines []string
	for _, m := range transcript.Messages {
		var meta session.MessageMetadata
		testscale.Must(t, json.Unmarshal([]byte(m.Message.MetadataJSON), &meta))
		for _, row := range m.Parts {
			p := storedPart(t, row)
			switch {
			case p.Type == session.TypeContext, m.Message.Role == session.RoleSystem: // what a client writes
			case m.Message.Role == session.RoleUser:
				lines = append(lines, "user: "+p.Text)
			case p.Type == "text":
				lines = append(lines, "text: "+p.Text)
			case p.CallID != "":
				output, _ := json.Marshal(p.Output)
				if p.State == session.StateOutputError {
					output, _ = json.Marshal(p.Error)
				}
				input, _ := json.Marshal(p.Input)
				name := strings.TrimPrefix(p.Type, "tool-")
				id := strings.TrimPrefix(p.CallID, name+"__") // as Gemini CLI has it
				lines = append(lines, fmt.Sprintf("call %s %s %s -> %s", id, name, plain(input), outcome(output, lacks)))
			case p.Type != "step-start" && p.Type != session.TypeError:
				lines = append(lines, p.Type)
			}
		}
		switch {
		case m.Message.Role != session.RoleAssistant:
		case meta.Trace.EndReason == "error":
			if !strings.Contains(meta.Trace.Error, "fire") {
				t.Errorf("error %q", meta.Trace.Error)
			}
			lines = append(lines, "error: the model is on fire")
		case meta.Usage == nil:
			lines = append(lines, fmt.Sprintf("%d calls, no usage", meta.Trace.ModelCalls))
		default:
			lines = append(lines, fmt.Sprintf("%d calls, usage %+v", meta.Trace.ModelCalls, *meta.Usage))
		}
	}
	return lines
}

// plain is JSON with the keys in order.
func plain(raw json.RawMessage) string {
	text, _ := json.Marshal(value(raw))
	return string(text)
}

// outcome is what a tool returned, whatever a client wraps it in.
func outcome(raw json.RawMessage, lacks absent) string {
	text := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`\" {}`, r) {
			return -1
		}
		return r
	}, string(raw))
	switch i := strings.Index(text, "reading:"); {
	case strings.Contains(text, "Calm"), strings.Contains(text, "Asyncagent"), lacks.scout && text == "null":
		return "answered" // by the scout, in the words of the client
	case strings.Contains(text, "Logged:"):
		_, text, _ = strings.Cut(text, "Logged:")
		text, _, _ = strings.Cut(text, "endoflog")
		return "Logged:" + text
	case i >= 0:
		digits := strings.IndexFunc(text[i+8:]+"x", func(r rune) bool { return r < '0' || r > '9' })
		return text[i : i+8+digits]
	case strings.Contains(text, "noberthfree"),
		lacks.failure && (strings.Contains(text, "failed") || strings.Contains(text, "erroroccurred")):
		return "failed"
	}
	return text
}
