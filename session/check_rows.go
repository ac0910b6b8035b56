package session

import (
	"encoding/json"
	"math"
	"unicode/utf8"
)

// The rules on sessions and messages. The table of rules has a sentence for each.

func sessionID(c *checker) {
	if c.t.Session.ID == "" {
		c.report(c.where(), "id is empty")
	}
}

func messageID(c *checker, m *checkedMessage) {
	if m.row.Message.ID == "" {
		c.report(m.where(), "id is empty")
	}
}

func messageIDUnique(c *checker, m *checkedMessage) {
	id := m.row.Message.ID
	if _, twice := c.messageIDs[id]; twice && id != "" {
		c.report(m.where(), "messages[%d] has the id of an earlier message", m.place)
	}
	c.messageIDs[id] = struct{}{}
}

func messageOwner(c *checker, m *checkedMessage) {
	if got, want := m.row.Message.SessionID, c.t.Session.ID; got != want {
		c.report(m.where(), "session_id is %q, want %q", got, want)
	}
}

func sessionParent(c *checker) {
	s := &c.t.Session
	if s.ParentMessageID != nil && s.ParentID == nil {
		c.report(c.where(), "parent_message_id is %q, but parent_id is null", *s.ParentMessageID)
	}
	if s.ParentID != nil && *s.ParentID == s.ID {
		c.report(c.where(), "parent_id is the session's own id")
	}
}

func sessionUTF8(c *checker) { c.utf8(c.where(), SessionColumns.InvalidUTF8(&c.t.Session)) }

func messageUTF8(c *checker, m *checkedMessage) {
	c.utf8(m.where(), MessageColumns.InvalidUTF8(&m.row.Message))
}

func (c *checker) utf8(where string, columns []string) {
	for _, column := range columns {
		c.report(where, "%s is not valid UTF-8", column)
	}
}

func sessionTimes(c *checker) {
	c.times(c.where(), c.t.Session.CreatedAt, c.t.Session.UpdatedAt)
}

func messageTimes(c *checker, m *checkedMessage) {
	c.times(m.where(), m.row.Message.CreatedAt, m.row.Message.UpdatedAt)
}

func (c *checker) times(where string, created, updated int64) {
	if updated < created {
		c.report(where, "updated_at %d is before created_at %d", updated, created)
	}
}

func sessionJSON(c *checker) {
	s := &c.t.Session
	if _, ok := array(s.PermissionsJSON); !ok {
		c.report(c.where(), "permissions_json is not a JSON array")
	}
	if _, ok := object(s.MetadataJSON); !ok {
		c.report(c.where(), "metadata_json is not a JSON object")
	}
	if s.ModelJSON != nil {
		if _, ok := object(*s.ModelJSON); !ok {
			c.report(c.where(), "model_json is neither null nor a JSON object")
		}
	}
}

func messageJSON(c *checker, m *checkedMessage) {
	if m.meta == nil {
		c.report(m.where(), "metadata_json is not a JSON object")
	}
}

func sessionPermissions(c *checker) {
	list, _ := array(c.t.Session.PermissionsJSON)
	for i, raw := range list {
		r, ok := object(string(raw))
		if !ok {
			c.report(c.where(), "permissions_json[%d] is not an object", i)
			continue
		}
		if p, ok := str(r["permission"]); !ok || p == "" {
			c.report(c.where(), "permissions_json[%d] has no permission", i)
		}
		if _, ok := str(r["pattern"]); !ok {
			c.report(c.where(), "permissions_json[%d] has no pattern", i)
		}
		switch action, _ := str(r["action"]); action {
		case "allow", "deny", "ask":
		default:
			c.report(c.where(), "permissions_json[%d] has action %s, want allow, deny or ask", i, show(r["action"]))
		}
		if source, has := r["source"]; has {
			switch s, _ := str(source); s {
			case "manifest", "session", "project":
			default:
				c.report(c.where(), "permissions_json[%d] has source %s, want manifest, session or project",
					i, show(source))
			}
		}
		if at, has := r["added_at"]; has {
			if _, ok := count(at); !ok {
				c.report(c.where(), "permissions_json[%d] has added_at %s, want milliseconds", i, show(at))
			}
		}
	}
}

// show returns a JSON value for a detail, truncated to a line.
func show(raw json.RawMessage) string {
	const maxNumber = 60
	switch {
	case raw == nil:
		return "(none)"
	case len(raw) > maxNumber:
		n := maxNumber
		for !utf8.RuneStart(raw[n]) {
			n--
		}
		return string(raw[:n]) + "…"
	}
	return string(raw)
}

