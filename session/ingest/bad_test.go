package ingest_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
	"github.com/agenttrace/agenttrace/spans"
)

// badValues are what an attribute may be set to by an emitter that is wrong.
var badValues = []struct {
	name string
	kind string // the type that it has, "" for none that a key wants
	set  func(pcommon.Value)
}{
	{"int", "int", func(v pcommon.Value) { v.SetInt(7) }},
	{"negative", "int", func(v pcommon.Value) { v.SetInt(-7) }},
	{"greatest", "int", func(v pcommon.Value) { v.SetInt(math.MaxInt64) }},
	{"least", "int", func(v pcommon.Value) { v.SetInt(math.MinInt64) }},
	{"double", "double", func(v pcommon.Value) { v.SetDouble(1.5) }},
	{"negative double", "double", func(v pcommon.Value) { v.SetDouble(-1.5) }},
	{"great double", "double", func(v pcommon.Value) { v.SetDouble(1e300) }},
	{"NaN", "double", func(v pcommon.Value) { v.SetDouble(math.NaN()) }},
	{"infinite", "double", func(v pcommon.Value) { v.SetDouble(math.Inf(1)) }},
	{"bool", "boolean", func(v pcommon.Value) { v.SetBool(true) }},
	{"empty string", "string", func(v pcommon.Value) { v.SetStr("") }},
	{"text", "string", func(v pcommon.Value) { v.SetStr("no JSON") }},
	{"invalid text", "string", func(v pcommon.Value) { v.SetStr("a\xff\x00b") }},
	{"cut JSON", "string", func(v pcommon.Value) { v.SetStr(`{"a":"b`) }},
	{"number", "string", func(v pcommon.Value) { v.SetStr(`1`) }},
	{"null", "string", func(v pcommon.Value) { v.SetStr(`null`) }},
	{"odd object", "string", func(v pcommon.Value) {
		v.SetStr(`{"model":1,"agent":{},"usage":{"input":-1},"system_prompt_digest":"x","agenttrace":[],` +
			`"compaction":"no"}`)
	}},
	{"odd array", "string", func(v pcommon.Value) {
		v.SetStr(`[{"permission":1},{"permission":"bash","pattern":"*","action":"allow"},[],"x"]`)
	}},
	{"twice the same name", "string", func(v pcommon.Value) { v.SetStr(`{"a":1,"a":2}`) }},
	{"deep JSON", "string", func(v pcommon.Value) {
		v.SetStr(strings.Repeat(`[`, 20000) + strings.Repeat(`]`, 20000))
	}},
	{"rather deep JSON", "string", func(v pcommon.Value) {
		v.SetStr(strings.Repeat(`{"a":`, 9999) + "1" + strings.Repeat(`}`, 9999))
	}},
	{"lone surrogate", "string", func(v pcommon.Value) { v.SetStr(`{"a":"\ud800"}`) }},
	{"empty list", "string[]", func(v pcommon.Value) { v.SetEmptySlice() }},
	{"list of text", "string[]", func(v pcommon.Value) {
		s := v.SetEmptySlice()
		for _, text := range []string{"", "x", `{}`, `{"id":""}`, `{"id":"p1","index":-4}`,
			`{"id":"p2","index":9223372036854775807,"type":"text","data":{"type":"text"}}`,
			`{"id":"p3","index":9223372036854775807,"type":"text","data":{"Type":"text","text":5}}`,
			`{"id":"p4","type":"tool-x","tool_state":"?","data":{"type":"tool-x","state":"output-available"}}`,
			`{"id":"p5","type":"tool-"}`, `{"id":"p6","type":"dynamic-tool"}`,
			`{"id":"p7","type":"data-compaction","data":{"type":"data-compaction","data":{"auto":"yes"}}}`,
			`{"id":"p8","type":"text","data":{"type":"text","text":"a","type":"file"}}`,
			`{"id":"p9","index":3,"type":"nonsense","created_at":-1,"updated_at":1,"data":{"type":"nonsense"}}`} {
			s.AppendEmpty().SetStr(text)
		}
	}},
	{"mixed list", "", func(v pcommon.Value) {
		s := v.SetEmptySlice()
		s.AppendEmpty().SetStr("a")
		s.AppendEmpty().SetInt(1)
		s.AppendEmpty()
	}},
	{"map", "", func(v pcommon.Value) { v.SetEmptyMap().PutStr("a\xff", "b") }},
	{"bytes", "", func(v pcommon.Value) { v.SetEmptyBytes().FromRaw([]byte{0, 255}) }},
	{"empty", "", func(pcommon.Value) {}},
}

