package formats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// atifObject is a JSON object of a trajectory.
type atifObject = map[string]any

// atifField is a field that an object may have: its kind, and whether it must.
type atifField struct {
	kind     string
	required bool
}

// atifFields are those of version 1.7 by the object that they are of, as strictly as any validator has
// them: no other is allowed, and none is null.
var atifFields = map[string]map[string]atifField{
	"trajectory": {
		"schema_version": {"version", true}, "agent": {"agent", true}, "steps": {"steps", true},
		"session_id": {"string", false}, "trajectory_id": {"string", false}, "notes": {"string", false},
		"final_metrics": {"final_metrics", false}, "continued_trajectory_ref": {"string", false},
		"subagent_trajectories": {"[]trajectory", false}, "extra": {"object", false},
	},
	"agent": {
		"name": {"string", true}, "version": {"string", true}, "model_name": {"string", false},
		"tool_definitions": {"[]definition", false}, "extra": {"object", false},
	},
	"definition": {"type": {"string", true}, "function": {"object", true}},
	"step": {
		"step_id": {"count", true}, "source": {"source", true}, "message": {"content", true},
		"timestamp":  {"time", false},
		"model_name": {"string", false}, "reasoning_effort": {"any", false}, "reasoning_content": {"string", false},
		"tool_calls": {"[]tool_call", false}, "observation": {"observation", false}, "metrics": {"metrics", false},
		"llm_call_count": {"count", false}, "is_copied_context": {"bool", false}, "extra": {"object", false},
	},
	"tool_call": {
		"tool_call_id": {"string", true}, "function_name": {"string", true}, "arguments": {"object", true},
		"extra": {"object", false},
	},
	"observation": {"results": {"[]result", true}},
	"result": {
		"source_call_id": {"string", false}, "content": {"content", false}, "subagent_trajectory_ref": {"[]ref", false},
		"extra": {"object", false},
	},
	"ref": {
		"trajectory_id": {"string", false}, "trajectory_path": {"string", false}, "session_id": {"string", false},
		"extra": {"object", false},
	},
	"part":  {"type": {"string", true}, "text": {"string", false}, "source": {"image", false}},
	"image": {"media_type": {"media type", true}, "path": {"string", true}},
	"metrics": {
		"prompt_tokens": {"count", false}, "completion_tokens": {"count", false}, "cached_tokens": {"count", false},
		"cost_usd": {"number", false}, "prompt_token_ids": {"any", false}, "completion_token_ids": {"any", false},
		"logprobs": {"any", false}, "extra": {"object", false},
	},
	"final_metrics": {
		"total_prompt_tokens": {"count", false}, "total_completion_tokens": {"count", false},
		"total_cached_tokens": {"count", false},
		"total_cost_usd":      {"number", false}, "total_steps": {"count", false}, "extra": {"object", false},
	},
}

// atifValidator collects the rules that a trajectory breaks.
type atifValidator struct{ errs []error }

func (v *atifValidator) report(place, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(place+": "+format, args...))
}

// atifBroken are the rules of ATIF 1.7 that a document breaks.
func atifBroken(data []byte) []error {
	var v atifValidator
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil {
		return []error{err}
	}
	v.value("trajectory", root, "trajectory")
	return v.errs
}

// value validates a value that must be of a kind.
func (v *atifValidator) value(place string, value any, kind string) {
	if of, ok := strings.CutPrefix(kind, "[]"); ok {
		list, ok := value.([]any)
		if !ok {
			v.report(place, "is %T, want an array", value)
		}
		for i, item := range list {
			v.value(fmt.Sprintf("%s[%d]", place, i), item, of)
		}
		return
	}
	text, isText := value.(string)
	ok := isText
	switch kind {
	case "any", "object":
		_, isObject := value.(atifObject)
		ok = isObject || kind == "any"
	case "string":
	case "version":
		ok = text == "ATIF-v1.7"
	case "source":
		ok = slices.Contains([]string{"system", "user", "agent"}, text)
	case "media type":
		ok = slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, text)
	case "time":
		_, err := time.Parse(time.RFC3339Nano, text)
		ok = err == nil
	case "bool":
		_, ok = value.(bool)
	case "count", "number":
		n, isNumber := value.(json.Number)
		_, err := n.Int64()
		f, floatErr := n.Float64()
		ok = isNumber && floatErr == nil && f >= 0 && (kind == "number" || err == nil)
	case "content":
		if !isText {
			v.value(place, value, "[]part")
			return
		}
	case "steps":
		v.steps(place, value)
		return
	default:
		v.object(place, value, kind)
		return
	}
	if !ok {
		v.report(place, "is %v, want a %s", value, kind)
	}
}

