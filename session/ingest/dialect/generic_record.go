package dialect

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// isGenericRecord reports whether a log record is of a conversation. Programs log
// much, and a text in a record is no message yet: it must say whose it is, or be
// called as nothing else is.
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
		normalRole(recordRole(r)) != "":
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
	if r.Body().Type() == pcommon.ValueTypeMap {
		e.look(r.Body().Map())
	}
	return e
}

// recordRole returns the role that a record names.
func recordRole(r *Record) string {
	for _, m := range recordMaps(r) {
		for key, v := range m.All() {
			if fieldOf(key) == fieldRole && v.Type() == pcommon.ValueTypeStr {
				return v.Str()
			}
		}
	}
	return ""
}

func recordMaps(r *Record) []pcommon.Map {
	if r.Body().Type() == pcommon.ValueTypeMap {
		return []pcommon.Map{r.Attributes(), r.Body().Map()}
	}
	return []pcommon.Map{r.Attributes()}
}

// readGenericRecord reads a record as a part of a model call, of a turn or of a
// tool's call. What the user said and what the model answered, each by itself, are
// facts of their own.
func readGenericRecord(r *Record, out *Emitter) {
	e := recordEvidence(r)
	g := collect(r.Attrs(), r.Scope)
	if r.Body().Type() == pcommon.ValueTypeMap {
		in := collect(attrsOf(r.Body().Map()), r.Scope)
		for f, values := range in.values {
			if len(g.values[f]) == 0 {
				g.keys[f] = in.keys[f]
			}
			g.values[f] = append(g.values[f], values...)
		}
	}
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
		asked, answered := sides(g.reported)
		switch {
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
		for _, m := range g.reported {
			f.Output = append(f.Output, m.Parts...)
		}
	default:
		g.call(f)
	}
	g.failure(f, "")
}

// sides reports whose messages there are.
func sides(messages []fact.Message) (asked, answered bool) {
	for _, m := range messages {
		switch m.Role {
		case "user":
			asked = true
		case "assistant":
			answered = true
		}
	}
	return asked, answered
}
