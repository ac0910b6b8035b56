package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// server answers each request with the next of its replies and keeps the requests.
type server struct {
	*httptest.Server
	status  []int // of each reply; 200 where there is none
	replies []string
	paths   []string
	headers []http.Header
	bodies  []string
}

func serve(t *testing.T, replies ...string) *server {
	t.Helper()
	s := &server{replies: replies}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		n := len(s.bodies)
		s.paths, s.headers, s.bodies = append(s.paths, r.URL.RequestURI()), append(s.headers, r.Header),
			append(s.bodies, string(body))
		if n >= len(s.replies) {
			http.Error(w, "no further reply is scripted", http.StatusInternalServerError)
			return
		}
		if n < len(s.status) {
			w.WriteHeader(s.status[n])
		}
		_, _ = io.WriteString(w, s.replies[n])
	}))
	t.Cleanup(s.Close)
	return s
}

// client asks the server in the format, by a clock that moves by a second each time, and
// takes the first answer there is.
func (s *server) client(format string) *Client {
	now := time.UnixMilli(epoch)
	return &Client{Format: FormatOf(format), Endpoint: s.URL + "/v1", Key: "sk-test", MaxAttempts: 1,
		Now: func() time.Time {
			now = now.Add(time.Second)
			return now
		}}
}

// asked is a turn whose recorded answer calls ls twice with different outputs, cat,
// which failed, and a call that has no result.
const asked = `{"prompt":"You are a coder.","catalog":[{"name":"bash","inputSchema":{"type":"object"}}],"turn":2,"messages":[
 {"role":"user","parts":[{"type":"text","text":"Hello"}]},
 {"role":"assistant","parts":[{"type":"tool-bash","toolCallId":"call_1","state":"output-available","input":{},"output":"old"},{"type":"text","text":"Hi"}]},
 {"role":"user","parts":[{"type":"text","text":"List the files"}]},
 {"role":"assistant","metadata":{"model":{"provider_id":"openai","model_id":"gpt-5"},"system_prompt_digest":"prompt","agenttrace":{"turn_index":1,"tool_catalog_digest":"catalog"}},"parts":[
  {"type":"step-start"},
  {"type":"tool-bash","toolCallId":"r1","state":"output-available","input":{"cmd":"ls","n":1},"output":{"files":["a.txt"]},"toolMetadata":{"agenttrace":{"kind":"execute"}}},
  {"type":"tool-bash","toolCallId":"r2","state":"output-available","input":{"cmd":"ls","n":1},"output":"second"},
  {"type":"tool-bash","toolCallId":"r3","state":"output-error","input":{"cmd":"cat"},"errorText":"no such file"},
  {"type":"tool-bash","toolCallId":"r4","state":"input-available","input":{"cmd":"open"}},
  {"type":"step-start"},{"type":"text","text":"Done"}]}]}`

// call is a call of bash in a scripted reply.
type call struct{ id, input string }

// wire spells replies in the format of a provider.
type wire struct {
	format string
	// reply spells a reply with the text and the calls.
	reply func(text string, calls ...call) string
	// basis and buckets are what the usage of each reply counts to.
	usage *session.Usage
	// refusal is the body of a 401, nothing one that is empty, each with what the error reports of it.
	nothing, nothingError string
}

func quote(s string) string {
	raw, _ := json.Marshal(s) // strings always encode
	return string(raw)
}

