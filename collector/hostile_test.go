package collector

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// rawCodec sends a message as the bytes that it is.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

var _ encoding.CodecV2 = rawCodec{}

// sendRaw connects to an endpoint, until the test ends, for requests that are bytes already.
func sendRaw(t *testing.T, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30), grpc.ForceCodecV2(rawCodec{})))
	testscale.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// nestedJSON is a value of OTLP in JSON that nests as deep as levels.
func nestedJSON(maps bool, levels int) string {
	if maps {
		return strings.Repeat(`{"kvlistValue":{"values":[{"key":"k","value":`, levels) + `{}` + strings.Repeat(`}]}}`,
			levels)
	}
	return strings.Repeat(`{"arrayValue":{"values":[`, levels) + `{}` + strings.Repeat(`]}}`, levels)
}

// nestedProto is the same in protobuf.
func nestedProto(maps bool, levels int) []byte {
	var reversed []byte
	field := func(tag byte) {
		b := binary.AppendUvarint(nil, uint64(len(reversed)))
		slices.Reverse(b)
		reversed = append(append(reversed, b...), tag)
	}
	for range levels {
		if maps {
			field(0x12)
			field(0x0a)
			field(0x32)
		} else {
			field(0x0a)
			field(0x2a)
		}
	}
	slices.Reverse(reversed)
	return reversed
}

// protoField is a field of protobuf with what is in it.
func protoField(tag byte, inside ...[]byte) []byte {
	b := bytes.Join(inside, nil)
	return append(binary.AppendUvarint([]byte{tag}, uint64(len(b))), b...)
}

// A value of hundreds of thousands of levels, wherever it is and however it is sent, does not end
// the collector: the request is refused, and others are stored.
func TestCollectorSurvivesDeepValues(t *testing.T) {
	clean(t)
	path := filepath.Join(t.TempDir(), "sessions.db")
	c := started(t, Options{Store: path})
	conn := sendRaw(t, c.Endpoint())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(t *testing.T, url, kind string, body []byte, want int) {
		t.Helper()
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(body)
		w.Close()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.HTTPEndpoint()+url, &packed)
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Content-Encoding", "gzip")
		resp, err := client.Do(req)
		testscale.Must(t, err)
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("answered %s, want %d: %.200s", resp.Status, want, answer)
		}
	}

	good := make(map[string]bool)
	marshal := func(id string) []byte {
		good[id] = true
		b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(oneRun(id))
		testscale.Must(t, err)
		return b
	}
	for _, maps := range []bool{false, true} {
		id := fmt.Sprint("ses_beside_maps_", maps)
		deep := nestedProto(maps, 200_000)
		attribute := func(tag byte, key string) []byte {
			return protoField(tag, protoField(0x0a, []byte(key)), protoField(0x12, deep))
		}
		span := protoField(0x12, protoField(0x2a, []byte("chat")), attribute(0x4a, "gen_ai.conversation.id"),
			protoField(0x5a, attribute(0x1a, "gen_ai.input.messages")), protoField(0x6a, attribute(0x22, "link")))
		deepResource := protoField(0x0a, attribute(0x0a, "service.name"))
		scope := protoField(0x0a, attribute(0x1a, "scope"))
		traces := protoField(0x0a, deepResource, protoField(0x12, scope, span))
		record := protoField(0x12, protoField(0x2a, deep), attribute(0x32, "session.id"))
		logs := protoField(0x0a, deepResource, protoField(0x12, scope, record))

		t.Run("HTTP with protobuf "+id, func(t *testing.T) {
			post(t, "/v1/traces", "application/x-protobuf", traces, http.StatusBadRequest)
			post(t, "/v1/logs", "application/x-protobuf", logs, http.StatusBadRequest)
			post(t, "/v1/traces", "application/x-protobuf", marshal(id+"_http"), http.StatusOK)
		})
		t.Run("gRPC "+id, func(t *testing.T) {
			const export = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
			if err := conn.Invoke(t.Context(), export, traces, new([]byte)); err == nil {
				t.Error("deep spans are accepted")
			}
			if err := conn.Invoke(t.Context(), "/opentelemetry.proto.collector.logs.v1.LogsService/Export", logs,
				new([]byte)); err == nil {
				t.Error("deep log records are accepted")
			}
			if err := conn.Invoke(t.Context(), export, marshal(id+"_grpc"), new([]byte)); err != nil {
				t.Error(err)
			}
		})
		t.Run("HTTP with JSON "+id, func(t *testing.T) {
			value := nestedJSON(maps, 1_000_000)
			for url, body := range map[string]string{
				"/v1/traces": `{"resourceSpans":[{"resource":{"attributes":[{"key":"a","value":` + value + `}]}}]}`,
				"/v1/logs":   `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":` + value + `}]}]}]}`,
			} {
				post(t, url, "application/json", []byte(body), http.StatusBadRequest)
			}
			good[id+"_json"] = true
			body, err := ptraceotlp.NewExportRequestFromTraces(oneRun(id + "_json")).MarshalJSON()
			testscale.Must(t, err)
			post(t, "/v1/traces", "application/json", body, http.StatusOK)
		})
	}
	if n := stored(t, path, good); n != len(good) {
		t.Errorf("%d of %d sessions beside deep values are stored", n, len(good))
	}
	reader := testscale.Open(t, sqlite.OpenReader, path)
	for id := range good {
		if _, err := reader.Transcript(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// A request that would take far more memory than its bytes is refused, and clearly.
func TestRequestThatGrowsInMemoryIsRefused(t *testing.T) {
	clean(t)
	c := started(t, Options{Store: filepath.Join(t.TempDir(), "sessions.db")})
	empty := protoField(0x0a, protoField(0x12, bytes.Repeat([]byte{0x12, 0}, 16<<20))) // 16 million spans, 32 MiB
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(
		"http://"+c.HTTPEndpoint()+"/v1/traces", "application/x-protobuf", bytes.NewReader(empty))
	testscale.Must(t, err)
	answer, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), "smaller parts") {
		t.Errorf("answered %s %.200q, want 400 and what to do", resp.Status, answer)
	}
}

