//go:build e2e

package npm_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// rows makes a session of messages, each a second after the previous one. A message is
// its role and the data of its parts.
func rows(messages ...[]string) document.Input {
	t := &session.Transcript{Session: session.Session{ID: "ses_1", PermissionsJSON: "[]", MetadataJSON: "{}"}}
	for i, m := range messages {
		at := int64(1000 * i)
		x := session.MessageAndParts{Message: session.Message{
			ID: fmt.Sprintf("msg_%d", i), SessionID: "ses_1", Role: m[0], MetadataJSON: "{}", CreatedAt: at,
			UpdatedAt: at,
		}}
		for k, data := range m[1:] {
			var head struct {
				Type string `json:"type"`
			}
			if err := json.Unmarshal([]byte(data), &head); err != nil {
				panic(fmt.Sprintf("part %s: %v", data, err))
			}
			x.Parts = append(x.Parts, session.Part{ID: fmt.Sprintf("prt_%d_%d", i, k), MessageID: x.Message.ID,
				SessionID: "ses_1", Index: int64(k), Type: head.Type, DataJSON: data})
		}
		t.Messages = append(t.Messages, x)
	}
	return document.Input{Transcript: t}
}

// located is a session in which the model calls a tool of the client.
func located() document.Input {
	return rows(
		[]string{session.RoleUser, `{"type":"text","text":"Where am I?"}`},
		[]string{session.RoleAssistant,
			`{"type":"tool-locate","toolCallId":"r1","state":"output-available","input":{"exact":true},` +
				`"output":{"city":"Paris"}}`, `{"type":"text","text":"Paris."}`},
	)
}

// generate makes a session as a program with the SDK would store it: steps are marked,
// calls have ended, and all providers accept its files.
func generate(r *rand.Rand) document.Input {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	quote := func(s string) string {
		raw, _ := json.Marshal(s) // never fails for strings
		return string(raw)
	}
	words := func() string {
		return pick("Go on", "héllo", "日本語 👩‍👩‍👧", "<b>&amp;</b> \u2028", "  spaces ", "a\nb\r\n", "{\"x\":1}", "null",
			"12",
			"\"quoted\" \\", "")
	}
	value := func() string {
		return pick(`null`, `true`, `0`, `1.5`, `[]`, `{}`, `{"a":[{"b":null}]}`, `[1,"x"]`, quote(words()),
			`{"type":"text","value":"x"}`, `{"z":1,"a":2}`)
	}
	n := 0
	call := func() string {
		n++
		head := fmt.Sprintf(`{"type":"tool-%s","toolCallId":"call_%d"`, pick("bash", "read_file"), n)
		if r.IntN(4) == 0 {
			head = fmt.Sprintf(`{"type":"dynamic-tool","toolName":"mcp__x","toolCallId":"call_%d"`, n)
		}
		head += `,"input":` + pick(`{}`, `{"cmd":"ls -l"}`, `{"deep":{"x":[1,null]},"é":"<&>"}`)
		switch r.IntN(5) {
		case 0:
			return head + `,"state":"output-error","errorText":` + quote(pick("exit status 1", "no\nsuch file")) + `}`
		case 1:
			return head + `,"state":"output-denied","approval":{"id":"p","approved":false,"reason":"not now"}}`
		case 2:
			return head + `,"state":"output-available","approval":{"id":"p","approved":true},"output":` + value() + `}`
		}
		return head + `,"state":"output-available","output":` + value() + `}`
	}
	textPart := func(kind string) string { return fmt.Sprintf(`{"type":%q,"text":%s}`, kind, quote(words())) }
	var all [][]string
	if r.IntN(3) == 0 {
		all = append(all, []string{session.RoleSystem, textPart("text")})
	}
	for range 1 + r.IntN(4) {
		question := []string{session.RoleUser, `{"type":"text","text":"Do it"}`}
		for range r.IntN(3) {
			question = append(question, pick(textPart("text"), `{"type":"data-note","data":{"x":1}}`,
				`{"type":"file","mediaType":"image/png","url":"data:image/png;base64,iVBORw0="}`,
				`{"type":"file","mediaType":"application/pdf","filename":"a.pdf",`+
					`"url":"data:application/pdf;base64,JVBERi0="}`,
				`{"type":"file","mediaType":"image/jpeg","url":"https://example.com/a.jpg"}`))
		}
		answer := []string{session.RoleAssistant}
		for range r.IntN(4) {
			answer = append(answer, `{"type":"step-start"}`)
			if r.IntN(2) == 0 {
				answer = append(answer, pick(textPart("reasoning"),
					`{"type":"reasoning","text":"Hm","providerMetadata":{"anthropic":{"signature":"sig"}}}`,
					`{"type":"reasoning","text":"","providerMetadata":{"anthropic":{"redactedData":"x=="}}}`))
			}
			for range r.IntN(4) {
				answer = append(answer, pick(textPart("text"), call(), call(),
					`{"type":"source-url","sourceId":"s","url":"https://example.com"}`))
			}
		}
		all = append(all, question, answer)
	}
	return rows(append(all, []string{session.RoleUser, `{"type":"text","text":"And now?"}`})...)
}
