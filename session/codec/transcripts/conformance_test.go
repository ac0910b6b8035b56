package transcripts_test

import (
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// TestConformance has what can only be read give valid sessions, and the same ones each
// time, whatever line of it is damaged.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"claude.jsonl": claudeFile, "codex.jsonl": codexFile} {
		testscale.WriteFile(t, filepath.Join(dir, name), text)
	}
	suites := map[string]*codectest.Codec{
		"claude": {Decode: transcripts.Claude.Decode, Native: []string{filepath.Join(dir, "claude.jsonl")}},
		"codex":  {Decode: transcripts.Codex.Decode, Native: []string{filepath.Join(dir, "codex.jsonl")}},
		"gemini": {Decode: transcripts.Gemini.Decode, Native: []string{geminiMain, geminiOld, geminiChild}},
	}
	for _, a := range agents {
		if !a.Streams() {
			continue
		}
		name := filepath.Dir(a.golden)
		if suites[name] == nil {
			suites[name] = &codectest.Codec{Decode: a.Decode,
				Whole: filepath.Ext(a.pattern) != ".jsonl" || name == "vscode"}
		}
		suites[name].Native = append(suites[name].Native, found(t, a.pattern))
	}
	for name, c := range suites {
		c.Name = name
		t.Run(name, func(t *testing.T) { codectest.Run(t, *c) })
	}
}
