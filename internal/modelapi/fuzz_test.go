package modelapi_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// The types of streams.
const events, frames = "text/event-stream", "application/vnd.amazon.eventstream"

// seeds adds the requests and answers of the script to a corpus.
func seeds(f *testing.F, stream bool, names ...string) {
	for _, name := range names {
		a := e2e.Named(name)
		for turn := range e2e.Weather.Turns {
			for k := range e2e.Weather.Turns[turn].Steps {
				_, chunks := a.Chunks(&e2e.Weather.Turns[turn].Steps[k], "resp_1", stream)
				f.Add(bytes.Join(chunks, nil), 7)
			}
		}
	}
}

// decode has an API decode bytes as an answer of each kind, in pieces of the size.
func decode(t *testing.T, a *modelapi.API, data []byte, size int) {
	size = max(1, size&0xffff)
	for _, split := range []modelapi.Stream{modelapi.StreamOf(events, 1<<16), modelapi.StreamOf(frames, 1<<16)} {
		ans := &modelapi.Answer{Budget: 1 << 20}
		d := a.Decode(ans)
		for rest := data; len(rest) > 0; {
			n := min(size, len(rest))
			split.Feed(rest[:n], d.Event)
			rest = rest[n:]
		}
		split.End(d.Event)
		for _, b := range ans.Blocks {
			if b.Kind == modelapi.Call && !modelapi.Valid(b.Input()) {
				t.Errorf("the input of a call is %s", b.Input())
			}
		}
	}
	ans := &modelapi.Answer{Budget: 1 << 20}
	a.Decode(ans).Body(data)
	a.Decode(ans).Event("", data)
	a.Request(data)
	_ = modelapi.OfInvoke(data)
}

func FuzzAnthropic(f *testing.F) {
	seeds(f, true, "anthropic", "bedrock invoke")
	f.Fuzz(func(t *testing.T, data []byte, size int) { decode(t, modelapi.Anthropic, data, size) })
}

func FuzzChat(f *testing.F) {
	seeds(f, true, "chat")
	f.Fuzz(func(t *testing.T, data []byte, size int) { decode(t, modelapi.Chat, data, size) })
}

func FuzzResponses(f *testing.F) {
	seeds(f, true, "responses")
	f.Fuzz(func(t *testing.T, data []byte, size int) { decode(t, modelapi.Responses, data, size) })
}

func FuzzGemini(f *testing.F) {
	seeds(f, true, "gemini")
	f.Fuzz(func(t *testing.T, data []byte, size int) { decode(t, modelapi.Gemini, data, size) })
}

func FuzzConverse(f *testing.F) {
	seeds(f, true, "bedrock converse")
	f.Fuzz(func(t *testing.T, data []byte, size int) { decode(t, modelapi.Converse, data, size) })
}

// FuzzServerSentEvents checks that the pieces in which a stream arrives make no difference.
func FuzzServerSentEvents(f *testing.F) {
	seeds(f, true, "anthropic", "chat")
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		samePieces(t, data, size, func() modelapi.Stream { return modelapi.StreamOf(events, 1<<20) })
	})
}

// FuzzEventStream does the same for AWS's frames.
func FuzzEventStream(f *testing.F) {
	seeds(f, true, "bedrock converse", "bedrock invoke")
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		samePieces(t, data, size, func() modelapi.Stream { return modelapi.StreamOf(frames, 1<<20) })
	})
}

func samePieces(t *testing.T, data []byte, size int, split func() modelapi.Stream) {
	run := func(size int) (out string) {
		s := split()
		emit := func(name string, data []byte) { out += fmt.Sprintf("%q %q\n", name, data) }
		for rest := data; len(rest) > 0; {
			n := min(size, len(rest))
			s.Feed(rest[:n], emit)
			rest = rest[n:]
		}
		s.End(emit)
		return out
	}
	whole, pieces := run(max(1, len(data))), run(max(1, size&0xff))
	if whole != pieces {
		t.Errorf("as a whole %s\nin pieces %s", whole, pieces)
	}
}
