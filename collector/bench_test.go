package collector_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/freeport"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/sdkdata"
	"github.com/agenttrace/agenttrace/spans"
)

// BenchmarkIngest sends the same requests over OTLP/gRPC, 512 spans each on four
// connections, through three pipelines: to nothing, which is what receiving and
// sending cost; to the file exporter as JSON, the peer; and to the session store,
// where a request is answered when its rows are committed, with and without looking
// for secrets.
//
// CPU is that of the whole process, loader included, so the cost of an exporter
// is its figure less that of nop.
func BenchmarkIngest(b *testing.B) {
	const sessions = 400
	bodies, spanCount, payload := agentRequests(sessions)
	for _, peer := range []struct{ name, exporter string }{
		{"nop", "nop: {}"},
		{"file-json", "file: {path: %DIR%/out.json, flush_interval: 100ms}"},
		{"session", "session: {path: %DIR%/sessions.db}"},
		{"session without redaction",
			"session: {path: %DIR%/sessions.db, redaction: {enabled: false}, truncation: {max_bytes: 0}}"},
	} {
		b.Run(peer.name, func(b *testing.B) {
			b.SetBytes(payload)
			var cpu, size float64
			for range b.N {
				b.StopTimer()
				dir := b.TempDir()
				endpoint, stop := startPipeline(b, strings.ReplaceAll(peer.exporter, "%DIR%", dir))
				begin := cpuSeconds()
				b.StartTimer()
				send(b, endpoint, bodies)
				b.StopTimer()
				cpu += cpuSeconds() - begin
				stop()
				size = fileSizes(b, dir)
				b.StartTimer()
			}
			b.ReportMetric(float64(spanCount)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
			b.ReportMetric(cpu/float64(b.N)/float64(spanCount)*1e5, "CPU-s/100k")
			b.ReportMetric(size/float64(payload), "file/payload")
		})
	}
}

// startPipeline runs a collector with one exporter and returns its gRPC endpoint.
func startPipeline(b *testing.B, exporter string) (endpoint string, stop func()) {
	b.Helper()
	endpoint = freeport.MustAddress()
	name, _, _ := strings.Cut(exporter, ":")
	config := fmt.Sprintf(`
receivers: {otlp: {protocols: {grpc: {endpoint: %q, max_recv_msg_size_mib: 64}}}}
exporters: {%s}
service:
  pipelines: {traces: {receivers: [otlp], exporters: [%s]}}
  telemetry: {logs: {level: error}, metrics: {level: none}}
`, endpoint, exporter, name)
	r, err := collector.Start(b.Context(), collector.Options{Config: []string{"yaml:" + config}})
	if err != nil {
		b.Fatal(err)
	}
	return endpoint, func() {
		if err := r.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
	}
}

// rawCodec sends bytes as they are, so that the loader costs next to nothing.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func send(b *testing.B, endpoint string, bodies [][]byte) {
	b.Helper()
	const connections = 4
	work := make(chan []byte)
	var senders sync.WaitGroup
	for range connections {
		senders.Go(func() {
			conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallSendMsgSize(64<<20)))
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			for body := range work {
				var reply []byte
				if err := conn.Invoke(b.Context(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export", body,
					&reply); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, body := range bodies {
		work <- body
	}
	close(work)
	senders.Wait()
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func fileSizes(b *testing.B, dir string) (sum float64) {
	b.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			sum += float64(info.Size())
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

// agentRequests is the work that the project's targets are set for: sessions of
// ten turns, a turn being a 500 byte question, 1 KB of reasoning, four 3 KB tool
// calls and a 1 KB answer, as OTLP requests of 512 spans.
func agentRequests(sessions int) (bodies [][]byte, spanCount int, payload int64) {
	r := rand.New(rand.NewPCG(1, 2))
	td := ptrace.NewTraces()
	flush := func() {
		body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
		if err != nil {
			panic(err)
		}
		bodies, payload = append(bodies, body), payload+int64(len(body))
		td = ptrace.NewTraces()
	}
	var into ptrace.SpanSlice
	add := func(record spans.SpanData, trace uint64, at, length int64) {
		if td.SpanCount() == 512 {
			flush()
		}
		if td.ResourceSpans().Len() == 0 {
			ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
			ss.Scope().SetName(semconv.ScopeName)
			into = ss.Spans()
		}
		spanCount++
		s := into.AppendEmpty()
		s.SetName(record.Kind())
		s.SetTraceID(pcommon.TraceID{0: 1, 7: byte(trace >> 8), 8: byte(trace)})
		s.SetSpanID(pcommon.SpanID{0: 1, 3: byte(spanCount >> 24), 4: byte(spanCount >> 16), 5: byte(spanCount >> 8),
			6: byte(spanCount)})
		s.SetStartTimestamp(pcommon.Timestamp(at * 1e6))
		s.SetEndTimestamp(pcommon.Timestamp((at + length) * 1e6))
		sdkdata.PutAttributes(s.Attributes(), record.Append(nil))
	}
	for n := range sessions {
		session(r, uint64(n), add)
	}
	if td.SpanCount() > 0 {
		flush()
	}
	return bodies, spanCount, payload
}

func session(r *rand.Rand, n uint64, add func(spans.SpanData, uint64, int64, int64)) {
	now := time.UnixMilli(1_795_198_540_000 + int64(n)*2000)
	sessionID := spans.NewID(spans.PrefixSession, now)
	model := spans.Model{ProviderID: "openai", ModelID: "gpt-5-mini"}
	text := func(kind string, size int, index int64) spans.Part {
		data := spans.AppendJSONString([]byte(`{"type":"`+kind+`","text":`), filler(r, size))
		return spans.Part{ID: spans.NewID(spans.PrefixPart, now), Index: index, Type: kind, CreatedAt: now.UnixMilli(),
			UpdatedAt: now.UnixMilli(), Data: append(data, '}')}
	}
	begin := now
	for turn := range int64(10) {
		user := spans.Message{ID: spans.NewID(spans.PrefixMessage, now), CreatedAt: now.UnixMilli(),
			Parts: []spans.Part{text("text", 500, 0)}}
		answer := spans.Message{ID: spans.NewID(spans.PrefixMessage, now), CreatedAt: now.UnixMilli(),
			Parts: []spans.Part{text("reasoning", 1000, 0)}}
		for index := int64(1); index <= 4; index++ {
			tool := &spans.ToolCall{SessionID: sessionID, ToolID: "bash", CallID: fmt.Sprintf("call_%016x", r.Uint64()),
				MessageID: answer.ID,
				PartID:    spans.NewID(spans.PrefixPart, now), PartIndex: &index, State: "output-available",
				Input: `{"cmd":"` + filler(r, 200) + `"}`, Output: `{"stdout":"` + filler(r, 2700) + `"}`}
			if turn%5 == 0 && index == 1 {
				add(&spans.Permission{SessionID: sessionID, ID: spans.NewID(spans.PrefixPermission, now),
					ToolID: "bash",
					CallID: tool.CallID, MessageID: answer.ID,
					PartID: tool.PartID, Pattern: "*", Action: semconv.ActionAllow, Source: semconv.SourceSession,
					Outcome: semconv.OutcomeAllowed}, n, now.UnixMilli(), 0)
			}
			add(tool, n, now.UnixMilli(), 8)
			answer.Parts = append(answer.Parts, spans.Part{ID: tool.PartID, Index: index, Type: "tool-bash",
				ToolCallID: tool.CallID, ToolState: tool.State,
				CreatedAt: now.UnixMilli(), UpdatedAt: now.UnixMilli() + 8})
			now = now.Add(10 * time.Millisecond)
		}
		answer.Parts = append(answer.Parts, text("text", 1000, 5))
		add(&spans.Turn{SessionID: sessionID, Agent: "coder", Index: &turn, Model: model, ModelCalls: 2,
			StopReason: "stop",
			EndReason:  semconv.EndFinish,
			Usage: spans.Usage{Tokens: &spans.Tokens{Input: 1000, Output: 20, Reasoning: 5, CacheRead: 40},
				Basis: semconv.BasisInclusive},
			User: user, Assistant: answer}, n, user.CreatedAt, 50)
		if turn == 7 {
			add(&spans.Compaction{SessionID: sessionID, SummarizedMessages: 10,
				MessageID:        spans.NewID(spans.PrefixMessage, now),
				MessageCreatedAt: now.UnixMilli(),
				PartID:           spans.NewID(spans.PrefixPart, now), Summary: filler(r, 800), SummaryTokens: 200,
				Auto:        true,
				TailStartID: user.ID}, n, now.UnixMilli(), 5)
		}
		now = now.Add(60 * time.Millisecond)
	}
	add(&spans.Run{SessionID: sessionID, Agent: "coder", Title: "a title", Model: model, Outcome: semconv.EndFinish,
		CreatedAt: begin.UnixMilli()}, n,
		begin.UnixMilli(), now.Sub(begin).Milliseconds())
}

// filler makes n bytes that look like program output.
func filler(r *rand.Rand, n int) string {
	const words = "the quick func returns error nil while reading file main.go line value string expected got test " +
		"passed "
	var b strings.Builder
	for b.Len() < n {
		i := r.IntN(len(words) - 12)
		b.WriteString(words[i : i+12])
	}
	return b.String()[:n]
}
