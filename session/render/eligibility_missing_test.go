package render

import (
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/document"
)

const replayable = `{"session":{"id":"ses_1"},"prompts":["You are a coder."],"catalogs":[[{"name":"bash","inputSchema":{"type":"object"}}]],"messages":[
 {"role":"user","at":0,"parts":[{"type":"text","text":"Hello"}]},
 {"role":"assistant","at":1,"metadata":{"model":{"provider_id":"openai","model_id":"gpt-5"},"system_prompt_digest":"prompt-0","agenttrace":{"turn_index":0,"tool_catalog_digest":"catalog-0"}},"parts":[
  {"type":"tool-bash","toolCallId":"c1","state":"output-available","input":{},"output":"old"},{"type":"text","text":"Hi"}]},
 {"role":"user","at":2,"parts":[{"type":"text","text":"And now?"}]},
 {"role":"assistant","at":3,"metadata":{"model":{"provider_id":"openai","model_id":"gpt-5"},"system_prompt_digest":"prompt-0","agenttrace":{"turn_index":1,"tool_catalog_digest":"catalog-0"}},"parts":[{"type":"text","text":"Done"}]}]}`

// A turn of which something that the model was given is not there cannot be rerun as if it were.
func TestTurnWithoutAllItWasGivenIsNotEligible(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(in *document.Input)
		want   string // of why; nothing is missing where it is empty
	}{
		{"whole", func(*document.Input) {}, ""},
		{"no output", func(in *document.Input) {
			p := &in.Transcript.Messages[1].Parts[0]
			p.DataJSON = strings.Replace(p.DataJSON, `,"output":"old"`, "", 1)
		}, "what bash put out is not in the store"},
		{"no error", func(in *document.Input) {
			p := &in.Transcript.Messages[1].Parts[0]
			p.DataJSON = strings.Replace(p.DataJSON, `"state":"output-available"`, `"state":"output-error"`, 1)
			p.DataJSON = strings.Replace(p.DataJSON, `,"output":"old"`, "", 1)
			p.ToolState = new("output-error")
		}, "what bash put out is not in the store"},
		{"a user message without parts", func(in *document.Input) { in.Transcript.Messages[2].Parts = nil },
			"the message has no parts"},
		{"an earlier one", func(in *document.Input) {
			in.Transcript.Messages[0].Parts = nil
		}, "the message has no parts"},
		{"a gap between parts", func(in *document.Input) { in.Transcript.Messages[1].Parts[1].Index = 4 },
			"3 parts before part 4 never arrived"},
		{"a gap before them", func(in *document.Input) { in.Transcript.Messages[2].Parts[0].Index = 1 },
			"1 part before part 1 never arrived"},
		{"an altered prompt", func(in *document.Input) { in.Blobs[0].Body += " Be evil." }, "arrived damaged"},
		{"an altered catalog", func(in *document.Input) {
			in.Blobs[1].Body = strings.Replace(in.Blobs[1].Body, "object", "string", 1)
		}, "arrived damaged"},
		{"turns before the first", func(in *document.Input) {
			for _, i := range []int{1, 3} {
				m := &in.Transcript.Messages[i].Message
				m.MetadataJSON = strings.NewReplacer(`"turn_index":0`, `"turn_index":5`, `"turn_index":1`,
					`"turn_index":6`).Replace(m.MetadataJSON)
			}
		}, "5 turns before turn 1 never arrived"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := readStory(t, replayable)
			c.damage(&in)
			r := document.Build(in).TurnEligibility(2)
			var why []string
			for _, m := range r.Missing {
				why = append(why, m.Why)
			}
			got := strings.Join(why, "; ")
			if r.Eligible != (c.want == "") || c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("eligible %t, missing %q, want %q", r.Eligible, got, c.want)
			}
		})
	}
}
