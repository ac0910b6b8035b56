package dialect

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// isGenericRecord reports whether a log record is of a conversation. Programs log much, and a text
// in a record is not necessarily a message: it needs a role, or a name that nothing else has.
func isGenericRecord(r *Record) bool {
	if r.Attributes().Len() == 0 && r.Body().Type() != pcommon.ValueTypeMap {
		return false
	}
	e := recordEvidence(r)
	if e.ordinary && !e.has(fieldSession, fieldModel) {
		return false
	}
	switch {
	case e.roles, e.has(fieldRole) && (e.has(fieldContent) || r.Body().Type() == pcommon.ValueTypeStr) &&
		normalRole(collect(r.Attrs(), r.Body()).str(fieldRole)) != "":
		return true
	case e.has(fieldModel, fieldResponseModel) && e.has(fieldInputTokens, fieldOutputTokens, fieldUsage,
		fieldPrompt, fieldAnswer, fieldMessages):
		return true
	case e.has(fieldToolName) && e.has(fieldToolInput, fieldToolOutput, fieldCallID):
		return true
	}
	return e.has(fieldPrompt, fieldAnswer) && (e.has(fieldSession) || e.kind != kindUnknown || !r.TraceID().IsEmpty())
}

func recordEvidence(r *Record) evidence {
	var e evidence
	e.look(r.Attributes())
	e.look(mapOf(r.Body()))
	return e
}

// readGenericRecord reads a record as a part of a model call, of a turn or of a tool's call.
// Messages of the user or answers of the model alone are facts of their own.
func readGenericRecord(r *Record, out *Emitter) {
	e := recordEvidence(r)
	g := collectScope(r.Attrs(), r.Body(), r.Scope)
	out.genericSession(g)
	if e.has(fieldToolName) && e.has(fieldToolInput, fieldToolOutput, fieldCallID) && !e.roles {
		f := out.Add(fact.ToolCall)
		g.about(f, nil)
		g.tool(f, "")
		return
	}
	g.reported = talkOf(r.Attrs(), r.Body(), r.Event)
	measured := e.has(fieldModel, fieldResponseModel) || e.has(fieldInputTokens, fieldOutputTokens, fieldUsage)
	kind := fact.ModelCall
	if !measured {
		has := func(role string) bool {
			return slices.ContainsFunc(g.reported, func(m fact.Message) bool { return m.Role == role })
		}
		switch asked, answered := has("user"), has("assistant"); {
		case asked && !answered:
			kind = fact.Prompt
		case answered && !asked:
			kind = fact.Answer
		}
	}
	f := out.Add(kind)
	g.about(f, nil)
	switch kind {
	case fact.Prompt:
		ReadInput(f, g.reported)
	case fact.Answer:
		f.Output = fact.PartsOf(g.reported)
	default:
		g.call(f)
	}
	g.failure(f, "")
}
