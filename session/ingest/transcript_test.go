package ingest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	programs "github.com/agenttrace/agenttrace/session/codec/transcripts"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// imported reads the one session of a transcript that a program kept of a run whose telemetry was captured.
func imported(t testing.TB, name string, decode codec.FileDecoder) *store.Imported {
	t.Helper()
	path := "testdata/joined/" + name + ".jsonl"
	for s, err := range decode(t.Context(), path, nil, func(p codec.Problem) { t.Error(p) }) {
		testscale.Must(t, err)
		return s
	}
	t.Fatal("no session")
	return nil
}

// joinedRun is a run of which there are telemetry and a transcript.
type joinedRun struct {
	capture string
	decode  codec.FileDecoder
	want    []string // a line per part
	facts   []string // in the answer's metadata
}

// compare returns the differences of the one session in the store.
func (r *joinedRun) compare(t *testing.T, s *sqlitestore.Store) {
	t.Helper()
	var got []string
	metadata := ""
	for _, tr := range rowsOf(t, s) {
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
			programs.Claude.DecodeFile,
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
			programs.Codex.DecodeFile,
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
		"copilot-cli": {
			"copilot-cli-1.0.102/background",
			programs.Copilot.DecodeFile,
			[]string{
				`user {"type":"text","text":"LEAD: Count the ducks"}`,
				`user {"type":"data-context","data":{"text":"<current_datetime>2026-11-26T22:57:16.582+00:00` +
					`</current_datetime>"}}`,
				`assistant tool-task output-available`,
				`assistant {"type":"step-start"}`,
				`assistant {"type":"text","text":"I wait."}`,
				`system {"type":"text","text":"<system_notification>\nAgent \"ducks\" (general-purpose) has finished ` +
					`processing and is now idle.\n</system_notification>"}`,
				`assistant tool-read_agent output-available`,
				`assistant {"type":"step-start"}`,
				`assistant {"type":"text","text":"Two ducks, says the helper."}`,
				`assistant {"type":"text","text":"Two ducks."}`,
			},
			[]string{`"model_calls":1`},
		},
		"qwen-code": {
			"qwen-code-0.24.4/background",
			programs.Qwen.DecodeFile,
			[]string{
				`user {"type":"text","text":"LEAD: Count the ducks"}`,
				`assistant {"type":"text","text":"I ask."}`,
				`assistant tool-agent output-available`,
				`assistant {"type":"step-start"}`,
				`assistant {"type":"text","text":"I wait for the helper."}`,
				`system {"type":"text","text":"<task-notification>\n<task-id>general-purpose-call_bg</task-id>\n` +
					`<status>completed</status>\n<result>Two ducks.</result>\n</task-notification>"}`,
				`assistant {"type":"text","text":"It counted two ducks."}`,
				`user {"type":"text","text":"Count the ducks."}`,
				`user {"type":"data-context","data":{"text":"<system-reminder>x</system-reminder>"}}`,
				`user {"type":"data-context","data":{"text":"<system-reminder>x</system-reminder>"}}`,
				`assistant {"type":"text","text":"Two ducks."}`,
			},
			[]string{`"sources":["qwen-code","qwen-code transcript"]`},
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
					if _, err := s.Import(t.Context(), imported(t, name, tt.decode)); err != nil {
						t.Fatal(err)
					}
				},
				"transcript": func(s *sqlitestore.Store) {
					if _, err := ingest.New(s, ingest.Options{}).Transcript(t.Context(),
						imported(t, name, tt.decode)); err != nil {
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
				storetest.CheckSessions(t, s)
				got := dump(t, s.Path())
				if want == "" {
					want = got
					tt.compare(t, s)
				} else if got != want {
					t.Errorf("%s: tables differ (-want +got):\n%s", order,
						differ(want, got))
				}
			}
		})
	}
}
