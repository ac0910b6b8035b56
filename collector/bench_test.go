package collector_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	sessions "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/spans"
)

// BenchmarkIngest sends the same requests over OTLP/gRPC, 512 spans of all kinds each, through several pipelines: to
// nothing, which is what receiving and sending cost; to the file exporter as JSON, the peer; and to the session store,
// where a request is answered when its rows are committed, from one, four and sixteen connections, and without looking
// for secrets.
//
// The floor is what the rows alone cost: those that the store has in the end, put into an empty store by one prepared
// statement each, 500 rows a transaction. Goals: the store costs at most 1.5 times the floor, and four connections at
// most 1.1 times what one costs.
//
// CPU is that of the whole process, loader included. All take turns, so that what else the machine does disturbs them
// alike: use -benchtime 5x.
func BenchmarkIngest(b *testing.B) {
	bodies, spanCount, payload := agentRequests(400)
	const session = "session: {path: %DIR%/sessions.db}"
	pipelines := []struct {
		name, exporter string
		connections    int
	}{
		{"nop", "nop: {}", 4},
		{"file-json", "file: {path: %DIR%/out.json, flush_interval: 100ms}", 4},
		{"conn1", session, 1},
		{"conn4", session, 4},
		{"conn16", session, 16},
		{"unredacted", "session: {path: %DIR%/sessions.db, redaction: {enabled: false}, truncation: {max_bytes: 0}}", 4},
	}
	cpu, spent := make(map[string]float64), make(map[string]time.Duration)
	measure := func(name string, do func()) {
		runtime.GC()
		from, begin := testscale.CPUSeconds(), time.Now()
		do()
		cpu[name] += testscale.CPUSeconds() - from
		spent[name] += time.Since(begin)
	}
	var size float64
	for range b.N {
		for _, p := range pipelines {
			dir := b.TempDir()
			endpoint, stop := startPipeline(b, strings.ReplaceAll(p.exporter, "%DIR%", dir))
			measure(p.name, func() { send(b, endpoint, bodies, p.connections) })
			stop()
			if p.name == "conn1" {
				size = fileSizes(b, dir)
				floor := newFloor(b, filepath.Join(dir, "sessions.db"))
				measure("floor", floor.put)
				floor.close()
			}
		}
	}
	report := func(value float64, name, unit string) { b.ReportMetric(value, name+":"+unit) }
	spans := float64(spanCount) * float64(b.N)
	for name := range cpu {
		report(cpu[name]/spans*1e5, name, "CPU-s/100k")
		report(spans/spent[name].Seconds(), name, "spans/s")
	}
	report(size/float64(payload), "file", "x-payload")
	report(cpu["conn1"]/cpu["floor"], "conn1", "x-floor")
	report(cpu["conn4"]/cpu["conn1"], "conn4", "x-conn1")
	report(cpu["conn16"]/cpu["conn1"], "conn16", "x-conn1")
}

// floor puts the rows of one store into another.
type floor struct {
	b      *testing.B
	conn   *sqlite.Conn
	tables []floorTable
}

type floorTable struct {
	insert string
	rows   [][]any
}

// newFloor reads the rows of the store at path, and makes an empty store.
func newFloor(b *testing.B, path string) *floor {
	b.Helper()
	f := &floor{b: b}
	empty := filepath.Join(b.TempDir(), "floor.db")
	s, err := sessions.Open(b.Context(), empty, sessions.Options{})
	if err == nil {
		err = s.Close()
	}
	if err == nil {
		f.conn, err = sqlite.OpenConn(empty, sqlite.OpenReadWrite|sqlite.OpenWAL)
	}
	testscale.Must(b, err)
	f.exec("PRAGMA synchronous = NORMAL")
	f.exec("PRAGMA foreign_keys = ON")
	f.exec("ATTACH '" + path + "' AS filled")
	var names []string
	f.query(`SELECT name FROM filled.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
 AND name <> 'agenttrace_schema' ORDER BY rowid`, func(row []any) { names = append(names, row[0].(string)) })
	for _, name := range names {
		var t floorTable
		f.query("SELECT * FROM filled."+name, func(row []any) { t.rows = append(t.rows, row) })
		if len(t.rows) > 0 {
			t.insert = "INSERT INTO main." + name + " VALUES (?" + strings.Repeat(", ?", len(t.rows[0])-1) + ")"
			f.tables = append(f.tables, t)
		}
	}
	f.exec("DETACH filled")
	return f
}

