package agenttrace_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/agenttrace/agenttrace/agenttrace"
)

// TestFilesInOutputsOfToolsAreNotStored has what models get from tools, in the form of each API and of MCP.
func TestFilesInOutputsOfToolsAreNotStored(t *testing.T) {
	content := make([]byte, 180_001)
	for i := range content {
		content[i] = byte(i * i >> 3)
	}
	for _, data := range [][]byte{content, []byte("\x89PNG\r\n\x1a\n")} {
		std, web := base64.StdEncoding.EncodeToString(data), base64.RawURLEncoding.EncodeToString(data)
		for name, test := range map[string]struct{ media, output string }{
			"Anthropic": {"image/png",
				`[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"$"}}]`},
			"Anthropic, media type last": {"application/pdf",
				`[{"type":"document","title":"a \"b\"","source":{"data":"$","media_type":"application/pdf","type":"base64"}}]`},
			"OpenAI Responses":  {"image/jpeg", `[{"type":"input_image","image_url":"data:image/jpeg;base64,$"}]`},
			"OpenAI chat":       {"image/png", `[{"type":"image_url","image_url":{"url":"data:image/png;base64,$"}}]`},
			"OpenAI file":       {"application/pdf", `[{"type":"input_file","file_data":"data:application/pdf;base64,$"}]`},
			"OpenAI audio":      {"audio/wav", `[{"type":"input_audio","input_audio":{"data":"$","format":"wav"}}]`},
			"OpenAI screenshot": {"image/png", `{"type":"computer_screenshot","image_url":"data:image/png;base64,$"}`},
			"OpenAI image":      {"image/*", `{"data":[{"b64_json":"$"}]}`},
			"Gemini":            {"image/webp", `{"parts":[{"inlineData":{"mimeType":"image/webp","data":"$"}}]}`},
			"Gemini, Python":    {"image/webp", `{"parts":[{"inline_data":{"data":"$","mime_type":"image/webp"}}]}`},
			"Bedrock image":     {"image/png", `[{"image":{"format":"png","source":{"bytes":"$"}}}]`},
			"Bedrock document":  {"application/pdf", `[{"document":{"name":"a","format":"pdf","source":{"bytes":"$"}}}]`},
			"MCP image": {"image/png",
				`{"content":[{"type":"image","data":"$","mimeType":"image/png"}],"isError":false}`},
			"MCP audio": {"audio/mpeg", `{"content":[{"type":"audio","mimeType":"audio/mpeg","data":"$"}]}`},
			"MCP resource": {"application/zip",
				`{"type":"resource","resource":{"uri":"file:///a","mimeType":"application/zip","blob":"$"}}`},
			"MCP, no media type": {"application/octet-stream",
				`{"type":"resource","resource":{"uri":"file:///a","blob":"$"}}`},
			"AI SDK": {"image/png", `{"type":"content","value":[{"type":"media","mediaType":"image/png","data":"$"}]}`},
			"escaped slashes": {"image/png",
				strings.ReplaceAll(`{"type":"image","mimeType":"image/png","data":"$"}`, "/", `\/`)},
			"URL":       {"image/png", `"data:image/png;base64,$"`},
			"in a text": {"image/png", `{"text":"![plot](data:image/png;base64,$) and more"}`},
		} {
			for _, encoded := range []string{std, web} {
				output := strings.ReplaceAll(test.output, "$", encoded)
				if name == "escaped slashes" {
					output = strings.ReplaceAll(strings.ReplaceAll(output, `\/`, "/"), "/", `\/`)
				}
				for _, end := range map[string]func(*ToolCall){
					"value": func(c *ToolCall) { c.End(json.RawMessage(output)) },
					"raw":   func(c *ToolCall) { c.EndRaw(json.RawMessage(output)) },
					"text":  func(c *ToolCall) { c.EndText(output) },
					"cut":   func(c *ToolCall) { c.EndTruncated(json.RawMessage(output), Truncated{Size: 1}) },
				} {
					h, ctx, turn := begin(t, Options{})
					_, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "see", Input: 1})
					end(tool)
					h.end(turn)
					got := one(t, h.rec.All().ToolCalls()).Output
					want := fmt.Sprintf("[%s, %d bytes, sha256 %x", test.media, len(data), sha256.Sum256(data))
					if !strings.Contains(got, want) || strings.Contains(got, encoded) || !json.Valid([]byte(got)) {
						t.Errorf("%s: output is %.300s, want %s", name, got, want)
					}
				}
			}
		}
	}
}

func TestOutputsWithoutFilesStayAsTheyAre(t *testing.T) {
	for _, output := range []string{
		`{"data":"abcd","total":12345678901234567890}`, `{"mimeType":"text/plain","data":"abcd"}`, `{"bytes":"12 KiB"}`,
		`{"type":"image","data":"not base64, but words"}`, `{"url":"data:text/plain,hello"}`, `"data:"`,
		`{"format":"json","data":"deadbeef"}`, `[]`, `{"type":"image","source":{"type":"url","url":"https://a/b.png"}}`,
		`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"Lorem"}}`,
	} {
		h, ctx, turn := begin(t, Options{})
		_, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "see", Input: 1})
		tool.EndRaw(json.RawMessage(output))
		turn.End(TurnResult{})
		h.run.End(nil)
		if got := one(t, h.rec.All().ToolCalls()).Output; got != output {
			t.Errorf("output is %s, want %s", got, output)
		}
	}
}
