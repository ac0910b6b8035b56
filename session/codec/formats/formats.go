// Package formats has the formats of sessions, and their list. A format is a file of functions that
// decode and encode, or some files, whose names begin with it, and a row of [All]. Formats in which
// agents keep their own sessions are in package transcripts, and the canonical lines in package jsonl.
package formats

import (
	"bytes"
	"context"
	_ "embed" // the losses
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

// Format is a format of sessions: how its files are recognized, what reads and writes them, and what they do not hold.
type Format struct {
	Name string
	// Exported and Imported describe the format in a line of help. The one is empty for
	// a format that is not written, the other for one that is not read.
	Exported, Imported string

	Writing
	codec.Reading
}

// Writing is how a format is written. Stream or File is set, or both, or Store, or Dir alone.
type Writing struct {
	// Ext is the extension of a file that holds one session.
	Ext string
	// Many reports that several sessions may follow one another in one file.
	Many bool
	// Complete reports that the format holds all that a store has of a session, which is more than what is shown of it.
	Complete bool
	// Rows reports that the format has only what the rows of messages and parts say.
	Rows bool
	// Text reports that the format is for people: it can be cut, and bundled with files.
	Text bool
	// JSON reports that the format is JSON, Binary that a terminal cannot show it.
	JSON, Binary bool

	// Stream returns the function that writes sessions to w, one after the other.
	Stream func(w io.Writer) func(*Source) error
	// File writes a session to a path that does not exist. It is used instead of Stream
	// for the paths that WritesFile accepts.
	File       func(path string, s *Source) error
	WritesFile func(path string) bool
	// Store writes sessions, the oldest first, to a path that does not exist. It calls left for each session that it
	// leaves out, or where left is nil ends with the first: see [sqliteEncodeFile].
	Store func(
		ctx context.Context, path string, sessions iter.Seq2[*codec.Session, error],
		left func(sessionID string, err error),
	) error
	// Dir writes a session into a directory in the layout of the format's program. Without replace, a session that is
	// there already gives an error that is [os.ErrExist]. Where it is nil each session is a file in the directory.
	Dir func(path string, s *Source, replace bool) error
	// SubAgents reports that the sessions of sub-agents are in the file of the one that started them.
	SubAgents bool
	// Explain lists what the format does not hold of a session.
	Explain func(s *Source) []codec.Loss
}

// InFile reports whether the format is written into a file. One that is not is a directory.
func (f *Format) InFile() bool { return f.Stream != nil || f.File != nil || f.Store != nil }

// Reads reports whether the format is an import format.
func (f *Format) Reads() bool { return f.Imported != "" }

// Written reports whether the format is an export format.
func (f *Format) Written() bool { return f.Exported != "" }

// Source is a session to be written, and what a store knows beside its rows.
type Source struct {
	*codec.Session
	// Input is what a transcript for people is built from.
	Input document.Input
	// Full cuts nothing of a transcript. Files are the paths of the files that come with
	// it, by the paths that the session has for them.
	Full  bool
	Files map[string]string
	// SubAgents are the sessions below this one, for formats that have them in its file.
	SubAgents []*codec.Session
	// Observed counts the spans and log records that the session was built from and that no rows hold.
	Observed int
}

// LoadOptions configure [Format.Load].
type LoadOptions struct {
	// Full cuts nothing of a transcript for people.
	Full bool
	// Explain reads what [Writing.Explain] needs instead of what is written.
	Explain bool
}

// Load reads from a store what the format holds of a session. The error for a session that is not there wraps
// [store.ErrNotFound].
func (f *Format) Load(ctx context.Context, r store.Reader, id string, o LoadOptions) (s *Source, err error) {
	s = &Source{Full: o.Full}
	if o.Explain {
		if s.Observed, err = r.Observed(ctx, id); err != nil {
			return nil, err
		}
	}
	switch {
	case f.Complete:
		s.Session, err = Read(ctx, r, id)
		return s, err
	case f.Rows && !o.Explain:
		s.Session = new(codec.Session)
		if s.Transcript, err = r.Transcript(ctx, id); err == nil {
			s.Annotations, err = r.Annotations(ctx, id)
		}
		return s, err
	}
	if s.Input, s.Session, err = collect(ctx, r, id); err != nil || !f.SubAgents || o.Explain {
		return s, err
	}
	ids, err := document.Descendants(ctx, r, []string{id})
	if err != nil {
		return nil, err
	}
	for _, below := range ids[1:] {
		_, child, err := collect(ctx, r, below)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted meanwhile
		} else if err != nil {
			return nil, err
		}
		s.SubAgents = append(s.SubAgents, child)
	}
	return s, nil
}

