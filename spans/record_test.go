package spans_test

import (
	"encoding/json"
	"fmt"
	"math"
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

// kinds returns an empty value of every type of span.
var kinds = []func() spans.SpanData{
	func() spans.SpanData { return new(spans.Run) },
	func() spans.SpanData { return new(spans.Turn) },
	func() spans.SpanData { return new(spans.ToolCall) },
	func() spans.SpanData { return new(spans.Compaction) },
	func() spans.SpanData { return new(spans.Permission) },
	func() spans.SpanData { return new(spans.ModelCall) },
}

// Values of attributes.
func stringValue(s string) spans.Value  { return spans.AttributeValue(attribute.StringValue(s)) }
func intValue(n int64) spans.Value      { return spans.AttributeValue(attribute.Int64Value(n)) }
func doubleValue(f float64) spans.Value { return spans.AttributeValue(attribute.Float64Value(f)) }
func boolValue(b bool) spans.Value      { return spans.AttributeValue(attribute.BoolValue(b)) }
func stringsValue(all []string) spans.Value {
	return spans.AttributeValue(attribute.StringSliceValue(all))
}

// generator fills values with random fields. Some are zero unless full is set.
type generator struct {
	r    *rand.Rand
	full bool
}

var words = []string{"", "a", "ses_1", "é世界", "line\nbreak", `quo"te\`, "0", "null", "{", strings.Repeat("x", 300)}

func (g generator) record(make func() spans.SpanData) spans.SpanData {
	r := make()
	g.fill(reflect.ValueOf(r).Elem(), "")
	return r
}

func (g generator) maybe() bool { return g.full || g.r.IntN(3) > 0 }

func (g generator) text() string {
	if g.full {
		return words[1+g.r.IntN(len(words)-1)]
	}
	return words[g.r.IntN(len(words))]
}

func (g generator) fill(v reflect.Value, name string) {
	switch v.Interface().(type) {
	case json.RawMessage:
		if !g.maybe() {
			return
		}
		if name == "Permissions" {
			v.SetBytes([]byte(`[{"permission":"*"}]`))
			return
		}
		v.SetBytes([]byte(fmt.Sprintf(`{"n":%d, "s":"é\n"}`, g.r.Int())))
		return
	case []spans.Part:
		n := g.r.IntN(4)
		if g.full {
			n = 2
		}
		for range n {
			var p spans.Part
			g.fill(reflect.ValueOf(&p).Elem(), "")
			if p.ID == "" {
				p.ID = "prt_1"
			}
			v.Set(reflect.Append(v, reflect.ValueOf(p)))
		}
		return
	case []string:
		for g.full && v.Len() < 2 || !g.full && g.maybe() {
			v.Set(reflect.Append(v, reflect.ValueOf(g.text())))
		}
		return
	case spans.Message:
		if !g.maybe() {
			return // a message without an id is not encoded
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			g.fill(v.Field(i), v.Type().Field(i).Name)
		}
		if m, ok := v.Addr().Interface().(*spans.Message); ok && m.ID == "" {
			m.ID = "msg_1"
		}
	case reflect.Pointer:
		if g.maybe() {
			v.Set(reflect.New(v.Type().Elem()))
			g.fill(v.Elem(), name)
		}
	case reflect.String:
		if name != "Damaged" {
			v.SetString(g.text())
		}
	case reflect.Int64:
		n := g.r.Int64() >> g.r.IntN(64)
		if g.full {
			n = 1 + n/4
		}
		v.SetInt(n)
	case reflect.Float64:
		v.SetFloat(g.r.NormFloat64() + math.Pi)
	case reflect.Bool:
		v.SetBool(g.full || g.r.IntN(2) == 0)
	case reflect.Int: // Damaged, which is not encoded
	default:
		panic("generate " + v.Type().String())
	}
}

func TestDecodingWhatWasEncodedGivesTheRecordBack(t *testing.T) {
	g := generator{r: rand.New(rand.NewPCG(7, 11))}
	for _, kind := range kinds {
		for range 2000 {
			want := g.record(kind)
			attrs := spans.Append(nil, want)
			got := kind()
			if err := spans.Decode(got, attrs); err != nil {
				t.Fatalf("%s: decode what Append wrote: %v\nrecord: %+v", want.Kind(), err, want)
			}
			if turn, ok := want.(*spans.Turn); ok {
				turn.CallsLackUsage = false // is about what is written, and not read
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: decoded record differs (-encoded +decoded):\n%s", want.Kind(), diff)
			}
			// The order of attributes has no meaning.
			g.r.Shuffle(len(attrs), func(i, j int) { attrs[i], attrs[j] = attrs[j], attrs[i] })
			again := kind()
			if err := spans.Decode(again, attrs); err != nil {
				t.Fatalf("%s: decode in another order: %v", want.Kind(), err)
			}
			if diff := cmp.Diff(want, again); diff != "" {
				t.Fatalf("%s: decoded in another order differs:\n%s", want.Kind(), diff)
			}
		}
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	g := generator{r: rand.New(rand.NewPCG(1, 1)), full: true}
	first := attribute.String("mine", "x")
	for _, kind := range kinds {
		r := g.record(kind)
		attrs := spans.Append([]attribute.KeyValue{first}, r)
		if attrs[0] != first {
			t.Errorf("%s: Append overwrote dst", r.Kind())
		}
		seen := map[attribute.Key]bool{}
		for _, kv := range attrs {
			if seen[kv.Key] {
				t.Errorf("%s: key %s is appended twice", r.Kind(), kv.Key)
			}
			seen[kv.Key] = true
		}
	}
}

// garbage has a value of every type, and invalid values of every kind.
func garbage() []spans.Value {
	return []spans.Value{
		{}, stringValue(""), stringValue("x"), stringValue("\xff"), stringValue("{"),
		stringValue("[]"), stringValue("{}"),
		intValue(0), intValue(-1), intValue(math.MaxInt64), doubleValue(1.5),
		doubleValue(math.NaN()), doubleValue(math.Inf(-1)),
		doubleValue(1e300), boolValue(true), boolValue(false), stringsValue(nil),
		stringsValue([]string{}),
		stringsValue([]string{"", "{", `{"id":1}`, `{"id":"p","index":"x"}`, `{"id":"p","type":"text",` +
			`"data":{"te`,
			"null", "[]", "7"}),
		spans.JSONValue(""), spans.JSONValue(`{"a":1}`), spans.JSONValue("["),
	}
}

