package otlp

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// A store keeps the metadata of a message in one of two spellings: what was annotated
// with its keys in order, what spans measured with the measured keys first. A replay
// sends each in the way that gives its spelling.

// annotate is the metadata as an annotation, or "" when it is in the other
// spelling.
func annotate(m *session.Message) string {
	ordered, ok := canonical(m.MetadataJSON)
	if ok && ordered == m.MetadataJSON || measured(m) == nil {
		return m.MetadataJSON
	}
	return ""
}

// measured are the facts of which a store makes the very metadata, or nil.
func measured(m *session.Message) *store.TurnStats {
	var known session.MessageMetadata
	extra := object(m.MetadataJSON)
	if json.Unmarshal([]byte(m.MetadataJSON), &known) != nil || len(extra) == 0 {
		return nil
	}
	for _, key := range []string{"model", "agent", "usage", "system_prompt_digest", "agenttrace"} {
		delete(extra, key)
	}
	f := &store.TurnStats{
		Step: known.Trace.Incomplete, Model: known.Model, Agent: known.Agent, Usage: known.Usage,
		SystemPromptDigest: known.SystemPromptDigest,
		Trace:              known.Trace, Extra: extra,
	}
	if folded(f) != m.MetadataJSON {
		return nil
	}
	// An incomplete message is reported by a step, and the error of a step is one of a
	// model call.
	if failed := known.Trace.ModelErrors; f.Step && f.Trace.Error != "" &&
		(len(failed) == 0 || failed[len(failed)-1] != f.Trace.Error) {
		return nil
	}
	if !credible(&known) || strings.Contains(m.MetadataJSON, `\u0000`) {
		return nil // facts hold values, and no column the NUL in one
	}
	// Each error is reported by a call, whose time has its place among the others.
	if failed := known.Trace.ModelErrors; len(failed) > store.MaxModelErrors ||
		len(failed) > 0 && !session.Credible(m.CreatedAt) || slices.Contains(failed, "") {
		return nil
	}
	f.Trace.Incomplete = false
	return f
}

// credible reports that what was measured is believed.
func credible(m *session.MessageMetadata) bool {
	if u := m.Usage; u != nil && max(u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite) > ingest.MaxTokens {
		return false
	}
	return m.Trace.CostUSD == nil || *m.Trace.CostUSD <= ingest.MaxDollars
}

// folded is the metadata that a store makes of the facts of one span. Facts are kept
// as JSON, which rewrites raw values.
func folded(f *store.TurnStats) string {
	kept := *f
	kept.Extra = make(map[string]json.RawMessage, len(f.Extra))
	for key, raw := range f.Extra {
		value, err := json.Marshal(raw)
		if err != nil {
			return ""
		}
		kept.Extra[key] = value
	}
	return kept.Metadata()
}

// canonical is metadata with its keys in order, and those of its "agenttrace".
func canonical(metadata string) (string, bool) {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(metadata), &all) != nil || all == nil {
		return "", false
	}
	if raw, ok := all["agenttrace"]; ok {
		var inner map[string]json.RawMessage
		if json.Unmarshal(raw, &inner) == nil && len(inner) > 0 {
			all["agenttrace"] = json.RawMessage(ordered(inner))
		}
	}
	return ordered(all), true
}

// ordered writes an object with its keys in order and no space between tokens.
func ordered(values map[string]json.RawMessage) string {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(spans.AppendJSONString(nil, key))
		b.WriteByte(':')
		if json.Compact(&b, values[key]) != nil {
			return ""
		}
	}
	b.WriteByte('}')
	return b.String()
}

// object reads a JSON object; what is none is an empty one.
func object(text string) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &m) != nil || m == nil {
		return make(map[string]json.RawMessage)
	}
	return m
}

// member is the value of a member of an object, as it is spelled, and where it begins.
type member struct {
	text string
	at   int
}

// members are those of an object that are in it once.
func members(text string) map[string]member {
	dec := json.NewDecoder(strings.NewReader(text))
	all := make(map[string]member)
	twice := make(map[string]bool)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		var raw json.RawMessage
		if err != nil || !ok || dec.Decode(&raw) != nil {
			return nil
		}
		_, had := all[key]
		twice[key] = had || twice[key]
		all[key] = member{string(raw), int(dec.InputOffset()) - len(raw)}
	}
	maps.DeleteFunc(all, func(key string, _ member) bool { return twice[key] })
	return all
}
