package spans_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// eventKinds lists the kinds of events, and the fields that only events of this kind have.
var eventKinds = []struct {
	name   string
	fields []string
}{
	{semconv.EventSession, []string{"Session"}},
	{semconv.EventMessage, []string{"SessionID", "MessageID", "Role", "MessageCreatedAt", "MessageMetadata", "Parts"}},
	{semconv.EventPart, []string{"SessionID", "MessageID", "Role", "MessageCreatedAt", "Parts"}},
	{semconv.EventStatus, []string{"SessionID", "Status", "Attempt", "Detail", "CallID", "Heartbeat", "Since"}},
}

// event fills an event of a kind with random values.
func (g generator) event(name string, fields []string) *spans.Event {
	e := &spans.Event{Name: name}
	v := reflect.ValueOf(e).Elem()
	for _, f := range fields {
		g.fill(v.FieldByName(f), f)
	}
	if name == semconv.EventSession {
		if e.Session == nil {
			e.Session = &spans.Run{SessionID: "ses_1"}
		}
		// An event has no outcome of a run.
		r := e.Session
		r.Operation = semconv.RunOperationUpdate
		r.Outcome, r.Error, r.ErrorType, r.TargetMessageID, r.TargetAt = "", "", "", "", 0
		e.SessionID = r.SessionID
	}
	return e
}

