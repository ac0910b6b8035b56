package spans_test

import (
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/spans"
)

func TestNewIDSortsInTheOrderOfMinting(t *testing.T) {
	now := time.UnixMilli(1795198540808)
	shape := regexp.MustCompile(`^msg_[0-9a-f]{12}[0-9A-Za-z]{14}$`)
	var ids []string
	for i := range 10000 {
		// The clock may stop or go back.
		ids = append(ids, spans.NewID(spans.PrefixMessage, now.Add(-time.Duration(i%3)*time.Second)))
	}
	if !slices.IsSorted(ids) {
		t.Error("ids do not sort in the order in which they were minted")
	}
	for _, id := range ids[:10] {
		if !shape.MatchString(id) {
			t.Errorf("id %q does not match %s", id, shape)
		}
	}
}

func TestNewIDIsUniqueAmongGoroutines(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var ids []string
			for range 1000 {
				ids = append(ids, spans.NewID("", time.UnixMilli(0))[:12])
			}
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				if seen[id] {
					t.Errorf("stamp %s was minted twice", id)
				}
				seen[id] = true
			}
		})
	}
	wg.Wait()
}

func TestDeriveIDDependsOnEveryPart(t *testing.T) {
	base := spans.DeriveID("ses_", 1795198540808, "a", "bc")
	if again := spans.DeriveID("ses_", 1795198540808, "a", "bc"); again != base {
		t.Errorf("same input gives %s and %s", base, again)
	}
	for _, other := range []string{
		spans.DeriveID("ses_", 1795198540808, "ab", "c"), spans.DeriveID("ses_", 1795198540808, "a", "bc", ""),
		spans.DeriveID("ses_", 1795198540809, "a", "bc"),
	} {
		if other == base {
			t.Errorf("other input gives %s too", base)
		}
	}
}
