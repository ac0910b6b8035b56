package formats

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// Decoders of formats of the list.
var (
	acpDecode, atifDecode, piDecode = Named("acp", nil).Decode, Named("atif", nil).Decode, Named("pi", nil).Decode
	agentdbgDecode, skilletDecode   = Named("agentdbg", nil).Decode, Named("skillet", nil).Decode
)

// suite is a format of the list as the conformance suite takes it, with what c has besides.
func suite(name string, c codectest.Codec) codectest.Codec {
	f := Named(name, nil)
	file := func(dir string) string { return filepath.Join(dir, "file"+f.Ext) }
	c.Name = cmp.Or(c.Name, name)
	switch {
	case c.EncodeFile != nil:
	case f.Stream != nil:
		c.Encode = func(w io.Writer, s *codec.Session) error { return f.Stream(w)(&Source{Session: s}) }
		if f.Streams() {
			c.Decode = f.Decode
		}
	case f.Store != nil:
		c.EncodeFile = func(dir string, all []*codec.Session) error {
			return f.Store(context.Background(), file(dir), func(yield func(*codec.Session, error) bool) {
				for _, s := range all {
					if !yield(s, nil) {
						return
					}
				}
			}, nil)
		}
	default:
		c.EncodeFile = func(dir string, all []*codec.Session) error { return f.File(file(dir), &Source{Session: all[0]}) }
	}
	if c.EncodeFile != nil && c.DecodeFile == nil {
		c.DecodeFile = func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			path := dir
			if _, err := os.Stat(file(dir)); err == nil && f.Dir == nil {
				path = file(dir)
			}
			return f.DecodeFile(context.Background(), path, nil, report)
		}
	}
	if c.Losses == nil {
		c.Explain = func(s *codec.Session) []codec.Loss { return f.Explain(&Source{Session: s}) }
	}
	return c
}

// directory is a format whose program has a layout of its own.
func directory(name string, c codectest.Codec) codectest.Codec {
	f := Named(name, nil)
	c.Name, c.Many, c.Slow = name+" directory", true, true
	c.EncodeFile = func(dir string, all []*codec.Session) error {
		for _, s := range all {
			if err := f.Dir(dir, &Source{Session: s}, false); err != nil {
				return err
			}
		}
		return nil
	}
	return suite(name, c)
}

// suites are the formats with what each of them promises.
func suites() []codectest.Codec {
	return []codectest.Codec{
		suite("csv", codectest.Codec{Check: func(data []byte) error {
			_, err := csv.NewReader(bytes.NewReader(data)).ReadAll() // rows of one length
			return err
		}}),
		suite("agentdbg", codectest.Codec{Losses: lossesOf("agentdbg"), Whole: true,
			Native: []string{"testdata/agentdbg/export.json"}}),
		agentdbgEvents,
		directory("agentdbg", codectest.Codec{Losses: lossesOf("agentdbg"),
			Native: []string{agentdbgDataDir, agentdbgDataDir + "/runs/*"}}),
		suite("maida", codectest.Codec{Losses: lossesOf("maida"), Many: true, Slow: true,
			Native: []string{agentdbgMaidaDir + "/runs/*/spans.jsonl"}}),
		directory("maida", codectest.Codec{Losses: lossesOf("maida"),
			Native: []string{agentdbgMaidaDir, agentdbgMaidaDir + "/runs/*"}}),
		suite("jutul", codectest.Codec{Losses: lossesOf("jutul"), Slow: true, Native: []string{jutulSample}}),
		jutulEvents,
		skilletReplayLog,
		skilletItemStore,
		suite("acp", codectest.Codec{Losses: lossesOf("acp"),
			Native: []string{"testdata/acp/*.ndjson", "testdata/acp/*.json", "testdata/acp/*.jsonl", "testdata/acp/*.jsons"},
			Check:  func(data []byte) error { return acpValid(string(data)) }}),
		suite("atif", codectest.Codec{Losses: lossesOf("atif"), Whole: true, Native: []string{"testdata/atif/*.json"},
			Check: atifBroken}),
		suite("pi", codectest.Codec{Losses: lossesOf("pi"), Native: []string{"testdata/pi/*.jsonl"}}),
		suite("sts", codectest.Codec{Losses: lossesOf("sts"), Native: []string{"testdata/sts/*.jsonl"}}),
		suite("sqlite", codectest.Codec{Many: true, Rows: true, Slow: true}),
	}
}