// collect reads what is shown of a session.
func collect(ctx context.Context, r store.Reader, id string) (document.Input, *codec.Session, error) {
	in, err := document.Collect(ctx, r, id)
	return in, &codec.Session{Transcript: in.Transcript, Decisions: in.Decisions, Annotations: in.Annotations,
		Blobs: in.Blobs, SpanRefs: in.SpanRefs}, err
}

// Redact takes secrets out of all that is written of the session. A nil r changes nothing.
func (s *Source) Redact(r *redact.Redactor) {
	if r == nil {
		return
	}
	ingest.RedactRows(r, s.Session) // the rows of Input are the same
	s.Input.Transcript, s.Input.Decisions, s.Input.Annotations = s.Transcript, s.Decisions, s.Annotations
	s.Input.SpanRefs, s.Input.Blobs = s.SpanRefs, s.Blobs
	beside := func(row *session.Session) {
		in := &store.Imported{Transcript: &session.Transcript{Session: *row}}
		ingest.RedactRows(r, in)
		*row = in.Session
	}
	if s.Input.Parent != nil {
		beside(s.Input.Parent)
	}
	for i := range s.Input.Children {
		beside(&s.Input.Children[i])
	}
	for _, child := range s.SubAgents {
		ingest.RedactRows(r, child)
	}
}

// WritesTo reports whether the format writes a file at the path itself: see [Format.WriteFile].
func (f *Format) WritesTo(path string) bool {
	return f.Store != nil || f.File != nil && (f.WritesFile == nil || f.WritesFile(path))
}

// WriteFile writes a session to a path that does not exist, for a format that [Format.WritesTo] it.
func (f *Format) WriteFile(ctx context.Context, path string, s *Source) error {
	if f.Store != nil {
		return f.Store(ctx, path, func(yield func(*codec.Session, error) bool) { yield(s.Session, nil) }, nil)
	}
	return f.File(path, s)
}

// written makes a stream of what a format makes of the rows of a session.
func written(text func(*codec.Session) []byte) func(io.Writer) func(*Source) error {
	return writtenSource(func(s *Source) []byte { return text(s.Session) })
}

// writtenSource makes a stream of what a format makes of a session, whose rows must be a tree.
func writtenSource(text func(*Source) []byte) func(io.Writer) func(*Source) error {
	return each(func(w io.Writer, s *Source) (err error) {
		defer wrapWriting(s.Session, &err)
		if err = s.CheckTree(); err == nil {
			_, err = w.Write(text(s))
		}
		return err
	})
}

// wrapWriting has an error name the session that could not be written.
func wrapWriting(s *codec.Session, err *error) {
	if *err != nil {
		*err = fmt.Errorf("write session %s: %w", s.Session.ID, *err)
	}
}

//go:embed losses.txt
var allLosses string

// lossesOf lists what a format of another program does not hold of a session. The conformance suite checks the list.
func lossesOf(name string) (noted codec.Losses) {
	_, section, _ := strings.Cut(allLosses, "\n["+name+"]\n")
	section, _, _ = strings.Cut(section, "\n\n")
	for line := range strings.SplitSeq(strings.TrimSuffix(section, "\n"), "\n") {
		aspect, note, _ := strings.Cut(line, ": ")
		what, kept, _ := strings.Cut(aspect, " kept ")
		noted = append(noted, codec.Loss{What: what, Note: note, Kept: kept})
	}
	return codec.ForeignLosses(noted)
}

