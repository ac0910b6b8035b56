package formats

import (
	_ "embed" // the losses
	"fmt"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec"
)

// written makes a stream of what a format makes of the rows of a session, which must be a tree.
func written(text func(*codec.Session) []byte) func(io.Writer) func(*Source) error {
	return streamRows(func(w io.Writer, s *codec.Session) error {
		err := s.CheckTree()
		if err == nil {
			_, err = w.Write(text(s))
		}
		if err != nil {
			return fmt.Errorf("write session %s: %w", s.Session.ID, err)
		}
		return nil
	})
}

//go:embed losses.txt
var allLosses string

// lossesOf lists what a format of another program does not hold of a session. The conformance suite checks the list.
func lossesOf(name string) (noted codec.Losses) {
	_, section, _ := strings.Cut(allLosses, "\n["+name+"]\n")
	section, _, _ = strings.Cut(section, "\n\n")
	for line := range strings.SplitSeq(strings.TrimSuffix(section, "\n"), "\n") {
		aspect, note, _ := strings.Cut(line, ": ")
		what, kept, _ := strings.Cut(aspect, " kept ")
		noted = append(noted, codec.Loss{What: what, Note: note, Kept: kept})
	}
	return codec.ForeignLosses(noted)
}

// explainLosses counts the losses of a format in a session.
func explainLosses(name string) func(*Source) []codec.Loss { return explained(lossesOf(name).Of) }
