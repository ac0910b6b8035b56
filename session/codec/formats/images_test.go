package formats

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

// TestImagesOfToolsAreImages: an image that a tool returned is an image where a format has images, and its type and
// size elsewhere. It is never text in base64.
func TestImagesOfToolsAreImages(t *testing.T) {
	picture := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n and more of it"))
	s := chat([]string{"assistant", `{"type":"tool-shot","toolCallId":"c","state":"output-available","input":{},` +
		`"output":[{"type":"text","text":"the page"},{"type":"image","source":{"type":"base64","media_type":"image/png",` +
		`"data":"` + picture + `"}}]}`})
	doc := document.Build(document.Input{Transcript: s.Transcript})
	const shown = "[image/png, 23 B]"
	for name, c := range map[string]struct {
		write func(*bytes.Buffer) error
		want  string
	}{
		"atif": {func(b *bytes.Buffer) error { b.Write(atifEncode(s)); return nil },
			`"path": "data:image/png;base64,` + picture + `"`},
		"sts": {func(b *bytes.Buffer) error { b.Write(stsEncode(s)); return nil }, `the page\n` + shown},
		"html": {func(b *bytes.Buffer) error { return render.HTML(b, doc, document.Words{}) },
			`<img src="data:image/png;base64,` + picture + `" alt="` + shown + `"`},
		"markdown": {func(b *bytes.Buffer) error { return render.Markdown(b, doc, document.Words{}) }, shown},
		"show":     {func(b *bytes.Buffer) error { return render.Document(b, doc, render.Options{}) }, shown},
	} {
		var b bytes.Buffer
		testscale.Must(t, c.write(&b))
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%s does not have %s:\n%s", name, c.want, b.String())
		}
		if text := strings.ReplaceAll(b.String(), "data:image/png;base64,"+picture, ""); strings.Contains(text, picture) {
			t.Errorf("%s has the image as text:\n%s", name, text)
		}
	}
}

// TestATIFTotalsAreTheSumsOfItsSteps: what the session used for summaries and in messages that a rewind hid is in no
// step, and not in the totals.
func TestATIFTotalsAreTheSumsOfItsSteps(t *testing.T) {
	const metadata = `{"usage":{"input":10,"output":2,"reasoning":0,"cache_read":1,"cache_write":0},` +
		`"agenttrace":{"cost_usd":0.5}}`
	s := chat([]string{"assistant", `{"type":"text","text":"a"}`}, []string{"assistant", `{"type":"text","text":"b"}`},
		[]string{"assistant", `{"type":"data-compaction","data":{"summary":"s"}}`})
	s.Messages[0].Message.MetadataJSON, s.Messages[1].Message.MetadataJSON = metadata, metadata
	s.Messages[1].Message.HiddenAt = new(int64(50))
	s.Messages[2].Message.MetadataJSON = `{"compaction":true,"agenttrace":{"usage":{"input":100,"output":20,` +
		`"reasoning":0,"cache_read":0,"cache_write":0},"cost_usd":1}}`
	s.Session.CostUSD = 2
	text := atifEncode(s)
	var got struct {
		Final struct {
			Prompt     int     `json:"total_prompt_tokens"`
			Completion int     `json:"total_completion_tokens"`
			Cost       float64 `json:"total_cost_usd"`
		} `json:"final_metrics"`
		Steps []struct {
			Metrics struct {
				Prompt     int     `json:"prompt_tokens"`
				Completion int     `json:"completion_tokens"`
				Cost       float64 `json:"cost_usd"`
			}
		}
	}
	testscale.Must(t, json.Unmarshal(text, &got))
	for _, step := range got.Steps {
		got.Final.Prompt -= step.Metrics.Prompt
		got.Final.Completion -= step.Metrics.Completion
		got.Final.Cost -= step.Metrics.Cost
	}
	if got.Final.Prompt != 0 || got.Final.Completion != 0 || got.Final.Cost != 0 {
		t.Errorf("the totals have more than the steps: %+v\n%s", got.Final, text)
	}
}
