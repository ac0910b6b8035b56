package redactionprocessor

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// planter fills a message of the protocol with secrets, a different one in every string.
type planter struct {
	n int
	// at are the places, by number.
	at []string
}

const core = "aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0"

func (p *planter) secret(path string) string {
	p.at = append(p.at, path)
	p.n++
	return fmt.Sprintf("ghp_%s%04d", core, p.n-1)
}

// fill sets every field of m. Of a oneof it sets the member with the number.
func (p *planter) fill(m protoreflect.Message, path string, depth, member int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		at := path + "." + string(f.Name())
		if one := f.ContainingOneof(); one != nil && one.Fields().Get(member%one.Fields().Len()) != f {
			continue
		}
		isMessage := f.Kind() == protoreflect.MessageKind
		switch {
		case f.IsList() && isMessage:
			list := m.Mutable(f).List()
			for k := range 8 { // as many as AnyValue has kinds
				if depth > 6 {
					break
				}
				p.fill(list.AppendMutable().Message(), at, depth+1, k)
			}
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			m.Mutable(f).List().Append(protoreflect.ValueOfString(p.secret(at)))
		case isMessage:
			if depth <= 6 {
				p.fill(m.Mutable(f).Message(), at, depth+1, member)
			}
		case f.Kind() == protoreflect.StringKind:
			s := p.secret(at)
			if f.Name() == "trace_state" {
				s = "vendor=" + s + "," + p.secret(at+" key") + "=1,other=ok,token=x"
			}
			m.Set(f, protoreflect.ValueOfString(s))
		case f.Kind() == protoreflect.BytesKind:
			b := []byte(p.secret(at) + "\xff")
			switch f.Name() {
			case "trace_id":
				b = bytes.Repeat([]byte{1}, 16)
			case "span_id", "parent_span_id":
				b = bytes.Repeat([]byte{2}, 8)
			}
			m.Set(f, protoreflect.ValueOfBytes(b))
		}
	}
}

// left are the places whose secret is in what was sent.
func (p *planter) left(sent []byte) []string {
	var found []string
	for rest := sent; ; {
		i := bytes.Index(rest, []byte(core))
		if i < 0 {
			slices.Sort(found)
			return slices.Compact(found)
		}
		var n int
		_, _ = fmt.Sscanf(string(rest[i+len(core):i+len(core)+4]), "%04d", &n)
		found, rest = append(found, p.at[n]), rest[i+len(core):]
	}
}

// Whatever string the protocol has, no secret in it is forwarded.
func TestNoFieldIsForwardedWithASecret(t *testing.T) {
	p := new(planter)
	var traces tracepb.TracesData
	var logs logspb.LogsData
	spans := &tracepb.ResourceSpans{}
	p.fill(spans.ProtoReflect(), "resource_spans", 3, 0)
	traces.ResourceSpans = append(traces.ResourceSpans, spans)
	records := &logspb.ResourceLogs{}
	p.fill(records.ProtoReflect(), "resource_logs", 3, 0)
	logs.ResourceLogs = append(logs.ResourceLogs, records)

	sentTraces, sentLogs := new(consumertest.TracesSink), new(consumertest.LogsSink)
	tp, err := NewFactory().CreateTraces(t.Context(), processortest.NewNopSettings(componentType),
		createDefaultConfig(),
		sentTraces)
	if err != nil {
		t.Fatal(err)
	}
	lp, err := NewFactory().CreateLogs(t.Context(), processortest.NewNopSettings(componentType), createDefaultConfig(),
		sentLogs)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = tp.Shutdown(t.Context()), lp.Shutdown(t.Context()) }()
	raw, err := proto.Marshal(&traces)
	if err != nil {
		t.Fatal(err)
	}
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(raw)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td); err != nil || len(p.left(kept)) < 30 {
		t.Fatalf("only %q are planted: %v", p.left(kept), err)
	}
	if err := tp.ConsumeTraces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
	sent, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(sentTraces.AllTraces()[0])
	if err != nil {
		t.Fatal(err)
	}
	if found := p.left(sent); len(found) > 0 {
		t.Errorf("secrets are forwarded in %q", found)
	}
	state := sentTraces.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).TraceState().AsRaw()
	if want := "vendor=[redacted:github-token],other=ok,token=__REDACTED__"; state != want {
		t.Errorf("trace state %q, want %q", state, want)
	}

	if raw, err = proto.Marshal(&logs); err != nil {
		t.Fatal(err)
	}
	ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := lp.ConsumeLogs(t.Context(), ld); err != nil {
		t.Fatal(err)
	}
	if sent, err = (&plog.ProtoMarshaler{}).MarshalLogs(sentLogs.AllLogs()[0]); err != nil {
		t.Fatal(err)
	}
	if found := p.left(sent); len(found) > 0 {
		t.Errorf("secrets are forwarded in %q", found)
	}
	if sentTraces.SpanCount() == 0 || sentLogs.LogRecordCount() == 0 {
		t.Error("nothing is forwarded")
	}
}

// Different keys stay different, and an id is what the session store makes of it.
func TestRedactedKeysAndIDs(t *testing.T) {
	sink := new(consumertest.TracesSink)
	p, err := NewFactory().CreateTraces(t.Context(), processortest.NewNopSettings(componentType), createDefaultConfig(),
		sink)
	if err != nil {
		t.Fatal(err)
	}
	td := ptrace.NewTraces()
	m := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().Attributes()
	m.PutStr("k."+token, "1")
	m.PutStr("k."+token[:39]+"X", "2")
	m.PutStr("session.id", token)
	if err := p.ConsumeTraces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
	if m.Len() != 3 {
		t.Errorf("attributes %v", m.AsRaw())
	}
	if v, _ := m.Get("session.id"); v.Str() != redacted+"~e66c084457c32182" {
		t.Errorf("session.id %q", v.Str())
	}
}