// validRecords is one of every kind of span, of a session of its own.
func validRecords(n int) []spans.SpanData {
	ses, user, asst, part := id(spans.PrefixSession, n, 0), id(spans.PrefixMessage, 2*n, 1),
		id(spans.PrefixMessage, 2*n+1, 2), id(spans.PrefixPart, 3*n, 3)
	model := spans.Model{ProviderID: "openai", ModelID: "gpt-5-mini"}
	usage := spans.Usage{Tokens: &spans.Tokens{Input: 10, Output: 5}, Basis: semconv.BasisInclusive, CostUSD: ptr(0.1),
		Raw: json.RawMessage(`{"a":1}`)}
	return []spans.SpanData{
		&spans.Run{SessionID: ses, Agent: "coder", Title: "t", Model: model, Outcome: semconv.EndFinish,
			CreatedAt:   start,
			Permissions: json.RawMessage(`[]`), Metadata: json.RawMessage(`{"a":1}`)},
		&spans.Turn{SessionID: ses, Agent: "coder", Index: ptr(int64(0)), Model: model, Usage: usage,
			EndReason: semconv.EndFinish, StopReason: "stop",
			User: spans.Message{ID: user, CreatedAt: start,
				Parts: []spans.Part{textPart(3*n+1, 0, 0, "text", "hi")}},
			SystemPrompt: "p", SystemPromptDigest: digest("p"),
			Assistant: spans.Message{ID: asst, CreatedAt: start + 1,
				Parts: []spans.Part{textPart(3*n+2, 0, 1, "text", "ho")}}},
		&spans.ToolCall{SessionID: ses, ToolID: "bash", CallID: "c", MessageID: asst, PartID: part,
			PartIndex: ptr(int64(1)),
			State:     session.StateOutputAvailable, Input: `{}`, Output: `1`},
		&spans.Compaction{SessionID: ses, MessageID: asst, MessageCreatedAt: start + 5, PartID: part, Summary: "s",
			SummaryTokens: 5, SummarizedMessages: 2},
		&spans.Permission{SessionID: ses, ID: id(spans.PrefixPermission, n, 0), ToolID: "bash", CallID: "c",
			Pattern: "*",
			Action:  semconv.ActionAllow, Source: semconv.SourceSession},
		&spans.ModelCall{SessionID: ses, MessageID: asst, Model: model, Usage: usage},
	}
}

// spoiled is a valid span with one attribute spoiled, in a session of its own.
type spoiled struct {
	name string
	span ptrace.Span
	// wrong reports that the type of the value is none that the key can have.
	wrong bool
}

func spoiledSpans() []spoiled {
	var all []spoiled
	n := 1_000_000
	for kind, sample := range validRecords(0) {
		for _, a := range testscale.Attributes() {
			if !slices.ContainsFunc(a.Spans, func(name string) bool { return strings.HasPrefix(name, sample.Kind()) }) {
				continue
			}
			for _, bad := range badValues {
				n++
				s := newScenario()
				s.trace, s.next = uint64(n)+1000, uint64(n)*10
				sp := s.add(validRecords(n)[kind], 10, 20)
				v := sp.Attributes().PutEmpty(string(a.Key))
				bad.set(v)
				if strings.HasSuffix(string(a.Key), "id") || a.Type == "string[]" {
					unique(v, n) // an id that two sessions claim is another matter
				}
				wrong := a.Group == "own" && v.Type() != pcommon.ValueTypeEmpty && bad.kind != a.Type
				switch a.Type {
				case "string", "JSON string":
					wrong = wrong && bad.kind != "string" && bad.kind != "JSON string" && bad.name != "map" &&
						bad.name != "mixed list" && bad.name != "bytes"
				case "string[]":
					wrong = wrong && bad.kind != "string" && bad.name != "bytes"
				case "double":
					wrong = wrong && bad.kind != "int"
				case "int":
					wrong = wrong && bad.name != "negative double" // neither has a fraction of zero
				}
				all = append(all, spoiled{fmt.Sprintf("%s: %s is %s", sample.Kind(), a.Key, bad.name), sp, wrong})
			}
		}
	}
	return all
}

// unique makes the text in a value its own.
func unique(v pcommon.Value, n int) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		if v.Str() != "" {
			v.SetStr(strings.ReplaceAll(v.Str(), `"id":"p`, fmt.Sprintf(`"id":"p%d-`, n)))
			if !strings.Contains(v.Str(), `"id":`) {
				v.SetStr(fmt.Sprint(v.Str(), n))
			}
		}
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			unique(e, n)
		}
	case pcommon.ValueTypeInt:
		v.SetInt(v.Int() + int64(n))
	case pcommon.ValueTypeMap:
		v.Map().PutInt("n", int64(n))
	case pcommon.ValueTypeBytes:
		v.Bytes().FromRaw(fmt.Append(nil, n))
	}
}

