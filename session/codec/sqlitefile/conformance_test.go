package sqlitefile_test

import (
	"context"
	"iter"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
)

// format is the codec as the suite takes it. What Explain lists is what later telemetry
// needs, and no row.
var format = codectest.Codec{
	Name: "sqlite",
	EncodeFile: func(dir string, all []*codec.Session) error {
		return sqlitefile.EncodeFile(context.Background(), filepath.Join(dir, "sessions.db"), func(yield func(*codec.Session, error) bool) {
			for _, s := range all {
				if !yield(s, nil) {
					return
				}
			}
		})
	},
	DecodeFile: func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return sqlitefile.DecodeFile(context.Background(), filepath.Join(dir, "sessions.db"), report)
	},
	Explain: func(s *codec.Session) []codec.Loss { return sqlitefile.Explain(s, 0) },
	Many:    true, Again: true, AsIs: true, Slow: true, Rounds: 8,
	Tables: []codectest.Table{
		{Name: "chat_sessions", Columns: []string{"title", "metadata_json", "created_at"}},
		{Name: "chat_messages", Columns: []string{"role", "metadata_json", "hidden_at"}},
		{Name: "chat_parts", Columns: []string{"data_json", "index", "tool_state"}},
	},
}

func TestConformance(t *testing.T) { codectest.Run(t, format) }