func TestGarbageNeverPanicsAndLeavesTheRest(t *testing.T) {
	for _, kind := range kinds {
		for _, a := range testscale.Attributes() {
			for _, v := range garbage() {
				r := kind()
				known, err := spans.Set(r, string(a.Key), v)
				if !known && err != nil {
					t.Errorf("%s: Set(%s) errs on a key that it does not know: %v", r.Kind(), a.Key, err)
				}
				spans.Append(nil, r)
				_ = r.Validate()
			}
		}
		r := kind()
		if known, err := spans.Set(r, "no.such.key", intValue(1)); known || err != nil {
			t.Errorf("%s: Set(no.such.key) = %v, %v, want false, nil", r.Kind(), known, err)
		}
	}
}

func TestWrongTypeIsReportedAndLeavesTheField(t *testing.T) {
	wrong := map[string]spans.Value{
		"string": intValue(1), "string[]": intValue(1), "int": stringValue("one"),
		"double": stringValue("one"), "boolean": stringValue("true"),
		"JSON string": boolValue(true),
	}
	g := generator{r: rand.New(rand.NewPCG(3, 5)), full: true}
	// These are read only if no better attribute is present, or are always true, so their
	// type does not matter.
	lenient := []attribute.Key{
		semconv.GenAIOperationNameKey, semconv.GenAIConversationCompactedKey, semconv.TokensKey,
		semconv.GenAIUsageInputTokensKey, semconv.GenAIUsageOutputTokensKey, semconv.GenAIUsageCacheReadKey,
		semconv.GenAIUsageCacheWriteKey, semconv.GenAIUsageReasoningKey,
	}
	for _, kind := range kinds {
		full := g.record(kind)
		for _, kv := range spans.Append(nil, full) {
			if slices.Contains(lenient, kv.Key) {
				continue
			}
			a := describe(t, kv.Key)
			r := kind()
			if _, err := spans.Set(r, string(kv.Key), wrong[a.Type]); err == nil {
				t.Errorf("%s: Set(%s, %s) reports nothing, want an error", r.Kind(), kv.Key, wrong[a.Type].Type())
			}
			if diff := cmp.Diff(kind(), r); diff != "" && !strings.Contains(diff, "Tokens") {
				t.Errorf("%s: Set(%s) with a wrong type changed the record:\n%s", r.Kind(), kv.Key, diff)
			}
		}
	}
}

func describe(t *testing.T, key attribute.Key) testscale.Attribute {
	t.Helper()
	for _, a := range testscale.Attributes() {
		if a.Key == key {
			return a
		}
	}
	t.Fatalf("%s is not in testscale.Attributes", key)
	return testscale.Attribute{}
}

// spanName returns the name that testscale.Attributes uses for the span.
func spanName(r spans.SpanData) string {
	if r.Kind() == spans.KindModelCall {
		return "chat {model}"
	}
	return r.Kind()
}

