package codec_test

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
)

// TestEveryIDHasAFileNameOfItsOwn: whatever the id, its name is one that any file system
// takes, and no other id has it where case does not count.
func TestEveryIDHasAFileNameOfItsOwn(t *testing.T) {
	ids := []string{
		"", ".", "..", "...", "/", "\\", "../../trap", "a/b", "a\\b", "a:b", "a%2Fb", "a~b", "\x00", "a\x00b", "\n",
		"\x1b[31m", " ", "a ", "a.", "é", "e\u0301", "\xff",
		"con", "CON", "Con", "con.json", "nul", "NUL", "aux", "prn", "com1", "COM1", "com10", "lpt9", "conin$",
		"session", "Session", "SESSION", "ses_1fa2bdc08000YO9dOSXjsMd9kP", "ses_1fa2bdc08000yo9dosxjsmd9kp",
		"ses_1fa2bdc08000YO9DOSXJSMD9KP", "/A", "/a", "%2f", "%2F",
		strings.Repeat("a", 159) + "A", strings.Repeat("A", 160), strings.Repeat("A", 161), "%", "%25", "-", "-rf", "_",
		strings.Repeat("a", 5000), strings.Repeat("a", 5000) + "b", strings.Repeat("A", 5000),
		strings.Repeat("/", 5000),
		strings.Repeat("é", 200), strings.Repeat("a", 159), strings.Repeat("a", 160), strings.Repeat("a", 161),
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		id := make([]byte, r.IntN(6))
		for i := range id {
			id[i] = "aAbB%~./\x00é2E"[r.IntN(12)]
		}
		ids = append(ids, string(id))
	}
	names := map[string]string{}
	for _, id := range ids {
		name := codec.FileName(id)
		if other, taken := names[strings.ToLower(name)]; taken && other != id {
			t.Errorf("ids %.40q and %.40q have one name, %q", id, other, name)
		}
		names[strings.ToLower(name)] = id
		file := name + ".jsonl"
		if len(name) > 200 || file != filepath.Base(file) || strings.ContainsAny(name, "./\\:*?\"<>| \x00\n") ||
			name == "" {
			t.Errorf("id %.40q has the name %q", id, file)
		}
		for _, reserved := range []string{"con", "nul", "aux", "prn", "com1", "lpt9"} {
			if strings.EqualFold(name, reserved) {
				t.Errorf("id %q has the name of a device, %q", id, name)
			}
		}
		if codec.FileName(id) != name {
			t.Errorf("id %q has two names", id)
		}
	}
	for id, want := range map[string]string{
		"ses_1fa2bdc08000YO9dOSXjsMd9kP": "ses_1fa2bdc08000YO9dOSXjsMd9kP~6d7780e56084dd1b", "Ab": "Ab~025b5573cb68f3af", "ab": "ab",
		"ef8b65a1-f918-492b-ab49-64ed656ea4c5": "ef8b65a1-f918-492b-ab49-64ed656ea4c5",
		"../../trap":                           "______trap~3fb60ca3d3a82e4a",
		"a-b":                                  "a-b",
	} {
		if got := codec.FileName(id); got != want {
			t.Errorf("id %q has the name %q, want %q", id, got, want)
		}
	}
}