var wires = []wire{
	{
		format: "openai-chat",
		reply: func(text string, calls ...call) string {
			var list []string
			for _, c := range calls {
				list = append(list, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"bash","arguments":%s}}`,
					c.id, quote(c.input)))
			}
			finish := "stop"
			if len(calls) > 0 {
				finish = "tool_calls"
			}
			return fmt.Sprintf(`{"id":"chatcmpl-1","model":"gpt-5-2026","choices":[{"index":0,"finish_reason":%q,`+
				`"message":{"role":"assistant","content":%s,"refusal":null,"tool_calls":[%s]}}],`+
				`"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,`+
				`"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":5}}}`,
				finish, quote(text), strings.Join(list, ","))
		},
		usage:   &session.Usage{Input: 40, Output: 15, Reasoning: 5, CacheRead: 60},
		nothing: `{"choices":[]}`, nothingError: "it has no choices",
	},
	{
		format: "openai-responses",
		reply: func(text string, calls ...call) string {
			items := []string{`{"type":"reasoning","id":"rs_1","summary":[]}`}
			if text != "" {
				items = append(items,
					fmt.Sprintf(
						`{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text",`+
							`"text":%s,"annotations":[]}]}`, quote(text)))
			}
			for _, c := range calls {
				items = append(items,
					fmt.Sprintf(`{"type":"function_call","id":"fc_1","call_id":%q,"name":"bash","arguments":%s,`+
						`"status":"completed"}`,
						c.id, quote(c.input)))
			}
			return fmt.Sprintf(`{"id":"resp_1","model":"gpt-5-2026","status":"completed","error":null,`+
				`"incomplete_details":null,"output":[%s],`+
				`"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":20,`+
				`"output_tokens_details":{"reasoning_tokens":5},"total_tokens":120}}`, strings.Join(items, ","))
		},
		usage:   &session.Usage{Input: 40, Output: 15, Reasoning: 5, CacheRead: 60},
		nothing: `{"status":"completed"}`, nothingError: "it has no output",
	},
	{
		format: "anthropic",
		reply: func(text string, calls ...call) string {
			var items []string
			if text != "" {
				items = append(items, fmt.Sprintf(`{"type":"text","text":%s}`, quote(text)))
			}
			stop := "end_turn"
			for _, c := range calls {
				items, stop = append(items, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":"bash","input":%s}`, c.id,
					c.input)),
					"tool_use"
			}
			return fmt.Sprintf(`{"id":"msg_01","type":"message","role":"assistant","model":"gpt-5-2026",`+
				`"stop_reason":%q,"content":[%s],`+
				`"usage":{"input_tokens":40,"cache_creation_input_tokens":7,"cache_read_input_tokens":60,`+
				`"output_tokens":20}}`,
				stop, strings.Join(items, ","))
		},
		usage:   &session.Usage{Input: 40, Output: 20, CacheRead: 60, CacheWrite: 7},
		nothing: `{"type":"message"}`, nothingError: "it has no content",
	},
	{
		format: "ai-sdk",
		reply: func(text string, calls ...call) string {
			events := []string{`{"type":"start","messageId":"m1"}`, `{"type":"start-step"}`}
			if text != "" {
				events = append(events, `{"type":"text-start","id":"t"}`,
					fmt.Sprintf(`{"type":"text-delta","id":"t","delta":%s}`, quote(text)),
					`{"type":"text-end","id":"t"}`)
			}
			finish := "stop"
			for _, c := range calls {
				finish = "tool-calls"
				events = append(events, fmt.Sprintf(`{"type":"tool-input-available","toolCallId":%q,`+
					`"toolName":"bash","input":%s}`,
					c.id, c.input))
			}
			events = append(events, `{"type":"finish-step"}`,
				fmt.Sprintf(`{"type":"finish","finishReason":%q,"messageMetadata":{"totalUsage":`+
					`{"inputTokens":100,"inputTokenDetails":{"cacheReadTokens":60},"outputTokens":20,`+
					`"outputTokenDetails":{"reasoningTokens":5}}}}`, finish))
			return "data: " + strings.Join(events, "\n\ndata: ") + "\n\ndata: [DONE]\n\n"
		},
		usage:   &session.Usage{Input: 40, Output: 15, Reasoning: 5, CacheRead: 60},
		nothing: "\n\n", nothingError: "it is not a stream of UI message chunks",
	},
}

// parts are the parts that the answer would be stored as, without ids and steps.
func parts(a *Answer) (all []string) {
	for i := range a.blocks {
		if p := a.blocks[i].change(); p.Type != "step-start" {
			all = append(all, string(p.Data))
		}
	}
	return all
}

