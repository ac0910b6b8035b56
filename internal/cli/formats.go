package cli

import (
	"fmt"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec/formats"
)

func formatNames(which func(*formats.Format) bool) []string {
	var names []string
	for _, f := range formats.Filter(which) {
		names = append(names, f.Name)
	}
	return names
}

func isText(f *formats.Format) bool { return f.Text }

// either names one of several things.
func either(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func exportList() string {
	var b strings.Builder
	for _, f := range formats.Filter((*formats.Format).Written) {
		fmt.Fprintf(&b, "  %-10s  %s\n", f.Name, f.Exported)
	}
	return b.String()
}
