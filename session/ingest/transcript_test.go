package ingest_test

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	programs "github.com/agenttrace/agenttrace/session/codec/transcripts"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
)

// The transcripts that two programs kept of the runs whose telemetry was captured.
const (
	claudeTranscript = `{"type":"user","sessionId":"ef8b65a1-f918-492b-ab49-64ed656ea4c5","uuid":"9e2458a6-4121-4270-a1aa-19a31ad4e9fc","promptId":"535dbdcb-308b-46c6-90e3-7d0b086f5b0a","cwd":"/w","version":"2.1.329","timestamp":"2026-11-20T18:19:17.335Z","message":{"role":"user","content":"List the files here"}}
{"type":"assistant","sessionId":"ef8b65a1-f918-492b-ab49-64ed656ea4c5","uuid":"a1","requestId":"req_5","timestamp":"2026-11-20T18:19:18.010Z","message":{"id":"msg_5","model":"claude-opus-5-5","content":[{"type":"thinking","thinking":"the user wants a listing"},{"type":"tool_use","id":"toolu_5","name":"Bash","input":{"command":"ls -la","description":"List files"}}],"stop_reason":"tool_use","usage":{"input_tokens":305,"output_tokens":42,"cache_read_input_tokens":640,"cache_creation_input_tokens":120}}}
{"type":"user","sessionId":"ef8b65a1-f918-492b-ab49-64ed656ea4c5","uuid":"a2","timestamp":"2026-11-20T18:19:18.101Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_5","content":"main.go"}]}}
{"type":"assistant","sessionId":"ef8b65a1-f918-492b-ab49-64ed656ea4c5","uuid":"a3","requestId":"req_6","timestamp":"2026-11-20T18:19:18.140Z","message":{"id":"msg_6","model":"claude-opus-5-5","content":[{"type":"text","text":"All done: the listing has been read. "}],"stop_reason":"end_turn","usage":{"input_tokens":306,"output_tokens":42,"cache_read_input_tokens":640,"cache_creation_input_tokens":120}}}
`
	codexTranscript = `{"timestamp":"2026-11-20T18:19:14.400Z","type":"session_meta","payload":{"id":"01a1fa2f-1e4a-7b31-a55d-4564d5182253","cwd":"/home/dev/project","model_provider":"fake","base_instructions":{"text":"be brief"}}}
{"timestamp":"2026-11-20T18:19:14.410Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>x</environment_context>"}]}}
{"timestamp":"2026-11-20T18:19:14.430Z","type":"event_msg","payload":{"type":"task_started","turn_id":"01a1fa2f-1e6a-7be1-9dc2-f4de804e6548"}}
{"timestamp":"2026-11-20T18:19:14.435Z","type":"turn_context","payload":{"turn_id":"01a1fa2f-1e6a-7be1-9dc2-f4de804e6548","model":"fake-model","approval_policy":"never","sandbox_policy":{"type":"danger-full-access"}}}
{"timestamp":"2026-11-20T18:19:14.440Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"List the files here"}]}}
{"timestamp":"2026-11-20T18:19:14.580Z","type":"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls -la\"}","call_id":"call_3"}}
{"timestamp":"2026-11-20T18:19:14.583Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"total_tokens":1243},"last_token_usage":{"input_tokens":1203,"cached_input_tokens":800,"output_tokens":40,"reasoning_output_tokens":16,"total_tokens":1243}}}}
{"timestamp":"2026-11-20T18:19:15.385Z","type":"response_item","payload":{"type":"function_call_output","call_id":"call_3","output":"main.go"}}
{"timestamp":"2026-11-20T18:19:15.404Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"There is one file."}]}}
{"timestamp":"2026-11-20T18:19:15.405Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"total_tokens":2487},"last_token_usage":{"input_tokens":1204,"cached_input_tokens":800,"output_tokens":40,"reasoning_output_tokens":16,"total_tokens":1244}}}}
{"timestamp":"2026-11-20T18:19:15.414Z","type":"event_msg","payload":{"type":"task_complete","turn_id":"01a1fa2f-1e6a-7be1-9dc2-f4de804e6548","duration_ms":988}}
`
)

type transcriptDecoder = func(report func(codec.Problem)) iter.Seq2[*codec.Session, error]