// explainLosses counts the losses of a format in a session.
func explainLosses(name string) func(*Source) []codec.Loss { return explained(lossesOf(name).Of) }

// joinedTexts is the content of a result as one text, where it consists of texts. One alone keeps its spelling:
// JavaScript writes halves of characters.
func joinedTexts(content json.RawMessage) json.RawMessage {
	list := rows.Elements(content)
	var all strings.Builder
	for _, raw := range list {
		text, ok := rows.Text(rows.Read(string(raw)).Get("text"))
		if !ok {
			return content // such as an image
		}
		all.WriteString(text)
	}
	switch {
	case list == nil:
		return content
	case len(list) == 1:
		return rows.Read(string(list[0])).Get("text")
	}
	return rows.Raw(all.String())
}

// dataOf are the data of the parts of a message.
func dataOf(m *session.MessageAndParts) []rows.Object {
	all := make([]rows.Object, len(m.Parts))
	for i := range m.Parts {
		all[i] = rows.Data(&m.Parts[i])
	}
	return all
}

// All are the formats. Exports are listed in this order, the default first. The first
// that recognizes a file reads it; of a database it is the last, that of stores.
var All = slices.Insert(own, len(own)-1, programs...)

// own are the formats that are written, and OTLP.
var own = []Format{{
	Name: "otlp", Imported: "OTLP in JSON or protobuf, as exporters, the collector's file exporter and spools write it",
	Reading: codec.Reading{
		Extensions: []string{".json", ".jsonl", ".pb", ".gz", ".zst"}, SniffText: otlpfile.Sniff, Telemetry: true,
	},
}, {
	Name:     "jsonl",
	Exported: "a line per row, the canonical format", Imported: "sessions as export writes them, a line per row",
	Writing: Writing{
		Ext: ".jsonl", Many: true, Complete: true, JSON: true, Explain: complete,
		Stream: func(w io.Writer) func(*Source) error {
			e := jsonl.NewEncoder(w)
			return func(s *Source) error { return e.Encode(s.Session) }
		},
	},
	Reading: codec.Reading{Extensions: []string{".jsonl"}, Keys: []string{"data={ type=session|message|part"},
		ReadStream: jsonl.Recover},
}, {
	Name:     "json",
	Exported: "the same, nested", Imported: "the same, nested: one session",
	Writing: Writing{Ext: ".json", Complete: true, JSON: true, Explain: complete, Stream: streamRows(jsonl.EncodeNested)},
	Reading: codec.Reading{Extensions: []string{".json"}, Keys: []string{"session={"},
		ReadStream: jsonl.DecodeNestedFile},
}, {
	Name: "csv", Exported: "a line per part, with tokens and cost, for spreadsheets; without content",
	Writing: Writing{
		Ext: ".csv", Many: true, Rows: true, Explain: explainLosses("csv"),
		Stream: func(w io.Writer) func(*Source) error {
			e := csvNewEncoder(w)
			return func(s *Source) error { return e.Encode(s.Session) }
		},
	},
}, {
	Name: "parquet", Exported: "the tables, in a directory for each day, for DuckDB and data frames",
	Writing: Writing{Binary: true, Explain: explainLosses("parquet"), Dir: parquetWriteDir},
}, {
	Name: "markdown", Exported: "a transcript to read, for an issue or a review",
	Writing: Writing{
		Ext: ".md", Many: true, Text: true, Explain: explainTranscript,
		Stream: each(func(w io.Writer, s *Source) error {
			return render.Markdown(w, document.Build(s.Input), document.Words{Full: s.Full, Files: s.Files})
		}),
	},
}, {
	Name: "html", Exported: "a transcript to read, in one file that loads nothing",
	Writing: Writing{
		Ext: ".html", Text: true, Explain: explainTranscript,
		Stream: each(func(w io.Writer, s *Source) error {
			return render.HTML(w, document.Build(s.Input), document.Words{Full: s.Full, Files: s.Files})
		}),
	},
}, {
	Name:     "otlp-json",
	Exported: "spans, a line of OTLP JSON per session, for a collector, Jaeger or Tempo",
	Writing: Writing{
		Ext: ".json", Many: true, JSON: true, Explain: explained(otlpExplain),
		Stream: streamRows(otlpWriteJSON),
	},
}, {
	Name: "otlp-proto", Exported: "the same in protobuf",
	Writing: Writing{
		Ext: ".pb", Many: true, Binary: true, Explain: explained(otlpExplain),
		Stream: streamRows(otlpWriteProto),
	},
}, {
	Name:     "agentdbg",
	Exported: "a run of AgentDbg; into a directory, its data directory",
	Imported: "runs of AgentDbg, and of Maida before 0.4: one, a directory of them, or what its export writes",
	Writing: Writing{
		Ext: ".json", JSON: true, Explain: explainLosses("agentdbg"),
		Stream: written(agentdbgEncode),
		Dir: func(path string, s *Source, replace bool) error {
			_, err := agentdbgWriteRun(path, s.Session, replace, false)
			return err
		},
	},
	Reading: codec.Reading{
		Extensions: []string{".json", ".jsonl"},
		Keys:       []string{"spec_version run_id", "spec_version run={", "spec_version events=["},
		Layout: []string{"run.json", "events.jsonl", "*/run.json", "runs/*/run.json", ".agentdbg/runs/*/run.json",
			".maida/runs/*/run.json"},
		ReadText: agentdbgText, Noun: "run", ReadPath: file(agentdbgDecodeFile), Beside: run,
	},
}, {
	Name:     "maida",
	Exported: "the spans of a run of Maida; into a directory, its data directory",
	Imported: "runs of Maida: one, a directory of them, or what its export writes",
	Writing: Writing{
		Ext: ".jsonl", Many: true, JSON: true, Explain: explainLosses("maida"),
		Stream: written(agentdbgEncodeMaida),
		Dir: func(path string, s *Source, replace bool) error {
			_, err := agentdbgWriteRun(path, s.Session, replace, true)
			return err
		},
	},
	Reading: codec.Reading{
		Extensions: []string{".json", ".jsonl"},
		Keys:       []string{"trace_id spec_version counts={", "trace_id parent_span_id attributes={ status_code=*"},
		Layout: []string{"meta.json", "spans.jsonl", "*/meta.json", "*/spans.jsonl", "runs/*/meta.json",
			".maida/runs/*/meta.json"},
		ReadText: agentdbgText, Noun: "run", ReadPath: file(agentdbgDecodeFile), Beside: run,
	},
}, {
	Name:     "jutul",
	Exported: "a trace database of jutul-agent",
	Imported: "a trace database of jutul-agent, or the directory that has it",
	Writing: Writing{
		Ext: ".sqlite", Explain: explainLosses("jutul"),
		File: func(path string, s *Source) error { return jutulEncodeFile(path, s.Session) },
	},
	Reading: codec.Reading{
		Extensions: []string{".sqlite"}, Tables: []string{"events"}, Layout: []string{jutulFileName},
		ReadPath: file(jutulDecodeFile), Beside: rows.DatabaseFiles,
	},
}, {
	Name:     "skillet",
	Exported: "a replay log of skillet, a store where the file ends in .sqlite; into a directory, both",
	Imported: "replay logs and stores of skillet; a state directory for both",
	Writing: Writing{
		Ext: ".jsonl", JSON: true, Explain: explainLosses("skillet"), Stream: written(skilletEncode),
		File:       func(path string, s *Source) error { return skilletEncodeFile(path, s.Session, false) },
		WritesFile: func(path string) bool { return filepath.Ext(path) == ".sqlite" },
		Dir: func(path string, s *Source, replace bool) error {
			return skilletEncodeFile(path, s.Session, replace)
		},
	},
	Reading: codec.Reading{
		Extensions: []string{".jsonl", ".sqlite"}, Keys: []string{"kind=user_message|step|final_result"},
		Tables: []string{"session_items"},
		Layout: []string{
			".agent_sessions.sqlite", "state/.agent_sessions.sqlite", ".skilled-agent/state/.agent_sessions.sqlite",
			".agent_session_logs/*/*.jsonl", "state/.agent_session_logs/*/*.jsonl",
			".skilled-agent/state/.agent_session_logs/*/*.jsonl", "*/*.jsonl",
		},
		ReadText: skilletText, Noun: "log", ReadPath: file(skilletDecodeFile), Beside: rows.DatabaseFiles,
	},
}, {
	Name:     "acp",
	Exported: "messages of the Agent Client Protocol, a line each",
	Imported: "messages of the Agent Client Protocol, bare or as Zed, an inspector or a conductor logs them",
	Writing:  Writing{Ext: ".ndjson", JSON: true, Explain: explainLosses("acp"), Stream: written(acpEncode)},
	Reading: codec.Reading{
		Extensions: []string{".json", ".jsonl", ".ndjson"}, ReadText: acpSessions, Noun: "trace", Appends: true,
		Keys: []string{"jsonrpc=2.0", "_direction", "direction json",
			"from to type=request|response|notification"},
	},
}, {
	Name:     "atif",
	Exported: "an ATIF 1.7 trajectory, for benchmarks and trainers",
	Imported: "ATIF trajectories, versions 1.0 to 1.8",
	Writing: Writing{
		Ext: ".json", JSON: true, SubAgents: true, Explain: explainLosses("atif"),
		Stream: writtenSource(func(s *Source) []byte { return atifEncode(s.Session, s.SubAgents...) }),
	},
	Reading: codec.Reading{Extensions: []string{".json"}, Keys: []string{"schema_version=ATIF-v*"},
		ReadText: atifText, Noun: "trajectory"},
}, {
	Name:     "pi",
	Exported: "a session file of Pi, which Hugging Face's viewer shows, too",
	Imported: "session files of Pi",
	Writing:  Writing{Ext: ".jsonl", JSON: true, Explain: explainLosses("pi"), Stream: written(piEncode)},
	Reading: codec.Reading{
		Extensions: []string{".jsonl"}, ReadText: piText, Noun: "session of Pi", Appends: true,
		Keys: []string{"timestamp type=session id=* version", "timestamp type=session id=* cwd",
			"timestamp parentId type=message message={"},
	},
}, {
	Name:     "sts",
	Exported: "a session trace for Hugging Face's viewer",
	Imported: "session traces of Hugging Face's simple format",
	Writing:  Writing{Ext: ".jsonl", JSON: true, Explain: explainLosses("sts"), Stream: written(stsEncode)},
	Reading: codec.Reading{
		// A header of Pi, which may have a harness, has a version.
		Extensions: []string{".jsonl"}, Keys: []string{"type=session harness=* id=* !version"},
		ReadText: stsSession, Noun: "session trace",
	},
}, {
	Name:     "sqlite",
	Exported: "a session store of its own, for --store and for import",
	Imported: "a session store, of this program or of the reference program",
	Writing:  Writing{Ext: ".db", Many: true, Complete: true, Store: sqliteEncodeFile, Explain: complete},
	Reading: codec.Reading{Extensions: []string{".db", ".sqlite"}, Tables: []string{"chat_sessions"},
		ReadPath: sqliteDecodeFile, Beside: rows.DatabaseFiles},
}}

