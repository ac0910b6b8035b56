package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// picky refuses batches that hold what it does not like, and notes what it took.
type picky struct {
	dislikes func(id string) error
	calls    int
	took     []string
}

func (p *picky) Apply(_ context.Context, b *store.Batch) (store.Result, error) {
	p.calls++
	for i := range b.Sessions {
		if err := p.dislikes(b.Sessions[i].ID); err != nil {
			return store.Result{}, err
		}
	}
	for i := range b.Sessions {
		p.took = append(p.took, b.Sessions[i].ID)
	}
	return store.Result{Rows: int64(len(b.Sessions))}, nil
}

// What the store refuses for good is left out alone, whatever else is in its request.
func TestRefusedSpanIsLeftOutAlone(t *testing.T) {
	const n = 200
	var all []string
	s := newScenario()
	for i := range n {
		id := fmt.Sprintf("ses_%03d", i)
		all = append(all, id)
		run := validRecords(i)[0]
		s.add(run, 10, 20).Attributes().PutStr("session.id", id)
	}
	refuse := func(bad ...string) func(string) error {
		return func(id string) error {
			if slices.Contains(bad, id) {
				return errors.New("constraint failed")
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		dislikes func(string) error
		missing  []string
		fails    bool
		limit    int // calls
	}{
		"none": {dislikes: refuse(), limit: 1},
		"one":  {dislikes: refuse("ses_077"), missing: []string{"ses_077"}, limit: 20},
		"some": {dislikes: refuse("ses_000", "ses_099", "ses_100", "ses_199"),
			missing: []string{"ses_000", "ses_099", "ses_100", "ses_199"}, limit: 70},
		"everything": {dislikes: func(string) error { return errors.New("file is damaged") }, missing: all, fails: true,
			limit: 100},
		"later": {dislikes: func(string) error { return store.ErrUnavailable }, missing: all, fails: true, limit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := &picky{dislikes: tt.dislikes}
			r, err := ingest.New(p, ingest.Options{}).Traces(t.Context(), traces(s.spans...))
			if (err != nil) != tt.fails {
				t.Errorf("error %v", err)
			}
			if name == "later" && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("error %v, want one to be tried again", err)
			}
			want := slices.DeleteFunc(slices.Clone(all), func(id string) bool {
				return slices.Contains(tt.missing, id)
			})
			slices.Sort(p.took)
			if !slices.Equal(p.took, want) {
				t.Errorf("took %d sessions, want %d", len(p.took), len(want))
			}
			if p.calls > tt.limit {
				t.Errorf("%d calls, want at most %d", p.calls, tt.limit)
			}
			if err == nil && (int(r.Refused) != len(tt.missing) || r.Spans != n ||
				len(tt.missing) > 0 && !strings.Contains(strings.Join(r.Refusals, " "), "constraint")) {
				t.Errorf("refused %d, want %d; %d spans; %q", r.Refused, len(tt.missing), r.Spans, r.Refusals)
			}
		})
	}
}