// put puts the rows.
func (f *floor) put() {
	n := 0
	f.exec("BEGIN IMMEDIATE")
	for _, t := range f.tables {
		stmt := f.conn.Prep(t.insert)
		for _, row := range t.rows {
			if n++; n%500 == 0 {
				f.exec("COMMIT")
				f.exec("BEGIN IMMEDIATE")
			}
			for i, v := range row {
				switch v := v.(type) {
				case nil:
					stmt.BindNull(i + 1)
				case int64:
					stmt.BindInt64(i+1, v)
				case float64:
					stmt.BindFloat(i+1, v)
				case string:
					stmt.BindText(i+1, v)
				case []byte:
					stmt.BindBytes(i+1, v)
				}
			}
			if _, err := stmt.Step(); err != nil {
				f.b.Fatal(err)
			}
			_ = stmt.Reset()
		}
	}
	f.exec("COMMIT")
}

func (f *floor) exec(statement string) {
	if err := sqlitex.ExecuteTransient(f.conn, statement, nil); err != nil {
		f.b.Fatal(err)
	}
}

func (f *floor) query(query string, fn func(row []any)) {
	err := sqlitex.ExecuteTransient(f.conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		row := make([]any, stmt.ColumnCount())
		for i := range row {
			switch stmt.ColumnType(i) {
			case sqlite.TypeInteger:
				row[i] = stmt.ColumnInt64(i)
			case sqlite.TypeFloat:
				row[i] = stmt.ColumnFloat(i)
			case sqlite.TypeText:
				row[i] = stmt.ColumnText(i)
			case sqlite.TypeBlob:
				blob := make([]byte, stmt.ColumnLen(i))
				stmt.ColumnBytes(i, blob)
				row[i] = blob
			}
		}
		fn(row)
		return nil
	}})
	if err != nil {
		f.b.Fatal(err)
	}
}

func (f *floor) close() {
	if err := f.conn.Close(); err != nil {
		f.b.Error(err)
	}
}

// startPipeline runs a collector with one exporter and returns its gRPC endpoint.
func startPipeline(b *testing.B, exporter string) (endpoint string, stop func()) {
	b.Helper()
	endpoint = testscale.MustAddress()
	name, _, _ := strings.Cut(exporter, ":")
	config := fmt.Sprintf(`
receivers: {otlp: {protocols: {grpc: {endpoint: %q, max_recv_msg_size_mib: 64}}}}
exporters: {%s}
service:
  pipelines: {traces: {receivers: [otlp], exporters: [%s]}}
  telemetry: {logs: {level: error}, metrics: {level: none}}
`, endpoint, exporter, name)
	r, err := collector.Start(b.Context(), collector.Options{Config: []string{"yaml:" + config}})
	testscale.Must(b, err)
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

func send(b *testing.B, endpoint string, bodies [][]byte, connections int) {
	b.Helper()
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

func fileSizes(b *testing.B, dir string) (sum float64) {
	b.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			sum += float64(info.Size())
		}
		return err
	})
	testscale.Must(b, err)
	return sum
}

// agentRequests is the work that the project's targets are set for: sessions of ten turns, a turn being a 500 byte
// question, two model calls, 1 KB of reasoning, four 3 KB tool calls and a 1 KB answer, as OTLP requests of 512 spans.
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
		if call, ok := record.(*spans.ModelCall); ok {
			s.SetName(record.Kind() + " " + call.Model.ModelID)
		}
		// Ids are random, as in life: that costs an index most.
		var traceID pcommon.TraceID
		var spanID pcommon.SpanID
		binary.LittleEndian.PutUint64(traceID[:], 0x9e3779b97f4a7c15*(trace+1))
		binary.LittleEndian.PutUint64(spanID[:], r.Uint64())
		s.SetTraceID(traceID)
		s.SetSpanID(spanID)
		s.SetStartTimestamp(pcommon.Timestamp(at * 1e6))
		s.SetEndTimestamp(pcommon.Timestamp((at + length) * 1e6))
		otlpfile.PutAttributes(s.Attributes(), spans.Append(nil, record))
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
		data := jsonscan.AppendString([]byte(`{"type":"`+kind+`","text":`), filler(r, size))
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
		for call := range int64(2) {
			add(&spans.ModelCall{SessionID: sessionID, MessageID: answer.ID, Index: &call, Model: model,
				StopReason: "stop", ResponseID: fmt.Sprintf("resp_%016x", r.Uint64()),
				Usage: spans.Usage{Tokens: &spans.Tokens{Input: 500, Output: 10}, Basis: semconv.BasisInclusive}},
				n, now.UnixMilli(), 20)
		}
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
