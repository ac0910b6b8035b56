package ingest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

var update = flag.Bool("update", false, "write the results of the golden scenarios")

// TestGolden reads the scenarios of testdata. Each is a txtar file: what happened
// in prose, the spans in the form of parseText, and what they come to:
//
//	-- report --     the counts of the delivery
//	-- session --    the rows of every session, as canonical JSON lines
//	-- decisions --  permission decisions, one JSON object a line
//	-- links --      kind, span and what it made, a line for each span
//
// Every scenario is built again in other orders, with redelivery, and must come to the same.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			testscale.Must(t, err)
			if len(bytes.TrimSpace(archive.Comment)) == 0 {
				t.Error("the scenario has no description")
			}
			if len(archive.Files) == 0 || archive.Files[0].Name != "spans" {
				t.Fatal("the first section is not spans")
			}
			requests, err := parseText(string(archive.Files[0].Data), semconv.ScopeName)
			testscale.Must(t, err)
			got := append(archive.Files[:1:1], build(t, requests)...)
			archive.Files = got
			codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
			want := sections(got[2:])
			for seed := range testscale.Rounds(2, 6) {
				r := rand.New(rand.NewPCG(uint64(seed), 3))
				order := slices.Clone(requests)
				r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
				order = append(order, order[r.IntN(len(order))])
				if seed%2 == 0 {
					order = join(order)
				}
				if d := cmp.Diff(want, sections(build(t, order)[1:])); d != "" {
					t.Fatalf("in another order (-want +got):\n%s", d)
				}
			}
		})
	}
}

func sections(files []txtar.File) []string {
	var all []string
	for _, f := range files {
		all = append(all, "-- "+f.Name+" --")
		all = append(all, strings.Split(string(f.Data), "\n")...)
	}
	return all
}

// build delivers the requests to an empty store and returns what it has then.
func build(t *testing.T, requests []request) []txtar.File {
	t.Helper()
	s := openStore(t)
	r := deliver(t, s, requests)
	report := ""
	if r.Records > 0 {
		report = fmt.Sprintf("records %d, ", r.Records)
	}
	report += fmt.Sprintf("spans %d, placed %d, ignored %d, malformed %d, refused %d\n", r.Spans, r.Accepted, r.Ignored,
		r.Malformed, r.Refused)
	storetest.CheckSessions(t, s)
	var rows, decisions, links bytes.Buffer
	for _, transcript := range rowsOf(t, s) {
		row := transcript.Session
		testscale.Must(t, jsonl.Encode(&rows, transcript))
		ds, err := s.Decisions(t.Context(), row.ID)
		testscale.Must(t, err)
		for _, d := range ds {
			b, _ := json.Marshal(d)
			decisions.Write(append(b, '\n'))
		}
		ls, err := s.SpanRefs(t.Context(), row.ID)
		testscale.Must(t, err)
		for _, l := range ls {
			fmt.Fprintln(&links,
				strings.Join(strings.Fields(fmt.Sprintln(l.Kind, strings.TrimLeft(l.SpanID, "0"), "of", row.ID,
					l.MessageID,
					l.PartID)), " "))
		}
	}
	files := []txtar.File{{Name: "report", Data: []byte(report)}, {Name: "session", Data: rows.Bytes()}}
	if decisions.Len() > 0 {
		files = append(files, txtar.File{Name: "decisions", Data: decisions.Bytes()})
	}
	if links.Len() > 0 {
		files = append(files, txtar.File{Name: "links", Data: links.Bytes()})
	}
	return files
}
