package codectest

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// Grow reads a file that grows; see codec.Reading.
type Grow func(path string, text []byte, from codec.Checkpoint, known int,
	report func(codec.Problem)) (*codec.Growth, error)

// CheckGrow checks that a file which is read up to a byte, and then from the checkpoint on, has the rows of one that is
// read at once.
func CheckGrow(t *testing.T, read Grow, text string, cut uint) {
	t.Helper()
	if len(text) == 0 {
		return
	}
	grow := func(path string, text []byte, from codec.Checkpoint, known int, report func(codec.Problem)) (
		*codec.Growth, error) {
		defer clear(text) // the next file uses its memory
		return read(path, text, from, known, report)
	}
	ignore := func(codec.Problem) {}
	at := int(cut % uint(len(text)))
	whole, err := grow("a.jsonl", []byte(text), codec.Checkpoint{}, 0, ignore)
	if err != nil {
		return
	}
	part, err := grow("a.jsonl", []byte(text[:at]), codec.Checkpoint{}, 0, ignore)
	if err != nil || part.Next.Offset == 0 {
		return
	}
	grown, err := grow("a.jsonl", []byte(text[part.Next.Offset:]), part.Next, at-int(part.Next.Offset), ignore)
	if errors.Is(err, codec.ErrWhole) {
		return
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