// Connections that send half a request, or nothing, are closed. The times are set short here; those that hold unless a
// configuration has others are in otlpguard.
func TestHalfOpenConnectionsAreClosed(t *testing.T) {
	clean(t)
	grpcEndpoint, httpEndpoint := testscale.MustAddress(), testscale.MustAddress()
	name := filepath.Join(t.TempDir(), "collector.yaml")
	text := fmt.Sprintf(`
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: %q
        keepalive: {server_parameters: {time: 1s, timeout: 500ms}}
      http: {endpoint: %q, read_header_timeout: 500ms, read_timeout: 1s, idle_timeout: 1s}
exporters: {session: {path: %q}}
service:
  pipelines: {traces: {receivers: [otlp], exporters: [session]}}
  telemetry: {logs: {level: error}, metrics: {level: none}}
`, grpcEndpoint, httpEndpoint, filepath.Join(t.TempDir(), "sessions.db"))
	testscale.WriteFile(t, name, text)
	started(t, Options{Config: []string{name}})
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for name, tt := range map[string]struct{ endpoint, sent, want string }{
		"half a header": {httpEndpoint, "POST /v1/traces HTTP/1.1\r\nHost: local", ""},
		"half a body in protobuf": {httpEndpoint,
			"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: " +
				"1000\r\n\r\n\x0a", "503"},
		"half a body in JSON": {httpEndpoint,
			"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
				"1000\r\n\r\n{",
			"503"},
		"gRPC that answers no ping": {grpcEndpoint, preface, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", tt.endpoint)
			testscale.Must(t, err)
			defer conn.Close()
			if _, err := io.WriteString(conn, tt.sent); err != nil {
				t.Fatal(err)
			}
			conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			answer, err := io.ReadAll(bufio.NewReader(conn))
			if os.IsTimeout(err) {
				t.Fatal("the connection is still open")
			}
			if !strings.Contains(string(answer), tt.want) {
				t.Errorf("answered %q, want %s", answer, tt.want)
			}
		})
	}
}
