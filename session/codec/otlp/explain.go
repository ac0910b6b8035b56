package otlp

import (
	"encoding/json"
	"slices"

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
// it is reported.
func Explain(s *codec.Session) []codec.Loss {
	t := s.Sorted()
	x := explainer{row: &t.Session, from: t.Session.CreatedAt, to: t.Session.UpdatedAt, named: make(map[blobKey]bool)}
	x.add("rows that break a rule of sessions", "as data-damaged parts, or left out", len(session.Check(t)))
	for i := range t.Messages {
		for j := range t.Messages[i].Parts {
			x.part(&t.Messages[i].Parts[j])
		}
		x.message(&t.Messages[i])
	}
	for i := range s.Decisions {
		x.bound(s.Decisions[i].DecidedAt, s.Decisions[i].DecidedAt)
	}
	for _, b := range s.Blobs {
		if !x.named[blobKey{b.Kind, b.Digest}] || b.Body == "" {
			x.add("system prompts and tool catalogs that no turn names, or that are empty", "", 1)
		}
	}
	x.session()
	x.rewinds(t)
	x.metadata()
	return x.losses
}

// explainer collects the losses of a session.
type explainer struct {
	losses   []codec.Loss
	row      *session.Session
	from, to int64            // the times that the rows reach
	cost     float64          // of the messages
	named    map[blobKey]bool // by messages
}

func (x *explainer) add(what, kept string, n int) { x.losses = codec.AddLoss(x.losses, what, kept, n) }

func (x *explainer) bound(from, to int64) {
	if from != 0 && (x.from == 0 || from < x.from) {
		x.from = from
	}
	x.to = max(x.to, from, to)
}

func (x *explainer) part(p *session.Part) {
	if p.ContinuationRunID != nil {
		x.add("continuation_run_id of parts", "", 1)
	}
	if isTool(p) && session.Deref(p.ToolCallID) == "" {
		x.add("tool calls with an empty id", "as data-damaged parts", 1)
	} else if !isTool(p) && p.ToolCallID != nil {
		x.add("tool_call_id of parts that are no tool calls", "", 1)
	}
	if ingest.TooDeep([]byte(p.DataJSON)) {
		x.deep()
	}
}

func (x *explainer) deep() { x.add("JSON nested more than 500 deep", "as text", 1) }

func (x *explainer) message(mp *session.MessageAndParts) {
	m := &mp.Message
	created, updated := extent(mp)
	if created != m.CreatedAt || updated != m.UpdatedAt {
		x.add("times of messages that their parts exceed", "as wide as the parts", 1)
	}
	x.bound(created, updated)
	if ingest.TooDeep([]byte(m.MetadataJSON)) {
		x.deep()
	} else if ordered, ok := canonical(m.MetadataJSON); measured(m) == nil && ordered != m.MetadataJSON && ok {
		x.add("the spelling of messages' metadata_json", "the same members, in order", 1)
	}
	if m.Role == session.RoleAssistant {
		_, stated := session.UsageOf(m.MetadataJSON)
		x.cost = store.AddCost(x.cost, stated)
	}
	var meta session.MessageMetadata
	if json.Unmarshal([]byte(m.MetadataJSON), &meta) == nil && compaction(mp) == nil {
		x.named[blobKey{store.BlobSystemPrompt, meta.SystemPromptDigest}] = true
		x.named[blobKey{store.BlobToolCatalog, meta.Trace.ToolCatalogDigest}] = true
	}
}

// session compares the session's row with what its messages, which have been added, give.
func (x *explainer) session() {
	if archived := x.row.ArchivedAt; archived != nil && *archived > lastMilli {
		x.add("archived_at after the year 2262, which spans do not have", "the last time that they have", 1)
	}
	if x.from != x.row.CreatedAt || x.to != x.row.UpdatedAt {
		x.add("times of the session that its rows exceed, as the messages of a fork do", "as wide as the rows", 1)
	}
	if x.cost != x.row.CostUSD {
		x.add("cost_usd of the session, which is not the sum of its messages", "the sum", 1)
	}
}

// rewinds lists what a store that makes the session of its rewinds hides otherwise.
func (x *explainer) rewinds(t *session.Transcript) {
	stored := session.Transcript{Session: t.Session, Messages: asStored(t.Messages)}
	x.add("hidden_at of messages that no rewind explains", "", unexplained(stored.Messages))
	hide(stored.Messages)
	for _, v := range session.Check(&stored) {
		if v.Rule == "rollup" {
			x.add("tokens of the session, whose messages come in another order or are hidden otherwise", "the sum", 1)
		}
	}
}

func (x *explainer) metadata() {
	for _, column := range []string{x.row.MetadataJSON, x.row.PermissionsJSON, session.Deref(x.row.ModelJSON)} {
		if ingest.TooDeep([]byte(column)) {
			x.deep()
			return
		}
	}
	if text := x.row.MetadataJSON; ordered(object(text)) != text {
		x.add("the spelling of the session's metadata_json", "the same members, in order", 1)
	}
}

// extent is the times that a store gives a message: as wide as its parts.
func extent(m *session.MessageAndParts) (created, updated int64) {
	created, updated = m.Message.CreatedAt, max(m.Message.CreatedAt, m.Message.UpdatedAt)
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.CreatedAt != 0 && (created == 0 || p.CreatedAt < created) {
			created = p.CreatedAt
		}
		updated = max(updated, p.UpdatedAt)
	}
	return created, updated
}

// asStored are the messages with the times, and so in the order, that a store gives
// them.
func asStored(all []session.MessageAndParts) []session.MessageAndParts {
	t := session.Transcript{Messages: slices.Clone(all)}
	for i := range t.Messages {
		t.Messages[i].Message.CreatedAt, t.Messages[i].Message.UpdatedAt = extent(&t.Messages[i])
	}
	return t.Sorted().Messages
}

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

// hides reports that whatever the rewind hides is hidden, by it or before it.
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

// hiddenBy states when the rewinds first hide each message, by id.
func hiddenBy(all []session.MessageAndParts) map[string]int64 {
	hidden := make(map[string]int64)
	for _, r := range rewinds(all) {
		after := false
		for i := range all {
			m := &all[i].Message
			if at, had := hidden[m.ID]; after && m.CreatedAt <= r.At && (!had || r.At < at) {
				hidden[m.ID] = r.At
			}
			after = after || m.ID == r.To
		}
	}
	return hidden
}

// unexplained counts the messages that the rewinds hide at another time, or not.
func unexplained(all []session.MessageAndParts) (n int) {
	hidden := hiddenBy(all)
	for i := range all {
		m := &all[i].Message
		at, is := hidden[m.ID]
		if is != (m.HiddenAt != nil) || is && at != *m.HiddenAt {
			n++
		}
	}
	return n
}

// hide makes the messages hidden as the rewinds do.
func hide(all []session.MessageAndParts) {
	hidden := hiddenBy(all)
	for i := range all {
		m := &all[i].Message
		m.HiddenAt = nil
		if at, is := hidden[m.ID]; is {
			m.HiddenAt = &at
		}
	}
}
