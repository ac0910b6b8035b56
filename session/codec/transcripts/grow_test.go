package transcripts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// growers read transcripts that grow.
var growers = []codectest.Grow{
	transcripts.Claude.Grow, transcripts.Codex.Grow, transcripts.Copilot.Grow,
	transcripts.Gemini.Grow,
}

// FuzzGrow: a transcript that is read up to any byte and then from the checkpoint on has the rows
// of one that is read at once.
func FuzzGrow(f *testing.F) {
	names, err := filepath.Glob(filepath.Join("..", "..", "ingest", "testdata", "delegated", "*", "transcripts",
		"*.jsonl"))
	if err != nil || len(names) == 0 {
		f.Fatal("no transcripts", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for at := range 16 {
			f.Add(string(text), uint(len(text)*at/16))
		}
	}
	for _, text := range []string{longTurn(false), longTurn(true)} {
		for at := range 16 {
			f.Add(text, uint(len(text)*at/16))
		}
	}
	f.Add(claudeRecords(claudeUser("one"), claudeSays("m1", "yes"), claudeUser("two"), claudeSays("m2", "no")),
		uint(700))
	for _, pattern := range []string{"copilot/session-state/*/events.jsonl", "gemini/tmp/parser/chats/*.jsonl"} {
		names, err := filepath.Glob(filepath.Join("testdata", pattern))
		if err != nil || len(names) == 0 {
			f.Fatal(pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			for at := range 32 {
				f.Add(string(text), uint(len(text)*at/32))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string, cut uint) {
		for _, read := range growers {
			codectest.CheckGrow(t, read, text, cut)
		}
	})
}

// TestLongTurnIsReadFromItsLastSteps: a transcript that grows by another step of a long turn is not read from the
// beginning of the turn, be it the user's or a sub-agent's.
func TestLongTurnIsReadFromItsLastSteps(t *testing.T) {
	for _, ofSubagent := range []bool{false, true} {
		text := longTurn(ofSubagent)
		g, err := transcripts.Claude.Grow("agent-a1.jsonl", []byte(text), codec.Checkpoint{}, 0, nil)
		if err != nil || g.Next.Offset < int64(len(text))/2 {
			t.Errorf("sub-agent %v: reading goes on at %d of %d, %v", ofSubagent, g.Next.Offset, len(text), err)
		}
	}
}

// TestCheckpointHoldsLittle: what a reader has to know of the turns before does not grow with
// them, and a record that concerns them has the whole read.
func TestCheckpointHoldsLittle(t *testing.T) {
	turns := func(n int) (records []string) {
		for range n {
			records = append(records, claudeUser("why"), claudeSays("m1", "because"))
		}
		return records
	}
	state := func(n int) codec.Checkpoint {
		g, err := transcripts.Claude.Grow("", []byte(chained(turns(n)...)), codec.Checkpoint{}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		return g.Next
	}
	few, many := state(3), state(300)
	if few.Offset == 0 || len(many.State) > len(few.State)+64 {
		t.Errorf("%d bytes after 300 turns, %d after 3", len(many.State), len(few.State))
	}
	text := chained(turns(20)...)
	back := strings.Replace(chained(append(turns(20), claudeUser("instead"))...), `"parentUuid":"u39"`,
		`"parentUuid":"u3"`, 1)
	g, err := transcripts.Claude.Grow("", []byte(text), codec.Checkpoint{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = transcripts.Claude.Grow("", []byte(back[g.Next.Offset:]), g.Next, len(text)-int(g.Next.Offset), nil)
	if !errors.Is(err, codec.ErrWhole) {
		t.Errorf("after going back: %v", err)
	}
}

// chained are records of Claude Code of which each follows from the one before.
func chained(records ...string) string {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(claudeRecords(records...)) {
		parent := "null"
		if n > 0 {
			parent = fmt.Sprintf("%q", fmt.Sprint("u", n-1))
		}
		b.WriteString(strings.Replace(line, "{", `{"parentUuid":`+parent+",", 1))
		n++
	}
	return b.String()
}

// longTurn is a turn of Claude Code with many calls.
func longTurn(ofSubagent bool) string {
	records := []string{claudeUser("do it all")}
	for i := range 9 {
		id := fmt.Sprint("t", i)
		records = append(records,
			fmt.Sprintf(`"type":"assistant","message":{"id":"m%d","content":[{"type":"tool_use","id":%q,`+
				`"name":"Bash","input":{}}],"usage":{"input_tokens":1}}`, i, id),
			fmt.Sprintf(`"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":%q,`+
				`"content":"done"}]}`, id))
	}
	text := chained(append(records, claudeSays("m99", "done"))...)
	if ofSubagent {
		text = strings.ReplaceAll(text, `"isSidechain":false`, `"isSidechain":true,"agentId":"a1"`)
	}
	return text
}