// oddSpans are spans that are wrong in other ways than in one attribute.
func oddSpans() []ptrace.Span {
	var all []ptrace.Span
	n := 9_000_000
	add := func(spoil func(ptrace.Span)) {
		for kind := range validRecords(0) {
			n++
			s := newScenario()
			s.trace, s.next = uint64(n), uint64(n)*10
			sp := s.add(validRecords(n)[kind], 10, 20)
			spoil(sp)
			all = append(all, sp)
		}
	}
	add(func(s ptrace.Span) { s.SetStartTimestamp(0); s.SetEndTimestamp(0) })
	add(func(s ptrace.Span) { s.SetStartTimestamp(0) })
	add(func(s ptrace.Span) { s.SetEndTimestamp(0) })
	add(func(s ptrace.Span) { s.SetStartTimestamp(math.MaxUint64); s.SetEndTimestamp(math.MaxUint64) })
	add(func(s ptrace.Span) { s.SetEndTimestamp(math.MaxInt64) })
	add(func(s ptrace.Span) { s.SetStartTimestamp(s.EndTimestamp() + 1e9) })
	add(func(s ptrace.Span) { s.SetTraceID(pcommon.TraceID{}) })
	add(func(s ptrace.Span) { s.SetSpanID(pcommon.SpanID{}) })
	add(func(s ptrace.Span) { s.SetTraceID(pcommon.TraceID{}); s.SetSpanID(pcommon.SpanID{}) })
	add(func(s ptrace.Span) { s.Attributes().Clear() })
	add(func(s ptrace.Span) { s.Attributes().Clear(); s.SetSpanID(pcommon.SpanID{}) })
	add(func(s ptrace.Span) {
		s.Attributes().Clear()
		s.SetTraceID(pcommon.TraceID{})
		s.SetSpanID(pcommon.SpanID{})
	})
	add(func(s ptrace.Span) { s.SetDroppedAttributesCount(9) })
	add(func(s ptrace.Span) { s.Status().SetCode(ptrace.StatusCodeError); s.Status().SetMessage("a\xff\x00") })
	add(func(s ptrace.Span) { s.Attributes().PutStr("a key \xff\x00", "\xff") })
	add(func(s ptrace.Span) { // the same keys again, with other values
		twice := ptrace.NewSpan()
		s.CopyTo(twice)
		raw := must((&ptrace.ProtoMarshaler{}).MarshalTraces(traces(s)))
		td := must((&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(raw))
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).CopyTo(s)
		for key, v := range twice.Attributes().All() {
			if v.Type() == pcommon.ValueTypeInt {
				s.Attributes().PutStr(key, "x")
			}
		}
	})
	return all
}

// TestBadSpans: whatever a span holds, it fails neither itself nor its neighbours, what is wrong with it is counted,
// what it makes is a valid session, and the order in which such spans arrive changes nothing.
func TestBadSpans(t *testing.T) {
	var all []ptrace.Span
	spoiledOnes := spoiledSpans()
	for i, s := range spoiledOnes {
		if (i+i/len(badValues))%testscale.Rounds(2, 1) == 0 { // each value of every second attribute
			all = append(all, s.span)
		}
	}
	all = append(all, oddSpans()...)
	neighbours := whole().spans
	all = append(all, neighbours...)

	alone := openStore(t)
	ingestAll(t, alone, traces(neighbours...))
	var want string
	var malformed int
	rounds := testscale.Rounds(2, 3)
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		order := all
		if seed > 0 {
			order = shuffled(r, all)
		}
		var requests []ptrace.Traces
		for rest := order; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(400))
			requests, rest = append(requests, traces(rest[:n]...)), rest[n:]
		}
		s := openStore(t)
		report := ingestAll(t, s, requests...)
		if report.Spans != len(all) || report.Refused != 0 || report.Accepted+report.Ignored != len(all) {
			t.Errorf("seed %d: %+v of %d spans", seed, report, len(all))
		}
		if seed == 0 {
			storetest.CheckSessions(t, s)
			malformed = report.Malformed
			for _, before := range rowsOf(t, alone) {
				if d := cmp.Diff(before, storetest.Transcript(t, s, before.Session.ID)); d != "" {
					t.Errorf("neighbour %s (-alone +among bad spans):\n%s", before.Session.ID, d)
				}
			}
			want = dump(t, s.Path())
			continue
		}
		if report.Malformed != malformed {
			t.Errorf("seed %d: %d malformed, in order %d", seed, report.Malformed, malformed)
		}
		if got := dump(t, s.Path()); got != want {
			t.Fatalf("seed %d: tables differ (-want +got):\n%.5000s", seed,
				differ(want, got))
		}
	}
	t.Logf("%d spans, %d malformed", len(all), malformed)
}