// programs are those whose own sessions are read.
var programs = []Format{
	// Claude Code's records have the same keys.
	{Name: "qwen-code", Imported: "chats of Qwen Code", Reading: transcripts.Qwen},
	{Name: "claude-code", Imported: "transcripts of Claude Code", Reading: transcripts.Claude},
	{Name: "codex", Imported: "rollouts of Codex", Reading: transcripts.Codex},
	{Name: "gemini-cli", Imported: "chats of Gemini CLI", Reading: transcripts.Gemini},
	{Name: "opencode", Imported: "the database of opencode or Kilo Code", Reading: transcripts.Opencode},
	{Name: "copilot-cli", Imported: "events of GitHub Copilot CLI", Reading: transcripts.Copilot},
	{Name: "copilot-chat", Imported: "chats of GitHub Copilot in VS Code", Reading: transcripts.VSCode},
	{Name: "cursor-cli", Imported: "the database of a chat of Cursor CLI", Reading: transcripts.Cursor},
	// Other programs have a table of this name, too: their databases are recognized first.
	{Name: "zed", Imported: "the database of threads of Zed's agent", Reading: transcripts.Zed},
	{Name: "goose", Imported: "the database of Goose", Reading: transcripts.Goose},
	{Name: "crush", Imported: "the database of a project of Crush", Reading: transcripts.Crush},
	{Name: "windsurf", Imported: "transcripts that Windsurf's Cascade writes for hooks", Reading: transcripts.Windsurf},
	{Name: "aider", Imported: "chat histories of Aider", Reading: transcripts.Aider},
	{Name: "amp", Imported: "threads of Amp", Reading: transcripts.Amp},
	{Name: "kimi-code", Imported: "wire files of agents of Kimi Code", Reading: transcripts.KimiCode},
	{Name: "kimi-cli", Imported: "wire files of sessions of Kimi CLI", Reading: transcripts.Kimi},
	{Name: "cline", Imported: "messages of sessions and tasks of Cline, Roo Code and Kilo Code",
		Reading: transcripts.Cline},
	{Name: "continue", Imported: "sessions of Continue", Reading: transcripts.Continue},
	{Name: "openhands", Imported: "a directory of a conversation of OpenHands", Reading: transcripts.OpenHands},
	{Name: "kiro-cli", Imported: "session files of Kiro CLI, or its database", Reading: transcripts.Kiro},
}

