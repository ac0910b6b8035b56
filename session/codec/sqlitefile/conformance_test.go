package sqlitefile_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
)

// format is the codec as the suite takes it. What Explain lists is what later telemetry
// needs, and no row.
var format = codectest.Codec{

	EncodeFile: func(dir string, all []*codec.Session) error {
		return sqlitefile.EncodeFile(context.Background(), filepath.Join(dir, "sessions.db"),
			func(yield func(*codec.Session, error) bool) {
				for _, s := range all {
					if !yield(s, nil) {
						return
					}
				}
			}, nil)
	},
	DecodeFile: func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return sqlitefile.DecodeFile(context.Background(), filepath.Join(dir, "sessions.db"), report)
	},
	Explain: func(s *codec.Session) []codec.Loss { return sqlitefile.Explain(s, 0) },
	Many:    true, Rows: true, Slow: true,
}

func TestConformance(t *testing.T) { codectest.Run(t, format) }

// FuzzEncodeFile has any sound session come back from a store of its own as it was.
func FuzzEncodeFile(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, size uint8) {
		want := codectest.Generate(rand.New(rand.NewPCG(seed, 3)), int(size%12))
		dir := t.TempDir()
		if err := format.EncodeFile(dir, []*codec.Session{want}); err != nil {
			t.Fatal(err)
		}
		n := 0
		for got, err := range format.DecodeFile(dir, func(p codec.Problem) { t.Error(p) }) {
			if n++; err != nil {
				t.Fatal(err)
			}
			if diff := codectest.Diff(want, got); diff != "" {
				t.Errorf("what came back (-want +got):\n%s", diff)
			}
		}
		if n != 1 {
			t.Errorf("%d sessions came back", n)
		}
	})
}
