package formats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var atifSchema = schemaOf("testdata/schemas/atif.json")

// atifTested is what of a trajectory the rules beyond its schema are about.
type atifTested struct {
	ID       string       `json:"trajectory_id"`
	Children []atifTested `json:"subagent_trajectories"`
	Steps    []struct {
		ID    int `json:"step_id"`
		Calls []struct {
			ID string `json:"tool_call_id"`
		} `json:"tool_calls"`
		Observation struct {
			Results []struct {
				Of *string `json:"source_call_id"`
			}
		}
	}
}

// atifBroken is the first rule of ATIF 1.7 that a document breaks.
func atifBroken(data []byte) error {
	data = bytes.ReplaceAll(data, []byte("1e400"), []byte("1e300")) // is JSON, but not a number that Go has
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	if err := atifSchema(value); err != nil {
		return err
	}
	var t atifTested
	if err := json.Unmarshal(data, &t); err != nil {
		return err
	}
	return t.broken()
}

func (t *atifTested) broken() error {
	for i, s := range t.Steps {
		if s.ID != i+1 {
			return fmt.Errorf("step %d has step_id %d", i+1, s.ID)
		}
		var ids []string
		for _, c := range s.Calls {
			if slices.Contains(ids, c.ID) {
				return fmt.Errorf("step %d: two calls have the id %s", s.ID, c.ID)
			}
			ids = append(ids, c.ID)
		}
		for _, r := range s.Observation.Results {
			if r.Of != nil && !slices.Contains(ids, *r.Of) {
				return fmt.Errorf("step %d: a result is of call %s, which is not of the step", s.ID, *r.Of)
			}
		}
	}
	var ids []string
	for i := range t.Children {
		c := &t.Children[i]
		if slices.Contains(ids, c.ID) {
			return fmt.Errorf("two sub-agents have the id %s", c.ID)
		}
		ids = append(ids, c.ID)
		if err := c.broken(); err != nil {
			return err
		}
	}
	return nil
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
