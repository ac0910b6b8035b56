package redact

import (
	"strings"
	"testing"
)

var (
	benchProse = strings.Repeat("The agent read the file, found that the parser loses the last line when it has no "+
		"newline, and wrote a test for it. "+
		"Then it ran the tests: 41 passed, 1 failed (TestTail, 0.02s). See https://example.com/issues/42 for the "+
		"discussion; the fix is in reader.go:118.\n", 12)
	benchCode = strings.Repeat("// next returns the first row at or after from, and false at the end of the table.\n"+
		"func (t *Table) next(from int) (Row, bool) {\n"+
		"\tfor i := from; i < len(t.rows); i++ {\n\t\tif row := t.rows[i]; !row.deleted && (t.filter == nil || "+
		"t.filter(row)) {\n\t\t\treturn row, true\n\t\t}\n\t}\n\treturn Row{}, false\n}\n\n", 10)
	benchTalk = strings.Repeat(cleanTexts["go"], 4) // of secrets, in every line
	benchJSON = `{"calls":[` + strings.Repeat(
		`{"id":"call_9b2e6d0c81f7a354","name":"read_file",`+
			`"arguments":"{\"path\":\"src/reader.go\",\"offset\":118,\"limit\":40}","usage":{"input_tokens":1204,`+
			`"output_tokens":87},"output":"func (r *Reader) Next() (Row,`+
			` error) {\n\tif !r.scan() {\n\t\treturn Row{}, io.EOF\n\t}\n\treturn r.row, nil\n}"},`, 10) + `{}]}`
	benchSecret = "export OPENAI_API_KEY=sk-" + "proj-" + mix40 + mix40 + " && curl -H \"Authorization: Bearer " +
		mix40 +
		"\" https://u:" + mix20 + "@example.com\n"
)

var sink int

func perKB(b *testing.B, size int, f func()) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(float64(size)/1024), "ns/KB")
}

// BenchmarkRedact has its floor in the same run: a look at every byte.
func BenchmarkRedact(b *testing.B) {
	r := mustNew(b, Config{})
	b.Run("floor/every byte", func(b *testing.B) {
		perKB(b, len(benchProse), func() {
			n := 0
			for i := range len(benchProse) {
				if class[benchProse[i]]&tilde != 0 {
					n++
				}
			}
			sink += n
		})
	})
	for _, c := range []struct{ name, text string }{{"prose", benchProse}, {"code", benchCode},
		{"talk of secrets", benchTalk}, {"json", benchJSON}} {
		b.Run("clean text/"+c.name, func(b *testing.B) {
			perKB(b, len(c.text), func() { sink += len(r.Text(c.text)) })
		})
	}
	raw := []byte(benchJSON)
	b.Run("clean JSON", func(b *testing.B) { perKB(b, len(raw), func() { sink += len(r.JSON(raw)) }) })
	dirtyProse := benchProse[:1500] + benchSecret + benchProse[1500:]
	b.Run("dirty text", func(b *testing.B) { perKB(b, len(dirtyProse), func() { sink += len(r.Text(dirtyProse)) }) })
	dirty := []byte(asJSON(map[string]any{"command": benchSecret, "password": mix20, "output": benchProse,
		"nested": benchJSON}))
	b.Run("dirty JSON", func(b *testing.B) { perKB(b, len(dirty), func() { sink += len(r.JSON(dirty)) }) })
	cutter := mustNew(b, Config{MaxBytes: 4096})
	big := []byte(`[` + strings.Repeat(benchJSON+",", 50) + `0]`)
	b.Run("truncate JSON", func(b *testing.B) {
		perKB(b, len(big), func() { out, _ := cutter.TruncateJSON(big); sink += len(out) })
	})
}
