package importer

import (
	"cmp"
	"path/filepath"
	"strings"
)

// usualPlace is a directory below which a program keeps its sessions.
type usualPlace struct {
	program string
	// variable is that of the environment that names another directory, of which the
	// place is the one at below.
	variable, below string
	// home is the place in the user's home, "" for one that only the variable names. macOS and windows are set where
	// the place is another there; they may begin with a directory of Windows, such as %APPDATA%.
	home, macOS, windows string
	// patterns are those of what to import. The empty one is for the directory as a whole,
	// which is what whole names.
	patterns []string
	whole    string
	// file is the variable that names a file that is elsewhere.
	file string
}

var places = []usualPlace{
	{program: "Claude Code", variable: "CLAUDE_CONFIG_DIR", home: ".claude",
		patterns: []string{"projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl"}},
	{program: "Codex", variable: "CODEX_HOME", home: ".codex",
		patterns: []string{"sessions/*/*/*/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl"}},
	{program: "Gemini CLI", variable: "GEMINI_CLI_HOME", below: ".gemini", home: ".gemini",
		patterns: []string{"tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl", "tmp/*/chats/*/*.jsonl"}},
	{program: "opencode", variable: "XDG_DATA_HOME", below: "opencode", home: ".local/share/opencode",
		patterns: []string{""}, whole: "a directory of sessions", file: "OPENCODE_DB"},
	{program: "Copilot CLI", variable: "COPILOT_HOME", home: ".copilot",
		patterns: []string{"session-state/*/events.jsonl", "session-state/*.jsonl"}},
	{program: "Cursor CLI", variable: "CURSOR_DATA_DIR", home: ".cursor", patterns: []string{"chats/*/*/store.db"}},
	{program: "Goose", variable: "XDG_DATA_HOME", below: "goose", home: ".local/share/goose",
		windows: "%APPDATA%/Block/goose/data", patterns: []string{"sessions/sessions.db", "sessions/*.jsonl"}},
	{program: "Goose (GOOSE_PATH_ROOT)", variable: "GOOSE_PATH_ROOT", below: "data",
		patterns: []string{"sessions/sessions.db"}},
	{program: "Cline", variable: "CLINE_DATA_DIR", home: ".cline/data", patterns: clineFiles("")},
	{program: "Cline (CLINE_DIR)", variable: "CLINE_DIR", below: "data", patterns: clineFiles("")},
	{program: "Cline in editors", variable: "XDG_CONFIG_HOME", home: ".config", macOS: "Library/Application Support",
		windows: "%APPDATA%", patterns: clineFiles("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")},
	{program: "OpenHands", variable: "OPENHANDS_CONVERSATIONS_DIR", home: ".openhands/conversations",
		patterns: []string{"*"}},
	{program: "OpenHands (OPENHANDS_PERSISTENCE_DIR)", variable: "OPENHANDS_PERSISTENCE_DIR", below: "conversations",
		patterns: []string{"*"}},
	{program: "Kiro CLI", variable: "KIRO_HOME", home: ".kiro", patterns: []string{"sessions/cli/*.jsonl"}},
	{program: "Kiro CLI, classic", variable: "XDG_DATA_HOME", below: "kiro-cli", home: ".local/share/kiro-cli",
		macOS: "Library/Application Support/kiro-cli", windows: "%LOCALAPPDATA%/kiro-cli",
		patterns: []string{"data.sqlite3"}},
	{program: "Zed", variable: "XDG_DATA_HOME", below: "zed", home: ".local/share/zed",
		macOS: "Library/Application Support/Zed", windows: "%LOCALAPPDATA%/Zed",
		patterns: []string{"threads/threads.db"}},
	{program: "Pi", variable: "PI_CODING_AGENT_DIR", home: ".pi/agent", patterns: []string{"sessions/*/*.jsonl"}},
	{program: "AgentDbg", variable: "AGENTDBG_DATA_DIR", home: ".agentdbg",
		patterns: []string{""}, whole: "a directory of runs"},
	{program: "Maida", variable: "MAIDA_DATA_DIR", home: ".maida",
		patterns: []string{""}, whole: "a directory of runs"},
}

// clineFiles are the patterns of Cline's files; in an editor, in its directory of it.
func clineFiles(editors ...string) (patterns []string) {
	for _, editor := range editors {
		dir := ""
		if editor != "" {
			dir = editor + "/User/globalStorage/saoudrizwan.claude-dev/"
		}
		patterns = append(patterns, dir+"sessions/*/*.messages.json", dir+"tasks/*/api_conversation_history.json")
	}
	return patterns
}

// root is where the place is on an operating system, for a user's home; "" if it is
// nowhere.
func (p *usualPlace) root(system, home string, env func(string) string) string {
	path := map[string]string{"darwin": p.macOS, "windows": p.windows}[system]
	// The directories of XDG are of systems that have no others.
	if dir := env(p.variable); dir != "" && (path == "" || !strings.HasPrefix(p.variable, "XDG_")) {
		return filepath.Join(dir, filepath.FromSlash(p.below))
	}
	if path = cmp.Or(path, p.home); path == "" {
		return ""
	}
	for variable, usual := range map[string]string{"APPDATA": "AppData/Roaming", "LOCALAPPDATA": "AppData/Local"} {
		if rest, ok := strings.CutPrefix(path, "%"+variable+"%"); ok {
			dir := cmp.Or(env(variable), filepath.Join(home, filepath.FromSlash(usual)))
			return filepath.Join(dir, filepath.FromSlash(rest))
		}
	}
	return filepath.Join(home, filepath.FromSlash(path))
}
