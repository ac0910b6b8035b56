//go:build e2e

package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestDuckDBReadsWhatIsExported: the queries of docs/analysis.md have the answers of a store when DuckDB reads what was
// exported of it as Parquet, the second time over the first.
func TestDuckDBReadsWhatIsExported(t *testing.T) {
	dir := t.TempDir()
	path, tables := filepath.Join(dir, "s.db"), filepath.Join(dir, "tables")
	queries, answers := analysis(t, path)
	for range 2 {
		command(t, 0, "--store", path, "export", "--all", "--format", "parquet", "--force", "--output", tables)
	}
	project, err := e2e.InstallProject(t.Context(), os.DirFS("testdata/duckdb"), t.TempDir())
	testscale.Must(t, err)
	asked, err := json.Marshal(map[string]any{"tables": tables, "queries": queries})
	testscale.Must(t, err)
	out, err := project.Run(t.Context(), "query.mjs", strings.NewReader(string(asked)))
	testscale.Must(t, err)
	var have [][][]any
	if err := json.Unmarshal(out, &have); err != nil || len(have) != len(queries) {
		t.Fatalf("%d answers, %v: %s", len(have), err, out)
	}
	for i, query := range queries {
		// DuckDB's integers are texts in JSON.
		if d := cmp.Diff(fmt.Sprint(answers[i]), fmt.Sprint(have[i])); d != "" {
			t.Errorf("%s(-store +DuckDB):\n%s", query, d)
		}
	}
}
