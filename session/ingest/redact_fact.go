package ingest

import (
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// fact redacts what a span or record reported before it is kept.
func (x *redaction) fact(f *fact.Fact) {
	x.model(f.Model)
	x.id(&f.TraceID, &f.SpanID, &f.ParentID, &f.SystemPromptDigest, &f.ToolCatalogDigest,
		(*string)(&f.Kind), &f.Dialect,
		&f.Source, &f.Session, &f.SessionKey, &f.TurnID, &f.RequestID, &f.CallID, &f.Purpose, &f.Subagent,
		&f.SubagentID, &f.ParentSubagentID, &f.ChildSession, &f.StartedBy, &f.Agent, &f.Service, &f.ResponseID,
		&f.ResponseModel, &f.Finish)
	x.text(redact.Other, &f.Name, &f.ErrorType)
	answer := []fact.Message{{Role: session.RoleAssistant, Parts: f.Output}}
	for _, messages := range [...][]fact.Message{f.Input, f.Unanswered, answer} {
		each(messages, func(m *fact.Message) {
			each(m.Parts, func(p *fact.Part) { x.factPart(m.Role, p) })
			x.id(&m.Role, &m.ID)
		})
	}
	x.text(redact.Prompt, &f.SystemPrompt)
	if f.ToolCatalog != "" {
		raw := json.RawMessage(f.ToolCatalog)
		if res := x.json(redact.Other, "", &raw); res.Redacted || res.Truncated {
			f.ToolCatalog = string(raw)
		}
	}
	if f.Usage != nil {
		x.id(&f.Usage.Basis, &f.Usage.Counter)
		x.json(redact.Other, "", &f.Usage.Raw)
	}
	failure := redact.Other
	if f.Kind == fact.ToolCall {
		failure = redact.ToolOutput
	}
	x.text(failure, &f.Error)
	if t := f.Tool; t != nil {
		x.id(&t.Name, &t.OutputSHA256)
		x.json(redact.ToolInput, "", &t.Input)
		if res := x.json(redact.ToolOutput, "", &t.Output); res.Truncated {
			t.Truncated = true
			if t.OutputSize == 0 { // else the source reports it of what it cut itself
				t.OutputSize, t.OutputSHA256 = int64(res.Size), res.SHA256
			}
		}
	}
	if d := f.Decision; d != nil {
		x.id(&d.ToolName, &d.Action, &d.Outcome, &d.Reply, &d.Source)
		if strings.Trim(d.Pattern, "*") != "" { // else it reports nothing of the call
			x.text(redact.ToolInput, &d.Pattern)
		}
		x.text(redact.Other, &d.Reason)
	}
	if c := f.Compacted; c != nil {
		x.text(redact.Other, &c.Summary)
		x.id(&c.Trigger)
	}
	if a := f.SessionAttrs; a != nil {
		x.text(redact.Other, &a.Title, &a.WorkspaceRoot)
		x.id(&a.WorkspaceID, &a.Mode, &a.UserID, &a.ParentSession, &a.Client)
		if len(a.Rules) > 0 && !x.clean(a.Rules) {
			a.Rules = x.rules(a.Rules)
		}
	}
	x.json(redact.Other, "", &f.Extra)
	x.texts(f.Problems)
}

func (x *redaction) factPart(role string, p *fact.Part) {
	kind := x.spoken(role, p.Kind)
	x.id(&p.Kind, &p.CallID, &p.MediaType)
	switch p.Kind {
	case fact.PartCall:
		kind = redact.ToolInput
	case fact.PartResult:
		kind = redact.ToolOutput
	case fact.PartCompaction:
		kind = redact.Other
	}
	if p.Kind == fact.PartFile || p.Kind == fact.PartSource { // there the name is not a tool's
		x.text(kind, &p.Name)
	} else {
		x.id(&p.Name)
	}
	x.text(kind, &p.Text, &p.URL)
	x.json(redact.ToolInput, "", &p.Input)
	x.json(redact.ToolOutput, "", &p.Output)
	x.text(redact.ToolOutput, &p.Error)
	x.json(kind, "", &p.Data)
}
