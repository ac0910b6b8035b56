package acp

import (
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// keptIn is where [Encode] keeps what the protocol has no words for.
const keptIn = "_meta.agenttrace of the messages"

// Explain lists what of the session other readers of the protocol would not find
// in the trace. Nothing is listed of a session that the messages alone give
// again.
//
// What is lost altogether is listed without a place where it is kept: the rows of
// a session that breaks the rules of [session.Check], of which [Decode] reads the
// messages alone.
func Explain(s *codec.Session) []codec.Loss {
	if same(s, encodeMessages(s, false)) {
		return nil
	}
	foreign := metaOfSession(s) == nil
	kept := keptIn
	var losses []codec.Loss
	if v := session.Check(s.Transcript); len(v) > 0 {
		kept = ""
		losses = append(losses, codec.Loss{What: "rows as they are, for the session is unsound: " + v[0].Rule, Count: len(v)})
	}
	add := func(n int, what string) {
		if n > 0 {
			losses = append(losses, codec.Loss{What: what, Count: n, Kept: kept})
		}
	}
	add(1, "session columns and metadata, but the id, the title and the workspace root")
	var ids, hidden, system, metadata, other, asked, withheld int
	e := &encoder{s: s, t: s.Transcript}
	for i := range s.Messages {
		m := &s.Messages[i]
		ids += 1 + len(m.Parts)
		if m.Message.HiddenAt != nil {
			hidden++
		}
		if m.Message.Role == session.RoleSystem {
			system++
		}
		if m.Message.MetadataJSON != "{}" {
			metadata++
		}
		for j := range m.Parts {
			p := &m.Parts[j]
			if p.ToolCallID != nil && m.Message.Role == session.RoleAssistant {
				asked += len(e.asked(p))
			}
			if input, output := codec.Withheld(p); (input || output) && foreign {
				withheld++
			}
			switch {
			case p.Type == "source-url", p.Type == "source-document", p.Type == "step-start":
				other++
			case strings.HasPrefix(p.Type, "data-"):
				if !spoken(p, foreign) {
					other++
				}
			}
		}
	}
	add(ids, "ids and times of messages and parts")
	add(metadata, "message metadata with tokens, but the stop reason of a turn that ended")
	add(hidden, "rewinds: hidden messages stand among the others")
	add(system, "system messages")
	add(other, "parts that the protocol has no message for")
	asked = min(asked, len(s.Decisions)) // calls of one id may share a decision
	add(asked, "permission decisions that asked somebody, but question and answer")
	add(len(s.Decisions)-asked, "permission decisions that asked nobody, or are about no call")
	add(withheld, "values that are withheld, written as a text that says so")
	add(len(s.Blobs), "system prompts and tool catalogs")
	return losses
}

// metaOfSession returns what a session says of the trace that it was; nil when it
// was none.
func metaOfSession(s *codec.Session) rows.Object {
	meta, _ := rows.Parse([]byte(s.Session.MetadataJSON)) // not an object: nothing is known
	return meta.Object("acp")
}

// spoken says whether the protocol has a message for a data part.
func spoken(p *session.Part, foreign bool) bool {
	data, _ := rows.Parse([]byte(p.DataJSON)) // unreadable: nothing can be said
	switch {
	case p.Type == session.TypeCompaction:
		return true
	case p.Type == typeLog:
		return isLog(data.Object("data"), foreign)
	case p.Type == typePermission:
		return isQuestion(data.Object("data"), foreign)
	case p.Type == typeContent:
		return !foreign && contentBlock(data) != nil
	case strings.HasPrefix(p.Type, "data-acp-"):
		return !foreign
	}
	_, ok := updateKind(p, data, foreign)
	return ok
}