func sessionUsage(c *checker) {
	s := &c.t.Session
	for _, b := range [...]struct {
		column string
		n      int64
	}{
		{"prompt_tokens", s.PromptTokens}, {"completion_tokens", s.CompletionTokens},
		{"reasoning_tokens", s.ReasoningTokens}, {"cache_read", s.CacheRead}, {"cache_write", s.CacheWrite},
	} {
		if b.n < 0 {
			c.report(c.where(), "%s is %d", b.column, b.n)
		}
	}
}

func messageUsage(c *checker, m *checkedMessage) {
	raw, has := m.meta["usage"]
	if !has || isNull(raw) {
		return
	}
	usage, ok := object(string(raw))
	if !ok {
		c.report(m.where(), "usage is %s, want an object", show(raw))
		return
	}
	for _, b := range new(Usage).buckets() {
		if raw, has := usage[b.key]; has {
			if _, ok := count(raw); !ok {
				c.report(m.where(), "usage.%s is %s", b.key, show(raw))
			}
		}
	}
}

func sessionTotal(c *checker) {
	if got, want := c.t.Session.TotalTokens, c.t.Session.Usage().Total(); got != want {
		c.report(c.where(), "total_tokens is %d, the buckets sum to %d", got, want)
	}
}

func sessionRollup(c *checker) {
	want := c.t.contextUsage(func(i int) Usage { return c.messages[i].usage })
	if got := c.t.Session.Usage(); got != want {
		c.report(c.where(), "buckets are %+v, the messages that count sum to %+v", got, want)
	}
}

func sessionCost(c *checker) {
	if cost := c.t.Session.CostUSD; !(cost >= 0) || math.IsInf(cost, 0) {
		c.report(c.where(), "cost_usd is %v", cost)
	}
}

func messageRole(c *checker, m *checkedMessage) {
	switch m.row.Message.Role {
	case RoleUser, RoleAssistant, RoleSystem:
	default:
		c.report(m.where(), "role is %q", m.row.Message.Role)
	}
}

func messageOrder(c *checker, m *checkedMessage) {
	if m.place == 0 {
		return
	}
	before := &c.messages[m.place-1].row.Message
	if m.row.Message.Compare(before) < 0 {
		c.report(m.where(), "comes after %s, which is later", c.messages[m.place-1].where())
	}
}

func messageMetadata(c *checker, m *checkedMessage) {
	if raw, has := m.meta["model"]; has && !isNull(raw) {
		var model Model
		if err := decodeRow(raw, &model); err != nil {
			c.report(m.where(), "model: %v", err)
		}
	}
	if raw, has := m.meta["agent"]; has && !isNull(raw) {
		if _, ok := str(raw); !ok {
			c.report(m.where(), "agent is %s, want a string", show(raw))
		}
	}
	if raw, has := m.meta["system_prompt_digest"]; has {
		if digest, ok := str(raw); !ok || !isDigest(digest) {
			c.report(m.where(), "system_prompt_digest is %s, want a SHA-256 in lower-case hex", show(raw))
		}
	}
	if raw, has := m.meta["agenttrace"]; has {
		var trace MessageTrace
		if err := decodeRow(raw, &trace); err != nil {
			c.report(m.where(), "agenttrace: %v", err)
		} else if d := trace.ToolCatalogDigest; d != "" && !isDigest(d) {
			c.report(m.where(), "agenttrace.tool_catalog_digest is %q, want a SHA-256 in lower-case hex", d)
		}
	}
}

func isDigest(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func messageIndexes(c *checker, m *checkedMessage) {
	seen := make(map[int64]struct{}, len(m.row.Parts))
	for j := range m.row.Parts {
		p := checkedPart{Part: &m.row.Parts[j], message: m, place: j}
		if p.Index < 0 {
			c.report(p.where(), "index is %d", p.Index)
		}
		if _, twice := seen[p.Index]; twice {
			c.report(p.where(), "index %d is taken by an earlier part", p.Index)
		}
		seen[p.Index] = struct{}{}
	}
}

func messageGaps(c *checker, m *checkedMessage) {
	places := make(map[int64]struct{}, len(m.row.Parts))
	last := int64(-1)
	for j := range m.row.Parts {
		if index := m.row.Parts[j].Index; index >= 0 {
			places[index] = struct{}{}
			last = max(last, index)
		}
	}
	n := int64(len(places))
	if last < n {
		return
	}
	var trace struct {
		Incomplete bool `json:"incomplete"`
	}
	if raw, has := m.meta["agenttrace"]; has && json.Unmarshal(raw, &trace) == nil && trace.Incomplete {
		return
	}
	missing := int64(0)
	for has := true; has; missing++ {
		_, has = places[missing]
	}
	c.report(m.where(), "has %d parts up to index %d; %d is missing", n, last, missing-1)
}
