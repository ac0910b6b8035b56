package rows

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		` { "b" : 1.50 , "a" : [ 1e-05 , "x y" ] } `: `{"b":1.50,"a":[1e-05,"x y"]}`,
		`{"a":1,"b":2,"a":3}`:                        `{"a":3,"b":2}`,
		`{"a":"\u00e9\ud83d\ude00\/\u0041\u000a"}`:   `{"a":"é😀/A\n"}`,
		`{"a":"\ud800 \u0022 \u005c \u001f"}`:        `{"a":"\ud800 \u0022 \u005c \u001f"}`,
		`{"a":"<&>\u2028"}`:                          "{\"a\":\"<&>\u2028\"}",
		`{}`:                                         `{}`,
	} {
		o, err := Parse([]byte(in))
		if err != nil || string(o.JSON()) != want {
			t.Errorf("%s: %s, %v; want %s", in, o.JSON(), err, want)
		}
	}
	for _, in := range []string{"", "[]", "null", "{", `{"a":}`, `{} {}`,
		`{"a":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + "}"} {
		if o, err := Parse([]byte(in)); err == nil {
			t.Errorf("%.40s: %s", in, o.JSON())
		}
	}
}

func TestRawText(t *testing.T) {
	for in, want := range map[string]string{
		"\x00\b\t\n\f\r\x1b\"\\/\x7f": `"\u0000\b\t\n\f\r\u001b\"\\/` + "\x7f\"",
		"<&>\u2028é😀":                 "\"<&>\u2028é😀\"",
		"a\xffb\xed\xa0\x80":          "\"a\uFFFDb\uFFFD\uFFFD\uFFFD\"",
	} {
		if got := string(Raw(in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// What is read and written again is the same value in its one spelling.
func FuzzParse(f *testing.F) {
	f.Add(`{"a":[1,"\ud83d\ude00\ud800\/",{"b":null}],"c":-1e5}`)
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		o, err := Parse([]byte(text))
		if err != nil {
			return
		}
		decode := func(text []byte) (v any) {
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber() // numbers may be beyond any type
			if err := d.Decode(&v); err != nil || !json.Valid(text) {
				t.Fatalf("%s is not JSON: %v", text, err)
			}
			return v
		}
		if !reflect.DeepEqual(decode([]byte(text)), decode(o.JSON())) {
			t.Fatalf("%s became %s", text, o.JSON())
		}
		if again, err := Parse(o.JSON()); err != nil || string(again.JSON()) != string(o.JSON()) {
			t.Fatalf("%s became %s (%v)", o.JSON(), again.JSON(), err)
		}
	})
}

// Messages of one time keep their order, and one whose clock stepped back
// stands where it was said.
func TestMessageOrder(t *testing.T) {
	s := New("s", "a")
	for _, at := range []int64{5, 5, 3, 9, 9, 0} {
		s.See(at)
		s.Message(session.RoleUser, at).Part(Object{{"type", json.RawMessage(`"text"`)},
			{"text", json.RawMessage(`"x"`)}},
			at)
	}
	made := s.Messages
	out := s.Finish()
	if v := session.Check(out.Transcript); len(v) > 0 {
		t.Fatal(v)
	}
	for i := range made {
		if out.Messages[i].Message.ID != made[i].Row.ID {
			t.Errorf("messages[%d] is %s, want %s", i, out.Messages[i].Message.ID, made[i].Row.ID)
		}
	}
	if out.Session.CreatedAt != 0 || out.Session.UpdatedAt != 9 {
		t.Errorf("from %d to %d", out.Session.CreatedAt, out.Session.UpdatedAt)
	}
}