// run lists a directory of runs, or the files of one run.
func run(path string) []string {
	all := []string{path}
	for _, name := range []string{"run.json", "events.jsonl", "meta.json", "spans.jsonl"} {
		all = append(all, filepath.Join(filepath.Dir(path), name))
	}
	return all
}

// complete explains the formats that hold all that a store has of a session. Only later telemetry needs the rest.
func complete(s *Source) []codec.Loss {
	return codec.AddLoss(nil, "spans and records of an agent without the SDK, word for word",
		"the rows built from them, and their traces", s.Observed)
}

func explainTranscript(s *Source) []codec.Loss { return render.Explain(s.Session, s.Full) }

// each makes a stream of a function that writes one session.
func each(encode func(io.Writer, *Source) error) func(io.Writer) func(*Source) error {
	return func(w io.Writer) func(*Source) error {
		return func(s *Source) error { return encode(w, s) }
	}
}

// streamRows makes a stream of a function that writes the rows of one session.
func streamRows(encode func(io.Writer, *codec.Session) error) func(io.Writer) func(*Source) error {
	return each(func(w io.Writer, s *Source) error { return encode(w, s.Session) })
}

func explained(explain func(*codec.Session) []codec.Loss) func(*Source) []codec.Loss {
	return func(s *Source) []codec.Loss { return explain(s.Session) }
}

