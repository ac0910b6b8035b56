package otlp

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// Explain lists what of the rows a store would have otherwise after it ingested what
// Encode wrote. Nothing is listed of a session that comes out as it went in.
//
// Nothing of the content is lost but what breaks the rules of [session.Check]; the rest is
// sums, which a store makes itself.
func Explain(s *codec.Session) (losses []codec.Loss) {
	t := s.Sorted()
	add := func(what, kept string, n int) { losses = codec.AddLoss(losses, what, kept, n) }
	violations := session.Check(t)
	add("rows that break a rule of sessions", "as data-damaged parts, or left out", len(violations))
	deep := []string{t.Session.MetadataJSON, t.Session.PermissionsJSON, session.Deref(t.Session.ModelJSON)}
	for i := range t.Messages {
		deep = append(deep, t.Messages[i].Message.MetadataJSON)
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			if isTool(p) && session.Deref(p.ToolCallID) == "" {
				add("tool calls with an empty id", "as data-damaged parts", 1)
			} else if !isTool(p) && p.ToolCallID != nil {
				add("tool_call_id of parts that are no tool calls", "", 1)
			}
			deep = append(deep, p.DataJSON)
		}
	}
	for _, text := range deep {
		if ingest.TooDeep([]byte(text)) {
			add("JSON nested more than 500 deep", "as text", 1)
		}
	}
	for _, b := range s.Blobs {
		if b.Body == "" {
			add("system prompts and tool catalogs that are empty", "", 1)
		}
	}
	if archived := t.Session.ArchivedAt; archived != nil && *archived > lastMilli {
		add("archived_at after the year 2262, which spans do not have", "the last time that they have", 1)
	}
	if kept := store.AddCost(t.Session.CostUSD, 0); kept != t.Session.CostUSD {
		add("cost_usd of the session in less than a billionth of a dollar", "rounded", 1)
	}
	for _, v := range violations {
		if v.Rule == "rollup" {
			add("tokens of the session, which are not the sum of its messages", "the sum", 1)
		}
	}
	return losses
}

// object reads a JSON object; what is none is an empty one.
func object(text string) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &m) != nil || m == nil {
		return make(map[string]json.RawMessage)
	}
	return m
}
