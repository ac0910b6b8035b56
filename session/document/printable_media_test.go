package document_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/document"
)

var picture = base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n and more of it"))

// TestAFileIsShownAsItsTypeAndSize: in the forms of all APIs. What is around the file is shown as it is.
func TestAFileIsShownAsItsTypeAndSize(t *testing.T) {
	const shown = `"[image/png, 23 B]"`
	for raw, want := range map[string]string{
		`[{"type":"text","text":"a <b>"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"P"}}]`: `[{"type":"text","text":"a <b>"},` + shown + `]`,
		`{"content":[{"type":"image","data":"P","mimeType":"image/png"}],"isError":false}`:                                 `{"content":[` + shown + `],"isError":false}`,
		`{"type":"content","value":[{"type":"image-data","data":"P","mediaType":"image/png"}]}`:                            `{"type":"content","value":[` + shown + `]}`,
		`[{"type":"input_image","image_url":"data:image/png;base64,P","detail":"high"}]`:                                   `[` + shown + `]`,
		`[{"type":"image_url","image_url":{"url":"data:image/png;base64,P"}}]`:                                             `[` + shown + `]`,
		`{"parts":[{"inlineData":{"mimeType":"image/png","data":"P"}}],"n":1.50}`:                                          `{"parts":[` + shown + `],"n":1.50}`,
		`{"type":"resource","resource":{"uri":"file:///a","mimeType":"image/png","blob":"P"}}`:                             shown,
		`"data:image/png;base64,P"`:                                  shown,
		`{"screenshot":"data:image/png;base64,P","url":"https://x"}`: `{"screenshot":` + shown + `,"url":"https://x"}`,
		// The content shows what it is: under other keys, in a text, in JSON in a text, and without its padding.
		`{"image":{"format":"png","source":{"bytes":"P"}}}`:                    shown,
		`{"b64_json":"P","size":3}`:                                            `{"b64_json":` + shown + `,"size":3}`,
		`{"a":"see ![x](data:image/png;base64,P) and b;base64,c","b":1}`:       `{"a":"see ![x]([image/png, 23 B]) and b;base64,c","b":1}`,
		`"[{\"type\":\"image\",\"data\":\"P\",\"mimeType\":\"image/png\"},1]"`: `"[\"[image/png, 23 B]\",1]"`,
		// No file.
		`{"mimeType":"image/png","data":"not base64, but text"}`: `{"mimeType":"image/png","data":"not base64, but text"}`,
		`"data:text/plain,hello;base64,"`:                        `"data:text/plain,hello;base64,"`,
	} {
		in := strings.NewReplacer(`"P`, `"`+picture, `\"P`, `\"`+strings.TrimRight(picture, "="), ",P", ","+picture).Replace(raw)
		got, media := document.TakeMedia([]byte(in))
		files := strings.Count(want, "[image/png")
		if string(got) != want || len(media) != files || files > 0 && media[0].Data != picture {
			t.Errorf("%s is shown as\n%s\nwith files %v, want\n%s", raw, got, media, want)
		}
	}
}
