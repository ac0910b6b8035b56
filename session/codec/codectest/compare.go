package codectest

import (
	"cmp"
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
