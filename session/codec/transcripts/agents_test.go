package transcripts_test

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// The fixtures below testdata are made after what the programs write. Their sources:
//
//	copilot    github/copilot-sdk, nodejs/src/generated/session-events.ts at cc0438d6
const copilotEvents = "testdata/copilot/session-state/0f1e2d3c-aaaa-4bbb-8ccc-1234567890ab/events.jsonl"

type fileDecoder func(ctx context.Context, path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error]

func plain(decode func(string, func(codec.Problem)) iter.Seq2[*codec.Session, error]) fileDecoder {
	return func(_ context.Context, path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return decode(path, report)
	}
}

// TestFilesOfAgents reads what the programs keep of a session: the golden files have all
// of its rows, its decisions, and the problems.
func TestFilesOfAgents(t *testing.T) {
	for _, tt := range []struct {
		golden, path string
		decode       fileDecoder
	}{
		{"copilot/events", copilotEvents, plain(transcripts.DecodeCopilotFile)},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			all, problems, err := sound(t, func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return tt.decode(t.Context(), tt.path, report)
			})
			if err != nil {
				t.Error(err)
			}
			codectest.CheckGolden(t, filepath.Join("testdata", tt.golden+".golden.jsonl"),
				codectest.Golden(t, problems, all...), *update)
		})
	}
}

// FuzzDecodeAgents has files of agents with anything in them make sound sessions, and the
// same each time.
func FuzzDecodeAgents(f *testing.F) {
	decoders := []decoder{transcripts.DecodeCopilot}
	for _, path := range []string{copilotEvents} {
		in, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(in))
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, decode := range decoders {
			read := func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return decode(strings.NewReader(in), report)
			}
			first, _, _ := sound(t, read)
			again, _, _ := sound(t, read)
			if a, b := text(t, first), text(t, again); a != b {
				t.Errorf("%s\nthe second time\n%s", a, b)
			}
		}
	})
}
