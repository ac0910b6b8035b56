package session

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// fill sets every field of the row that p points to, so the tests fail for a new column
// that AppendJSON lacks.
func fill(p any) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("<" + v.Type().Field(i).Name + "> & \"é\"\n")
		case reflect.Int64:
			f.SetInt(int64(i) + math.MaxInt32)
		case reflect.Float64:
			f.SetFloat(0.1)
		}
	}
}

func TestAppendJSONKeepsEveryColumn(t *testing.T) {
	for _, full := range []bool{true, false} {
		var s, s2 Session
		var m, m2 Message
		var p, p2 Part
		// The minimal row that can be read back, and one with every column.
		s.ID, m.ID, m.SessionID, p.ID, p.MessageID, p.SessionID = "s", "m", "s", "p", "m", "s"
		if full {
			fill(&s)
			fill(&m)
			fill(&p)
		}
		for _, tt := range []struct {
			got  []byte
			want any
			read error
			back any
		}{
			{s.AppendJSON(nil), &s, json.Unmarshal(s.AppendJSON(nil), &s2), &s2},
			{m.AppendJSON(nil), &m, json.Unmarshal(m.AppendJSON(nil), &m2), &m2},
			{p.AppendJSON(nil), &p, json.Unmarshal(p.AppendJSON(nil), &p2), &p2},
		} {
			if tt.read != nil {
				t.Errorf("encoding/json cannot read %s: %v", tt.got, tt.read)
			}
			if diff := cmp.Diff(tt.want, tt.back); diff != "" {
				t.Errorf("row changed (-want +got):\n%s", diff)
			}
			// encoding/json writes the same bytes, except that it escapes HTML
			// characters.
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			testscale.Must(t, enc.Encode(tt.want))
			if diff := cmp.Diff(strings.TrimSuffix(b.String(), "\n"), string(tt.got)); diff != "" {
				t.Errorf("order or form differs from encoding/json (-want +got):\n%s", diff)
			}
		}
	}
}

func TestAppendFloat(t *testing.T) {
	for _, tt := range []struct {
		in   float64
		want string
	}{
		{0, "0"}, {math.Copysign(0, -1), "0"}, {1, "1"}, {0.1, "0.1"}, {-2.5, "-2.5"}, {1e-6, "0.000001"},
		{1e-7, "1e-7"}, {1.5e-9, "1.5e-9"}, {1e-10, "1e-10"}, {1e20, "100000000000000000000"}, {1e21, "1e+21"},
		{1e100, "1e+100"}, {math.SmallestNonzeroFloat64, "5e-324"}, {math.MaxFloat64, "1.7976931348623157e+308"},
		{math.NaN(), "0"}, {math.Inf(1), "0"}, {math.Inf(-1), "0"},
	} {
		if got := string(appendFloat(nil, tt.in)); got != tt.want {
			t.Errorf("appendFloat(%v) = %s, want %s", tt.in, got, tt.want)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		f := math.Float64frombits(rnd.Uint64())
		if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		want, _ := json.Marshal(f)
		if got := string(appendFloat(nil, f)); got != string(want) {
			t.Fatalf("appendFloat(%b) = %s, want %s", f, got, want)
		}
	}
}

func TestDecodeJSONDefaults(t *testing.T) {
	var s Session
	testscale.Must(t, s.DecodeJSON(
		[]byte(`{"id":"ses_1","agent":"a","permissions_json":null,"title":null,"later":{"x":1}}`)))
	if diff := cmp.Diff(Session{ID: "ses_1", Title: "New Chat", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}"},
		s); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	// Nothing of the first row may remain in a second one.
	if err := s.DecodeJSON([]byte(`{"id":"ses_2"}`)); err != nil || s.Agent != "" {
		t.Errorf("second row: agent %q, error %v", s.Agent, err)
	}
	var m Message
	if err := m.DecodeJSON([]byte(`{"id":"msg_1","session_id":"ses_1"}`)); err != nil || m.MetadataJSON != "{}" {
		t.Errorf("message: metadata_json %q, error %v", m.MetadataJSON, err)
	}
}

func TestDecodeJSONErrors(t *testing.T) {
	for _, tt := range []struct {
		row  interface{ DecodeJSON([]byte) error }
		in   string
		want string
	}{
		{new(Session), `{}`, "id is missing"},
		{new(Session), `null`, "id is missing"},
		{new(Session), `[1]`, "row is array, want object"},
		{new(Session), `{"id":7}`, "id is number, want string"},
		{new(Session), `{"id":"s","created_at":"now"}`, "created_at is string, want int64"},
		{new(Session), `{"id":"s","created_at":1.5}`, "created_at is number 1.5, want int64"},
		{new(Session), `{"id":"s","cost_usd":true}`, "cost_usd is bool, want float64"},
		{new(Session), `{"id":"s","metadata_json":{}}`, "metadata_json is object, want string"},
		{new(Session), `{"id":"s"`, "row: unexpected end of JSON input"},
		{new(Message), `{"session_id":"s"}`, "id is missing"},
		{new(Message), `{"id":"m"}`, "session_id is missing"},
		{new(Part), `{"message_id":"m","session_id":"s"}`, "id is missing"},
		{new(Part), `{"id":"p","session_id":"s"}`, "message_id is missing"},
		{new(Part), `{"id":"p","message_id":"m"}`, "session_id is missing"},
	} {
		err := tt.row.DecodeJSON([]byte(tt.in))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%T of %s: error %v, want %s", tt.row, tt.in, err, tt.want)
		}
	}
}

