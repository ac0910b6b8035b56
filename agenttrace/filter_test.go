package agenttrace_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/spans"
)

// secret has the shape of an API key.
var secret = "sk-ant-api03-" + strings.Repeat("aB3", 20)

// reportSecrets reports a secret wherever an agent may report a text.
func reportSecrets(h *harness, question func() error) {
	ctx, turn := h.run.StartTurn(h.ctx, UserMessage{
		Text: "use " + secret, Metadata: map[string]any{"password": secret},
		Parts: []Part{DataPart("x", "", secret),
			FilePart(File{MediaType: "text/plain", URL: "https://user:" + secret + "@x.com/"})},
		Trigger: &Trigger{Source: "webhook", Headers: map[string]string{"Authorization": "Bearer " + secret}},
	}, TurnOptions{SystemPrompt: "the key is " + secret, Tools: []Tool{{Name: "bash", Description: "with " + secret}}})
	h.sess.SetTitle(ctx, "about "+secret)
	h.sess.SetMetadata(ctx, map[string]any{"token": secret})
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	call.Reasoning("the key " + secret)
	s := call.StreamText()
	for _, c := range "the key " + secret + " is a key" {
		s.WriteString(string(c))
	}
	s.SetProviderMetadata(map[string]any{"key": secret})
	turn.Retrying(1, errors.New("key "+secret))
	call.End(ModelResult{}, errors.New("key "+secret))
	turn.File(File{MediaType: "text/plain", URL: "https://x.com/", Filename: secret})
	turn.SourceURL(SourceURL{URL: "https://x.com/", Title: secret})
	turn.SourceDocument(SourceDocument{ID: "d", MediaType: "text/plain", Title: secret, Filename: secret})
	turn.Data("x", "", map[string]string{"k": secret})
	turn.SetMetadata(map[string]any{"k": secret})
	_, tool := turn.StartTool(ctx, ToolOptions{ID: "1", Name: "bash",
		Input: map[string]string{"cmd": "echo " + secret}})
	tool.Authorize(ctx, "echo "+secret)
	tool.EndText("it is " + secret)
	_, tool = turn.StartTool(ctx, ToolOptions{ID: "2", Name: "bash"})
	for _, c := range `{"cmd":"echo ` + secret + `"}` {
		tool.InputDelta(string(c))
	}
	tool.End(map[string]string{"out": secret})
	_, tool = turn.StartTool(ctx, ToolOptions{ID: "3", Name: "bash", RawInput: json.RawMessage(secret)})
	tool.EndRaw(json.RawMessage(`["` + secret + `"]`))
	_, tool = turn.StartTool(ctx, ToolOptions{ID: "4", Name: "bash", Input: 1})
	tool.AwaitInput("which " + secret)
	tool.Fail(errors.New("no " + secret))
	_, tool = turn.StartTool(ctx, ToolOptions{ID: "5", Name: "bash", Input: 1})
	tool.EndTruncated("head "+secret, Truncated{Size: 9})
	_, c := h.run.StartCompaction(ctx, CompactionOptions{})
	c.End(CompactionResult{Summary: "key " + secret})
	_, c = h.run.StartCompaction(ctx, CompactionOptions{})
	c.Fail(errors.New("key " + secret))
	_, open := turn.StartTool(ctx, ToolOptions{ID: "6", Name: "bash", Input: secret})
	open.AwaitInput(secret)
	turn.Fail(question())
	h.run.End(question())
	h.sess.AddRule(ctx, Rule{Permission: "bash", Pattern: "curl " + secret})
}

func TestSecretsStayInTheProcess(t *testing.T) {
	var seen []string
	h := newHarness(t, Options{
		Live:  LiveOptions{MinInterval: -1},
		Rules: []Rule{rule("*", "", allow, "")},
		Watchdog: func(_ context.Context, r ToolRequest) Verdict {
			seen = append(seen, r.Input, r.Subject)
			return Ask("for " + secret)
		},
		Approver: func(_ context.Context, q Question) (Answer, error) {
			seen = append(seen, q.Input, q.Subject, q.Reason)
			return Answer{Reply: ReplyAlways, Reason: "since " + secret}, nil
		},
	}, SessionOptions{})
	var state State
	reportSecrets(h, func() error { state = h.sess.State(); return errors.New("key " + secret) })
	h.check()
	noSecrets(t, h.rec)
	for i, s := range seen {
		if !strings.Contains(s, secret) {
			t.Errorf("who decides sees %q (%d)", s, i)
		}
	}
	if len(seen) != 5 || !strings.Contains(state.Title+string(state.Metadata), secret) {
		t.Errorf("%d seen, state = %+v", len(seen), state)
	}
	if got := h.rec.All().ToolCalls("bash")[0]; got.Input != `{"cmd":"echo [redacted:anthropic-key]"}` ||
		got.Output != `"it is [redacted:anthropic-key]"` {
		t.Errorf("call = %+v", got)
	}
	turn := one(t, h.rec.All().Turns())
	sum := sha256.Sum256([]byte(turn.SystemPrompt))
	if turn.SystemPromptDigest != hex.EncodeToString(sum[:]) || turn.SystemPrompt == "" {
		t.Errorf("the digest %s is not of the prompt %q", turn.SystemPromptDigest, turn.SystemPrompt)
	}
}

