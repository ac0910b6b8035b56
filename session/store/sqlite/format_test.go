package sqlite

import (
	"regexp"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

func readFormat(t *testing.T) string {
	t.Helper()
	b := testscale.ReadFile(t, "FORMAT.md")
	return string(b)
}

// TestFormatNamesEverything: FORMAT.md has every table, column and index of the file.
func TestFormatNamesEverything(t *testing.T) {
	path := newPath(t)
	open(t, path, Options{})
	format := readFormat(t)
	ours := format[strings.Index(format, "## Our tables"):]
	section := func(table string) string {
		if _, after, ok := strings.Cut(format, "### "+table+"\n"); ok {
			section, _, _ := strings.Cut(after, "\n##")
			return section
		}
		return ours
	}
	for _, table := range testscale.Query(t, path,
		"SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
		text := section(table)
		if !strings.Contains(format, table) {
			t.Errorf("FORMAT.md does not name table %s", table)
		}
		for _, column := range testscale.Query(t, path, "SELECT name FROM pragma_table_info('"+table+"')") {
			if !strings.Contains(text, "`"+column+"`") && !strings.Contains(text, "`\""+column+"\"`") {
				t.Errorf("FORMAT.md does not name column %s.%s", table, column)
			}
		}
	}
	for _, index := range testscale.Query(t, path,
		"SELECT name FROM sqlite_schema WHERE type = 'index' AND name NOT LIKE 'sqlite_%'") {
		if !strings.Contains(format, "`"+index+"`") {
			t.Errorf("FORMAT.md does not name index %s", index)
		}
	}
	for _, name := range regexp.MustCompile("`(idx_[a-z_]+)`").FindAllStringSubmatch(format, -1) {
		if len(testscale.Query(t, path, "SELECT 1 FROM sqlite_schema WHERE name = '"+name[1]+"'")) == 0 {
			t.Errorf("FORMAT.md names index %s, which is not there", name[1])
		}
	}
}
