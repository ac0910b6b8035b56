package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// DefaultMaxCalls bounds how often a run asks the model.
const DefaultMaxCalls = 32

// maxReply bounds what is read of a reply, in bytes.
const maxReply = 64 << 20

// Client sends requests to an endpoint.
type Client struct {
	Format *Format
	// Endpoint is the base URL of the API, such as https://api.openai.com/v1, or the
	// whole URL of the resource; for the AI SDK, that of the route.
	Endpoint string
	// Key is the key of the API; empty sends none.
	Key string
	// Header is sent besides.
	Header http.Header
	// MaxCalls bounds the requests of one run; 0 means [DefaultMaxCalls]. One that is tried again counts once.
	MaxCalls int
	// MaxAttempts is how often a request is sent that the server cannot take now: with the status 408, 429 or 5xx, or
	// when it resets the connection. 0 means [DefaultMaxAttempts], 1 sends it once. A request waits two minutes in all; a
	// server that asks for more (Retry-After) is not waited for.
	MaxAttempts int
	// Redactor is what the recorded inputs of calls went through, to know them again; it may be nil.
	Redactor *redact.Redactor
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// Answer is what the model answered this time.
type Answer struct {
	// Model is the one that was asked.
	Model session.Model
	// StopReason is the last reply's: see [fact.FinishReason].
	StopReason, StopReasonRaw string
	// Usage is the sum over the calls of the model, nil where no reply reports any.
	Usage      *session.Usage
	UsageBasis string
	UsageRaw   []json.RawMessage
	ModelCalls int
	// Reused counts the tool calls that were answered with a recorded output; Open are
	// the names of those that have none, at which the answer ends.
	Reused int
	Open   []string
	// Limited reports that MaxCalls ended the run.
	Limited bool
	// Err is what ended the run after the first reply.
	Err error

	Started, Ended            time.Time
	ResponseID, ResponseModel string

	blocks []*block
	called callIDs // of the conversation and the answer
}

// Run asks the model for the turn's answer. A tool that the model calls is not
// executed: the call gets what the recorded answer's call of the same tool with the
// same input got, each recorded call once; a call that has none ends the run.
//
// The error is of a first request that brought nothing. One that comes later is in the answer.
func (b *Bundle) Run(ctx context.Context, c *Client) (*Answer, error) {
	now := c.Now
	if now == nil {
		now = time.Now
	}
	maximum := c.MaxCalls
	if maximum <= 0 {
		maximum = DefaultMaxCalls
	}
	asked := *b
	asked.chat = b.SessionID + "-replay" // a route may keep chats by their ids
	b = &asked
	a := &Answer{Model: b.Model, Started: now(), called: make(callIDs)}
	for call := range callsOf(b.context) {
		a.called[anthropicID(call.id)] = true
	}
	recorded := slices.DeleteFunc(slices.Collect(callsOf(b.answer)), func(call *block) bool {
		return call.result.failed && call.result.text == noResult
	})
	var since []entry
	for range maximum {
		r, err := c.send(ctx, b, since)
		a.Ended = now()
		if err != nil && r == nil && a.ModelCalls == 0 {
			return nil, err
		}
		var calls []*block
		if r != nil {
			calls = a.take(r)
		}
		a.Err = err
		if err != nil || len(calls) == 0 {
			return a, nil
		}
		for _, call := range calls {
			input, _ := c.Redactor.ApplyJSON(redact.ToolInput, "", call.input)
			input = objectOf(input) // a model that was shown an input that is not an object as one asks so too
			i := slices.IndexFunc(recorded, func(of *block) bool {
				return of.name == call.name && document.Canonical(objectOf(of.input)) == document.Canonical(input)
			})
			if i < 0 {
				a.Open = append(a.Open, call.name)
				continue
			}
			call.result = recorded[i].result
			recorded = slices.Delete(recorded, i, i+1)
			a.Reused++
		}
		if len(a.Open) > 0 {
			return a, nil
		}
		since = append(since, entry{role: session.RoleAssistant, id: r.id, blocks: r.blocks})
	}
	a.Limited = true
	return a, nil
}

// take adds a reply, and returns its calls that wait for a result.
func (a *Answer) take(r *reply) (waiting []*block) {
	// The route of the AI SDK calls its model once for each step.
	steps := 0
	for i := range r.blocks {
		if r.blocks[i].kind == stepBlock {
			steps++
		}
	}
	a.ModelCalls += max(1, steps)
	a.StopReasonRaw, a.StopReason = r.stop, fact.FinishReason(r.stop)
	a.ResponseID, a.ResponseModel = r.id, r.model
	if r.usage != nil {
		a.Usage = session.Sum(a.Usage, r.usage, session.Usage.Add)
		a.UsageBasis, a.UsageRaw = r.basis, append(a.UsageRaw, r.usageRaw)
	}
	if len(r.blocks) == 0 || r.blocks[0].kind != stepBlock {
		a.blocks = append(a.blocks, &block{kind: stepBlock})
	}
	for i := range r.blocks {
		b := &r.blocks[i]
		if b.kind == callBlock {
			// Some servers give no id, or the same in every reply.
			b.name, b.id = cmp.Or(b.name, "unknown"), a.called.unique(b.id)
			if b.result == nil {
				waiting = append(waiting, b)
			}
		}
		a.blocks = append(a.blocks, b)
	}
	return waiting
}

// URL is where the client sends requests to. The error is of an endpoint that is none.
func (c *Client) URL() (*url.URL, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the endpoint is not the URL of a server; name one such as https://api.openai.com/v1")
	}
	if c.Format.path != "" && !strings.HasSuffix(strings.TrimRight(u.Path, "/"), c.Format.path) {
		u = u.JoinPath(c.Format.path)
	}
	return u, nil
}