// file decodes the file or the directory at a path, all of it.
func file(decode func(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error]) codec.FileDecoder {
	return func(_ context.Context, path string, _ codec.Wanted,
		report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return decode(path, report)
	}
}

// Read reads what a store has of a session, for the formats that are complete. What of it is damaged is an error.
func Read(ctx context.Context, r StoreSource, id string) (*codec.Session, error) {
	var damaged error
	s, err := ReadStored(ctx, r, id, func(p codec.Problem) {
		damaged = errors.Join(damaged, errors.New(p.String()))
	})
	return s, errors.Join(err, damaged)
}

// IsDatabase reports whether a file that begins with text is an SQLite database.
func IsDatabase(text []byte) bool { return bytes.HasPrefix(text, []byte(rows.DatabaseHeader)) }

// Named returns the format of a name that which accepts, or nil. A nil which accepts all.
func Named(name string, which func(*Format) bool) *Format {
	return first(func(f *Format) bool { return f.Name == name && (which == nil || which(f)) })
}

// Filter returns the formats that which accepts.
func Filter(which func(*Format) bool) (all []*Format) {
	for i := range All {
		if which(&All[i]) {
			all = append(all, &All[i])
		}
	}
	return all
}

// Names returns the names of the formats that which accepts.
func Names(which func(*Format) bool) (names []string) {
	for _, f := range Filter(which) {
		names = append(names, f.Name)
	}
	return names
}

