package sqlite

import (
	"testing"

	"github.com/agenttrace/agenttrace/session/store"
)

// BenchmarkSearch looks for what is nowhere, so reads all of it: 120,000 parts of
// 8 KiB, together 1 GB.
func BenchmarkSearch(b *testing.B) {
	path := b.TempDir() + "/s.db"
	generated(b, path, 20_000, 8<<10)
	r, err := OpenReader(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for _, text := range []string{"no such text", "abab cdcd", "日本"} {
		b.Run(text, func(b *testing.B) {
			b.SetBytes(120_000 * 8 << 10)
			for b.Loop() {
				for h, err := range r.Search(b.Context(), store.SearchQuery{Text: text}) {
					b.Fatal(h, err)
				}
			}
		})
	}
}