// TestRun: for each format, the text is the answer, and calls are answered from the record until none is left.
func TestRun(t *testing.T) {
	for _, w := range wires {
		t.Run(w.format, func(t *testing.T) {
			b := bundleOf(t, asked)
			s := serve(t, w.reply("Look.", call{"x1", `{"n": 1, "cmd": "ls"}`}, call{"x2", `{"cmd":"cat"}`}),
				w.reply("", call{"x3", `{"n":1,"cmd":"ls"}`}), w.reply("Two files."))
			a, err := b.Run(t.Context(), s.client(w.format))
			testscale.Must(t, err)
			want := []string{
				`{"type":"text","text":"Look."}`,
				`{"type":"tool-bash","toolCallId":"x1","state":"output-available","input":{"n":1,"cmd":"ls"},` +
					`"output":{"files":["a.txt"]},"toolMetadata":{"agenttrace":{"kind":"execute"}}}`,
				`{"type":"tool-bash","toolCallId":"x2","state":"output-error","input":{"cmd":"cat"},` +
					`"errorText":"no such file"}`,
				`{"type":"tool-bash","toolCallId":"x3","state":"output-available","input":{"n":1,"cmd":"ls"},` +
					`"output":"second"}`,
				`{"type":"text","text":"Two files."}`,
			}
			if diff := cmp.Diff(want, parts(a)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			sum := w.usage.Add(*w.usage).Add(*w.usage)
			if diff := cmp.Diff(&sum, a.Usage); diff != "" || len(a.UsageRaw) != 3 {
				t.Errorf("usage of %d replies (-want +got):\n%s", len(a.UsageRaw), diff)
			}
			if a.ModelCalls != 3 || a.Reused != 3 || a.Open != nil || a.Limited || a.Err != nil ||
				a.StopReason != "stop" {
				t.Errorf("the run is %+v", a)
			}
			if a.Duration() != 3*time.Second {
				t.Errorf("it took %v, want 3s", a.Duration())
			}
			if len(s.bodies) != 3 {
				t.Fatalf("%d requests came", len(s.bodies))
			}
			for i, text := range []string{"old", `[\"a.txt\"]`, "second"} {
				for k, body := range s.bodies {
					if has := strings.Contains(body, text) ||
						strings.Contains(body, strings.ReplaceAll(text, `\`, "")); has != (k >= i) {
						t.Errorf("request %d has %q: %v: %s", k+1, text, has, body)
					}
				}
			}
			if !strings.Contains(s.bodies[2], "no such file") || !strings.Contains(s.bodies[2], "Look.") {
				t.Errorf("the last request does not have the answers: %s", s.bodies[2])
			}
		})
	}
}

// TestRunRequests: the requests that go on have each call once with its result, as providers demand.
func TestRunRequests(t *testing.T) {
	b := bundleOf(t, asked)
	since := []entry{{role: session.RoleAssistant, id: "m1", blocks: []block{{kind: stepBlock},
		{kind: textBlock, text: "Look."}, {kind: callBlock, id: "x1", name: "bash", input: json.RawMessage(`{}`),
			result: &result{output: json.RawMessage(`"out"`)}}}}}
	checkWire(t, b, since)
	messages := aiRequestOf(b, since).(aiRequest).Messages
	last, err := json.Marshal(messages[len(messages)-1])
	testscale.Must(t, err)
	want := `{"id":"m1","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"Look."},` +
		`{"type":"tool-bash","toolCallId":"x1","state":"output-available","input":{},"output":"out"}]}`
	if string(last) != want {
		t.Errorf("the last UI message is\n%s, want\n%s", last, want)
	}
	if len(messages) != len(b.Messages)+1 {
		t.Errorf("there are %d messages, want %d", len(messages), len(b.Messages)+1)
	}
}

// TestRunEnds: a call that the record does not have ends the run, as do the bound of
// calls and errors that come later; the first two leave what is known of the others.
func TestRunEnds(t *testing.T) {
	ls := call{"x1", `{"cmd":"ls","n":1}`}
	for _, w := range wires {
		for _, test := range []struct {
			name     string
			replies  []string
			status   []int
			maxCalls int
			want     Answer
			err      string
		}{
			{name: "unknown call",
				replies: []string{w.reply("", ls, call{"x2", `{"cmd":"rm"}`}, call{"x3", `{"cmd":"open"}`})},
				want:    Answer{ModelCalls: 1, Reused: 1, Open: []string{"bash", "bash"}, StopReason: "tool-calls"}},
			{name: "the same a third time", replies: []string{w.reply("", ls), w.reply("", ls), w.reply("", ls)},
				want: Answer{ModelCalls: 3, Reused: 2, Open: []string{"bash"}, StopReason: "tool-calls"}},
			{name: "bound", replies: []string{w.reply("", ls), w.reply("", ls), w.reply("Never sent.")}, maxCalls: 2,
				want: Answer{ModelCalls: 2, Reused: 2, Limited: true, StopReason: "tool-calls"}},
			{name: "second fails", replies: []string{w.reply("", ls), `{"error":{"message":"try later"}}`},
				status: []int{200, 503}, want: Answer{ModelCalls: 1, Reused: 1, StopReason: "tool-calls"},
				err: "503 Service Unavailable: try later"},
			{name: "second is empty", replies: []string{w.reply("", ls), w.nothing},
				want: Answer{ModelCalls: 1, Reused: 1, StopReason: "tool-calls"}, err: w.nothingError},
		} {
			t.Run(w.format+" "+test.name, func(t *testing.T) {
				s := serve(t, test.replies...)
				s.status = test.status
				c := s.client(w.format)
				c.MaxCalls = test.maxCalls
				a, err := bundleOf(t, asked).Run(t.Context(), c)
				testscale.Must(t, err)
				got := Answer{ModelCalls: a.ModelCalls, Reused: a.Reused, Open: a.Open, Limited: a.Limited,
					StopReason: a.StopReason}
				if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(Answer{})); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
				if (a.Err != nil) != (test.err != "") || a.Err != nil && !strings.Contains(a.Err.Error(), test.err) {
					t.Errorf("it ended with %v, want %q", a.Err, test.err)
				}
			})
		}
	}
}

// TestRunFails: a first request that brings nothing is an error that has the server's.
func TestRunFails(t *testing.T) {
	for _, w := range wires {
		for _, test := range []struct {
			name   string
			status int
			reply  string
			want   string
		}{
			{"key", 401, `{"type":"error","error":{"type":"authentication_error",` +
				`"message":"Incorrect API key\n provided"}}`,
				"401 Unauthorized: Incorrect API key provided"},
			{"key in words", 401, `{"error":"no key"}`, "401 Unauthorized: no key"},
			{"page", 502, "<html>\n" + strings.Repeat("bad gateway ", 100), "502 Bad Gateway: <html> bad gateway"},
			{"no body", 500, "", "500 Internal Server Error"},
			{"elsewhere", 307, "", "307 Temporary Redirect"},
			{"nothing", 200, w.nothing, w.nothingError},
			{"no JSON", 200, "data: <html>", "read the reply of"},
			{"half", 200, `data: {"choices":[`, "read the reply of"},
			{"another kind", 200, `data: []`, "read the reply of"},
		} {
			t.Run(w.format+" "+test.name, func(t *testing.T) {
				s := serve(t, test.reply)
				s.status = []int{test.status}
				a, err := bundleOf(t, asked).Run(t.Context(), s.client(w.format))
				if err == nil || !strings.Contains(err.Error(), test.want) || a != nil || len(err.Error()) > 700 {
					t.Errorf("Run = %+v, %v, want an error with %q", a, err, test.want)
				}
			})
		}
	}
}

// TestRunIDs: calls whose id is missing, repeated, or one of the conversation's get
// one of their own, under which they and their results are sent.
func TestRunIDs(t *testing.T) {
	ls, cat := `{"cmd":"ls","n":1}`, `{"cmd":"cat"}`
	for _, w := range wires[:3] {
		t.Run(w.format, func(t *testing.T) {
			b := bundleOf(t, asked)
			s := serve(t, w.reply("", call{"", ls}, call{"", ls}), w.reply("", call{"call_1", cat}), w.reply("Done."))
			a, err := b.Run(t.Context(), s.client(w.format))
			if err != nil || a.Err != nil || a.Reused != 3 {
				t.Fatalf("Run = %+v, %v", a, err)
			}
			seen := map[string]bool{"call_1": true}
			for i, x := range a.blocks {
				if x.kind == callBlock {
					if x.id == "" || seen[x.id] || x.result == nil {
						t.Errorf("call %d has the id %q", i, x.id)
					}
					seen[x.id] = true
				}
			}
			if len(seen) != 4 {
				t.Errorf("the ids are %v", seen)
			}
		})
	}
}

// TestRequestHeaders: the key goes where the provider looks for it, and what is asked for besides goes along.
func TestRequestHeaders(t *testing.T) {
	for _, w := range wires {
		s := serve(t, w.reply("Hi"), w.reply("Hi"))
		c := s.client(w.format)
		c.Header = http.Header{"X-Team": {"a", "b"}}
		for range 2 {
			if _, err := bundleOf(t, asked).Run(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			c.Key = ""
		}
		with, without := s.headers[0], s.headers[1]
		bearer, key, version := "Bearer sk-test", "", ""
		if w.format == "anthropic" {
			bearer, key, version = "", "sk-test", "2023-06-01"
		}
		if with.Get("Authorization") != bearer || with.Get("X-Api-Key") != key ||
			with.Get("Anthropic-Version") != version ||
			with.Get("Content-Type") != "application/json" {
			t.Errorf("%s: headers %v", w.format, with)
		}
		if without.Get("Authorization") != "" || without.Get("X-Api-Key") != "" {
			t.Errorf("%s: headers without a key %v", w.format, without)
		}
		if diff := cmp.Diff([]string{"a", "b"}, with["X-Team"]); diff != "" {
			t.Errorf("%s: X-Team (-want +got):\n%s", w.format, diff)
		}
		if got := without.Get("Anthropic-Version"); w.format == "anthropic" && got != "2023-06-01" {
			t.Errorf("without a key the version is %q", got)
		}
	}
}

// TestURL: an endpoint may name the API or the resource.
func TestURL(t *testing.T) {
	for _, test := range []struct{ format, endpoint, want string }{
		{"openai-chat", "https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"},
		{"openai-chat", "https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"},
		{"openai-chat", "https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1/chat/completions"},
		{"openai-chat", "https://api.openai.com/v1/chat/completions/", "https://api.openai.com/v1/chat/completions/"},
		{"openai-chat", "http://u:p@localhost:1/x?api-version=1",
			"http://u:p@localhost:1/x/chat/completions?api-version=1"},
		{"openai-responses", "https://api.openai.com/v1", "https://api.openai.com/v1/responses"},
		{"anthropic", "https://api.anthropic.com/v1", "https://api.anthropic.com/v1/messages"},
		{"ai-sdk", "http://localhost:3000/api/chat", "http://localhost:3000/api/chat"},
	} {
		c := Client{Format: FormatOf(test.format), Endpoint: test.endpoint}
		if u, err := c.URL(); err != nil || u.String() != test.want {
			t.Errorf("%s at %s asks %v, %v, want %s", test.format, test.endpoint, u, err, test.want)
		}
	}
	for _, endpoint := range []string{"", "localhost:8080", "api.openai.com/v1", "ftp://x/y", "https://", "http://[::1",
		"https://u:secret@"} {
		c := Client{Format: FormatOf("openai-chat"), Endpoint: endpoint}
		if u, err := c.URL(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q is %v, %v", endpoint, u, err)
		}
		if p := c.Provider(); p != "" {
			t.Errorf("%q is the provider %s", endpoint, p)
		}
	}
}

// TestProvider knows the providers by their hosts.
func TestProvider(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://api.openai.com/v1": "openai", "https://api.anthropic.com/v1": "anthropic",
		"https://generativelanguage.googleapis.com/v1beta/openai": "gcp.gemini",
		"https://openrouter.ai/api/v1":                            "openrouter",
		"https://x.openai.azure.com/openai":                       "azure.ai.openai",
		"http://localhost:11434/v1":                               "", "https://api.openai.com.evil.example/v1": "",
	} {
		c := Client{Format: FormatOf("openai-chat"), Endpoint: endpoint}
		if got := c.Provider(); got != want {
			t.Errorf("%s is of %q, want %q", endpoint, got, want)
		}
	}
}

// TestRunShowsNoSecret: what an endpoint has of a user is sent, and shown nowhere.
func TestRunShowsNoSecret(t *testing.T) {
	s := serve(t, `{"error":{"message":"no"}}`)
	s.status = []int{403}
	c := s.client("openai-chat")
	c.Endpoint = strings.Replace(s.URL, "http://", "http://user:hunter2@", 1) + "/v1?key=topsecret#frag"
	_, err := bundleOf(t, asked).Run(t.Context(), c)
	if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "topsecret") ||
		!strings.Contains(err.Error(), s.URL+"/v1/chat/completions: 403") {
		t.Errorf("Run fails with %v", err)
	}
	if len(s.paths) != 1 || s.paths[0] != "/v1/chat/completions?key=topsecret" {
		t.Errorf("it asked %v", s.paths)
	}
	s.Close()
	if _, err := bundleOf(t, asked).Run(t.Context(), c); err == nil || strings.Contains(err.Error(), "hunter2") ||
		strings.Contains(err.Error(), "topsecret") {
		t.Errorf("Run of a server that is gone fails with %v", err)
	}
}

// TestRunRedirect: the key is not taken to where a server sends it.
func TestRunRedirect(t *testing.T) {
	elsewhere := serve(t, wires[2].reply("Hi"))
	here := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusPermanentRedirect))
	defer here.Close()
	c := elsewhere.client("anthropic")
	c.Endpoint = here.URL
	if _, err := bundleOf(t, asked).Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "308") ||
		len(elsewhere.bodies) != 0 {
		t.Errorf("Run fails with %v, and %d requests came elsewhere", err, len(elsewhere.bodies))
	}
}

// TestRunCancelled: a context that is cancelled ends the run, before a reply comes and while it comes.
func TestRunCancelled(t *testing.T) {
	for _, w := range wires {
		for _, begun := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if begun {
					_, _ = io.WriteString(rw, `data: {"type":"start"}`+"\n\n")
					rw.(http.Flusher).Flush()
				}
				cancel()
				<-r.Context().Done()
			}))
			c := &Client{Format: FormatOf(w.format), Endpoint: s.URL}
			if a, err := bundleOf(t, asked).Run(ctx, c); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Run = %v, %v, want that it was cancelled", w.format, a, err)
			}
			cancel()
			s.Close()
		}
	}
}

// TestReplies: what servers send in the place of one plain document, in ways of their own, is read, or refused by
// name. Each reply of the file is followed by the answer that comes of it.
func TestReplies(t *testing.T) {
	const file = "testdata/replies/replies.txtar"
	archive, err := txtar.ParseFile(file)
	testscale.Must(t, err)
	for i := 0; i+1 < len(archive.Files); i += 2 {
		reply, answer := &archive.Files[i], &archive.Files[i+1]
		t.Run(reply.Name, func(t *testing.T) {
			format, _, _ := strings.Cut(reply.Name, ":")
			s := serve(t, string(reply.Data))
			a, err := bundleOf(t, asked).Run(t.Context(), s.client(format))
			var got strings.Builder
			if a != nil {
				fmt.Fprintf(&got, "stops with %q, usage %+v\n", a.StopReason, a.Usage)
				for _, p := range parts(a) {
					got.WriteString(p + "\n")
				}
				err = errors.Join(err, a.Err)
			}
			if err != nil {
				fmt.Fprintf(&got, "error: %s\n", strings.ReplaceAll(err.Error(), s.URL, "URL"))
			}
			answer.Data = []byte(got.String())
		})
	}
	codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
}
