package replay

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// TestAnswer: what is hidden of an answer counts only where all of it is.
func TestAnswer(t *testing.T) {
	const rewound = `{"turn":%TURN,"messages":[
	 {"role":"user","parts":[{"type":"text","text":"One"}]},
	 {"role":"assistant","hidden_at":1795198541500,"parts":[{"type":"text","text":"wrong"}]},
	 {"role":"assistant","parts":[{"type":"text","text":"right"}]},
	 {"role":"user","hidden_at":1795198549000,"parts":[{"type":"text","text":"Two"}]},
	 {"role":"assistant","hidden_at":1795198549000,"parts":[{"type":"text","text":"rewound"}]}]}`
	for turn, want := range map[string][]string{"1": {"msg_3"}, "2": {"msg_5"}} {
		b := bundleOf(t, strings.ReplaceAll(rewound, "%TURN", turn))
		var got []string
		for _, m := range b.Answer {
			got = append(got, m.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answer of turn %s (-want +got):\n%s", turn, diff)
		}
	}
	// What the rewind hid was there when turn 2 was asked, except the answer that was asked for again before.
	b := bundleOf(t, strings.ReplaceAll(rewound, "%TURN", "2"))
	var got []string
	for _, m := range b.Messages {
		got = append(got, m.ID)
	}
	if diff := cmp.Diff([]string{"msg_1", "msg_3", "msg_4"}, got); diff != "" {
		t.Errorf("messages of turn 2 (-want +got):\n%s", diff)
	}
}

// TestParameters: a parameter of another kind than it must be is left out.
func TestParameters(t *testing.T) {
	b := bundleOf(t, `{"turn":1,"messages":[{"role":"user","parts":[{"type":"text","text":"One"}]},
	 {"role":"assistant","metadata":{"gen_ai.request.top_p":"0.5","gen_ai.request.max_tokens":10.5,"gen_ai.request.seed":true,"gen_ai.request.stop_sequences":"END",
	  "ai.settings.stopSequences":[],"gen_ai.request.top_k":null,"ai.settings.topK":3},"parts":[]}]}`)
	topP, topK := 0.5, 3.0
	if diff := cmp.Diff(Parameters{TopP: &topP, TopK: &topK}, b.Parameters); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

// TestInputOf: providers are given an object, whatever a tool takes.
func TestInputOf(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, `null`: `{}`, `"ls"`: `{"input":"ls"}`, `[1]`: `{"input":[1]}`, `7`: `{"input":7}`,
		`"{not json"`: `{"input":"{not json"}`, `"[1]"`: `{"input":"[1]"}`, `]`: `{}`,
	} {
		if got := string(objectOf(json.RawMessage(in))); got != want {
			t.Errorf("input %s is %s, want %s", in, got, want)
		}
	}
}

// TestRunKnowsInputs: a call is the same though its keys are in another order, its
// secrets were taken out of the record, or its input was not an object.
func TestRunKnowsInputs(t *testing.T) {
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	const secret = `{"cmd":"push","token":"ghp_16C7e42F292c6912E7710c838347Ae178B4a"}`
	recorded, _ := r.ApplyJSON(redact.ToolInput, "", []byte(secret))
	if string(recorded) == secret {
		t.Fatal("the token stays in the record")
	}
	b := bundleOf(t, `{"turn":1,"messages":[{"role":"user","parts":[{"type":"text","text":"Go"}]},{"role":"assistant","parts":[
	 {"type":"tool-bash","toolCallId":"r1","state":"output-available","input":`+string(recorded)+`,"output":1},
	 {"type":"tool-bash","toolCallId":"r2","state":"output-available","input":"*** patch","output":2},
	 {"type":"tool-bash","toolCallId":"r3","state":"output-available","input":{"n":12345678901234567890},"output":3}]}]}`)
	for _, w := range wires {
		s := serve(t, w.reply("", call{"x1", secret}, call{"x2", `{"input":"*** patch"}`}),
			w.reply("", call{"x3", `{"n":12345678901234567891}`}))
		c := s.client(w.format)
		c.Redactor = r
		a, err := b.Run(t.Context(), c)
		if err != nil || a.Reused != 2 || len(a.Open) != 1 {
			t.Errorf("%s: Run = %+v, %v, want two calls known", w.format, a, err)
		}
	}
}

// TestEncodeFails: an error of the writer comes out.
func TestEncodeFails(t *testing.T) {
	b := bundleOf(t, asked)
	for _, f := range Formats() {
		if err := b.Encode(failing{}, f.Name); !errors.Is(err, errFull) {
			t.Errorf("%s: Encode = %v", f.Name, err)
		}
	}
	if err := b.Encode(failing{}, BundleName); !errors.Is(err, errFull) {
		t.Errorf("Encode of the bundle = %v", err)
	}
}

var errFull = errors.New("disk full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

// TestDamagedRows: rows that cannot be read are left out of the requests, which are
// sound all the same, and are missing.
func TestDamagedRows(t *testing.T) {
	in, turn := readStory(t, asked)
	in.Transcript.Messages[0].Parts[0].DataJSON = `{"type":"te`
	in.Transcript.Messages[1].Parts[0].DataJSON = ``
	in.Transcript.Messages[1].Message.MetadataJSON = `{`
	b, err := New(document.Build(in), in.Transcript, turn)
	testscale.Must(t, err)
	checkRequests(t, b)
	if b.Eligible || len(b.Missing) != 2 {
		t.Errorf("missing are %+v, want both parts", b.Missing)
	}
	if b.Messages[1].Role != session.RoleAssistant || len(b.Messages[0].Parts) != 0 || b.Messages[1].Metadata != nil {
		t.Errorf("messages are %+v", b.Messages)
	}
}