func TestDecodingAnEventThatWasEncodedGivesItBack(t *testing.T) {
	g := generator{r: rand.New(rand.NewPCG(5, 17))}
	for _, kind := range eventKinds {
		for range 2000 {
			want := g.event(kind.name, kind.fields)
			attrs := spans.Append(nil, want)
			for range 2 {
				got := &spans.Event{Name: kind.name}
				if err := spans.Decode(got, attrs); err != nil {
					t.Fatalf("%s: decode what Append wrote: %v\nevent: %+v", kind.name, err, want)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%s: decoded event differs (-encoded +decoded):\n%s", kind.name, diff)
				}
				g.r.Shuffle(len(attrs), func(i, j int) { attrs[i], attrs[j] = attrs[j], attrs[i] })
			}
		}
	}
	for range 2000 {
		var want, got spans.LoopWarning
		v := reflect.ValueOf(&want).Elem()
		for _, f := range []string{"Pattern", "Repetitions", "WindowSize"} {
			g.fill(v.FieldByName(f), f)
		}
		if g.maybe() {
			want.Evidence = []string{g.text(), "prt_1"}
		}
		testscale.Must(t, spans.Decode(&got, spans.Append(nil, &want)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("decoded warning differs (-encoded +decoded):\n%s", diff)
		}
	}
}

func TestEveryEventCarriesWhatSemconvLists(t *testing.T) {
	g := generator{r: rand.New(rand.NewPCG(2, 9)), full: true}
	records := map[string]func() spans.SpanData{semconv.SpanEventLoopWarning: func() spans.SpanData {
		return new(spans.LoopWarning)
	}}
	full := map[string]spans.SpanData{semconv.SpanEventLoopWarning: &spans.LoopWarning{Pattern: "a", Repetitions: 1,
		WindowSize: 2, Evidence: []string{"x"}}}
	for _, kind := range eventKinds {
		records[kind.name] = func() spans.SpanData { return &spans.Event{Name: kind.name} }
		full[kind.name] = g.event(kind.name, kind.fields)
	}
	for name, r := range full {
		if r.Kind() != name {
			t.Errorf("Kind() = %q, want %q", r.Kind(), name)
		}
		if err := r.Validate(); err != nil {
			t.Errorf("%s: a full one does not validate: %v", name, err)
		}
		if err := records[name]().Validate(); err == nil {
			t.Errorf("%s: an empty one validates", name)
		}
		appended := map[attribute.Key]bool{}
		for _, kv := range spans.Append(nil, r) {
			if appended[kv.Key] {
				t.Errorf("%s appends %s twice", name, kv.Key)
			}
			appended[kv.Key] = true
			a := describe(t, kv.Key)
			if !slices.Contains(a.Spans, name) {
				t.Errorf("%s appends %s, which is not listed for it", name, kv.Key)
			}
			if want := wireType(a.Type); kv.Value.Type() != want {
				t.Errorf("%s appends %s as %v, listed as %s", name, kv.Key, kv.Value.Type(), a.Type)
			}
		}
		for _, a := range testscale.Attributes() {
			if slices.Contains(a.Spans, name) && !appended[a.Key] {
				t.Errorf("%s is listed for %s, which never appends it", a.Key, name)
			}
			if known, _ := spans.Set(records[name](), string(a.Key), spans.Value{}); !known && slices.Contains(a.Spans, name) {
				t.Errorf("%s is listed for %s, which does not read it", a.Key, name)
			}
			for _, v := range garbage() {
				r := records[name]()
				if known, err := spans.Set(r, string(a.Key), v); !known && err != nil {
					t.Errorf("%s: Set(%s) errs on a key that it does not know: %v", name, a.Key, err)
				}
				spans.Append(nil, r)
				_ = r.Validate()
			}
		}
	}
}

func TestEventValidates(t *testing.T) {
	for _, test := range []struct {
		event spans.Event
		want  string
	}{
		{spans.Event{Name: "other", SessionID: "s"}, "event other is not known"},
		{spans.Event{Name: semconv.EventMessage, SessionID: "s"}, "agenttrace.message.id is missing"},
		{spans.Event{Name: semconv.EventPart, SessionID: "s", MessageID: "m"}, "agenttrace.message.parts is missing"},
		{spans.Event{Name: semconv.EventStatus, SessionID: "s"}, "agenttrace.status is missing"},
		{spans.Event{Name: semconv.EventStatus, Status: "busy"}, "session.id is missing"},
	} {
		if err := test.event.Validate(); err == nil || err.Error() != test.want {
			t.Errorf("%+v: %v, want %s", test.event, err, test.want)
		}
	}
}

func TestLoopWarningIsJSON(t *testing.T) {
	for _, w := range []spans.LoopWarning{{}, {Pattern: `TOOL_CALL:"a"` + " -> \n", Repetitions: 3, WindowSize: 12,
		Evidence: []string{"prt_1", `"`}}} {
		var got struct {
			Pattern     string
			Repetitions int64
			WindowSize  int64 `json:"window_size"`
			Evidence    []string
		}
		data, err := json.Marshal(w)
		testscale.Must(t, err)
		dec := json.NewDecoder(strings.NewReader(string(data)))
		dec.DisallowUnknownFields()
		testscale.Must(t, dec.Decode(&got))
		if got.Pattern != w.Pattern || got.Repetitions != w.Repetitions || got.WindowSize != w.WindowSize ||
			fmt.Sprint(got.Evidence) != fmt.Sprint(w.Evidence) {
			t.Errorf("%+v reads as %+v", w, got)
		}
	}
}

func FuzzEvent(f *testing.F) {
	f.Add(uint8(1), "agenttrace.message.parts", `{"id":"p","index":0,"type":"text","created_at":1,"updated_at":2,`+
		`"data":{"type":"text"}}`)
	f.Add(uint8(2), "agenttrace.message.parts", `{"id":"p","index":0,"type":"text","created_at":1,"updated_at":2,`+
		`"data":{"ty`)
	f.Add(uint8(0), "agenttrace.session.metadata", `{}`)
	f.Add(uint8(3), "agenttrace.status", "busy")
	f.Fuzz(func(t *testing.T, kind uint8, key, text string) {
		name := eventKinds[int(kind)%len(eventKinds)].name
		e := &spans.Event{Name: name}
		known, err := spans.Set(e, key, stringValue(text))
		if !known && err != nil {
			t.Fatalf("error for a key that is not known: %v", err)
		}
		_ = e.Validate()
		if err != nil {
			return
		}
		attrs := spans.Append(nil, e)
		again := &spans.Event{Name: name}
		if err := spans.Decode(again, attrs); err != nil {
			t.Fatalf("decode of what was accepted: %v", err)
		}
		if diff := cmp.Diff(attrs, spans.Append(nil, again), cmp.Comparer(func(a, b attribute.KeyValue) bool {
			return a.Key == b.Key && a.Value.String() == b.Value.String()
		})); diff != "" {
			t.Fatalf("second encoding differs:\n%s", diff)
		}
	})
}
