package jutul

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// events is the codec as the suite takes it, with a line for an event instead of a
// row: what the format says without what SQLite does.
var events = codectest.Codec{

	Encode: func(w io.Writer, s *codec.Session) error {
		_, err := io.WriteString(w, lines(encode(s)))
		return err
	},
	Decode: func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return func(yield func(*codec.Session, error) bool) {
			text, err := io.ReadAll(r)
			if err != nil {
				yield(nil, err)
				return
			}
			yield(decode(parseEvents(string(text)), func(p codec.Problem) {
				_, _ = fmt.Sscanf(p.Record, "event %d", &p.Line) // of the whole trace otherwise
				if report != nil {
					report(p)
				}
			}), nil)
		}
	},
	Losses: Losses,
	Check: func(data []byte) error {
		for _, e := range parseEvents(string(data)) {
			if !json.Valid([]byte(e.payload)) || strings.ContainsFunc(e.payload, func(r rune) bool { return r > 127 }) {
				return fmt.Errorf("payload %s is no JSON in ASCII", e.payload)
			}
		}
		return nil
	},
}

// lines are events of which each has a line of time, kind and payload.
func lines(all []event) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", e.timestamp, e.kind, e.payload)
	}
	return b.String()
}

// parseEvents reads what lines wrote, or anything.
func parseEvents(text string) (all []event) {
	for line := range strings.Lines(text) {
		fields := append(strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3), "", "")
		all = append(all, event{int64(len(all) + 1), fields[0], fields[1], fields[2]})
	}
	return all
}

// format is the codec as it is.
var format = codectest.Codec{

	EncodeFile: func(dir string, all []*codec.Session) error {
		if len(all) != 1 {
			return errors.New("a trace is of one session")
		}
		return EncodeFile(filepath.Join(dir, FileName), all[0])
	},
	DecodeFile: DecodeFile,
	Losses:     Losses, Slow: true,
	Native: []string{sample},
}

func TestConformance(t *testing.T) {
	t.Run("events", func(t *testing.T) { codectest.Run(t, events) })
	t.Run("file", func(t *testing.T) { codectest.Run(t, format) })
}
