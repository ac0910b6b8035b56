package redact

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// cleanTexts hold no secret, though many speak of some.
var cleanTexts = func() map[string]string {
	b, err := os.ReadFile("testdata/clean.txt")
	if err != nil {
		panic(err)
	}
	texts := map[string]string{}
	for part := range strings.SplitSeq("\n"+strings.TrimSuffix(string(b), "\n"), "\n## ") {
		name, text, _ := strings.Cut(part, "\n")
		texts[name] = text
	}
	delete(texts, "")
	return texts
}()

func TestCleanTextStays(t *testing.T) {
	r := mustNew(t, Config{})
	for name, in := range cleanTexts {
		for i, line := range append(strings.SplitAfter(in, "\n"), in) {
			if got := r.Text(line); got != line {
				t.Errorf("%s, line %d:\n got %q\nfrom %q", name, i+1, got, line)
			}
			doc := asJSON(map[string]string{"output": line})
			if got := r.JSON([]byte(doc)); string(got) != doc {
				t.Errorf("%s, line %d in JSON:\n got %s\nfrom %s", name, i+1, got, doc)
			}
		}
	}
}

func TestCleanTextCostsNoAllocation(t *testing.T) {
	if raceEnabled {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it empties the pool of scans
	r := mustNew(t, Config{MaxBytes: 1 << 20})
	doc := []byte(cleanTexts["usage"])
	for name, text := range cleanTexts {
		text = strings.Repeat(text+"\n", 8)
		if n := testing.AllocsPerRun(20, func() {
			r.Text(text)
			r.Value("output", text)
			r.JSON(doc)
			r.Truncate(text)
			r.Apply(ToolOutput, "output", text)
		}); n != 0 && name != "shell" { // of flags with a value in quotes
			t.Errorf("%s costs %v allocations", name, n)
		}
	}
}
