package sqlite

import (
	"os"
	"testing"

	"github.com/agenttrace/agenttrace/session/store"
)

// BenchmarkSearch looks for what is nowhere: without an index it reads all of it, 120,000 parts of 8 KiB, together
// 1 GB.
func BenchmarkSearch(b *testing.B) {
	path := b.TempDir() + "/s.db"
	generated(b, path, 20_000, 8<<10)
	open(b, path, Options{}).Close()
	r, err := OpenReader(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	search := func(b *testing.B) {
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
	b.Run("scan", search)
	b.Run("index", func(b *testing.B) {
		b.SetBytes(120_000 * 8 << 10)
		for b.Loop() {
			if err := os.RemoveAll(path + indexSuffix); err != nil {
				b.Fatal(err)
			}
			indexed(b, r)
		}
	})
	b.Run("indexed", search)
}
