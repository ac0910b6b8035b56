package ingest

import (
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/store"
)

// watcher is a store that looks for secrets in what it is given.
type watcher struct {
	t    *testing.T
	file string
	pass int
	rows int
}

func (w *watcher) Apply(_ context.Context, b *store.Batch) (store.Result, error) {
	w.rows += b.Len()
	var found []string
	leaks(reflect.ValueOf(*b), "batch", &found)
	// Facts are compressed, and assembled into rows by what is kept of them.
	if len(b.Observations) > 0 {
		assembled, err := b.Assemble(&store.Window{Owner: "ses", Observations: b.Observations})
		if err != nil {
			w.t.Errorf("%s: %v", w.file, err)
		}
		leaks(reflect.ValueOf(assembled), "assembly", &found)
	}
	// Words that were joined are no list any more.
	found = slices.DeleteFunc(found, func(s string) bool { return joinedWords.MatchString(s) })
	if len(found) > 0 {
		w.t.Errorf("%s, pass %d: %s", w.file, w.pass, strings.Join(found[:min(3, len(found))], "\n"))
	}
	return store.Result{}, nil
}

// plantValues puts a secret into every text below m for which the place is chosen.
func plantValues(m pcommon.Map, chosen func() bool, plant func(v pcommon.Value)) {
	for _, v := range m.All() {
		plantValue(v, chosen, plant)
	}
}

func plantValue(v pcommon.Value, chosen func() bool, plant func(v pcommon.Value)) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		if chosen() {
			plant(v)
		}
	case pcommon.ValueTypeMap:
		plantValues(v.Map(), chosen, plant)
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			plantValue(e, chosen, plant)
		}
	}
}

// plants are how a secret is put into a text: behind it, where JSON stays JSON, and as an argument of a process.
var plants = [...]func(v pcommon.Value){
	func(v pcommon.Value) {
		if head, ok := strings.CutSuffix(v.Str(), `"}]`); ok {
			v.SetStr(head + " " + plantedSecret + `"}]`)
		} else {
			v.SetStr(v.Str() + " " + plantedSecret)
		}
	},
	func(v pcommon.Value) {
		if s := v.Str(); len(s) > 1 && json.Valid([]byte(s)) && strings.ContainsAny(s[:1], "[{") {
			v.SetStr(jsonText.ReplaceAllString(s, "$1"+plantedArguments))
		} else {
			v.SetStr(plantedArguments)
		}
	},
	func(v pcommon.Value) { _ = v.FromRaw([]any{"sshpass", "-p", "Wq8zT3nR5mK1", "ssh", "host"}) },
}

// jsonText is the value of a member of JSON, or an element, which is a text, with what is before it.
var jsonText = regexp.MustCompile(`("(?:content|text|input|output|result|arguments|parts|body|args)" ?: ?)"(?:[^"\\]|\\.)*"`)

var joinedWords = regexp.MustCompile(`(?s)sshpass.{0,6}-p.{0,6}Wq8`)

const plantedArguments = `["sshpass","-p","Wq8zT3nR5mK1","ssh","host"]`

const plantedSecret = "ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"

// Whatever an agent's telemetry reports, and under whatever key, a secret in it is neither stored nor assembled into a
// row. Each of three passes plants into another third of the texts, so that spans are recognized by the rest.
func TestNoCaptureIsStoredWithASecret(t *testing.T) {
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	files, err := filepath.Glob("testdata/captures/*/*/*-*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("captures %q: %v", files, err)
	}
	stored := 0
	for _, file := range files {
		raw := testscale.ReadFile(t, file)
		for pass := range 3 * len(plants) {
			n, plant := pass, plants[pass/3]
			chosen := func() bool { n++; return n%3 == 0 }
			w := &watcher{t: t, file: file, pass: pass}
			in := New(w, Options{Redactor: r})
			var report Report
			if strings.HasSuffix(file, "-logs.json") {
				ld, err := new(plog.JSONUnmarshaler).UnmarshalLogs(raw)
				testscale.Must(t, err)
				for _, rl := range ld.ResourceLogs().All() {
					plantValues(rl.Resource().Attributes(), chosen, plant)
					for _, sl := range rl.ScopeLogs().All() {
						for _, rec := range sl.LogRecords().All() {
							plantValues(rec.Attributes(), chosen, plant)
							plantValue(rec.Body(), chosen, plant)
						}
					}
				}
				report, err = in.Logs(t.Context(), ld)
				testscale.Must(t, err)
			} else {
				td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(raw)
				testscale.Must(t, err)
				for _, rs := range td.ResourceSpans().All() {
					plantValues(rs.Resource().Attributes(), chosen, plant)
					for _, ss := range rs.ScopeSpans().All() {
						for _, s := range ss.Spans().All() {
							plantValues(s.Attributes(), chosen, plant)
							for _, e := range s.Events().All() {
								plantValues(e.Attributes(), chosen, plant)
							}
						}
					}
				}
				report, err = in.Traces(t.Context(), td)
				testscale.Must(t, err)
			}
			stored += w.rows
			if problems := strings.Join(report.Problems, "\n"); strings.Contains(problems, "aZ3kQ9xW7mB2") {
				t.Errorf("%s: reported: %s", file, problems)
			}
		}
	}
	if stored < 500 {
		t.Errorf("only %d rows were looked at", stored)
	}
}
