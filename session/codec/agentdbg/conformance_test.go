package agentdbg_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// export is the codec as the suite takes it, with the one file of a run.
var export = codectest.Codec{

	Encode: agentdbg.Encode,
	Decode: agentdbg.Decode, Losses: agentdbg.Losses,
	Whole: true,

	Native: []string{"testdata/export.json"},
}

// events is the codec with the events of a run without its run.json, which nothing
// of a session that was no run needs.
var events = codectest.Codec{

	Encode: func(w io.Writer, s *codec.Session) error {
		root, err := os.MkdirTemp("", "agentdbg-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(root)
		dir, err := agentdbg.EncodeFile(root, s, false)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	},
	Decode: agentdbg.Decode, Losses: agentdbg.Losses,
	Many: true, Slow: true,
}

// directory is the codec with a directory of runs.
var directory = codectest.Codec{

	EncodeFile: func(dir string, all []*codec.Session) error {
		for _, s := range all {
			if _, err := agentdbg.EncodeFile(dir, s, false); err != nil {
				return err
			}
		}
		return nil
	},
	DecodeFile: agentdbg.DecodeFile, Losses: agentdbg.Losses,
	Many: true, Slow: true,
	Native: []string{dataDir, dataDir + "/runs/*"},
}

func TestConformance(t *testing.T) {
	t.Run("export", func(t *testing.T) { codectest.Run(t, export) })
	t.Run("events", func(t *testing.T) { codectest.Run(t, events) })
	t.Run("directory", func(t *testing.T) { codectest.Run(t, directory) })
}