func TestRedactionCanBeTurnedOff(t *testing.T) {
	h := newHarness(t, Options{DisableRedaction: true, Redact: broken{}}, SessionOptions{})
	_, turn := h.turn(secret)
	turn.Text(secret)
	h.end(turn)
	if got := one(t, h.rec.All().Turns()); !strings.Contains(
		string(got.User.Parts[0].Data)+string(got.Assistant.Parts[0].Data), secret) {
		t.Errorf("turn = %+v", got)
	}
}

// broken is a redactor that panics.
type broken struct{}

func (broken) Apply(redact.Content, string, string) (string, redact.Result)     { panic("no rules") }
func (broken) ApplyJSON(redact.Content, string, []byte) ([]byte, redact.Result) { panic("no rules") }

func TestRedactorThatPanicsLetsNothingThrough(t *testing.T) {
	h := newHarness(t, Options{Redact: broken{}}, SessionOptions{})
	errs := errorsOf(func() { reportSecrets(h, func() error { return errors.New(secret) }) })
	h.check()
	noSecrets(t, h.rec)
	if len(errs) == 0 || len(errs) > 10 || !strings.HasSuffix(errs[0].Error(), ": panic: no rules") {
		t.Errorf("errors = %v", errs)
	}
}

// slow is a redactor that takes a minute for each text.
type slow struct{ h **harness }

func (r slow) Apply(_ redact.Content, _, s string) (string, redact.Result) {
	(*r.h).clock.Advance(time.Minute)
	return s, redact.Result{}
}

func (r slow) ApplyJSON(_ redact.Content, _ string, raw []byte) ([]byte, redact.Result) {
	(*r.h).clock.Advance(time.Minute)
	return raw, redact.Result{}
}

func TestTheTimeThatRedactionTakesIsNotThatOfATool(t *testing.T) {
	for i, end := range []func(*ToolCall){
		func(c *ToolCall) { c.End("out") }, func(c *ToolCall) { c.End([]int{1}) },
		func(c *ToolCall) { c.EndRaw(json.RawMessage("1")) }, func(c *ToolCall) { c.EndTruncated("head", Truncated{}) },
		func(c *ToolCall) { c.End(errors.New("no")) }, func(c *ToolCall) { c.End(`{"isError":true,"content":[{"text":"x"}]}`) },
		func(c *ToolCall) { c.Authorize(nil, "") }, //nolint:staticcheck // nil is allowed
	} {
		var h *harness
		h = newHarness(t, Options{Redact: slow{&h}}, SessionOptions{})
		_, turn := h.turn("go")
		turn.Text("so")
		_, tool := turn.StartTool(nil, ToolOptions{Name: "bash"}) //nolint:staticcheck // nil is allowed
		end(tool)
		turn.End(TurnResult{})
		h.run.End(nil)
		if got := one(t, h.rec.All().ToolCalls()); *got.DurationMS > 100 {
			t.Errorf("end %d: the call took %d ms", i, *got.DurationMS)
		}
	}
}

func TestContentThatIsNotWantedIsOmitted(t *testing.T) {
	r, err := redact.New(redact.Config{Omit: redact.Omit{Prompts: true, Reasoning: true, ToolInputs: true,
		ToolOutputs: true}})
	testscale.Must(t, err)
	h := newHarness(t, Options{Redact: r, Approver: func(context.Context, Question) (Answer, error) {
		return Answer{Reply: ReplyAlways}, nil
	}}, SessionOptions{})
	ctx, turn := h.run.StartTurn(h.ctx, UserMessage{Text: "private thing", Parts: []Part{
		DataPart("x", "", map[string]string{"a": "private"}), FilePart(File{URL: "file:private", Filename: "private"})}},
		TurnOptions{SystemPrompt: "private prompt"})
	turn.Reasoning("private thought")
	turn.Text("public")
	_, tool := turn.StartTool(ctx, ToolOptions{ID: "1", Name: "bash", Input: map[string]string{"cmd": "private"}})
	tool.End("private")
	for _, id := range []string{"2", "3"} { // the second is allowed by the rule that the answer to the first adds
		_, tool = turn.StartTool(ctx, ToolOptions{ID: id, Name: "bash", Input: 1})
		tool.Authorize(ctx, "private")
		tool.Fail(errors.New("private"))
	}
	_, tool = turn.StartTool(ctx, ToolOptions{ID: "4", Name: "ask", Input: 1})
	tool.AwaitInput("private?")
	h.end(turn)
	all := map[string][]attribute.KeyValue{}
	for i, s := range h.rec.All() {
		all[fmt.Sprint(i, " ", s.Name)] = s.Attributes
	}
	for i, e := range h.rec.Events() {
		all[fmt.Sprint(i, " ", e.Name)] = e.Attributes
	}
	for name, attributes := range all {
		for _, kv := range attributes {
			if strings.Contains(kv.Value.String(), "private") {
				t.Errorf("%s: %s = %s", name, kv.Key, kv.Value.String())
			}
		}
	}
	if got := one(t, h.rec.All().Turns()); string(got.Assistant.Parts[1].Data) != `{"type":"text","text":"public"}` ||
		got.User.Parts[1].Type != "data-x" {
		t.Errorf("turn = %+v", got)
	}
}

