package agenttrace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	. "github.com/agenttrace/agenttrace/agenttrace"
)

type (
	arguments string
	// exit is an error that JSON shows: its fields have names.
	exit struct {
		Code int `json:"code"`
	}
	// own is an error that encodes itself.
	own struct{}
)

func (e exit) Error() string             { return "exit" }
func (own) Error() string                { return "own" }
func (own) MarshalJSON() ([]byte, error) { return []byte(`{"own":true}`), nil }

func cyclic() map[string]any {
	m := map[string]any{"a": 1}
	m["self"], m["again"] = m, []any{m, m}
	return m
}

func TestWhatAToolIsGivenIsStoredAsWhatItIs(t *testing.T) {
	var nobody *DeniedError
	boom := errors.New("boom")
	text := "plain"
	for name, tt := range map[string]struct {
		value         any
		input, output string // of a call that is given or ends with the value
	}{
		"JSON in a string":         {`{"command":"ls"}`, `{"command":"ls"}`, `"{\"command\":\"ls\"}"`},
		"array in a string":        {" [1,2]\n", " [1,2]\n", `" [1,2]\n"`},
		"JSON in a named string":   {arguments(`{"a":1}`), `{"a":1}`, `"{\"a\":1}"`},
		"broken JSON in a string":  {`{"command":`, `"{\"command\":"`, `"{\"command\":"`},
		"text":                     {"ls -l", `"ls -l"`, `"ls -l"`},
		"pointer to text":          {&text, `"plain"`, `"plain"`},
		"number in a string":       {"42", `"42"`, `"42"`},
		"empty":                    {"", `""`, `""`},
		"JSON in bytes":            {[]byte(`{"a":1}`), `{"a":1}`, `{"a":1}`},
		"text in bytes":            {[]byte("a\nb"), `"a\nb"`, `"a\nb"`},
		"bytes that are no text":   {[]byte{'a', 0xff, 'b'}, "\"a\uFFFDb\"", "\"a\uFFFDb\""},
		"binary bytes":             {[]byte("a\x00b"), `"a\u0000b"`, `"a\u0000b"`},
		"no bytes":                 {[]byte(nil), "null", "null"},
		"raw":                      {json.RawMessage(`{"a":1}`), `{"a":1}`, `{"a":1}`},
		"nil pointer":              {nobody, "null", "null"},
		"buffer":                   {bytes.NewBufferString("text"), `"text"`, `"text"`},
		"duration":                 {time.Second, "1000000000", "1000000000"},
		"error":                    {boom, `"boom"`, ""},
		"error with names in list": {[]any{exit{3}}, `[{"code":3}]`, `[{"code":3}]`},
		"error that encodes":       {[]any{own{}}, `[{"own":true}]`, `[{"own":true}]`},
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			_, a := turn.StartTool(ctx, ToolOptions{Name: "given", Input: tt.value})
			a.End("ok")
			_, b := turn.StartTool(ctx, ToolOptions{Name: "set"})
			b.SetInput(tt.value)
			b.End(tt.value)
			h.end(turn)
			if got := one(t, h.rec.All().ToolCalls("given")).Input; got != tt.input {
				t.Errorf("input = %s, want %s", got, tt.input)
			}
			got := one(t, h.rec.All().ToolCalls("set"))
			if got.Input != tt.input || got.Output != tt.output {
				t.Errorf("input %s, output %s, want %s and %s", got.Input, got.Output, tt.input, tt.output)
			}
		})
	}
}

// panicsWithItself panics when anything is done with it, also when what it panicked
// with is printed.
type panicsWithItself struct{}

func (p panicsWithItself) MarshalJSON() ([]byte, error) { panic(p) }
func (p panicsWithItself) String() string               { panic(p) }

func TestValuesThatJSONCannotHoldDoNotStopTheAgent(t *testing.T) {
	for name, v := range map[string]any{
		"cycle": cyclic(), "NaN": math.NaN(), "function": func() {}, "channel": map[string]any{"c": make(chan int)},
		"list in itself": func() any {
			l := make([]any, 1)
			l[0] = l
			return l
		}(), "list in itself with a function": func() any {
			l := []any{func() {}, nil}
			l[1] = l
			return l
		}(), "panics with itself": panicsWithItself{}, "member": map[string]any{"x": math.NaN(), "keep": "me"},
		"member of a list": []any{map[string]any{"deep": map[string]any{"keep": "me"}, "c": cyclic()}, func() {}},
	} {
		h := newHarness(t, Options{}, SessionOptions{})
		errs := errorsOf(func() {
			ctx, turn := h.turn("go")
			_, tool := turn.StartTool(ctx, ToolOptions{Name: "t", Input: v})
			tool.End(v)
			turn.Data("d", "", v)
			turn.SetMetadata(map[string]any{"v": v})
			turn.End(TurnResult{})
			h.run.End(nil)
		})
		h.check()
		if len(errs) == 0 {
			t.Errorf("%s: nothing is reported", name)
		}
		c := one(t, h.rec.All().ToolCalls("t"))
		if keeps := strings.Contains(c.Output, `"keep":"me"`); !json.Valid([]byte(c.Output)) || c.Input != c.Output ||
			keeps != strings.HasPrefix(name, "member") {
			t.Errorf("%s: output = %.100s", name, c.Output)
		}
	}
}