func TestConformance(t *testing.T) {
	tested := map[string]bool{"jsonl": true, "json": true} // in their package
	for _, c := range append(suites(), otlpFormat(t)) {
		name, _, _ := strings.Cut(c.Name, " ")
		tested[name] = true
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			codectest.Run(t, c)
		})
	}
	for _, f := range Filter(func(f *Format) bool { return f.Written() && (f.Streams() || f.ReadPath != nil) }) {
		if !tested[f.Name] {
			t.Errorf("format %s is written and read, and not tested", f.Name)
		}
	}
}

// fuzz tests a format, with its stories and the seeds besides those of the suite.
func fuzz(f *testing.F, name string, seeds ...string) {
	f.Helper()
	first, _, _ := strings.Cut(name, " ")
	archive, err := txtar.ParseFile("testdata/" + first + "/stories.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(archive.Files); i += 2 {
		seeds = append(seeds, string(archive.Files[i].Data))
	}
	all := suites()
	codectest.Fuzz(f, all[slices.IndexFunc(all, func(c codectest.Codec) bool { return c.Name == name })], seeds...)
}

func FuzzATIFDecode(f *testing.F) { fuzz(f, "atif") }
func FuzzPiDecode(f *testing.F)   { fuzz(f, "pi") }
func FuzzSTSDecode(f *testing.F)  { fuzz(f, "sts") }
func FuzzOTLPDecode(f *testing.F) { codectest.Fuzz(f, otlpFormat(f)) }

// agentdbgEvents is the codec with the events of a run without its run.json, which nothing
// of a session that was no run needs.
var agentdbgEvents = codectest.Codec{
	Name: "agentdbg events",

	Encode: func(w io.Writer, s *codec.Session) error {
		root, err := os.MkdirTemp("", "agentdbg-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(root)
		dir, err := agentdbgWriteRun(root, s, false, false)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	},
	Decode: agentdbgDecode, Losses: lossesOf("agentdbg"),
	Many: true, Slow: true,
}

// jutulEvents is the codec as the suite takes it, with a line for an event instead of a
// row: what the format says without what SQLite does.
var jutulEvents = codectest.Codec{
	Name: "jutul events",

	Encode: func(w io.Writer, s *codec.Session) error {
		_, err := io.WriteString(w, jutulLines(jutulEncode(s)))
		return err
	},
	Decode: func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return func(yield func(*codec.Session, error) bool) {
			text, err := io.ReadAll(r)
			if err != nil {
				yield(nil, err)
				return
			}
			yield(jutulDecode(jutulParseEvents(string(text)), func(p codec.Problem) {
				_, _ = fmt.Sscanf(p.Record, "event %d", &p.Line) // of the whole trace otherwise
				if report != nil {
					report(p)
				}
			}), nil)
		}
	},
	Losses: lossesOf("jutul"),
	Check: func(data []byte) error {
		for _, e := range jutulParseEvents(string(data)) {
			if !json.Valid([]byte(e.payload)) {
				return fmt.Errorf("payload %s is no JSON", e.payload)
			}
		}
		return nil
	},
}

// jutulLines are events of which each has a line of time, kind and payload.
func jutulLines(all []jutulEvent) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", e.timestamp, e.kind, e.payload)
	}
	return b.String()
}

// jutulParseEvents reads what lines wrote, or anything.
func jutulParseEvents(text string) (all []jutulEvent) {
	for line := range strings.Lines(text) {
		fields := append(strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3), "", "")
		all = append(all, jutulEvent{int64(len(all) + 1), fields[0], fields[1], fields[2]})
	}
	return all
}

// skilletReplayLog is the codec as the suite takes it, with the replay log, and itemStore with the
// session store, which keeps less of some and more of others.
var skilletReplayLog = codectest.Codec{
	Name: "skillet log",
	Encode: func(w io.Writer, s *codec.Session) error {
		return written(skilletEncode)(w)(&Source{Session: s})
	},
	Decode: skilletDecode, Losses: lossesOf("skillet"), Native: []string{skilletSampleLog},
	Fits: func(s *codec.Session) bool {
		return slices.ContainsFunc(s.Messages, func(m session.MessageAndParts) bool {
			compaction := len(m.Parts) == 1 && m.Parts[0].Type == session.TypeCompaction
			return m.Message.HiddenAt == nil && m.Message.Role != session.RoleSystem && !compaction
		})
	},
}