func TestPartsHaveALimit(t *testing.T) {
	const limit = 200
	long := strings.Repeat("é世界 ", 100)
	digest := func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }
	object, err := json.Marshal(map[string]any{"out": long, "n": 1})
	testscale.Must(t, err)
	h := newHarness(t, Options{MaxPartBytes: limit,
		Live: LiveOptions{MinInterval: -1}}, SessionOptions{})
	ctx, turn := h.turn(long)
	s := turn.StreamText()
	for _, word := range strings.SplitAfter(long, " ") {
		s.WriteString(word)
	}
	for _, test := range []struct {
		name  string
		input any
		end   func(*ToolCall)
		want  Truncated
	}{
		{"text", long, func(c *ToolCall) { c.EndText(long) }, Truncated{Size: int64(len(long)), SHA256: digest(long)}},
		{"any", 1, func(c *ToolCall) { c.End(any(long)) }, Truncated{Size: int64(len(long)), SHA256: digest(long)}},
		{"object", json.RawMessage(object), func(c *ToolCall) { c.End(json.RawMessage(object)) },
			Truncated{Size: int64(len(object)), SHA256: digest(string(object))}},
		{"raw", 1, func(c *ToolCall) { c.EndRaw(object) },
			Truncated{Size: int64(len(object)), SHA256: digest(string(object))}},
		{"raw that is no JSON", 1, func(c *ToolCall) { c.EndRaw(json.RawMessage("{" + long)) },
			Truncated{Size: int64(len(long)) + 3, SHA256: digest(`"{` + long + `"`)}},
		{"cut before", 1, func(c *ToolCall) {
			c.EndTruncated(long, Truncated{Path: "/out", Size: 1 << 20, SHA256: "ab"})
		}, Truncated{Path: "/out", Size: 1 << 20, SHA256: "ab"}},
		{"short", 1, func(c *ToolCall) { c.End("ok") }, Truncated{}},
	} {
		_, tool := turn.StartTool(ctx, ToolOptions{ID: test.name, Name: "bash", Input: test.input})
		test.end(tool)
		calls := h.rec.All().ToolCalls()
		got := calls[len(calls)-1]
		if got.Truncated != (test.want != Truncated{}) || got.OutputPath != test.want.Path ||
			got.OutputSize != test.want.Size || got.OutputSHA256 != test.want.SHA256 {
			t.Errorf("%s: call = %+v, want %+v", test.name, got, test.want)
		}
		for _, v := range []string{got.Input, got.Output} {
			if !json.Valid([]byte(v)) || len(v) > limit+2 || !utf8.ValidString(v) || strings.Contains(v, "\uFFFD") {
				t.Errorf("%s: %d bytes: %s", test.name, len(v), v)
			}
		}
		if got.Truncated != strings.Contains(got.Output, redact.TruncatedMarker) {
			t.Errorf("%s: output = %s", test.name, got.Output)
		}
	}
	h.end(turn)
	got := one(t, h.rec.All().Turns())
	for _, p := range []spans.Part{got.User.Parts[0], got.Assistant.Parts[0]} {
		var data struct{ Text string }
		if err := json.Unmarshal(p.Data, &data); err != nil || len(data.Text) > limit ||
			!strings.HasSuffix(data.Text, redact.TruncatedMarker+"[900 bytes]") {
			t.Errorf("part = %s (%v)", p.Data, err)
		}
	}
}

func TestWordsThatGrowAreHeldBack(t *testing.T) {
	h := newHarness(t, Options{Live: LiveOptions{MinInterval: -1}}, SessionOptions{})
	_, turn := h.turn("go")
	s := turn.StreamText()
	for _, text := range []string{"the ke", "y is", " long ", strings.Repeat("x", 3000), " end"} {
		s.WriteString(text)
	}
	s.Close()
	h.end(turn)
	var got []string
	for _, e := range h.rec.Events().Named("agenttrace.part") {
		var data struct{ Text string }
		testscale.Must(t, json.Unmarshal(e.Record.Parts[0].Data, &data))
		got = append(got, strings.ReplaceAll(data.Text, strings.Repeat("x", 100), "X"))
	}
	head := "the key is long " + strings.Repeat("X", 9) + strings.Repeat("x", 52)
	if diff := cmp.Diff([]string{"", "the ", "the key ", "the key is long ", head,
		"the key is long " + strings.Repeat("X", 30) + " end"}, got); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}
