package otlpfile

import (
	"bytes"
	"testing"
)

// BenchmarkRead reads the captured requests, 10 times over, in the containers of
// the file exporter.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name string
		wrap func(body) []byte
	}{
		{"JSON", func(b body) []byte { return lines(b.json) }},
		{"protobuf", func(b body) []byte { return framed(b.proto) }},
		{"zstd", func(b body) []byte { return framed(zstded(b.proto)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var file []byte
			size := 0
			for range 10 {
				for _, one := range captured(b) {
					file = append(file, c.wrap(one)...)
					size += len(one.json)
				}
			}
			b.SetBytes(int64(size)) // of JSON, to compare
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range Read(bytes.NewReader(file), Options{}) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
