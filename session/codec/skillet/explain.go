package skillet

import (
	"path/filepath"
	"slices"

	"github.com/agenttrace/agenttrace/session/codec"
)

// Explain lists what of the session the replay log loses: what reading it does not give
// again. What the session store or the path of the log has of it, when [EncodeFile] writes
// both into a directory, is listed as kept there.
func Explain(s *codec.Session) []codec.Loss {
	if s.CheckTree() != nil {
		return codec.Unheld(s) // nothing is written
	}
	key := keyOf(&s.Session, Key{})
	text := logOf(s.Transcript)
	alone, err := (&logDecoder{}).decode(text)
	if err != nil {
		return codec.Unheld(s) // the log is empty
	}
	losses := codec.Lost(s, alone)
	both, err := (&logDecoder{key: key, store: newGuide(itemsOf(s.Transcript))}).decode(text)
	if err != nil {
		return losses
	}
	lost := codec.Lost(s, both)
	for i := range losses {
		if !slices.ContainsFunc(lost, func(l codec.Loss) bool { return l.What == losses[i].What }) {
			losses[i].Kept = "session_items, or the path of the log, " + filepath.ToSlash(key.logPath())
		}
	}
	return losses
}
