package assemble

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// This file states what each fact reports of its session's row: the agent, the model, the title, where the session
// hangs. The values are not settled here. A session has many turns, which are assembled one at a time, so each fact
// has what it reports with a time and a rank, and the store takes the best of all facts.

// reportSessions states what the facts report of their sessions' rows. A fact that only ties others reports it where
// something else is built of the session: a session of which nothing but a step is known would be an empty line of
// the list of sessions.
func (a *assembly) reportSessions() {
	written := make(map[string]bool)
	for i := range a.messages {
		written[a.messages[i].SessionID] = true
	}
	for _, n := range of(a.nodes, fact.Session) {
		written[n.session] = true
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
	about := cmp.Or(n.SessionAttrs, new(fact.SessionAttrs))
	if n.side == "" && (n.Kind == fact.Turn || n.Kind == fact.ModelCall || n.Kind == fact.Session) {
		// The name of the service is better than none, and no name that any span of an agent reports is worse.
		c.Agent = cmp.Or(n.first(n.agent, store.RankLive), n.first(n.Service, store.RankStub))
		if m := n.Model; m != nil && m.ModelID != "" {
			raw, _ := json.Marshal(m)
			c.Model = n.last(string(raw))
		}
	} else if n.Kind == fact.ToolCall && n.parent == nil {
		c.Agent = n.first(n.agent, store.RankStub) // all that there may be until the spans above arrive
	}
	if s := a.sessions[n.session]; s != nil && s.parentRef != nil {
		c.ParentID = n.first(s.parentRef.parent, store.RankLive)
		c.ParentMessageID = n.first(a.parentMessage(s.parentRef), store.RankLive)
	}
	// A program that names the parent itself knows better than the tree of one trace.
	if about.ParentSession != "" && about.ParentSession != n.session {
		c.ParentID = n.first(about.ParentSession, store.RankLive)
	}
	c.Title = cmp.Or(n.last(about.Title), n.title())
	c.Mode, c.WorkspaceID, c.WorkspaceRoot = n.last(about.Mode), n.last(about.WorkspaceID), n.last(about.WorkspaceRoot)
	c.Permissions = n.last(string(validRules(about.Rules)))
	c.Metadata = n.sessionMetadata(about)
	if reflect.DeepEqual(c, store.SessionChange{ID: n.session}) {
		return nil
	}
	return &c
}

// first is a value whose earliest report takes precedence, last one whose latest does: a session keeps the agent that
// began it, and shows the model that it uses now.
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

// title is the one that a model was asked for, or until then the user's first message, which ranks lower.
// [redact.Headline] redacts before it cuts: half of a secret is not recognized as one.
func (n *node) title() *store.Value {
	if n.side == "title" {
		if v := n.last(redact.Headline(textOf(n.Output))); v != nil {
			return v
		}
	}
	// Of the facts of a turn only the one that the user's message was made of reports a title: it has two messages.
	if n.turn == nil || len(n.attribution.Others) == 0 && n.Kind != fact.Prompt {
		return nil
	}
	v := n.first(redact.Headline(textOf(n.turn.asked)), store.RankStub)
	if v != nil {
		*v = v.First()
	}
	return v
}

// sessionMetadata is what has no column: the client, the user, by which key the session was found, and of a
// transcript the keys that are the program's own. Each key is settled by itself, so that what a record of the client
// reports does not replace what its file does.
func (n *node) sessionMetadata(about *fact.SessionAttrs) map[string]store.Value {
	m := make(map[string]store.Value)
	put := func(key string, raw []byte, rank store.Rank) {
		m[key] = store.Value{Text: string(raw), At: n.Start, Rank: rank}.First()
	}
	var own map[string]json.RawMessage
	if n.Kind == fact.Session && n.Transcript && json.Unmarshal(n.Extra, &own) == nil {
		for key, raw := range own {
			if key != "agenttrace" {
				put(key, raw, store.RankLive)
			}
		}
	}
	for key, text := range map[string]string{"client": about.Client, "user_id": about.UserID} {
		if text != "" {
			put(key, jsonscan.AppendString(nil, text), store.RankLive)
		}
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
		put("agenttrace", raw, rank)
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// textOf joins the text of parts, and leaves out all else. That is what two reports of a message are compared by:
// files, reasoning and what a client puts around the user's words are in few of them.
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

// validRules returns those of the rules that are ones. What a source writes as its rules may be anything, and one
// that is none would make the session fail its check.
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
