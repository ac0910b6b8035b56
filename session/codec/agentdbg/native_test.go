package agentdbg_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/google/go-cmp/cmp"
)

// The sessions of this file are not AgentDbg's: they are put in its terms.

// parts of every kind, by what they are.
var partKinds = []string{
	`{"type":"text","text":"plain"}`,
	`{"type":"text","text":"a \"quote\", a \\ and a \u0001,   and é","state":"done"}`,
	`{"type":"text","text":""}`,
	`{"type":"text", "text":"with space in the JSON"}`,
	`{"type":"reasoning","text":"think <b> & more","providerMetadata":{"p":{"n":1.50}}}`,
	`{"type":"step-start"}`,
	`{"type":"file","mediaType":"image/png","url":"data:image/png;base64,AAAA","filename":"a.png"}`,
	`{"type":"source-url","sourceId":"s1","url":"https://example.com"}`,
	`{"type":"source-document","sourceId":"s2","mediaType":"text/plain","title":"T"}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"output-available","input":{"command":"ls","n":1e-7},"output":{"stdout":"a\n"}}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"output-available","input":null,"output":null}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"output-error","input":{"command":"x"},"errorText":"exit 1"}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"output-error","errorText":"bad input","rawInput":"{"}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"output-denied","input":{},"approval":{"id":"a","approved":false,"reason":"no"}}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"input-available","input":{"command":"sleep"}}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"input-streaming"}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"approval-requested","input":{},"approval":{"id":"a"}}`,
	`{"type":"dynamic-tool","toolName":"mcp_x","toolCallId":"ID","state":"output-available","input":{},"output":[1,2]}`,
	`{"type":"dynamic-tool","toolName":"","toolCallId":"ID","state":"output-available","input":{},"output":"s","providerExecuted":true}`,
	`{"type":"data-note","id":"n","data":[{"deep":[[]]}]}`,
	`{"type":"data-state","data":{"state":{"step":1},"diff":null}}`,
	`{"type":"data-error","data":{"error_type":"KeyError","message":"'x'","stack":null}}`,
	`{"type":"data-error","data":"no object"}`,
	`{"type":"data-loop-warning","data":{"pattern":"TOOL_CALL:bash","repetitions":3,"window_size":3,"evidence_event_ids":[]}}`,
	`{"type":"data-compaction","data":{"summary":"S","tail_start_id":null,"auto":true,"summary_tokens":3}}`,
}

// randomSession makes a sound session of random parts.
func randomSession(r *rand.Rand) *codec.Session {
	at := int64(1795198441428)
	t := &session.Transcript{Session: session.Session{
		ID: fmt.Sprintf("ses_%d", r.IntN(1000)), Title: "T", Agent: "build", PermissionsJSON: "[]", MetadataJSON: "{}",
		CreatedAt: at, UpdatedAt: at + 100_000, CostUSD: 0.25,
	}}
	if r.IntN(2) == 0 {
		t.Session.WorkspaceRoot = new("/work space/é")
		t.Session.PermissionsJSON = `[{"permission":"bash","pattern":"*","action":"ask"}]`
	}
	n := 0
	for i := range r.IntN(8) {
		at += int64(r.IntN(3))
		m := session.MessageAndParts{Message: session.Message{
			ID: fmt.Sprintf("msg_%03d", i), SessionID: t.Session.ID, CreatedAt: at, UpdatedAt: at + int64(r.IntN(50)), MetadataJSON: "{}",
		}}
		m.Message.Role = []string{"user", "assistant", "assistant", "system"}[r.IntN(4)]
		if m.Message.Role == session.RoleAssistant {
			m.Message.MetadataJSON = []string{
				`{}`,
				`{"model":{"provider_id":"p","model_id":"m","variant":"high"},"usage":{"input":1,"output":2,"reasoning":3,"cache_read":4,"cache_write":5},"agenttrace":{"end_reason":"finish","stop_reason":"stop","temperature":1}}`,
				`{"agenttrace":{"end_reason":"error","error":"boom","model_errors":["first","boom"],"temperature":0.5}}`,
				`{"agenttrace":{"incomplete":true}}`,
			}[r.IntN(4)]
		}
		if r.IntN(8) == 0 {
			m.Message.HiddenAt = &at
		}
		for j := range r.IntN(7) {
			n++
			data := partKinds[r.IntN(len(partKinds))]
			if strings.Contains(data, "compaction") && m.Message.Role != session.RoleAssistant {
				data = partKinds[0]
			}
			callID := fmt.Sprintf("call_%d", n)
			data = strings.Replace(data, `"ID"`, `"`+callID+`"`, 1)
			var fields struct{ Type, State string }
			if err := json.Unmarshal([]byte(data), &fields); err != nil {
				panic(err)
			}
			p := session.Part{
				ID: fmt.Sprintf("prt_%d", n), MessageID: m.Message.ID, SessionID: t.Session.ID, Index: int64(j), Type: fields.Type, DataJSON: data,
				CreatedAt: at, UpdatedAt: at + int64(r.IntN(40)),
			}
			if strings.Contains(data, callID) {
				p.ToolCallID, p.ToolState = &callID, &fields.State
			}
			m.Parts = append(m.Parts, p)
		}
		t.Messages = append(t.Messages, m)
	}
	// The rollup is what the rule about it says that it is.
	t.Session.SetUsage(session.Usage{})
	for _, v := range session.Check(t) {
		if v.Rule == "rollup" {
			t.Session.SetUsage(rollup(t))
		}
	}
	s := &codec.Session{Transcript: t}
	if r.IntN(3) == 0 {
		s.Decisions = []store.Decision{{ID: "per_1", SessionID: t.Session.ID, ToolID: "bash", Action: "ask", Outcome: "allowed", DecidedAt: at}}
		s.Blobs = []store.Blob{{Kind: store.BlobSystemPrompt, Digest: strings.Repeat("ab", 32), Body: "be brief\n"}}
	}
	return s
}