// TestMalformedCounted: a value of the wrong type is always counted, once.
func TestMalformedCounted(t *testing.T) {
	in := ingest.New(nothing{}, ingest.Options{})
	for _, s := range spoiledSpans() {
		report, err := in.Traces(t.Context(), traces(s.span))
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if s.wrong && report.Malformed != 1 {
			t.Errorf("%s: not counted", s.name)
		}
	}
	for kind := range validRecords(0) {
		s := newScenario()
		s.add(validRecords(1)[kind], 10, 20)
		if report, err := in.Traces(t.Context(), traces(s.spans...)); err != nil || report.Malformed != 0 ||
			report.Accepted != 1 {
			t.Errorf("a valid %s: %+v, %v", s.spans[0].Name(), report, err)
		}
	}
}

// TestHugeAttributes: values of 10 MB are kept as they are.
func TestHugeAttributes(t *testing.T) {
	const size = 10 << 20
	text := strings.Repeat("0123456789abcdef", size/16)
	n := 1
	s := newScenario()
	for _, r := range validRecords(n) {
		switch r := r.(type) {
		case *spans.ToolCall:
			r.Input, r.Output = `{"text":"`+text+`"}`, `"`+text+`"`
		case *spans.Turn:
			r.SystemPrompt, r.SystemPromptDigest = text, digest(text)
			r.Assistant.Parts = []spans.Part{textPart(50, 0, 1, "text", text)}
		case *spans.Compaction:
			continue // of the same message
		}
		s.add(r, 10, 20)
	}
	db := openStore(t)
	if report := ingestAll(t, db, traces(s.spans...)); report.Malformed != 0 || report.Refused != 0 {
		t.Errorf("%+v", report)
	}
	storetest.CheckSessions(t, db)
	transcript := storetest.Transcript(t, db, id(spans.PrefixSession, n, 0))
	total := 0
	for _, m := range transcript.Messages {
		for _, p := range m.Parts {
			total += len(p.DataJSON)
		}
	}
	if total < 3*size {
		t.Errorf("%d bytes of parts arrived", total)
	}
	if b, err := db.Blob(t.Context(), store.BlobSystemPrompt, digest(text)); err != nil || b.Body != text || !b.Exact {
		t.Errorf("prompt: %d bytes, exact %v, %v", len(b.Body), b.Exact, err)
	}
}

// TestManySpans: a session takes any number of spans, also those whose emitter did not report their place.
func TestManySpans(t *testing.T) {
	n := testscale.Rounds(5_000, 12_000)
	db := openStore(t)
	in := ingest.New(db, ingest.Options{})
	ses, msg := id(spans.PrefixSession, 1, 0), id(spans.PrefixMessage, 1, 0)
	for sent := 0; sent < n; {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
		for range 1000 {
			s := ss.Spans().AppendEmpty()
			s.SetName(semconv.SpanToolCall)
			s.SetTraceID(pcommon.TraceID{1})
			var spanID pcommon.SpanID
			binary.BigEndian.PutUint64(spanID[:], uint64(sent)+1)
			s.SetSpanID(spanID)
			at := pcommon.Timestamp((start + int64(sent/100)) * 1e6) // a hundred at a time
			s.SetStartTimestamp(at)
			s.SetEndTimestamp(at)
			s.Attributes().PutStr(string(semconv.SessionIDKey), ses)
			s.Attributes().PutStr(string(semconv.MessageIDKey), msg)
			s.Attributes().PutStr(string(semconv.ToolIDKey), "bash")
			s.Attributes().PutStr(string(semconv.ToolCallIDKey), fmt.Sprint("call", sent))
			sent++
		}
		report, err := in.Traces(t.Context(), td)
		if err != nil || report.Refused != 0 {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	transcript := storetest.Transcript(t, db, ses)
	if len(transcript.Messages) != 1 || len(transcript.Messages[0].Parts) != n {
		t.Errorf("%d messages, %d parts", len(transcript.Messages), len(transcript.Messages[0].Parts))
	}
	storetest.CheckSessions(t, db)
}
