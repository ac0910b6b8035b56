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
// Nothing of the content is lost but continuation_run_id and what breaks the rules of
// [session.Check]; the rest is times, spelling and sums, that a store computes of what
// it is told.
func Explain(s *codec.Session) []codec.Loss {
	var x losses
	t := s.Sorted()
	x.add("rows that break a rule of sessions", "as data-damaged parts, or left out", len(session.Check(t)))
	lo, hi := t.Session.CreatedAt, t.Session.UpdatedAt
	bound := func(from, to int64) {
		if from != 0 && (lo == 0 || from < lo) {
			lo = from
		}
		hi = max(hi, from, to)
	}
	cost := 0.0
	named := make(map[blobKey]bool)
	for i := range t.Messages {
		m := &t.Messages[i].Message
		created, updated := m.CreatedAt, max(m.CreatedAt, m.UpdatedAt)
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			if p.ContinuationRunID != nil {
				x.add("continuation_run_id of parts", "", 1)
			}
			if ingest.TooDeep([]byte(p.DataJSON)) {
				x.add("JSON nested more than 500 deep", "as text", 1)
			}
			if p.CreatedAt != 0 && (created == 0 || p.CreatedAt < created) {
				created = p.CreatedAt
			}
			updated = max(updated, p.UpdatedAt)
		}
		if created != m.CreatedAt || updated != m.UpdatedAt {
			x.add("times of messages that their parts exceed", "as wide as the parts", 1)
		}
		bound(created, updated)
		if ingest.TooDeep([]byte(m.MetadataJSON)) {
			x.add("JSON nested more than 500 deep", "as text", 1)
		} else if ordered, ok := canonical(m.MetadataJSON); measured(m) == nil && ordered != m.MetadataJSON && ok {
			x.add("the spelling of messages' metadata_json", "the same members, in order", 1)
		}
		if m.Role == session.RoleAssistant {
			_, stated := session.UsageOf(m.MetadataJSON)
			cost = store.AddCost(cost, stated)
		}
		var meta session.MessageMetadata
		if json.Unmarshal([]byte(m.MetadataJSON), &meta) == nil && compaction(&t.Messages[i]) == nil {
			named[blobKey{store.BlobSystemPrompt, meta.SystemPromptDigest}] = true
			named[blobKey{store.BlobToolCatalog, meta.Trace.ToolCatalogDigest}] = true
		}
	}
	for i := range s.Decisions {
		bound(s.Decisions[i].DecidedAt, s.Decisions[i].DecidedAt)
	}
	for _, b := range s.Blobs {
		if !named[blobKey{b.Kind, b.Digest}] {
			x.add("system prompts and tool catalogs that no turn names", "", 1)
		}
	}
	if lo != t.Session.CreatedAt || hi != t.Session.UpdatedAt {
		x.add("times of the session that its rows exceed, as the messages of a fork do", "as wide as the rows", 1)
	}
	if cost != t.Session.CostUSD {
		x.add("cost_usd of the session, which is not the sum of its messages", "the sum", 1)
	}
	x.add("hidden_at of messages that no rewind explains", "", unexplained(t.Messages))
	if text := t.Session.MetadataJSON; ingest.TooDeep([]byte(text)) || ingest.TooDeep([]byte(t.Session.PermissionsJSON)) || ingest.TooDeep([]byte(deref(t.Session.ModelJSON))) {
		x.add("JSON nested more than 500 deep", "as text", 1)
	} else if ordered := ordered(object(text)); ordered != text {
		x.add("the spelling of the session's metadata_json", "the same members, in order", 1)
	}
	return x
}

type losses []codec.Loss

func (x *losses) add(what, kept string, n int) { *x = codec.AddLoss(*x, what, kept, n) }

// rewinds are those that hide what is hidden, as far as rewinds can: a rewind hides
// all that comes after a message and was there when it was made.
func rewinds(all []session.MessageAndParts) []store.Rewind {
	var made []store.Rewind
	known := make(map[int64]bool)
	for i := range all {
		at := all[i].Message.HiddenAt
		if at == nil || known[*at] {
			continue
		}
		known[*at] = true
		if i > 0 {
			made = append(made, store.Rewind{To: all[i-1].Message.ID, At: *at})
		}
	}
	// Those that would hide what is not are left out.
	for n := 0; n < len(made); {
		if hides(all, made[n]) {
			n++
		} else {
			made = append(made[:n], made[n+1:]...)
		}
	}
	return made
}

// hides says that whatever the rewind hides is hidden, by it or before it.
func hides(all []session.MessageAndParts, r store.Rewind) bool {
	after := false
	for i := range all {
		m := &all[i].Message
		if after && m.CreatedAt <= r.At && (m.HiddenAt == nil || *m.HiddenAt > r.At) {
			return false
		}
		after = after || m.ID == r.To
	}
	return true
}

// unexplained counts the messages that the rewinds hide at another time, or not.
func unexplained(all []session.MessageAndParts) int {
	made, n := rewinds(all), 0
	hidden := make(map[string]int64) // by message, when the first rewind hid it
	for _, r := range made {
		after := false
		for i := range all {
			m := &all[i].Message
			if at, had := hidden[m.ID]; after && m.CreatedAt <= r.At && (!had || r.At < at) {
				hidden[m.ID] = r.At
			}
			after = after || m.ID == r.To
		}
	}
	for i := range all {
		m := &all[i].Message
		at, is := hidden[m.ID]
		if is != (m.HiddenAt != nil) || is && at != *m.HiddenAt {
			n++
		}
	}
	return n
}
