package transcripts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// TestConformance has what can only be read give valid sessions, and the same ones each
// time, whatever line of it is damaged.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"claude.jsonl": claudeFile, "codex.jsonl": codexFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []codectest.Codec{
		{Name: "claude-code", Decode: transcripts.Claude.Decode, Native: []string{filepath.Join(dir, "claude.jsonl")}},
		{Name: "codex", Decode: transcripts.Codex.Decode, Native: []string{filepath.Join(dir, "codex.jsonl")}},
		{Name: "gemini-cli", Decode: transcripts.Gemini.Decode, Native: []string{geminiMain, geminiOld, geminiChild}},
		{Name: "copilot-cli", Decode: transcripts.Copilot.Decode, Native: []string{copilotEvents}},
		{Name: "goose", Decode: transcripts.Goose.Decode, Native: []string{gooseLines}},
		{Name: "kiro-cli", Decode: transcripts.Kiro.Decode, Native: []string{kiroSession}},
		{Name: "qwen-code", Decode: transcripts.Qwen.Decode, Native: []string{qwenChat, qwenChild}},
		{Name: "kimi-cli", Decode: transcripts.Kimi.Decode, Native: []string{kimiSession, kimiChild}},
		{Name: "amp", Decode: transcripts.Amp.Decode, Whole: true, Native: []string{ampThread, ampChild, ampFork}},
		{Name: "continue", Decode: transcripts.Continue.Decode, Whole: true, Native: []string{continueSession, continueCLI}},
		{Name: "copilot-chat", Decode: transcripts.VSCode.Decode, Whole: true, Native: []string{vscodeLog, vscodeOld}},
		{Name: "windsurf", Decode: transcripts.Windsurf.Decode, Native: []string{windsurfSteps}},
		{Name: "aider", Decode: transcripts.Aider.Decode, Whole: true, Native: []string{aiderHistory}},
		{Name: "cline", Decode: transcripts.Cline.Decode, Whole: true,
			Native: []string{clineSession, clineChild, clineTask, rooTask, kiloTask}},
	} {
		t.Run(c.Name, func(t *testing.T) { codectest.Run(t, c) })
	}
}
