package dialect

import (
	"encoding/json"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// tally is counts of tokens by what their names mean, of one source.
type tally map[field]int64

func (t tally) get(f field) *int64 {
	if n, ok := t[f]; ok {
		return &n
	}
	return nil
}

// add notes a count, of which the first that is stated counts.
func (t tally) add(name string, n int64) {
	switch f := fieldOf(name); f {
	case fieldInputTokens, fieldOutputTokens, fieldTotalTokens, fieldCacheRead, fieldCacheWrite, fieldReasoningTokens:
		if _, known := t[f]; !known {
			t[f] = n
		}
	}
}

// object adds the counts of an object, as a provider or a client writes them, with
// the details that are in objects of it.
func (t tally) object(o object, depth int) {
	for _, key := range sortedKeys(o) {
		var n float64
		if json.Unmarshal(o[key], &n) == nil && !isNull(o[key]) {
			if n >= 0 && n < 1<<53 {
				t.add("usage."+key, int64(n))
			}
		}
	}
	for _, key := range sortedKeys(o) {
		if in, ok := membersOf(o[key]); ok && depth > 0 {
			t.object(in, depth-1)
		}
	}
}

// usage reads the counts of tokens of a call or a turn, nil where there are none.
func (g *genericReading) usage() *fact.Usage {
	t := make(tally)
	raw := make(map[string]json.RawMessage)
	for _, f := range []field{fieldInputTokens, fieldOutputTokens, fieldTotalTokens, fieldCacheRead,
		fieldCacheWrite, fieldReasoningTokens} {
		for _, v := range g.values[f] {
			if n, ok := (Attrs{Map: singleton("v", v)}).Int("v"); ok && n >= 0 {
				if _, known := t[f]; !known {
					t[f] = n
					raw[Text(g.keys[f])] = valueJSON(v)
				}
			}
		}
	}
	for _, v := range g.values[fieldUsage] {
		if v.Type() != pcommon.ValueTypeStr && v.Type() != pcommon.ValueTypeMap {
			continue
		}
		if o, ok := objectOf(valueJSON(v)); ok {
			t.object(o, 2)
			raw[Text(g.keys[fieldUsage])] = valueJSON(v)
		}
	}
	if len(t) == 0 || t.get(fieldInputTokens) == nil && t.get(fieldOutputTokens) == nil {
		return nil
	}
	encoded, _ := json.Marshal(raw)
	return t.usage(g.counter, encoded)
}

// usage reads counts of which it is not known what they include. A stated total may prove
// it.
func (t tally) usage(counter string, raw json.RawMessage) *fact.Usage {
	return AssumedUsage(counter, t.get(fieldInputTokens), t.get(fieldOutputTokens), t.get(fieldCacheRead), t.get(fieldCacheWrite),
		t.get(fieldReasoningTokens), t.get(fieldTotalTokens), raw)
}
