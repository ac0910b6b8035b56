package codectest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// Text is every row of a session as lines of JSON: the session, its messages and
// parts, then its decisions, annotations and blobs. Sessions of the same rows have the same text,
// in whatever order they stand.
func Text(s *codec.Session) string {
	var b bytes.Buffer
	if err := jsonl.Encode(&b, s.Transcript); err != nil {
		fmt.Fprintf(&b, "error %v\n", err)
	}
	n := normal(s)
	for i := range n.Decisions {
		line, _ := json.Marshal(&n.Decisions[i]) // of texts and numbers
		fmt.Fprintf(&b, "decision %s\n", line)
	}
	for i := range n.Annotations {
		fmt.Fprintf(&b, "annotation %s\n", n.Annotations[i].AppendJSON(nil))
	}
	for _, blob := range n.Blobs {
		fmt.Fprintf(&b, "blob %s %s exact=%t %q\n", blob.Kind, blob.Digest, blob.Exact, blob.Body)
	}
	for i := range n.SpanRefs {
		fmt.Fprintf(&b, "span %s\n", n.SpanRefs[i].AppendJSON(nil))
	}
	for i := range n.RequestedIndexes {
		fmt.Fprintf(&b, "requested_index %s\n", n.RequestedIndexes[i].AppendJSON(nil))
	}
	for _, trace := range n.Traces {
		fmt.Fprintf(&b, "trace %s\n", trace)
	}
	if n.State != nil {
		fmt.Fprintf(&b, "state %s\n", n.State.Encode())
	}
	return b.String()
}

// Diff reports where two sessions have other rows, or "".
func Diff(want, got *codec.Session) string {
	w, g := normal(want), normal(got)
	if reflect.DeepEqual(w, g) {
		return ""
	}
	if d := gocmp.Diff(strings.Split(Text(want), "\n"), strings.Split(Text(got), "\n")); d != "" {
		return "(-want +got):\n" + d
	}
	return "(-want +got):\n" + gocmp.Diff(w, g, cmpopts.EquateEmpty())
}

// normal is the session in the one order that its rows have, with nil where there
// is nothing. It shares rows with s and is only to be read.
func normal(s *codec.Session) *codec.Session {
	t := *s.Sorted()
	if len(t.Messages) == 0 {
		t.Messages = nil
	} else {
		t.Messages = slices.Clone(t.Messages)
		for i := range t.Messages {
			if len(t.Messages[i].Parts) == 0 {
				t.Messages[i].Parts = nil
			}
		}
	}
	return &codec.Session{
		Transcript: &t, State: s.State, Traces: sorted(s.Traces, strings.Compare),
		Decisions:   sorted(s.Decisions, func(a, b store.Decision) int { return cmp.Compare(a.ID, b.ID) }),
		Annotations: sorted(s.Annotations, store.CompareAnnotations),
		Blobs: sorted(s.Blobs, func(a, b store.Blob) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Body, b.Body))
		}), SpanRefs: sorted(s.SpanRefs, func(a, b store.SpanRef) int {
			return cmp.Or(cmp.Compare(a.TraceID, b.TraceID), cmp.Compare(a.SpanID, b.SpanID))
		}), RequestedIndexes: sorted(s.RequestedIndexes, func(a, b store.RequestedIndex) int {
			return cmp.Compare(a.PartID, b.PartID)
		}),
	}
}

// sorted is a copy of rows in order, nil if there are none.
func sorted[T any](rows []T, compare func(a, b T) int) []T {
	if len(rows) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(rows), compare)
}

// Clone copies a session so that its columns can be set and its rows taken away.
func Clone(s *codec.Session) *codec.Session {
	t := *s.Transcript
	t.Messages = slices.Clone(t.Messages)
	for i := range t.Messages {
		t.Messages[i].Parts = slices.Clone(t.Messages[i].Parts)
	}
	return &codec.Session{
		Transcript: &t, Decisions: slices.Clone(s.Decisions), Blobs: slices.Clone(s.Blobs),
		Annotations: slices.Clone(s.Annotations),
		SpanRefs:    slices.Clone(s.SpanRefs), Traces: s.Traces,
		State: s.State, RequestedIndexes: slices.Clone(s.RequestedIndexes),
	}
}
