package collector

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// fieldCore is in every secret of the test below; six digits after it are its place.
const fieldCore = "aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0"

// fieldPlanter fills messages of the protocol with secrets, another in every string.
type fieldPlanter struct{ at []string }

func (p *fieldPlanter) secret(path string) string {
	p.at = append(p.at, path)
	return fmt.Sprintf("ghp_%s%06d", fieldCore, len(p.at)-1)
}

// fill sets every field of m that holds text or bytes; of a oneof the member given.
func (p *fieldPlanter) fill(m protoreflect.Message, path string, depth, member int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		at := path + "." + string(f.Name())
		if one := f.ContainingOneof(); one != nil && one.Fields().Get(member%one.Fields().Len()) != f {
			continue
		}
		switch {
		case f.Kind() == protoreflect.MessageKind && depth > 6:
		case f.Kind() == protoreflect.MessageKind && f.IsList():
			copies := 2
			if f.Message().Name() == "KeyValue" {
				copies = 8 // as many as a value has kinds
			}
			for k := range copies {
				p.fill(m.Mutable(f).List().AppendMutable().Message(), at, depth+1, k)
			}
		case f.Kind() == protoreflect.MessageKind:
			p.fill(m.Mutable(f).Message(), at, depth+1, member)
		case f.Kind() == protoreflect.StringKind && f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfString(p.secret(at)))
		case f.Name() == "trace_state":
			m.Set(f, protoreflect.ValueOfString("vendor="+p.secret(at)+","+p.secret(at+" key")+"=1"))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(p.secret(at)))
		case f.Name() == "trace_id":
			m.Set(f, protoreflect.ValueOfBytes(bytes.Repeat([]byte{byte(member + 1)}, 16)))
		case f.Name() == "span_id" || f.Name() == "parent_span_id":
			m.Set(f, protoreflect.ValueOfBytes(bytes.Repeat([]byte{byte(member + 1)}, 8)))
		case f.Kind() == protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes([]byte(p.secret(at)+"\xff")))
		case f.Kind() == protoreflect.Fixed64Kind:
			m.Set(f, protoreflect.ValueOfUint64(uint64(1_795_198_540_000+member)*1e6))
		}
	}
}

// known are attributes that make rows of the store, with a secret in each. They are set
// beside what fill sets, as no dialect knows names with secrets in them.
func (p *fieldPlanter) known(path string, way int) []*commonpb.KeyValue {
	text := func(key, value string) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{
			Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
	}
	out := []*commonpb.KeyValue{text("gen_ai.operation.name", "chat")}
	for _, key := range []string{"gen_ai.conversation.id", "session.id"} {
		out = append(out, text(key, fmt.Sprintf("canary%d-%s", way, p.secret(path+" "+key))))
	}
	for _, key := range []string{
		"gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model", "gen_ai.response.id",
		"gen_ai.agent.name", "gen_ai.agent.id",
		"gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result",
		"gen_ai.tool.description", "user.id",
		"gen_ai.output.type", "error.type", "server.address", "gen_ai.data_source.id", "gen_ai.prompt",
		"gen_ai.completion",
	} {
		out = append(out, text(key, p.secret(path+" "+key)))
	}
	message := `[{"role":"user","parts":[{"type":"text","content":%q},{"type":"tool_call","id":%q,"name":%q,` +
		`"arguments":{%q:%q}}],"finish_reason":%q}]`
	for _, key := range []string{"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions",
		"gen_ai.tool.definitions"} {
		s := func() string { return p.secret(path + " " + key) }
		out = append(out, text(key, fmt.Sprintf(message, s(), s(), s(), s(), s(), s())))
	}
	return out
}

// requests are telemetry of both signals with a secret in every field.
func (p *fieldPlanter) requests(t *testing.T, way int) (ptrace.Traces, plog.Logs) {
	t.Helper()
	rs, rl := new(tracepb.ResourceSpans), new(logspb.ResourceLogs)
	path := fmt.Sprint("way ", way)
	p.fill(rs.ProtoReflect(), path+" spans", 3, way)
	p.fill(rl.ProtoReflect(), path+" logs", 3, way)
	for i, span := range rs.ScopeSpans[0].Spans {
		span.SpanId = []byte{1, 2, 3, 4, 5, 6, byte(way), byte(i)}
		span.TraceId = append(bytes.Repeat([]byte{7}, 15), byte(way))
		span.ParentSpanId = nil
		span.Attributes = append(span.Attributes, p.known(path+" span", way)...)
	}
	for _, record := range rl.ScopeLogs[0].LogRecords {
		record.Attributes = append(record.Attributes, p.known(path+" record", way)...)
	}
	decoded := func(m proto.Message) []byte {
		raw, err := proto.Marshal(m)
		testscale.Must(t, err)
		return raw
	}
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(
		decoded(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{rs}}))
	testscale.Must(t, err)
	ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(
		decoded(&logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{rl}}))
	testscale.Must(t, err)
	return td, ld
}

