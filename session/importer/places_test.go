package importer

import (
	"path/filepath"
	"testing"
)

// TestUsualPlaces: where a program keeps its sessions follows from the operating system,
// the user's home and the environment.
func TestUsualPlaces(t *testing.T) {
	for _, tt := range []struct {
		program, system string
		env             map[string]string
		want            string
	}{
		{"Copilot CLI", "linux", nil, "/home/u/.copilot"},
		{"Copilot CLI", "windows", nil, "/home/u/.copilot"},
		{"Copilot CLI", "linux", map[string]string{"COPILOT_HOME": "/elsewhere"}, "/elsewhere"},
		{"Goose", "linux", nil, "/home/u/.local/share/goose"},
		{"Goose", "darwin", map[string]string{"XDG_DATA_HOME": "/data"}, "/data/goose"},
		{"Goose", "windows", nil, "/home/u/AppData/Roaming/Block/goose/data"},
		{"Goose", "windows", map[string]string{"APPDATA": "/roaming"}, "/roaming/Block/goose/data"},
		{"Goose (GOOSE_PATH_ROOT)", "linux", nil, ""},
		{"Goose (GOOSE_PATH_ROOT)", "linux", map[string]string{"GOOSE_PATH_ROOT": "/root"}, "/root/data"},
		{"Goose", "windows", map[string]string{"XDG_DATA_HOME": "/data"}, "/home/u/AppData/Roaming/Block/goose/data"},
		{"Windsurf", "windows", nil, "/home/u/.windsurf"},
		{"Amp", "windows", nil, "/home/u/.local/share/amp"},
		{"Crush", "windows", nil, "/home/u/AppData/Local/crush"},
		{"Kimi CLI", "windows", nil, "/home/u/.kimi"},
		{"Kimi CLI", "linux", map[string]string{"KIMI_SHARE_DIR": "/elsewhere"}, "/elsewhere"},
		{"Cline", "linux", nil, "/home/u/.cline/data"},
		{"Cline in editors", "linux", map[string]string{"XDG_CONFIG_HOME": "/config"}, "/config"},
		{"Cline in editors", "darwin", map[string]string{"XDG_CONFIG_HOME": "/config"}, "/home/u/Library/Application " +
			"Support"},
		{"Cline in editors", "windows", nil, "/home/u/AppData/Roaming"},
		{"Copilot in VS Code", "linux", nil, "/home/u/.config"},
		{"Roo Code", "darwin", nil, "/home/u/Library/Application Support"},
		{"Kilo Code", "windows", map[string]string{"APPDATA": "/roaming"}, "/roaming"},
		{"Kilo Code CLI", "linux", map[string]string{"XDG_DATA_HOME": "/data"}, "/data/kilo"},
		{"Continue", "linux", map[string]string{"CONTINUE_GLOBAL_DIR": "/elsewhere"}, "/elsewhere"},
		{"OpenHands", "linux", nil, "/home/u/.openhands/conversations"},
		{"Kiro CLI", "linux", map[string]string{"KIRO_HOME": "/kiro"}, "/kiro"},
		{"Kiro CLI, classic", "darwin", nil, "/home/u/Library/Application Support/kiro-cli"},
		{"Kiro CLI, classic", "windows", map[string]string{"LOCALAPPDATA": "/local"}, "/local/kiro-cli"},
		{"Zed", "linux", nil, "/home/u/.local/share/zed"},
		{"Zed", "darwin", nil, "/home/u/Library/Application Support/Zed"},
		{"Zed", "windows", nil, "/home/u/AppData/Local/Zed"},
		{"Qwen Code", "windows", map[string]string{"QWEN_HOME": "/elsewhere"}, "/elsewhere"},
		{"Qwen Code (QWEN_RUNTIME_DIR)", "linux", nil, ""},
		{"Gemini CLI", "darwin", map[string]string{"GEMINI_CLI_HOME": "/elsewhere"}, "/elsewhere/.gemini"},
	} {
		found := false
		all := places()
		for i := range all {
			if p := &all[i]; p.Program == tt.program {
				found = true
				got := p.root(tt.system, filepath.FromSlash("/home/u"), func(name string) string {
					return tt.env[name]
				})
				if filepath.ToSlash(got) != tt.want {
					t.Errorf("%s on %s with %v: %s, want %s", tt.program, tt.system, tt.env, got, tt.want)
				}
			}
		}
		if !found {
			t.Errorf("no place of %s", tt.program)
		}
	}
}
