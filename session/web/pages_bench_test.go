package web_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/web"
)

// longSession is a session as coding agents have them: a turn is a question of 500 bytes and an answer with a thought,
// a text and four calls of 3 KB, of which one in 40 fails; with a span for each model call and tool call, a decision
// for each tool call and a compaction every 100 turns.
func longSession(id string, turns int) *store.Imported {
	in := &store.Imported{Transcript: &session.Transcript{Session: session.Session{ID: id, Title: "A session of " +
		fmt.Sprint(turns) + " turns", Agent: "tester", PermissionsJSON: "[]", MetadataJSON: "{}", CreatedAt: began,
		UpdatedAt: began + int64(turns)*1000}}}
	body := strings.Repeat("some output of a tool ", 120)
	for n := range turns {
		at := began + int64(n)*1000
		add := func(message, role, metadata string, parts ...string) {
			m := session.MessageAndParts{Message: session.Message{ID: message, SessionID: id, Role: role,
				MetadataJSON: metadata, CreatedAt: at, UpdatedAt: at}}
			for i, data := range parts {
				kind, _, _ := strings.Cut(strings.TrimPrefix(data, `{"type":"`), `"`)
				p := session.Part{ID: fmt.Sprintf("%s_%d", message, i), MessageID: message, SessionID: id,
					Index: int64(i),
					Type:  kind, DataJSON: data, CreatedAt: at, UpdatedAt: at}
				if session.IsToolType(kind) {
					call, state := fmt.Sprintf("call_%s_%d", message, i), session.StateOutputAvailable
					if strings.Contains(data, `"output-error"`) {
						state = session.StateOutputError
					}
					p.ToolCallID, p.ToolState = &call, &state
					p.DataJSON = strings.Replace(data, "CALL", call, 1)
					in.Decisions = append(in.Decisions,
						store.Decision{ID: "per_" + p.ID, SessionID: id, MessageID: message,
							PartID: p.ID, ToolCallID: call, ToolID: "bash", Action: "allow", Outcome: "allowed",
							DecidedAt: at})
					in.SpanRefs = append(in.SpanRefs, store.SpanRef{TraceID: fmt.Sprintf("%032x", n+1),
						SpanID: fmt.Sprintf("%016x", n*10+i+1), SessionID: id, MessageID: message, PartID: p.ID,
						Kind:    "tool.call",
						Dialect: store.DialectSDK, StartNano: at * 1e6, EndNano: at*1e6 + 5e6})
				}
				m.Parts = append(m.Parts, p)
			}
			in.Messages = append(in.Messages, m)
			at++
		}
		question := fmt.Sprintf(`{"type":"text","text":"Question %d %s"}`, n, strings.Repeat("of a user ", 48))
		add(fmt.Sprintf("msg_%s_%06d_a", id, n), session.RoleUser, "{}", question)
		parts := []string{`{"type":"reasoning","text":"` + strings.Repeat("a thought ", 100) + `"}`}
		for k := range 4 {
			state := `"state":"output-available","output":"` + body + `"`
			if (n*4+k)%40 == 7 {
				state = `"state":"output-error","errorText":"` + body + `"`
			}
			parts = append(parts, `{"type":"tool-bash","toolCallId":"CALL",`+state+`,"input":{"command":"make `+
				fmt.Sprint(k)+
				`"},"toolMetadata":{"agenttrace":{"duration_ms":5}}}`)
		}
		parts = append(parts, `{"type":"text","text":"`+strings.Repeat("**Answer** with words. ", 44)+`"}`)
		digest := fmt.Sprintf("%064x", n/1000)
		answer := fmt.Sprintf("msg_%s_%06d_b", id, n)
		add(answer, session.RoleAssistant, fmt.Sprintf(`{"model":{"provider_id":"anthropic",`+
			`"model_id":"claude-opus-4"},`+
			`"usage":{"input":1200,"output":300,"reasoning":100,"cache_read":9000,"cache_write":500},`+
			`"system_prompt_digest":"%s",`+
			`"agenttrace":{"turn_index":%d,"end_reason":"finish","stop_reason":"stop","model_calls":5,`+
			`"duration_ms":900,`+
			`"tool_catalog_digest":"%s","cost_usd":0.0125,"usage_basis":"exclusive"}}`, digest, n, digest), parts...)
		in.SpanRefs = append(in.SpanRefs,
			store.SpanRef{TraceID: fmt.Sprintf("%032x", n+1), SpanID: fmt.Sprintf("%016x", n*10),
				SessionID: id, MessageID: answer, Kind: "session.turn", Dialect: store.DialectSDK, StartNano: at * 1e6,
				EndNano: at*1e6 + 9e8})
		if n%100 == 99 {
			add(fmt.Sprintf("msg_%s_%06d_c", id, n), session.RoleAssistant, `{"compaction":true,"usage":{"input":500}}`,
				`{"type":"data-compaction","data":{"summary":"so far","tail_start_id":null,"auto":true,`+
					`"summary_tokens":500}}`)
		}
	}
	return in
}

// BenchmarkPages loads pages of sessions of 10, 500 and 5,000 turns. A turn must cost about the same in each. The floor
// reads the rows that the page of a turn shows.
func BenchmarkPages(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "s.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	pages := web.New(web.Backend{Sessions: document.Reader{Reader: s}}, web.Options{})
	for _, turns := range []int{10, 500, 5000} {
		id := fmt.Sprintf("ses_%d", turns)
		if _, err := s.Import(b.Context(), longSession(id, turns)); err != nil {
			b.Fatal(err)
		}
		middle := turns / 2
		part := fmt.Sprintf("msg_%s_%06d_b", id, middle)
		for _, c := range []struct{ name, path string }{
			{"session", "/s/" + id}, {"older", fmt.Sprintf("/s/%s?at=%d", id, max(1, middle-10))},
			{"turn", fmt.Sprintf("/s/%s/t/%d", id, middle)}, {"context", fmt.Sprintf("/s/%s/t/%d/context", id, middle)},
			{"part", fmt.Sprintf("/s/%s/p/%s/%s_1", id, part, part)}, {"next", "/s/" + id + "/next?kind=error"},
		} {
			b.Run(fmt.Sprintf("%s-%d", c.name, turns), func(b *testing.B) { measure(b, pages, c.path) })
		}
		b.Run(fmt.Sprintf("floor-%d", turns), func(b *testing.B) {
			for range b.N {
				if _, err := s.Excerpt(b.Context(), id, store.ExcerptQuery{Messages: []string{part}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, path := range []string{"/now", "/sessions"} {
		b.Run(path[1:], func(b *testing.B) { measure(b, pages, path) })
	}
}

// measure reports how long a page takes, the median, and its size.
func measure(b *testing.B, pages http.Handler, path string) {
	var took []time.Duration
	var body []byte
	used := cpuSeconds()
	for range b.N {
		begin := time.Now()
		answer := httptest.NewRecorder()
		pages.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		took = append(took, time.Since(begin))
		if answer.Code >= http.StatusBadRequest {
			b.Fatalf("%s: %d %s", path, answer.Code, answer.Body)
		}
		body = answer.Body.Bytes()
	}
	used = cpuSeconds() - used
	slices.Sort(took)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(body); err != nil || z.Close() != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(used/float64(b.N)*1000, "CPU-ms/op")
	b.ReportMetric(float64(len(body)), "bytes")
	b.ReportMetric(float64(packed.Len()), "gzipped-bytes")
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