// sniffLines is how many lines of a file are looked at, for the first may be
// damaged, or report nothing that the format is known by.
const sniffLines = 32

// OfText returns the format of a file that begins with text, or nil. It does not look into
// databases. It reads JSON lines, an array of objects, or one object, of which text may hold the
// beginning only. The first object that is of a format decides.
func OfText(text []byte) *Format {
	var found *Format
	rest := bytes.TrimPrefix(text, []byte("\uFEFF"))
	for n := 0; n < sniffLines && found == nil; n++ {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		if len(rest) == 0 || rest[0] != '{' && rest[0] != '[' {
			break
		}
		keys := otlpfile.FirstObject(rest)
		found = first(func(f *Format) bool { return codec.HasKeys(keys, f.Keys...) })
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	return first(func(f *Format) bool { return f == found || f.SniffText != nil && f.SniffText(text) })
}

func first(is func(*Format) bool) *Format {
	for i := range All {
		if is(&All[i]) {
			return &All[i]
		}
	}
	return nil
}

// OfDatabase returns the format of an SQLite database by its tables.
func OfDatabase(path string) (*Format, error) {
	tables, err := sqliteTables(path)
	if err != nil {
		return nil, err
	}
	for i := len(All) - 1; i >= 0; i-- { // a store of sessions may have a table of any name beside
		f := &All[i]
		lacks := slices.ContainsFunc(f.Tables, func(table string) bool { return !slices.Contains(tables, table) })
		if len(f.Tables) > 0 && !lacks {
			return f, nil
		}
	}
	if len(tables) == 0 {
		return nil, errors.New("it is an SQLite database without tables")
	}
	return nil, fmt.Errorf("it is an SQLite database, but of its tables (%s) none is of a store that import knows",
		strings.Join(tables, ", "))
}

// OfDirectory returns the format whose programs lay out a directory like this, or nil.
func OfDirectory(path string) *Format {
	return first(func(f *Format) bool {
		return slices.ContainsFunc(f.Layout, func(pattern string) bool {
			names, _ := filepath.Glob(filepath.Join(GlobEscape(path), filepath.FromSlash(pattern)))
			return slices.ContainsFunc(names, func(name string) bool { return formatOf(name) == f })
		})
	})
}

// OfFile returns the format of a file that has the extension of one, or nil.
func OfFile(path string) *Format {
	of := sync.OnceValue(func() *Format { return formatOf(path) })
	return first(func(f *Format) bool { return f.HasExtension(path) && of() == f })
}

// GlobEscape makes a path a pattern that only it matches.
func GlobEscape(path string) string {
	if filepath.Separator == '\\' {
		return path // where a backslash parts names, nothing escapes
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// formatOf reads the head of a file, and returns its format, or nil.
func formatOf(path string) *Format {
	file, err := codec.OpenFile(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text := make([]byte, 64<<10)
	n, _ := io.ReadFull(file, text)
	if text = text[:n]; IsDatabase(text) {
		of, _ := OfDatabase(path) // nil with an error
		return of
	}
	return OfText(text)
}
