package agentdbg_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// The sessions of this file are not AgentDbg's: they are put in its terms.

func natives(tb testing.TB) []*codec.Session {
	all := codectest.Load(tb, "../../testdata/reference.jsonl")
	for _, s := range slices.Concat(codectest.Corpus(), codectest.Generated(40)) {
		all = append(all, s.Session)
	}
	return all
}

func TestEncodeRefuses(t *testing.T) {
	s := codectest.Corpus()[0].Session
	s.Session.ID = ""
	if err := agentdbg.Encode(new(bytes.Buffer), s); err == nil ||
		!strings.Contains(err.Error(), "session has no id") {
		t.Errorf("Encode: %v", err)
	}
	if _, err := agentdbg.EncodeFile(t.TempDir(), s, false); err == nil {
		t.Error("EncodeFile: no error")
	}
}
