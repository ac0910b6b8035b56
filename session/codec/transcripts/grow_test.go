package transcripts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// FuzzGrow: a transcript that is read up to any byte and then from the checkpoint on has the rows
// of one that is read at once.
func FuzzGrow(f *testing.F) {
	names, err := filepath.Glob(filepath.Join("..", "..", "ingest", "testdata", "delegated", "*", "transcripts", "*.jsonl"))
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
	f.Add(claudeRecords(claudeUser("one"), claudeSays("m1", "yes"), claudeUser("two"), claudeSays("m2", "no")), uint(700))
	f.Fuzz(func(t *testing.T, text string, cut uint) {
		if len(text) == 0 {
			return
		}
		for _, read := range []func(string, []byte, codec.Checkpoint, int, func(codec.Problem)) (*codec.Growth, error){
			transcripts.GrowClaude, transcripts.GrowCodex,
		} {
			grow := func(path string, text []byte, from codec.Checkpoint, known int, report func(codec.Problem)) (
				*codec.Growth, error) {
				defer clear(text) // the next file uses its memory
				return read(path, text, from, known, report)
			}
			ignore := func(codec.Problem) {}
			at := int(cut % uint(len(text)))
			whole, err := grow("a.jsonl", []byte(text), codec.Checkpoint{}, 0, ignore)
			if err != nil {
				continue
			}
			part, err := grow("a.jsonl", []byte(text[:at]), codec.Checkpoint{}, 0, ignore)
			if err != nil || part.Next.Offset == 0 {
				continue
			}
			grown, err := grow("a.jsonl", []byte(text[part.Next.Offset:]), part.Next, at-int(part.Next.Offset), ignore)
			if errors.Is(err, codec.ErrWhole) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(whole.Sessions) != 1 || len(part.Sessions) != 1 {
				t.Fatalf("%d sessions, and %d before", len(whole.Sessions), len(part.Sessions))
			}
			before, after := grown.Before[0], grown.Sessions[0]
			want, got := rowsOf(whole.Sessions[0].Transcript), rowsOf(part.Sessions[0].Transcript)
			for _, row := range rowsOf(before.Transcript) {
				i := slices.Index(got, row)
				if i < 0 {
					t.Fatalf("read up to %d: %s is not what the part has", at, row)
				}
				got = slices.Delete(got, i, i+1)
			}
			got = append(got, rowsOf(after.Transcript)...)
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("read up to %d (-whole +grown):\n%s", at, diff)
			}
		}
	})
}

// rowsOf are the rows of a session as JSON, without what is summed when they are stored.
func rowsOf(s *session.Transcript) []string {
	row := s.Session
	row.SetUsage(session.Usage{})
	all := []string{string(row.AppendJSON(nil))}
	for i := range s.Messages {
		all = append(all, string(s.Messages[i].Message.AppendJSON(nil)))
		for k := range s.Messages[i].Parts {
			all = append(all, string(s.Messages[i].Parts[k].AppendJSON(nil)))
		}
	}
	return all
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
		g, err := transcripts.GrowClaude("", []byte(chained(turns(n)...)), codec.Checkpoint{}, 0, nil)
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
	back := strings.Replace(chained(append(turns(20), claudeUser("instead"))...), `"parentUuid":"u39"`, `"parentUuid":"u3"`, 1)
	g, err := transcripts.GrowClaude("", []byte(text), codec.Checkpoint{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = transcripts.GrowClaude("", []byte(back[g.Next.Offset:]), g.Next, len(text)-int(g.Next.Offset), nil)
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
