package agentdbg_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// The sessions of this file are not AgentDbg's: they are put in its terms.

func natives(tb testing.TB) []*codec.Session {
	all := codectest.Load(tb, "../../testdata/reference.jsonl")
	for _, s := range slices.Concat(codectest.Corpus(), codectest.Generated(40)) {
		all = append(all, s.Session)
	}
	return all
}

// Without the rows in meta a run is read like any other, and says the same texts
// and calls in the same order.
func TestRunStandsWithoutItsMeta(t *testing.T) {
	for i, s := range natives(t) {
		dir, err := agentdbg.EncodeFile(t.TempDir(), s, false)
		if err != nil {
			t.Fatal(err)
		}
		var bare strings.Builder
		for line := range strings.Lines(readFile(t, filepath.Join(dir, "events.jsonl"))) {
			var e map[string]json.RawMessage
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			e["meta"] = json.RawMessage("{}")
			b, _ := json.Marshal(e)
			bare.Write(append(b, '\n'))
		}
		got, _ := decode(t, bare.String())
		if diff := cmp.Diff(answers(s.Transcript), answers(got.Transcript)); diff != "" {
			t.Errorf("session %d (-want +got):\n%s", i, diff)
		}
	}
}

// answers is what a session's assistant said and called.
func answers(t *session.Transcript) (all []string) {
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
	s.Messages[1].Parts = slices.DeleteFunc(slices.Clone(s.Messages[1].Parts),
		func(p session.Part) bool { return p.Index == 5 })
	s.Messages[1].Parts[1].DataJSON = `{"type":"text","text":"[removed]"}`
	var b bytes.Buffer
	if err := agentdbg.Encode(&b, s); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"call tool", `"deep"`} {
		if strings.Contains(b.String(), gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	got, _ := decode(t, b.String())
	lost := codec.Lost(s, got)
	for _, l := range lost {
		if slices.Contains([]string{"title", "texts", "tool calls", "tool inputs", "tool outputs",
			"results of tool calls"},
			l.What) {
			t.Errorf("%d %s did not come back", l.Count, l.What)
		}
	}
	for _, l := range lost {
		if !slices.ContainsFunc(agentdbg.Losses.Of(s), func(listed codec.Loss) bool { return listed.What == l.What }) {
			t.Errorf("%d %s are lost, and Explain does not list them", l.Count, l.What)
		}
	}
	if lost == nil {
		t.Error("nothing of an edited run is lost")
	}
}

func TestEncodeRefuses(t *testing.T) {
	s := codectest.Corpus()[0].Session
	s.Session.ID = ""
	if err := agentdbg.Encode(new(bytes.Buffer), s); err == nil ||
		!strings.Contains(err.Error(), "session has no id") {
		t.Errorf("Encode: %v", err)
	}
	if _, err := agentdbg.EncodeFile(t.TempDir(), s, false); err == nil {
		t.Error("EncodeFile: no error")
	}
}
