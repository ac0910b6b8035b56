package replay

import (
	"bytes"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
)

var update = flag.Bool("update", false, "write what is made into testdata")

// TestFormats writes the requests of each story in the formats that its file has sections for.
func TestFormats(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			testscale.Must(t, err)
			var b *Bundle
			for i := range a.Files {
				f := &a.Files[i]
				if f.Name == "story.json" {
					b = bundleOf(t, string(f.Data))
					checkRequests(t, b)
					continue
				}
				var got bytes.Buffer
				if err = b.Encode(&got, f.Name); err != nil {
					t.Fatalf("encode %s: %v", f.Name, err)
				}
				f.Data = got.Bytes()
			}
			codectest.CheckGolden(t, file, string(txtar.Format(a)), *update)
		})
	}
}

// TestNewNoTurn: a turn that there is not is an error that lists the turns.
func TestNewNoTurn(t *testing.T) {
	in, _ := readStory(t, `{"messages":[{"role":"user","parts":[{"type":"text","text":"Hi"}]}]}`)
	for _, turn := range []int{0, 2} {
		if _, err := New(document.Build(in), in.Transcript, turn); err == nil || !strings.Contains(err.Error(),
			"turns are 1 to 1") {
			t.Errorf("New(%d) fails with %v, want the turns that there are", turn, err)
		}
	}
}
