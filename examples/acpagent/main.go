// Command acpagent is an agent that implements the Agent Client Protocol with github.com/coder/acp-go-sdk and also
// sends its log to the client. Start it from a client, or by hand:
//
//	cd examples/acpagent && go test -v .
package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/coder/acp-go-sdk"

	"github.com/agenttrace/agenttrace/acplog"
)

func main() { serve(os.Stdin, os.Stdout) }

// serve runs an agent until its client exits.
func serve(in io.Reader, out io.Writer) {
	wire := acplog.NewWire(in, out)
	handler := acplog.New(acplog.Options{Notify: wire.Notify, SessionID: sessionOf})
	wire.OnInitialize(handler.Initialize)
	a := &agent{log: slog.New(handler), flush: handler.Flush}
	a.conn = acp.NewAgentSideConnection(a, wire, wire)
	<-a.conn.Done()
}

type sessionKey struct{}

func sessionOf(ctx context.Context) string {
	id, _ := ctx.Value(sessionKey{}).(string)
	return id
}

// agent answers with the prompt that it got.
type agent struct {
	conn  *acp.AgentSideConnection
	log   *slog.Logger
	flush func(context.Context) error
}

var _ acp.Agent = (*agent)(nil)

func (a *agent) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: acp.ProtocolVersionNumber}, nil
}

func (a *agent) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	return acp.NewSessionResponse{SessionId: "sess-1"}, nil
}

func (a *agent) Prompt(ctx context.Context, p acp.PromptRequest) (acp.PromptResponse, error) {
	ctx = context.WithValue(ctx, sessionKey{}, string(p.SessionId))
	defer a.flush(ctx) // so that the client has the log of a turn before its response
	a.log.InfoContext(ctx, "asked", "logger", "agent", "blocks", len(p.Prompt))
	for _, block := range p.Prompt {
		if block.Text == nil {
			a.log.WarnContext(ctx, "a block that is no text is left out")
			continue
		}
		err := a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: p.SessionId,
			Update: acp.UpdateAgentMessageText(block.Text.Text)})
		if err != nil {
			a.log.ErrorContext(ctx, "answer", "err", err)
			return acp.PromptResponse{}, err
		}
	}
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

func (a *agent) Cancel(context.Context, acp.CancelNotification) error { return nil }

func (a *agent) Authenticate(context.Context, acp.AuthenticateRequest) (acp.AuthenticateResponse, error) {
	return acp.AuthenticateResponse{}, nil
}

func (a *agent) CloseSession(context.Context, acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	return acp.CloseSessionResponse{}, nil
}

func (a *agent) ListSessions(context.Context, acp.ListSessionsRequest) (acp.ListSessionsResponse, error) {
	return acp.ListSessionsResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionList)
}

func (a *agent) ResumeSession(context.Context, acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	return acp.ResumeSessionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionResume)
}

func (a *agent) SetSessionConfigOption(context.Context, acp.SetSessionConfigOptionRequest) (
	acp.SetSessionConfigOptionResponse, error) {
	return acp.SetSessionConfigOptionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetConfigOption)
}

func (a *agent) SetSessionMode(context.Context, acp.SetSessionModeRequest) (acp.SetSessionModeResponse, error) {
	return acp.SetSessionModeResponse{}, nil
}