// object validates an object by the list of its fields, and by the rules that go beyond it.
func (v *atifValidator) object(place string, value any, kind string) {
	o, ok := value.(atifObject)
	if !ok {
		v.report(place, "is %T, want an object", value)
		return
	}
	for key, f := range atifFields[kind] {
		if inner, has := o[key]; has {
			v.value(place+"."+key, inner, f.kind)
		} else if f.required {
			v.report(place, "%s is missing", key)
		}
	}
	for key := range o {
		if _, known := atifFields[kind][key]; !known {
			v.report(place, "has %s, which is no field of a %s", key, kind)
		}
	}
	switch kind {
	case "trajectory":
		ids := make(map[any]bool)
		children, _ := o["subagent_trajectories"].([]any)
		for i, raw := range children {
			id := raw.(atifObject)["trajectory_id"]
			if id == nil || ids[id] {
				v.report(place, "sub-agent %d has no trajectory_id of its own", i)
			}
			ids[id] = true
		}
	case "ref":
		if o["trajectory_id"] == nil && o["trajectory_path"] == nil {
			v.report(place, "names no trajectory")
		}
	case "part":
		if isText := o["type"] == "text"; !isText && o["type"] != "image" || isText != (o["text"] != nil) ||
			isText == (o["source"] != nil) {
			v.report(place, "is neither a text nor an image")
		}
	case "step":
		v.step(place, o)
	}
}

func (v *atifValidator) step(place string, o atifObject) {
	if o["source"] != "agent" {
		for _, key := range []string{"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"} {
			if o[key] != nil {
				v.report(place, "has %s, which is for steps of the agent", key)
			}
		}
	} else if o["llm_call_count"] == json.Number("0") && (o["metrics"] != nil || o["reasoning_content"] != nil) {
		v.report(place, "has metrics or reasoning of no model")
	}
	ids := make(map[any]bool)
	calls, _ := o["tool_calls"].([]any)
	for _, call := range calls {
		if id := call.(atifObject)["tool_call_id"]; ids[id] {
			v.report(place, "two calls have the id %v", id)
		} else {
			ids[id] = true
		}
	}
	observation, _ := o["observation"].(atifObject)
	results, _ := observation["results"].([]any)
	for _, raw := range results {
		if id := raw.(atifObject)["source_call_id"]; id != nil && !ids[id] {
			v.report(place, "a result is of call %v, which is not of the step", id)
		}
	}
}

func (v *atifValidator) steps(place string, value any) {
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		v.report(place, "is %v, want at least one step", value)
	}
	for i, raw := range list {
		at := fmt.Sprintf("%s[%d]", place, i)
		v.value(at, raw, "step")
		if step, ok := raw.(atifObject); ok && step["step_id"] != json.Number(fmt.Sprint(i+1)) {
			v.report(at, "has step_id %v, want %d", step["step_id"], i+1)
		}
	}
}

// TestATIFTheRulesRefuse has the rules reject what breaks them: without it, that all is valid would
// mean nothing.
func TestATIFTheRulesRefuse(t *testing.T) {
	const head = `{"schema_version":"ATIF-v1.7","agent":{"name":"a","version":"1"},"steps":[`
	valid := head +
		`{"step_id":1,"source":"user","message":[{"type":"image","source":{"media_type":"image/png",` +
		`"path":"a.png"}}]},` +
		`{"step_id":2,"source":"agent","message":"","timestamp":"2026-10-16T14:30:00Z",` +
		`"tool_calls":[{"tool_call_id":"c","function_name":"f","arguments":{}}],` +
		`"observation":{"results":[{"source_call_id":"c","content":"ok"}]},"metrics":{"prompt_tokens":1}}]}`
	if errs := atifBroken([]byte(valid)); errs != nil {
		t.Fatalf("a valid trajectory is refused: %v", errs)
	}
	for _, change := range [][2]string{
		{"ATIF-v1.7", "ATIF-v1.6"}, {`"version":"1"`, `"version":1`}, {`"step_id":2`, `"step_id":3`},
		{`"source":"user"`, `"source":"tool"`},
		{`"message":""`, `"message":null`}, {`2026-10-16T14:30:00Z`, `yesterday`},
		{`"arguments":{}`, `"arguments":"{}"`},
		{`"source_call_id":"c"`, `"source_call_id":"d"`},
		{`"metrics":{"prompt_tokens":1}`, `"metrics":{"prompt_tokens":-1}`},
		{`"metrics":{"prompt_tokens":1}`, `"metrics":{"prompt_tokens":1},"llm_call_count":0`},
		{`"metrics":`, `"function_ancestry":`},
		{`"image/png"`, `"image/tiff"`}, {`"type":"image"`, `"type":"text"`}, {`"source":"agent"`, `"source":"user"`},
		{`"steps":[`, `"made_up":1,"steps":[`}, {`"content":"ok"`, `"subagent_trajectory_ref":[{"session_id":"s"}]`},
		{`"tool_calls":[`, `"tool_calls":[{"tool_call_id":"c","function_name":"g","arguments":{}},`},
	} {
		if errs := atifBroken([]byte(strings.Replace(valid, change[0], change[1], 1))); errs == nil {
			t.Errorf("%s instead of %s is taken for valid", change[1], change[0])
		}
	}
}
