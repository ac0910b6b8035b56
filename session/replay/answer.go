package replay

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Origin is what a replayed message reports of where it comes from: the object "replay" of its metadata.
type Origin struct {
	SessionID string `json:"session_id"`
	Turn      int    `json:"turn"`
	MessageID string `json:"message_id,omitempty"`
	Format    string `json:"format"`
	// Endpoint is the URL that was asked, without what it reports of a user.
	Endpoint string `json:"endpoint"`
	// Reused counts the tool calls that were answered with a recorded output, Open
	// names the tools of those that have none.
	Reused int      `json:"recorded_outputs"`
	Open   []string `json:"open_calls,omitempty"`
}

// Changes are the answer as a message of the session with the id, a fork of the bundle's at the turn's user message.
// What is secret in it is taken out by the client's redactor.
func (a *Answer) Changes(b *Bundle, c *Client, sessionID string) (*store.Batch, error) {
	u, err := c.URL()
	if err != nil {
		return nil, err
	}
	origin := Origin{
		SessionID: b.SessionID, Turn: b.Turn, MessageID: b.MessageID, Format: c.Format.Name, Endpoint: c.shown(u),
		Reused: a.Reused, Open: a.Open,
	}
	trace := session.MessageTrace{
		EndReason: "finish", StopReason: a.StopReason, ModelCalls: int64(a.ModelCalls),
		DurationMS: new(a.Ended.Sub(a.Started).Milliseconds()), UsageBasis: a.UsageBasis,
		ResponseModel: a.ResponseModel,
	}
	if c.Format != aiSDK { // its route has settings of its own
		trace.Temperature = b.Parameters.Temperature
		trace.ToolCatalogDigest = b.turn.Tools.CatalogDigest
	}
	if b.turn.Index != nil {
		trace.TurnIndex = new(*b.turn.Index)
	}
	if a.StopReasonRaw != a.StopReason {
		trace.StopReasonRaw = a.StopReasonRaw
	}
	if a.ModelCalls == 1 {
		trace.ResponseID = a.ResponseID
	}
	if len(a.UsageRaw) == 1 {
		trace.UsageRaw = a.UsageRaw[0]
	} else if len(a.UsageRaw) > 1 {
		trace.UsageRaw, _ = json.Marshal(a.UsageRaw)
	}
	if a.Err != nil {
		trace.EndReason, trace.Error = "error", a.Err.Error()
	}
	meta := struct {
		session.MessageMetadata
		Replay Origin `json:"replay"`
	}{session.MessageMetadata{Usage: a.Usage, Trace: trace}, origin}
	if a.Model != (session.Model{}) {
		meta.Model = &a.Model
	}
	if c.Format != aiSDK {
		meta.SystemPromptDigest = b.turn.SystemPromptDigest
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	from, until := a.Started.UnixMilli(), a.Ended.UnixMilli()
	// The clock of what recorded the session may be ahead of this one; an answer comes after its question.
	if m := b.turn.Messages; len(m) > 0 && from <= m[0].CreatedAt {
		from, until = m[0].CreatedAt+1, m[0].CreatedAt+1+until-from
	}
	message := spans.NewID(spans.PrefixMessage, a.Started)
	batch := &store.Batch{Messages: []store.MessageChange{{
		ID: message, SessionID: sessionID, Role: session.RoleAssistant, CreatedAt: from, UpdatedAt: until,
		Rank: store.RankFinal, Metadata: text,
	}}}
	session := store.SessionChange{ID: sessionID, Start: from, End: until}
	if model, err := json.Marshal(a.Model); err == nil && a.Model.ModelID != "" {
		session.Model = &store.Value{Text: string(model), At: a.Ended.UnixNano(), Rank: store.RankFinal}
	}
	batch.Sessions = append(batch.Sessions, session)
	for i := range a.blocks {
		p := a.blocks[i].change()
		p.ID, p.MessageID, p.SessionID, p.Index = spans.NewID(spans.PrefixPart, a.Ended), message, sessionID, int64(i)
		p.CreatedAt, p.UpdatedAt, p.Rank = from, until, store.RankFinal
		batch.Parts = append(batch.Parts, p)
	}
	ingest.RedactBatch(c.Redactor, batch)
	return batch, nil
}

// partOf is a block as a part.
func partOf(b *block) session.UIPart {
	switch b.kind {
	case stepBlock:
		return session.UIPart{Type: "step-start"}
	case textBlock:
		return session.UIPart{Type: "text", Text: &b.text, ProviderMetadata: b.meta}
	case reasoningBlock:
		return session.UIPart{Type: "reasoning", Text: &b.text, ProviderMetadata: b.meta}
	}
	p := session.UIPart{Type: "tool-" + b.name, ToolCallID: b.id, State: session.StateInputAvailable, Input: b.input}
	switch r := b.result; {
	case r == nil:
	case r.failed:
		p.State, p.ErrorText = session.StateOutputError, new(cmp.Or(r.text, callFailed))
	default:
		p.State, p.Output = session.StateOutputAvailable, r.output
	}
	return p
}

// change is a block as a part that is stored, with what a recorded result reports besides.
func (b *block) change() store.PartChange {
	p := partOf(b)
	if b.result != nil && b.result.trace != nil {
		p.ToolMetadata.Trace = *b.result.trace
	}
	data, _ := json.Marshal(p) // what came in as JSON goes out as JSON
	return store.PartChange{Type: p.Type, Data: data, ToolCallID: p.ToolCallID, ToolState: p.State}
}

// Duration is how long the answer took.
func (a *Answer) Duration() time.Duration { return a.Ended.Sub(a.Started) }
