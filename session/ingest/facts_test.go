package ingest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// TestFacts reads the spans and records of testdata/facts, a file for each dialect. A section
// has some in the form of parseText, and behind => the dialect that reads them and the facts
// that it gives, without what those share with the span or record. A dash is no dialect.
func TestFacts(t *testing.T) {
	for file, archive := range factFiles(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if len(bytes.TrimSpace(archive.Comment)) == 0 {
			t.Errorf("%s has no description", name)
		}
		for i, section := range archive.Files {
			t.Run(name+"/"+section.Name, func(t *testing.T) {
				given, _ := splitFacts(section.Data)
				got := new(strings.Builder)
				for _, r := range parsed(t, given) {
					eachSource(r, func(read func() reading) { writeFacts(t, got, read()) })
				}
				archive.Files[i].Data = []byte(given + got.String())
			})
		}
		codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
	}
}

func factFiles(t *testing.T) map[string]*txtar.Archive {
	t.Helper()
	files, err := filepath.Glob("testdata/facts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no facts", err)
	}
	all := make(map[string]*txtar.Archive)
	for _, file := range files {
		if all[file], err = txtar.ParseFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// splitFacts parts what is given from the facts.
func splitFacts(section []byte) (given, want string) {
	given, want, _ = strings.Cut(string(section), "\n=>")
	if want != "" {
		want = "=>" + want
	}
	return strings.TrimSuffix(given, "\n") + "\n", want
}

func parsed(t *testing.T, text string) []request {
	t.Helper()
	all, err := parseText(text, "")
	testscale.Must(t, err)
	return all
}

// reading is what a dialect gives of a span or record, which has these times.
type reading struct {
	dialect    string
	facts      []fact.Fact
	start, end int64
}

// eachSource calls f with what reads a span or record of a request.
func eachSource(r request, f func(read func() reading)) {
	keys := dialect.NewKeys(nil)
	if r.isLogs {
		testscale.EachRecord(r.logs, func(lr plog.LogRecord, scope pcommon.InstrumentationScope,
			resource pcommon.Resource) {
			f(func() reading {
				record := dialect.NewRecord(lr, scope, resource)
				var out dialect.Emitter
				d := dialect.OfRecord(&record)
				if d == nil {
					return reading{dialect: "-"}
				}
				out.OpenRecord(d, &record, keys)
				d.ReadRecord(&record, &out)
				return reading{d.Name, out.All, int64(lr.Timestamp()), int64(lr.Timestamp())}
			})
		})
		return
	}
	testscale.EachSpan(r.traces, func(s ptrace.Span, scope pcommon.InstrumentationScope, resource pcommon.Resource) {
		f(func() reading {
			span := dialect.NewSpan(s, scope, resource)
			var out dialect.Emitter
			d := dialect.OfSpan(&span)
			if d == nil {
				return reading{dialect: "-"}
			}
			out.OpenSpan(d, &span, keys)
			d.ReadSpan(&span, &out)
			return reading{d.Name, out.All, int64(s.StartTimestamp()), int64(s.EndTimestamp())}
		})
	})
}

// writeFacts writes a line for each fact, as JSON with the texts that a fact does not store. Times are
// nanoseconds after those of the source.
func writeFacts(t *testing.T, to *strings.Builder, r reading) {
	t.Helper()
	fmt.Fprintf(to, "=> %s\n", r.dialect)
	for _, f := range r.facts {
		f.TraceID, f.SpanID, f.ParentID, f.Name = "", "", "", ""
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		err := e.Encode(struct {
			fact.Fact
			Dialect string          `json:"dialect,omitempty"`
			Start   int64           `json:"start,omitempty"`
			End     int64           `json:"end,omitempty"`
			System  string          `json:"system,omitempty"`
			Catalog json.RawMessage `json:"catalog,omitempty"`
		}{Fact: f, Start: f.Start - r.start, End: f.End - r.end, System: f.SystemPrompt,
			Catalog: json.RawMessage(f.ToolCatalog)})
		testscale.Must(t, err)
		to.Write(line.Bytes())
	}
}

// TestFactsOfOddValues: whatever the type or the text of a value is, and wherever it is cut, what
// has it is read into valid JSON.
func TestFactsOfOddValues(t *testing.T) {
	for name, archive := range factFiles(t) {
		for _, section := range archive.Files {
			given, _ := splitFacts(section.Data)
			for _, r := range parsed(t, given) {
				maps := attributesOf(r)
				eachSource(r, func(read func() reading) {
					for _, m := range maps {
						for key, value := range m.AsRaw() {
							for _, odd := range oddValues(fmt.Sprint(value)) {
								v, _ := m.Get(key)
								_ = v.FromRaw(odd)
								for _, f := range read().facts {
									_, err := json.Marshal(f)
									if err != nil || f.ToolCatalog != "" && !json.Valid([]byte(f.ToolCatalog)) {
										t.Errorf("%s: %s: %s as %v: %v, catalog %s", name, section.Name, key, odd, err,
											f.ToolCatalog)
									}
								}
								_ = v.FromRaw(value)
							}
						}
					}
				})
			}
		}
	}
}

// attributesOf returns the attributes of a request with one span or record.
func attributesOf(r request) (all []pcommon.Map) {
	if r.isLogs {
		testscale.EachRecord(r.logs, func(r plog.LogRecord, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
			all = append(all, r.Attributes())
		})
		return all
	}
	testscale.EachSpan(r.traces, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		all = append(all, s.Attributes())
		for _, e := range s.Events().All() {
			all = append(all, e.Attributes())
		}
	})
	return all
}

func oddValues(whole string) []any {
	return []any{nil, true, 1.5, 1e308, -3, "", "null", "[]", "{", "[[]]", "[null]", "{}", `{"args":{},"kwargs":[]}`,
		`{"output":{"lc":1,"kwargs":7},"kwargs":{}}`, `{"content":[],"usage_metadata":{"prompt_token_count":"x"}}`,
		`{"contents":7,"config":{"tools":[{"function_declarations":7},null],"system_instruction":[]}}`,
		[]byte{0, 255}, []any{nil, 1, "x"}, map[string]any{"role": 1}, map[string]any{"a": nil},
		whole[:len(whole)/2], whole[:len(whole)*9/10], "\xff\x00", strings.Repeat("[", 2000)}
}