// left are the places whose secret is in b.
func (p *fieldPlanter) left(b []byte) []string {
	var found []string
	for i := bytes.Index(b, []byte(fieldCore)); i >= 0; i = bytes.Index(b, []byte(fieldCore)) {
		n := -1
		if _, err := fmt.Sscanf(string(b[i+len(fieldCore):min(len(b), i+len(fieldCore)+6)]), "%06d",
			&n); err == nil && n < len(p.at) {
			found = append(found, p.at[n])
		} else {
			found = append(found, "a place unknown")
		}
		b = b[i+len(fieldCore):]
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// frames returns what a file of kept telemetry holds: bodies that are compressed, each after its length.
func frames(t *testing.T, b []byte) (plain []byte) {
	t.Helper()
	decoder, err := zstd.NewReader(nil)
	testscale.Must(t, err)
	defer decoder.Close()
	for len(b) >= 4 {
		n := int(binary.BigEndian.Uint32(b))
		if n+4 > len(b) {
			t.Fatalf("a frame of %d bytes, %d are left", n, len(b))
		}
		if plain, err = decoder.DecodeAll(b[4:4+n], plain); err != nil {
			t.Fatal(err)
		}
		b = b[4+n:]
	}
	return plain
}

// Whatever field a request has a secret in, over gRPC and HTTP, in protobuf and JSON, and
// though it be malformed: nothing of it is in the store, in files of sessions or their
// names, in kept telemetry, in what is sent on, or in the log.
func TestSecretsAreLeftBehindOfNoFieldOfARequest(t *testing.T) {
	clean(t)
	second := receiveAt(t)
	grpcAt, httpAt := testscale.MustAddress(), testscale.MustAddress()

	dir := t.TempDir()
	path, kept := filepath.Join(dir, "sessions.db"), filepath.Join(dir, "kept")
	testscale.Must(t, os.Mkdir(kept, 0o700))
	t.Setenv("AGENTTRACE_LOG_LEVEL", "debug")
	o := Options{Store: path, GRPCEndpoint: grpcAt, HTTPEndpoint: httpAt, OTLPEndpoint: second.endpoint, KeepOTLP: kept}
	args, _ := configArgs(t, &o, jsonlFiles(dir))
	p := startProcess(t, args...)

	plants := new(fieldPlanter)
	sendEveryWay(t, plants, grpcAt, "http://"+httpAt)
	deadline := time.Now().Add(30 * time.Second)
	var sent []byte
	for n := 0; n < 3; n++ {
		select {
		case td := <-second.traces:
			raw, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
			testscale.Must(t, err)
			sent = append(sent, raw...)
		case <-time.After(time.Until(deadline)):
			t.Fatalf("%d of 3 requests are sent on", n)
		}
	}
	e := make(evidence)
	e.files(t, dir) // while the WAL is there
	for where, b := range e {
		if found := plants.left(b); len(found) > 0 || strings.Contains(where, fieldCore) {
			t.Errorf("while the collector runs, %s holds secrets of %q", where, found)
		}
	}
	p.stop(t)

	e = evidence{"second place": sent, "log": p.output()}
	e.files(t, dir)
	e.rows(t, path)
	e.keep(t)
	for where, b := range e {
		if strings.HasPrefix(where, "/kept/") {
			e[where] = frames(t, b)
		}
		if found := plants.left(e[where]); len(found) > 0 || strings.Contains(where, fieldCore) {
			t.Errorf("%s holds secrets of %q", where, found)
		}
	}
	var files []byte
	for where, b := range e {
		if strings.HasPrefix(where, "/sessions/") {
			files = append(files, b...)
		}
	}
	for way := range 3 {
		canary := fmt.Appendf(nil, "canary%d-[redacted:github-token]", way)
		for where, b := range map[string][]byte{"rows": e["rows"], "JSONL": files, "second place": sent,
			"kept": e["/kept/"+keptFile]} {
			if !bytes.Contains(b, canary) {
				t.Errorf("%s holds nothing of the request that was sent the %d. way", where, way+1)
			}
		}
	}
}

// sendEveryWay sends telemetry over gRPC and HTTP, as protobuf and as JSON, and bodies that cannot be read.
func sendEveryWay(t *testing.T, plants *fieldPlanter, grpcAt, httpAt string) {
	t.Helper()
	conn, err := grpc.NewClient(grpcAt, grpc.WithTransportCredentials(insecure.NewCredentials()))
	testscale.Must(t, err)
	defer conn.Close()
	td, ld := plants.requests(t, 0)
	if raw, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td); err != nil || len(plants.left(raw)) < 45 {
		t.Fatalf("only %q are planted: %v", plants.left(raw), err)
	}
	if _, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(),
		ptraceotlp.NewExportRequestFromTraces(td)); err != nil {
		t.Fatal(err)
	}
	if _, err := plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequestFromLogs(ld)); err != nil {
		t.Fatal(err)
	}
	post := func(signal, kind string, body []byte, err error, want int) {
		t.Helper()
		testscale.Must(t, err)
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, httpAt+"/v1/"+signal,
			bytes.NewReader(body))
		testscale.Must(t, err)
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Authorization", "Bearer "+plants.secret("header"))
		req.URL.RawQuery = "x=" + plants.secret("query")
		res, err := http.DefaultClient.Do(req)
		testscale.Must(t, err)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s as %s: %s", signal, kind, res.Status)
		}
	}
	td, ld = plants.requests(t, 1)
	raw, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	post("traces", "application/x-protobuf", raw, err, 200)
	post("traces", "application/x-protobuf", raw[:len(raw)-9], nil, 400)
	raw, err = plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	post("logs", "application/x-protobuf", raw, err, 200)
	td, ld = plants.requests(t, 2)
	raw, err = ptraceotlp.NewExportRequestFromTraces(td).MarshalJSON()
	post("traces", "application/json", raw, err, 200)
	post("traces", "application/json", raw[:len(raw)-9], nil, 400)
	raw, err = plogotlp.NewExportRequestFromLogs(ld).MarshalJSON()
	post("logs", "application/json", raw, err, 200)
	post("logs", "application/json", []byte(`{"`+plants.secret("name of a field")+`":`+plants.secret("no JSON")), nil,
		400)
	post(plants.secret("path"), "application/json", []byte("{}"), nil, 404)
}
