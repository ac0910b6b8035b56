package atif_test

import (
	"errors"
	"io"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/atif"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// format is the codec as the suite takes it.
var format = codectest.Codec{
	Name: "atif", Encode: encodeAlone, Decode: atif.Decode, Explain: atif.Losses.Of, Listed: atif.Losses,
	Foreign: true, Damage: codectest.Whole, Native: []string{"testdata/*.json"},
	Sessions: []codectest.Sample{{Name: "handmade", Session: handmade()}},
	Check:    func(data []byte) error { return errors.Join(broken(data)...) },
}

// handmade is a session that no trajectory gave, with what the sessions of the suite lack: content that
// was withheld, and an answer that never ended.
func handmade() *codec.Session {
	const text = `{"type":"data-withheld","data":{"text":"the policy of the company"}}`
	const unfinished = `{"type":"data-unfinished","data":{"text":"the end was not reported"}}`
	return &codec.Session{Transcript: &session.Transcript{
		Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: 1,
			UpdatedAt: 2},
		Messages: []session.MessageAndParts{{
			Message: session.Message{ID: "msg_1", SessionID: "ses_1", Role: "assistant", MetadataJSON: "{}",
				CreatedAt: 1,
				UpdatedAt: 1},
			Parts: []session.Part{
				{ID: "prt_1", MessageID: "msg_1", SessionID: "ses_1", Type: "data-withheld", DataJSON: text,
					CreatedAt: 1,
					UpdatedAt: 1},
				{ID: "prt_2", MessageID: "msg_1", SessionID: "ses_1", Index: 1, Type: "data-unfinished",
					DataJSON:  unfinished,
					CreatedAt: 1, UpdatedAt: 1},
			},
		}},
	}}
}

func encodeAlone(w io.Writer, s *codec.Session) error { return atif.Encode(w, s) }

func TestConformance(t *testing.T) { codectest.Run(t, format) }

func FuzzDecode(f *testing.F) { codectest.Fuzz(f, format) }