func rollup(t *session.Transcript) session.Usage {
	start := 0
	for i, m := range t.Messages {
		for _, p := range m.Parts {
			if p.Type == session.TypeCompaction && m.Message.HiddenAt == nil {
				start = i
			}
		}
	}
	var sum session.Usage
	for _, m := range t.Messages[start:] {
		if m.Message.Role == session.RoleAssistant && m.Message.HiddenAt == nil {
			u, _ := session.UsageOf(m.Message.MetadataJSON)
			sum = sum.Add(u)
		}
	}
	return sum
}

func reference(tb testing.TB) (all []*codec.Session) {
	tb.Helper()
	f, err := os.Open("../../testdata/reference.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for t, err := range jsonl.Decode(f) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, &codec.Session{Transcript: t})
	}
	return all
}

func natives(tb testing.TB) []*codec.Session {
	all := reference(tb)
	for seed := range uint64(120) {
		s := randomSession(rand.New(rand.NewPCG(seed, 1)))
		for _, v := range session.Check(s.Transcript) {
			tb.Fatalf("seed %d: %v", seed, v)
		}
		all = append(all, s)
	}
	return all
}

// Explain says of everything that AgentDbg has no terms for that it is kept, so
// nothing may be lost.
func TestRoundTripLosesNothing(t *testing.T) {
	for i, s := range natives(t) {
		for _, l := range agentdbg.Explain(s) {
			if l.Kept == "" || l.Count < 1 || l.What == "" {
				t.Errorf("session %d: loss %+v", i, l)
			}
		}
		before := lines(t, s)
		var b bytes.Buffer
		if err := agentdbg.Encode(&b, s, agentdbg.Options{}); err != nil {
			t.Fatal(err)
		}
		if lines(t, s) != before {
			t.Fatalf("session %d: Encode changed it", i)
		}
		got, reported := decode(t, b.String())
		if reported != nil {
			t.Errorf("session %d: problems %q", i, reported)
		}
		if diff := cmp.Diff(before, lines(t, got)); diff != "" {
			t.Fatalf("session %d (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(s.Decisions, got.Decisions); diff != "" {
			t.Errorf("session %d: decisions (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(s.Blobs, got.Blobs); diff != "" {
			t.Errorf("session %d: blobs (-want +got):\n%s", i, diff)
		}
		var again bytes.Buffer
		if err := agentdbg.Encode(&again, got, agentdbg.Options{}); err != nil {
			t.Fatal(err)
		}
		if again.String() != b.String() {
			t.Errorf("session %d: written again it differs:\n%s", i, cmp.Diff(b.String(), again.String()))
		}
	}
}

// Without the rows in meta a run is read like any other, and says the same texts
// and calls in the same order.
func TestRunStandsWithoutItsMeta(t *testing.T) {
	for i, s := range natives(t) {
		dir, err := agentdbg.EncodeFile(t.TempDir(), s, agentdbg.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var bare strings.Builder
		for line := range strings.Lines(readFile(t, filepath.Join(dir, "events.jsonl"))) {
			var e map[string]any
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			e["meta"] = map[string]any{}
			b, _ := json.Marshal(e)
			bare.Write(append(b, '\n'))
		}
		got, _ := decode(t, bare.String())
		if diff := cmp.Diff(told(s.Transcript), told(got.Transcript)); diff != "" {
			t.Errorf("session %d (-want +got):\n%s", i, diff)
		}
	}
}

// told is what a session's assistant said and called.
func told(t *session.Transcript) (all []string) {
	for i := range t.Messages {
		if t.Messages[i].Message.Role != session.RoleAssistant {
			continue
		}
		for _, p := range t.Messages[i].Parts {
			var data struct{ Text, ToolName string }
			if err := json.Unmarshal([]byte(p.DataJSON), &data); err != nil {
				panic(err)
			}
			switch {
			case p.Type == "text", p.Type == "reasoning":
				all = append(all, p.Type+": "+data.Text)
			case p.ToolState != nil:
				name := strings.TrimPrefix(p.Type, "tool-")
				if p.Type == "dynamic-tool" {
					name = data.ToolName
				}
				all = append(all, "call: "+name)
			}
		}
	}
	return all
}

func TestEditedRunIsWrittenAsItIsNow(t *testing.T) {
	all, _ := samples(t)
	s := all[3]
	s.Session.Title = "renamed"
	s.Messages[1].Parts = slices.DeleteFunc(slices.Clone(s.Messages[1].Parts), func(p session.Part) bool { return p.Index == 5 })
	s.Messages[1].Parts[1].DataJSON = `{"type":"text","text":"[removed]"}`
	var b bytes.Buffer
	if err := agentdbg.Encode(&b, s, agentdbg.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"call tool", `"deep"`} {
		if strings.Contains(b.String(), gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	got, _ := decode(t, b.String())
	if diff := cmp.Diff(lines(t, s), lines(t, got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if agentdbg.Explain(s) == nil {
		t.Error("Explain lists nothing")
	}
}

func TestEncodeRefuses(t *testing.T) {
	s := randomSession(rand.New(rand.NewPCG(1, 1)))
	s.Session.ID = ""
	if err := agentdbg.Encode(new(bytes.Buffer), s, agentdbg.Options{}); err == nil || !strings.Contains(err.Error(), "session has no id") {
		t.Errorf("Encode: %v", err)
	}
	if _, err := agentdbg.EncodeFile(t.TempDir(), s, agentdbg.Options{}); err == nil {
		t.Error("EncodeFile: no error")
	}
}