var skilletItemStore = codectest.Codec{
	Name: "skillet store",
	EncodeFile: func(dir string, all []*codec.Session) error {
		return skilletEncodeFile(filepath.Join(dir, "s.sqlite"), all[0], false)
	},
	DecodeFile: func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return skilletDecodeFile(filepath.Join(dir, "s.sqlite"), report)
	},
	Losses: codec.ForeignLosses(codec.Losses{
		{What: "texts"}, {What: "reasoning"}, {What: "files and sources"}, {What: "tool calls"},
		{What: "tool inputs and outputs"}, {What: "ids and times"}, {What: "agents and models"},
		{What: "borders of messages, steps and texts"}, {What: "ends of turns"}, {What: "data parts"},
	}, "title", "rewinds", "compactions", "tokens", "tokens and costs of messages", "permissions",
		"system prompts and tool catalogs"),
	Fits: func(s *codec.Session) bool {
		return slices.ContainsFunc(s.Messages, func(m session.MessageAndParts) bool {
			return m.Message.HiddenAt == nil && m.Message.Role == session.RoleUser
		})
	},
	Slow: true,
}

// otlpFormat is the codec as the suite takes it: what is read is what an empty store makes
// of the spans.
func otlpFormat(tb testing.TB) codectest.Codec {
	dir := tb.TempDir()
	n := 0
	return codectest.Codec{
		Name: "otlp",

		Encode: otlpWriteJSON,
		Decode: func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			n++
			return otlpIngestFile(r, filepath.Join(dir, fmt.Sprint(n)), report)
		},
		Explain: otlpExplain,
		Ignore:  func(s *codec.Session) { s.SpanRefs, s.Traces, s.State, s.RequestedIndexes = nil, nil, nil, nil },
		Many:    true, Slow: true,
	}
}

// otlpIngestFile is what an empty store makes of a file of OTLP.
func otlpIngestFile(r io.Reader, dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		if report == nil {
			report = func(codec.Problem) {}
		}
		all, err := otlpIngestAll(context.Background(), r, dir, report)
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func otlpIngestAll(ctx context.Context, r io.Reader, dir string, report func(codec.Problem)) (all []*codec.Session,
	failed error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() { failed = errors.Join(failed, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "sessions.db")
	failed = otlpIngestInto(ctx, r, path, report)
	for s, err := range sqliteDecodeFile(ctx, path, nil, report) {
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		all = append(all, s)
	}
	return all, failed
}

func otlpIngestInto(ctx context.Context, r io.Reader, path string, report func(codec.Problem)) error {
	st, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	return errors.Join(otlpInto(ctx, st, r, report), st.Close())
}

// otlpInto ingests a file of OTLP. Damage is an error where it is not reported.
func otlpInto(ctx context.Context, st *sqlite.Store, r io.Reader, report func(codec.Problem)) error {
	in := ingest.New(st, ingest.Options{})
	for body, err := range otlpfile.Read(r, otlpfile.Options{}) {
		if damaged, ok := errors.AsType[*otlpfile.DamagedError](err); ok && report != nil {
			report(codec.Problem{Line: damaged.Line, Record: fmt.Sprintf("byte %d", damaged.Offset),
				Reason: damaged.Err.Error()})
			continue
		}
		if err != nil {
			return err
		}
		if _, err := in.Traces(ctx, body.Traces); err != nil {
			return err
		}
		if _, err := in.Logs(ctx, body.Logs); err != nil {
			return err
		}
	}
	return nil
}

// FuzzCSVEncode has any title and text be cells and nothing more: one row per part, or of a
// message without parts, and sums of columns that are those of the messages.
func FuzzCSVEncode(f *testing.F) {
	f.Add(uint64(1), uint8(3), "=cmd|' /C calc'!A0\r\n\"x\",y")
	f.Add(uint64(7), uint8(9), "\ufeff\x00")
	f.Fuzz(func(t *testing.T, seed uint64, size uint8, said string) {
		s := codectest.Generate(rand.New(rand.NewPCG(seed, 2)), int(size%16))
		s.Session.Title, s.Session.Agent = said, said
		rows := 1
		var tokens int64
		for i := range s.Messages {
			m := &s.Messages[i]
			rows += max(1, len(m.Parts))
		}
		if used := s.Tokens().Used; used != nil {
			tokens = used.Total()
		}
		var b bytes.Buffer
		testscale.Must(t, csvNewEncoder(&b).Encode(s))
		table, err := csv.NewReader(&b).ReadAll() // rows of one length
		if err != nil || len(table) != rows {
			t.Fatalf("%d rows, want %d; error %v", len(table), rows, err)
		}
		total := slices.Index(table[0], "total")
		var sum int64
		for _, row := range table[1:] {
			if row[total] == "" {
				continue
			}
			n, err := strconv.ParseInt(row[total], 10, 64)
			testscale.Must(t, err)
			sum += n
		}
		if sum != tokens {
			t.Errorf("the column total sums to %d, the messages to %d", sum, tokens)
		}
	})
}
