package formats

import (
	_ "embed" // the losses
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// written makes a stream of what a format makes of the rows of a session.
func written(text func(*codec.Session) []byte) func(io.Writer) func(*Source) error {
	return writtenSource(func(s *Source) []byte { return text(s.Session) })
}

// writtenSource makes a stream of what a format makes of a session, whose rows must be a tree.
func writtenSource(text func(*Source) []byte) func(io.Writer) func(*Source) error {
	return each(func(w io.Writer, s *Source) (err error) {
		defer wrapWriting(s.Session, &err)
		if err = s.CheckTree(); err == nil {
			_, err = w.Write(text(s))
		}
		return err
	})
}

// wrapWriting has an error name the session that could not be written.
func wrapWriting(s *codec.Session, err *error) {
	if *err != nil {
		*err = fmt.Errorf("write session %s: %w", s.Session.ID, *err)
	}
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

// isoTime reads a time in ISO 8601, in Unix milliseconds. One without a zone is in UTC, as Python writes it.
func isoTime(text string) (milli int64, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04:05.999999999", strings.Replace(text, " ", "T", 1))
	}
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return 0, false
	}
	return t.UnixMilli(), true
}

// joinedTexts is the content of a result as one text, where it consists of texts. One alone keeps its spelling:
// JavaScript writes halves of characters.
func joinedTexts(content json.RawMessage) json.RawMessage {
	list := rows.Elements(content)
	var all strings.Builder
	for _, raw := range list {
		text, ok := rows.Text(rows.Read(string(raw)).Get("text"))
		if !ok {
			return content // such as an image
		}
		all.WriteString(text)
	}
	switch {
	case list == nil:
		return content
	case len(list) == 1:
		return rows.Read(string(list[0])).Get("text")
	}
	return rows.Raw(all.String())
}

// dataOf are the data of the parts of a message.
func dataOf(m *session.MessageAndParts) []rows.Object {
	all := make([]rows.Object, len(m.Parts))
	for i := range m.Parts {
		all[i] = rows.Data(&m.Parts[i])
	}
	return all
}
