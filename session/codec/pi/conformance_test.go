package pi_test

import (
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/pi"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Name: "pi", Encode: pi.Encode, Decode: pi.Decode, Explain: pi.Losses.Of, Listed: pi.Losses,
	Foreign: true, Damage: codectest.Tolerant, Native: []string{"testdata/*.jsonl"},
	Sessions: []codectest.Sample{{Name: "handmade", Session: handmade()}},
}

// handmade is an answer that never ended, which the sessions of the suite lack.
func handmade() *codec.Session {
	const text = `{"type":"data-unfinished","data":{"text":"the end was not reported"}}`
	return &codec.Session{Transcript: &session.Transcript{
		Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: 1,
			UpdatedAt: 2},
		Messages: []session.MessageAndParts{{
			Message: session.Message{ID: "msg_1", SessionID: "ses_1", Role: "assistant", MetadataJSON: "{}",
				CreatedAt: 1,
				UpdatedAt: 1},
			Parts: []session.Part{
				{ID: "prt_1", MessageID: "msg_1", SessionID: "ses_1", Type: "data-unfinished", DataJSON: text,
					CreatedAt: 1,
					UpdatedAt: 1},
			},
		}},
	}}
}

func TestConformance(t *testing.T) { codectest.Run(t, format) }

func FuzzDecode(f *testing.F) { codectest.Fuzz(f, format) }