func TestSorted(t *testing.T) {
	part := func(id string, index int64) Part { return Part{ID: id, Index: index} }
	in := &Transcript{Messages: []MessageAndParts{
		{Message: Message{ID: "b", CreatedAt: 2}, Parts: []Part{part("z", 1), part("y", 1), part("x", 0)}},
		{Message: Message{ID: "a", CreatedAt: 2}},
		{Message: Message{ID: "c", CreatedAt: 1}},
	}}
	before := (&Transcript{Messages: []MessageAndParts{in.Messages[0], in.Messages[1], in.Messages[2]}})
	before.Messages[0].Parts = append([]Part(nil), in.Messages[0].Parts...)
	got := in.Sorted()
	want := &Transcript{Messages: []MessageAndParts{
		{Message: Message{ID: "c", CreatedAt: 1}},
		{Message: Message{ID: "a", CreatedAt: 2}},
		{Message: Message{ID: "b", CreatedAt: 2}, Parts: []Part{part("x", 0), part("y", 1), part("z", 1)}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Sorted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Errorf("Sorted changed its receiver (-want +got):\n%s", diff)
	}
}

func TestCheckTree(t *testing.T) {
	tree := func(change func(*Transcript)) *Transcript {
		t := &Transcript{Session: Session{ID: "s"}, Messages: []MessageAndParts{
			{Message: Message{ID: "m", SessionID: "s"}, Parts: []Part{{ID: "p", MessageID: "m", SessionID: "s"}}},
			{Message: Message{ID: "n", SessionID: "s"}},
		}}
		change(t)
		return t
	}
	for _, tt := range []struct {
		change func(*Transcript)
		want   string
	}{
		{func(*Transcript) {}, ""},
		{func(t *Transcript) { t.Session.ID = "" }, "session has no id"},
		{func(t *Transcript) { t.Messages[1].Message.ID = "" }, "messages[1] has no id"},
		{func(t *Transcript) { t.Messages[1].Message.ID = "m" }, "messages[1]: message m is there twice"},
		{func(t *Transcript) { t.Messages[1].Message.SessionID = "r" },
			`messages[1]: message n belongs to session "r" and is below s`},
		{func(t *Transcript) { t.Messages[0].Parts[0].ID = "" }, "messages[0].parts[0] has no id"},
		{func(t *Transcript) { t.Messages[0].Parts[0].MessageID = "n" },
			`messages[0].parts[0]: part p belongs to message "n" and is below m`},
		{func(t *Transcript) {
			t.Messages[0].Parts[0].SessionID = ""
		}, "messages[0].parts[0]: part p has no session_id"},
	} {
		err := tree(tt.change).CheckTree()
		if got := errText(err); got != tt.want {
			t.Errorf("CheckTree: %q, want %q", got, tt.want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
