package formats

import (
	"strings"
	"testing"
)

// TestEveryFormatIsWhole: what help says that a format can do, it can.
func TestEveryFormatIsWhole(t *testing.T) {
	names := make(map[string]bool)
	for i := range All {
		f := &All[i]
		if names[f.Name] {
			t.Errorf("two formats have the name %s", f.Name)
		}
		names[f.Name] = true
		if writes := f.InFile() || f.Dir != nil; writes != f.Written() || writes && f.Explain == nil ||
			f.InFile() != (f.Ext != "") {
			t.Errorf("%s is described as %q, but what writes and explains it, and its extension, are not all there",
				f.Name,
				f.Exported)
		}
		reads := f.Streams() || f.ReadPath != nil || f.Telemetry
		if reads != (f.Imported != "") || reads && (f.Extensions == nil || f.SniffText == nil && f.Keys == nil &&
			f.Tables == nil) {
			t.Errorf("%s is described as %q, but what reads and recognizes it, and its extensions, are not all there",
				f.Name,
				f.Imported)
		}
	}
}

// The first record that is of a format decides, whatever is quoted or mixed into the file after it,
// and records before it that nothing is known by are passed over.
func TestFirstRecordOfAFormatDecides(t *testing.T) {
	const claude = `{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"x"}}`
	const protocol = `{"jsonrpc":"2.0","id":1,"method":"session/prompt"}`
	const skillet = `{"kind":"user_message","text":"x"}`
	for text, want := range map[string]string{
		claude + "\n" + protocol + "\n" + skillet:              "claude-code",
		protocol + "\n" + claude:                               "acp",
		`{"x":1}` + "\n{\"damaged\n" + skillet + "\n" + claude: "skillet",
		`{"x":1}`: "",
		`{"session":{"id":"` + strings.Repeat("x", 1000): "json",
	} {
		name := ""
		if f := OfText([]byte(text)); f != nil {
			name = f.Name
		}
		if name != want {
			t.Errorf("%.60s: %q, want %q", text, name, want)
		}
	}
}