// TestEverySpanCarriesWhatSemconvLists compares the table with the attributes that Append
// writes, in both directions.
func TestEverySpanCarriesWhatSemconvLists(t *testing.T) {
	g := generator{r: rand.New(rand.NewPCG(2, 9)), full: true}
	for _, kind := range kinds {
		r := g.record(kind)
		variants := []spans.SpanData{r}
		if run, ok := r.(*spans.Run); ok {
			plain := *run
			plain.Operation = ""
			variants = append(variants, &plain)
		}
		if turn, ok := r.(*spans.Turn); ok {
			alone := *turn
			alone.CallsLackUsage = true
			variants = append(variants, &alone)
		}
		appended := map[attribute.Key]bool{}
		for _, v := range variants {
			for _, kv := range spans.Append(nil, v) {
				appended[kv.Key] = true
				a := describe(t, kv.Key)
				if !slices.Contains(a.Spans, spanName(r)) {
					t.Errorf("%s appends %s, which is not listed for it", spanName(r), kv.Key)
				}
				if want := wireType(a.Type); kv.Value.Type() != want {
					t.Errorf("%s appends %s as %v, listed as %s", spanName(r), kv.Key, kv.Value.Type(), a.Type)
				}
			}
		}
		for _, a := range testscale.Attributes() {
			if a.Key == semconv.ReplayKey {
				continue // added by session/ingest for stored sessions
			}
			if slices.Contains(a.Spans, spanName(r)) && !appended[a.Key] {
				t.Errorf("%s is listed for %s, which never appends it", a.Key, spanName(r))
			}
			if known, _ := spans.Set(kind(), string(a.Key), spans.Value{}); !known && slices.Contains(a.Spans, spanName(r)) {
				t.Errorf("%s is listed for %s, which does not read it", a.Key, spanName(r))
			}
		}
	}
}

func wireType(t string) attribute.Type {
	switch t {
	case "string[]":
		return attribute.STRINGSLICE
	case "int":
		return attribute.INT64
	case "double":
		return attribute.FLOAT64
	case "boolean":
		return attribute.BOOL
	}
	return attribute.STRING
}

func TestNewKnowsTheFiveNames(t *testing.T) {
	for _, name := range []string{semconv.SpanSessionRun, semconv.SpanSessionTurn, semconv.SpanToolCall,
		semconv.SpanCompactionRun, semconv.SpanPermissionEvaluate} {
		r := spans.New(name)
		if r == nil || r.Kind() != name {
			t.Errorf("New(%q) = %v", name, r)
		}
		if r != nil && r.Validate() == nil {
			t.Errorf("an empty %s validates", name)
		}
	}
	if r := spans.New("chat gpt-5"); r != nil {
		t.Errorf("New of another span = %v, want nil", r)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint8(0), "session.id", "ses_1", int64(1), uint8(1))
	f.Add(uint8(1), "agenttrace.assistant_message.parts", `{"id":"p","index":0,"data":{"type":"text"}}`, int64(0),
		uint8(5))
	f.Add(uint8(1), "agenttrace.user_message.parts",
		`{"id":"p","index":1,"type":"text","created_at":1,"updated_at":2,"data":{"ty`, int64(0), uint8(5))
	f.Add(uint8(2), "gen_ai.tool.call.arguments", `{"a":`, int64(0), uint8(1))
	f.Add(uint8(4), "agenttrace.permission.waited_ms", "", int64(-5), uint8(3))
	f.Add(uint8(5), "agenttrace.usage.raw", "[]", int64(0), uint8(6))
	f.Fuzz(func(t *testing.T, kind uint8, key, text string, n int64, valueKind uint8) {
		var v spans.Value
		switch valueKind % 7 { // 0 leaves it empty
		case 1:
			v = stringValue(text)
		case 2:
			v = intValue(n)
		case 3:
			v = doubleValue(math.Float64frombits(uint64(n)))
		case 4:
			v = boolValue(n&1 != 0)
		case 5:
			v = stringsValue(strings.Split(text, "|"))
		case 6:
			v = spans.JSONValue(text)
		}
		r := kinds[int(kind)%len(kinds)]()
		known, err := spans.Set(r, key, v)
		if !known && err != nil {
			t.Fatalf("error for a key that is not known: %v", err)
		}
		_ = r.Validate()
		if err != nil {
			return
		}
		// An accepted value encodes to a form that decodes to itself.
		if run, ok := r.(*spans.Turn); ok && (run.User.ID == "" || run.Assistant.ID == "") {
			run.User.ID, run.Assistant.ID = "msg_1", "msg_2"
		}
		attrs := spans.Append(nil, r)
		again := kinds[int(kind)%len(kinds)]()
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