// shown is a URL as it may be printed: without what may prove who asks, such as a password, or a key in the query.
func (c *Client) shown(u *url.URL) string {
	public := *u
	public.User, public.RawQuery, public.ForceQuery, public.Fragment, public.RawFragment = nil, "", false, "", ""
	return c.secrets().text(public.String())
}

// direct follows no redirects: the key would go along to wherever they lead.
var direct = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// send asks once. With an error comes what of the reply had arrived before, or nil.
func (c *Client) send(ctx context.Context, b *Bundle, since []entry) (_ *reply, err error) {
	hidden := c.secrets()
	defer func() { err = hidden.err(err) }()
	u, err := c.URL()
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if err := document.EncodeJSON(&body, "", c.Format.request(b, since)); err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body.Bytes()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "agenttrace")
	for name, value := range c.Format.header {
		req.Header.Set(name, value)
	}
	if c.Key != "" {
		c.Format.authorize(req.Header, c.Key)
	}
	maps.Copy(req.Header, c.Header)
	resp, err := c.do(req)
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err // without what it reports of the request
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.shown(u), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return nil, c.refused(u, resp)
	}
	// What is read is whole before it is parsed, so that the key is found wherever it is.
	text, readErr := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if len(text) > maxReply {
		text, readErr = text[:maxReply], fmt.Errorf("the reply is longer than %d MiB", maxReply>>20)
	}
	r, err := c.Format.reply([]byte(hidden.text(string(text))), readErr)
	hidden.reply(r)
	if err != nil {
		return r, fmt.Errorf("read the reply of %s as %s: %w", c.shown(u), c.Format.Name, err)
	}
	return r, nil
}

// refused is the error of a response that has no answer.
func (c *Client) refused(u *url.URL, resp *http.Response) error {
	hidden := c.secrets()
	answered, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what cannot be read is not shown
	status := hidden.text(resp.Status) + refusal([]byte(hidden.text(string(answered))))
	if wait, ok := modelapi.RetryAfter(resp.Header, time.Now()); ok && wait > 0 && modelapi.Retryable(resp) {
		status += fmt.Sprintf("; the server asks to wait %s", wait.Round(time.Second))
	}
	if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && to != "" {
		if target, err := u.Parse(to); err == nil {
			status += fmt.Sprintf(": it redirects to %s, where the key is not sent; name that endpoint",
				c.shown(target))
		}
	}
	return &StatusError{Endpoint: c.shown(u), Code: resp.StatusCode, status: status}
}

// StatusError is a server's refusal of a request.
type StatusError struct {
	Endpoint string
	// Code is the HTTP status.
	Code   int
	status string // and what the server reports
}

func (e *StatusError) Error() string { return "ask " + e.Endpoint + ": " + e.status }

// maxRefusal bounds what is read of a refusal, in bytes.
const maxRefusal = 64 << 10

// refusal is what a server reports of a request that it refuses.
func refusal(body []byte) string {
	answered := strings.TrimSpace(string(body))
	if _, text, _ := modelapi.ErrorOf(body); text != "" {
		answered = text
	}
	if answered == "" {
		return ""
	}
	if r := []rune(answered); len(r) > 500 {
		answered = string(r[:500]) + "…"
	}
	return ": " + strings.Join(strings.Fields(answered), " ")
}

// Provider is the provider, in the words of the GenAI conventions, whose the
// endpoint is; empty where it is nobody's that is known.
func (c *Client) Provider() string {
	u, err := c.URL()
	if err != nil {
		return ""
	}
	return modelapi.ProviderOf(u.Hostname())
}

// Bounds of trying a request again.
const (
	DefaultMaxAttempts = 5

	longestWait    = 2 * time.Minute // of one request, in all
	firstBackoff   = 500 * time.Millisecond
	longestBackoff = 16 * time.Second
)

// do sends a request until the server takes it, the bounds are reached, or the request's
// context ends. The last response, or error, is returned.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	attempts, left, backoff := cmp.Or(c.MaxAttempts, DefaultMaxAttempts), longestWait, firstBackoff
	for attempt := 1; ; attempt++ {
		resp, err := direct.Do(req)
		if attempt >= attempts || !again(req.Context(), resp, err) {
			return resp, err
		}
		// Between half of it and all, so that many that were refused do not return at once.
		wait := backoff/2 + rand.N(backoff/2)
		if resp != nil {
			if asked, ok := modelapi.RetryAfter(resp.Header, time.Now()); ok {
				wait = asked
			}
		}
		if wait > left {
			return resp, err
		}
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal) // so that the connection can be used again
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(wait):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		left -= wait
		backoff = min(2*backoff, longestBackoff)
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// again reports whether a request may succeed when it is sent again.
func again(ctx context.Context, resp *http.Response, err error) bool {
	if err == nil {
		return modelapi.Retryable(resp)
	}
	return ctx.Err() == nil && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
}

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