// imported reads the one session of a transcript.
func imported(t testing.TB, decode transcriptDecoder) *store.Imported {
	t.Helper()
	for s, err := range decode(func(p codec.Problem) { t.Error(p) }) {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Fatal("no session")
	return nil
}

// joinedRun is a run of which there are telemetry and a transcript.
type joinedRun struct {
	capture string
	decode  transcriptDecoder
	want    []string // a line per part
	facts   []string // in the answer's metadata
}

// compare returns the differences of the one session in the store.
func (r *joinedRun) compare(t *testing.T, s *sqlitestore.Store) {
	t.Helper()
	var got []string
	metadata := ""
	for row, err := range s.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			t.Fatal(err)
		}
		tr, err := s.Transcript(t.Context(), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range tr.Messages {
			if m.Message.Role == session.RoleAssistant {
				metadata += m.Message.MetadataJSON
			}
			for _, p := range m.Parts {
				data := p.DataJSON
				if p.ToolState != nil {
					data = p.Type + " " + *p.ToolState
				}
				got = append(got, m.Message.Role+" "+data)
			}
		}
	}
	if d := cmp.Diff(r.want, got); d != "" {
		t.Errorf("parts (-want +got):\n%s", d)
	}
	for _, want := range r.facts {
		if !strings.Contains(metadata, want) {
			t.Errorf("no %s in %s", want, metadata)
		}
	}
}

// TestTranscriptAndTelemetryAreOneSession has the transcript and the telemetry of one
// run be one session with the facts of both, whichever comes first and however often.
func TestTranscriptAndTelemetryAreOneSession(t *testing.T) {
	for name, tt := range map[string]joinedRun{
		"claude-code": {
			"claude-code-2.1.329/print-bash",
			func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return programs.Claude.Decode(strings.NewReader(claudeTranscript), report)
			},
			[]string{
				`user {"type":"text","text":"List the files here"}`,
				`assistant {"type":"reasoning","text":"the user wants a listing"}`,
				`assistant tool-Bash output-available`,
				`assistant {"type":"step-start"}`,
				`assistant {"type":"text","text":"All done: the listing has been read. "}`,
			},
			[]string{`"usage":{"input":611,"output":84,"reasoning":0,"cache_read":1280,"cache_write":240}`,
				`"model_calls":2`,
				`"cost_usd":0.00558`,
				`"sources":["claude-code","claude-code transcript"]`, `"duration_ms":806`},
		},
		"codex": {
			"codex-cli-0.169.0/exec-shell",
			func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return programs.Codex.Decode(strings.NewReader(codexTranscript), report)
			},
			[]string{
				`system {"type":"text","text":"<environment_context>x</environment_context>"}`,
				`user {"type":"text","text":"List the files here"}`,
				`assistant tool-exec_command output-available`,
				`assistant {"type":"step-start"}`,
				`assistant {"type":"text","text":"There is one file."}`,
			},
			[]string{`"usage":{"input":807,"output":48,"reasoning":32,"cache_read":1600,"cache_write":0}`,
				`"model_calls":2`,
				`"end_reason":"finish"`,
				`"sources":["codex","codex transcript"]`, `"duration_ms":988`, `"system_prompt_digest"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			telemetry := readCapture(t, "testdata/captures/"+tt.capture)
			single := split(telemetry)
			half := len(single) / 2
			steps := map[string]func(*sqlitestore.Store){
				"telemetry": func(s *sqlitestore.Store) { deliver(t, s, telemetry) },
				"begins":    func(s *sqlitestore.Store) { deliver(t, s, single[:half]) },
				"ends":      func(s *sqlitestore.Store) { deliver(t, s, single[half:]) },
				"reversed": func(s *sqlitestore.Store) {
					order := slices.Clone(single)
					slices.Reverse(order)
					deliver(t, s, order)
				},
				"rows": func(s *sqlitestore.Store) { // as an import into a store without telemetry has it
					if _, err := s.Import(t.Context(), imported(t, tt.decode)); err != nil {
						t.Fatal(err)
					}
				},
				"transcript": func(s *sqlitestore.Store) {
					if _, err := ingest.New(s, ingest.Options{}).Transcript(t.Context(),
						imported(t, tt.decode)); err != nil {
						t.Fatal(err)
					}
				},
			}
			want := ""
			for _, order := range []string{
				"telemetry transcript", "rows telemetry", "begins transcript ends", "rows reversed",
				"telemetry transcript transcript telemetry",
				"rows begins transcript ends transcript",
			} {
				s := openStore(t)
				for _, step := range strings.Fields(order) {
					steps[step](s)
				}
				check(t, s)
				got := dump(t, s.Path())
				if want == "" {
					want = got
					tt.compare(t, s)
				} else if got != want {
					t.Errorf("%s: tables differ (-want +got):\n%s", order,
						cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
				}
			}
		})
	}
}
