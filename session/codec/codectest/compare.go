package codectest

import (
	"fmt"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// Text is every row of a session as lines of JSON. Sessions of the same rows in any order have the same text.
func Text(s *codec.Session) string {
	var b strings.Builder
	if err := jsonl.NewEncoder(&b).Encode(s); err != nil {
		return fmt.Sprintf("error %v\n", err)
	}
	return b.String()
}

// Diff reports where two sessions have other rows, or "".
func Diff(want, got *codec.Session) string {
	d := differ(Text(want), Text(got))
	if d != "" {
		d = "(-want +got):\n" + d
	}
	return d
}

// differ reports the lines in which two texts differ, or "".
func differ(a, b string) string {
	if a == b {
		return ""
	}
	return gocmp.Diff(strings.Split(a, "\n"), strings.Split(b, "\n"))
}

// Clone copies a session so that its columns can be set and its rows taken away.
func Clone(s *codec.Session) *codec.Session {
	c, t := *s, *s.Transcript
	t.Messages = slices.Clone(t.Messages)
	for i := range t.Messages {
		t.Messages[i].Parts = slices.Clone(t.Messages[i].Parts)
	}
	c.Transcript, c.Decisions, c.Blobs, c.Annotations = &t, slices.Clone(s.Decisions), slices.Clone(s.Blobs),
		slices.Clone(s.Annotations)
	c.SpanRefs, c.RequestedIndexes = slices.Clone(s.SpanRefs), slices.Clone(s.RequestedIndexes)
	return &c
}

// sameOutput states where two outputs differ: streams in their text, and files in what is read of them, for an engine
// has its own order of rows, and keeps a journal.
func (x *examination) sameOutput(a, b written) error {
	first, second := string(a.data), string(b.data)
	if a.dir != "" && x.reads() {
		one, two := x.read(a), x.read(b)
		first, second = one.text(), two.text()
	}
	if d := differ(first, second); d != "" {
		return fmt.Errorf("(-first +second):\n%s", d)
	}
	return nil
}
