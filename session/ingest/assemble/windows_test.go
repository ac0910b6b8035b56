package assemble_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/session/ingest/assemble"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// small assembles facts in windows as small as they can be.
func small(t testing.TB, w assemble.Windows) store.Assembly {
	t.Helper()
	w.Owner, w.Size = "home", 1
	out, err := w.Assemble()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// goesOn checks that what follows a cut comes to the same with what is carried to
// it as with all that was before, and that the cuts do not depend on the order.
func goesOn(t testing.TB, facts []fact.Fact) store.Assembly {
	t.Helper()
	all := small(t, assemble.Windows{Facts: facts})
	verify(t, facts, &all)
	r := rand.New(rand.NewPCG(1, 2))
	mixed := make([]fact.Fact, len(facts))
	for i, j := range r.Perm(len(facts)) {
		mixed[i] = facts[j]
	}
	again := small(t, assemble.Windows{Facts: mixed})
	if d := gocmp.Diff(all.Cuts, again.Cuts) + gocmp.Diff(all.Messages, again.Messages); d != "" {
		t.Fatalf("in another order (-want +got):\n%s", d)
	}
	for i, cut := range all.Cuts {
		w := assemble.Windows{Carried: cut.Carry}
		var attribution []store.Attribution
		for j := range facts {
			switch f := facts[j]; {
			case f.Start >= cut.At:
				w.Facts, attribution = append(w.Facts, f), append(attribution, all.Attribution[j])
			case f.End > cut.At:
				w.Around = append(w.Around, f)
			}
		}
		got := small(t, w)
		if d := gocmp.Diff(all.Cuts[i+1:], got.Cuts); d != "" && len(all.Cuts) > i+1 {
			t.Fatalf("cuts after %d (-want +got):\n%s", i, d)
		}
		if d := gocmp.Diff(attribution, got.Attribution); d != "" {
			t.Fatalf("placements after cut %d (-want +got):\n%s", i, d)
		}
		for _, m := range got.Messages {
			k := slices.IndexFunc(all.Messages, func(o store.AssembledMessage) bool { return o.ID == m.ID })
			if k < 0 {
				t.Fatalf("after cut %d there is a message %s", i, m.ID)
			}
			want := all.Messages[k]
			for len(m.Parts) > 0 && m.Parts[0].Index < m.From {
				if d := gocmp.Diff(want.Parts[m.Parts[0].Index], m.Parts[0]); d != "" {
					t.Fatalf("part of the windows before, after cut %d (-want +got):\n%s", i, d)
				}
				m.Parts = m.Parts[1:]
			}
			if int(m.From) > len(want.Parts) {
				t.Fatalf("message %s has parts from %d, but %d in all", m.ID, m.From, len(want.Parts))
			}
			want.Parts, want.From = want.Parts[m.From:], m.From
			if len(want.Parts) == 0 {
				want.Parts = m.Parts[:0:0]
			}
			if d := gocmp.Diff(want, m); d != "" {
				t.Fatalf("message after cut %d (-want +got):\n%s", i, d)
			}
		}
	}
	return all
}

// TestWindowsOfScenarios: a scenario is the same when its turns are cut wherever they
// can be.
func TestWindowsOfScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	cuts := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			facts, err := parseFacts(section(archive, "facts"))
			if err != nil {
				t.Fatal(err)
			}
			rankTraces(facts)
			got := goesOn(t, facts)
			cuts += len(got.Cuts)
			want := assemble.Assemble("home", facts)
			if d := gocmp.Diff(narrate(facts, &want), narrate(facts, &got)); d != "" {
				t.Errorf("%d cuts (-want +got):\n%s", len(got.Cuts), d)
			}
		})
	}
	if cuts < 20 {
		t.Errorf("%d cuts", cuts)
	}
}

// TestWindowsOfALongTurn: a turn that is cut at every step is the same message as
// one that is not.
func TestWindowsOfALongTurn(t *testing.T) {
	for _, records := range []bool{false, true} {
		facts := turns(1, records)
		if !records {
			facts = steps("t", 60, 0)
		}
		rankTraces(facts)
		got := goesOn(t, facts)
		want, err := assemble.Windows{Owner: "home", Facts: facts, Size: len(facts)}.Assemble()
		if err != nil {
			t.Fatal(err)
		}
		if !records && len(got.Cuts) < 50 {
			t.Errorf("%d cuts", len(got.Cuts))
		}
		if d := gocmp.Diff(narrate(facts, &want), narrate(facts, &got)); d != "" {
			t.Errorf("%d cuts (-want +got):\n%s", len(got.Cuts), d)
		}
	}
}

// FuzzWindows cuts what no agent would send: what is carried must be enough.
func FuzzWindows(f *testing.F) {
	for seed := range 24 {
		f.Add(uint64(seed), uint64(seed%4), 5+seed)
	}
	f.Fuzz(func(t *testing.T, seed, shape uint64, n int) {
		facts := randomFacts(rand.New(rand.NewPCG(seed, shape)), max(0, n)%120)
		rankTraces(facts)
		goesOn(t, facts)
	})
}
