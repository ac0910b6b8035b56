package assemble

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// reportSessions states what the facts report of their sessions' rows. A fact that only
// ties others reports it where something else is built of the session.
func (a *assembly) reportSessions() {
	written := make(map[string]bool)
	for i := range a.messages {
		written[a.messages[i].SessionID] = true
	}
	for _, n := range a.nodes {
		if n.Kind == fact.Session {
			written[n.session] = true
		}
	}
	for _, n := range a.nodes {
		if n.refused {
			continue
		}
		if n.attribution.SessionID == "" && written[n.session] &&
			(n.side != "" || n.Kind != fact.Step && n.Kind != fact.Permission && n.Kind != fact.Answer) {
			n.place(n.session, "", "")
		}
		if n.attribution.SessionID != "" {
			n.attribution.SessionAttrs = a.sessionChange(n)
		}
	}
}

// sessionChange is what a node reports of its session's row, nil for nothing.
func (a *assembly) sessionChange(n *node) *store.SessionChange {
	c := store.SessionChange{ID: n.session}
	a.setSpeaker(&c, n)
	a.setParent(&c, n)
	a.setTitle(&c, n)
	about := n.SessionAttrs
	if about == nil {
		about = new(fact.SessionAttrs)
	}
	if about.Title != "" {
		c.Title = n.last(about.Title)
	}
	c.Mode, c.WorkspaceID, c.WorkspaceRoot = n.last(about.Mode), n.last(about.WorkspaceID), n.last(about.WorkspaceRoot)
	c.Permissions = n.last(string(validRules(about.Rules)))
	if about.ParentSession != "" && about.ParentSession != n.session {
		c.ParentID = n.first(about.ParentSession, store.RankLive)
	}
	c.Metadata = a.aboutMetadata(n, about)
	values := []*store.Value{c.Agent, c.Model, c.Title, c.ParentID, c.Mode, c.WorkspaceID,
		c.WorkspaceRoot, c.Permissions}
	if c.Metadata == nil && !slices.ContainsFunc(values, func(v *store.Value) bool { return v != nil }) {
		return nil
	}
	return &c
}

// first is a value whose earliest report takes precedence, last one whose latest does.
func (n *node) first(text string, rank store.Rank) *store.Value {
	if text == "" {
		return nil
	}
	return &store.Value{Text: text, At: n.Start, Rank: rank}
}

func (n *node) last(text string) *store.Value {
	if text == "" {
		return nil
	}
	return &store.Value{Text: text, At: n.End, Rank: store.RankLive}
}

// setSpeaker sets the agent and its model.
func (a *assembly) setSpeaker(c *store.SessionChange, n *node) {
	if n.side != "" || n.Kind != fact.Turn && n.Kind != fact.ModelCall && n.Kind != fact.Session {
		return
	}
	if c.Agent = n.first(n.agent, store.RankLive); c.Agent == nil {
		c.Agent = n.first(n.Service, store.RankStub) // better than no name
	}
	if m := n.Model; m != nil && m.ModelID != "" {
		raw, _ := json.Marshal(m)
		c.Model = n.last(string(raw))
	}
}

// setParent sets where the session of a sub-agent hangs.
func (a *assembly) setParent(c *store.SessionChange, n *node) {
	if s := a.sessions[n.session]; s != nil && s.parentRef != nil {
		c.ParentID = n.first(s.parentRef.parent, store.RankLive)
		c.ParentMessageID = n.first(a.parentMessage(s.parentRef), store.RankLive)
	}
}

// setTitle sets the title: the one that a model was asked for, or until then the
// user's first message.
func (a *assembly) setTitle(c *store.SessionChange, n *node) {
	if n.side == "title" {
		c.Title = n.last(headline(textOf(n.Output)))
	}
	if n.turn == nil || c.Title != nil || len(n.attribution.Others) == 0 && n.Kind != fact.Prompt {
		return
	}
	if v := n.first(n.turn.title(), store.RankStub); v != nil {
		turned := v.First()
		c.Title = &turned
	}
}

// aboutMetadata is what has no column: the client, the user, and by which key the
// session was found.
func (a *assembly) aboutMetadata(n *node, about *fact.SessionAttrs) map[string]store.Value {
	m := make(map[string]store.Value)
	put := func(key, text string) {
		if text != "" {
			quoted := string(jsonscan.AppendString(nil, text))
			m[key] = store.Value{Text: quoted, At: n.Start, Rank: store.RankLive}.First()
		}
	}
	put("client", about.Client)
	put("user_id", about.UserID)
	if n.Kind == fact.Session && n.Transcript {
		a.ownKeys(n, m)
	}
	if n.attribution.MessageID != "" || n.Kind == fact.Session {
		found := struct {
			Dialect    string `json:"dialect"`
			SessionKey string `json:"session_key,omitempty"`
		}{Dialect: n.Dialect}
		rank := store.RankStub // a source with that key reports more
		if n.Session == n.session && n.SessionKey != "" {
			found.SessionKey, rank = n.SessionKey, store.RankLive
		}
		raw, _ := json.Marshal(found)
		m["agenttrace"] = store.Value{Text: string(raw), At: n.Start, Rank: rank}.First()
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// ownKeys adds the keys of the session's metadata that are the program's own.
func (a *assembly) ownKeys(n *node, m map[string]store.Value) {
	var own map[string]json.RawMessage
	if len(n.Extra) == 0 || json.Unmarshal(n.Extra, &own) != nil {
		return
	}
	for key, raw := range own {
		if _, taken := m[key]; !taken && key != "agenttrace" {
			m[key] = store.Value{Text: string(raw), At: n.Start, Rank: store.RankLive}.First()
		}
	}
}

// headline is the first line of a text, cut to what a list has room for.
func headline(text string) string {
	text = strings.TrimSpace(text)
	text, _, _ = strings.Cut(text, "\n")
	text = strings.TrimSpace(text)
	const maximum = 80
	if runes := []rune(text); len(runes) > maximum {
		text = strings.TrimSpace(string(runes[:maximum-1])) + "…"
	}
	return text
}

// textOf joins the text of parts.
func textOf(parts []fact.Part) string {
	var b strings.Builder
	for i := range parts {
		if parts[i].Kind == fact.PartText {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(parts[i].Text)
		}
	}
	return b.String()
}

// validRules returns those of the rules that are ones.
func validRules(raw json.RawMessage) json.RawMessage {
	var rules []session.Rule
	if len(raw) == 0 || json.Unmarshal(raw, &rules) != nil {
		return nil
	}
	rules = slices.DeleteFunc(rules, func(r session.Rule) bool {
		return r.Permission == "" || r.Pattern == "" || r.Action != "allow" && r.Action != "deny" && r.Action != "ask"
	})
	if len(rules) == 0 {
		return nil
	}
	valid, _ := json.Marshal(rules)
	return valid
}
