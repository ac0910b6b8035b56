package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/acp"
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
	"github.com/agenttrace/agenttrace/session/codec/csvfile"
	"github.com/agenttrace/agenttrace/session/codec/html"
	"github.com/agenttrace/agenttrace/session/codec/jsonfile"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/jutul"
	"github.com/agenttrace/agenttrace/session/codec/markdown"
	"github.com/agenttrace/agenttrace/session/codec/otlp"
	"github.com/agenttrace/agenttrace/session/codec/skillet"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// exported is a session on its way into a format.
type exported struct {
	*codec.Session
	in inspect.Input
	// full cuts nothing of a transcript. files are the side files that come with it.
	full  bool
	files map[string]string
	// observed counts the spans and records of agents without the SDK, for --explain.
	observed int
}

// exportFormat is a format that export writes. stream or file is set, or both, or
// store.
type exportFormat struct {
	name, title string
	// ext is what the name of a file ends with that holds one session.
	ext string
	// rows says that the format holds nothing but the rows of a transcript.
	rows bool
	// many says that sessions may follow one another in one file.
	many bool
	// text says that a person reads it: it can be bundled with side files, and cut.
	text bool
	// json says that it is JSON, binary that a terminal cannot show it.
	json, binary bool
	// stream returns what writes sessions to w, one after the other.
	stream func(w io.Writer) func(*exported) error
	// file writes a session to a path that does not exist. takes says for which paths
	// it is used rather than stream; nil is for all.
	file  func(path string, s *exported) error
	takes func(path string) bool
	// store writes sessions, the oldest first where they are all, to a path that does
	// not exist. It stands in the place of stream and file.
	store func(ctx context.Context, path string, sessions iter.Seq2[*codec.Session, error]) error
	// read reads what the format holds of a session where that is not what is shown of
	// it.
	read func(ctx context.Context, r *sqlite.Reader, id string) (*codec.Session, error)
	// dir writes a session into a directory in the layout that the format has for it.
	// Where it is there already it is replaced, or without replace the error is
	// [os.ErrExist]. Without dir each session is a file by its id.
	dir func(path string, s *exported, replace bool) error
	// explain lists what of a session the format does not hold.
	explain func(*exported) []codec.Loss
}

// exportFormats are all that export writes, the default first.
var exportFormats = []exportFormat{{
	name: "jsonl", title: "a line per row, the canonical format", ext: ".jsonl", many: true, json: true,
	stream: func(w io.Writer) func(*exported) error {
		e := jsonl.NewEncoder(w)
		return func(s *exported) error { return e.Encode(s.Session) }
	},
	read: readWhole, explain: explainWhole,
}, {
	name: "json", title: "the same, nested", ext: ".json", json: true,
	stream: func(w io.Writer) func(*exported) error {
		return func(s *exported) error { return jsonfile.Encode(w, s.Session) }
	},
	read: readWhole, explain: explainWhole,
}, {
	name: "csv", title: "a line per part, with tokens and cost, for spreadsheets; without content", ext: ".csv", rows: true, many: true,
	stream: func(w io.Writer) func(*exported) error {
		e := csvfile.NewEncoder(w)
		return func(s *exported) error { return e.Encode(s.Transcript) }
	},
	explain: func(s *exported) []codec.Loss {
		return append(explainRows(s), loss("content of parts, of which the size is kept", parts(s))...)
	},
}, {
	name: "markdown", title: "a transcript to read, for an issue or a review", ext: ".md", many: true, text: true,
	stream: func(w io.Writer) func(*exported) error {
		return func(s *exported) error {
			return markdown.Encode(w, inspect.Build(s.in), markdown.Options{Full: s.full, Files: s.files})
		}
	},
	explain: explainTranscript,
}, {
	name: "html", title: "a transcript to read, in one file that loads nothing", ext: ".html", text: true,
	stream: func(w io.Writer) func(*exported) error {
		return func(s *exported) error {
			return html.Encode(w, inspect.Build(s.in), html.Options{Full: s.full, Files: s.files})
		}
	},
	explain: explainTranscript,
}, {
	name: "otlp-json", title: "spans, a line of OTLP JSON per session, for a collector, Jaeger or Tempo", ext: ".json", many: true, json: true,
	stream: func(w io.Writer) func(*exported) error {
		return func(s *exported) error { return otlp.WriteJSON(w, s.Session, otlp.Options{Links: s.in.Links}) }
	},
	explain: func(s *exported) []codec.Loss { return otlp.Explain(s.Session) },
}, {
	name: "otlp-proto", title: "the same in protobuf", ext: ".pb", many: true, binary: true,
	stream: func(w io.Writer) func(*exported) error {
		return func(s *exported) error { return otlp.WriteProto(w, s.Session, otlp.Options{Links: s.in.Links}) }
	},
	explain: func(s *exported) []codec.Loss { return otlp.Explain(s.Session) },
}, {
	name: "agentdbg", title: "a run of AgentDbg or Maida; into a directory, its data directory", ext: ".json", json: true,
	stream: func(w io.Writer) func(*exported) error {
		return func(s *exported) error { return agentdbg.Encode(w, s.Session, agentdbg.Options{}) }
	},
	dir: func(path string, s *exported, replace bool) error {
		_, err := agentdbg.EncodeFile(path, s.Session, agentdbg.Options{Replace: replace})
		return err
	},
	explain: func(s *exported) []codec.Loss { return agentdbg.Explain(s.Session) },
}, {
	name: "jutul", title: "a trace database of jutul-agent", ext: ".sqlite",
	file:    func(path string, s *exported) error { return jutul.EncodeFile(path, s.Session) },
	explain: func(s *exported) []codec.Loss { return jutul.Explain(s.Session) },
}, {
	name: "skillet", title: "a replay log of skillet, a store where the file ends in .sqlite; into a directory, both", ext: ".jsonl", json: true,
	stream: func(w io.Writer) func(*exported) error {
		return func(s *exported) error { return skillet.Encode(w, s.Session) }
	},
	file:  func(path string, s *exported) error { return skillet.EncodeFile(path, s.Session, skillet.Key{}) },
	takes: func(path string) bool { return strings.HasSuffix(path, ".sqlite") },
	dir: func(path string, s *exported, replace bool) error {
		if replace {
			return skillet.ReplaceFile(path, s.Session, skillet.Key{})
		}
		return skillet.EncodeFile(path, s.Session, skillet.Key{})
	},
	explain: func(s *exported) []codec.Loss { return skillet.Explain(s.Session) },
}, {
	name: "acp", title: "messages of the Agent Client Protocol, a line each", ext: ".ndjson", json: true,
	stream: func(w io.Writer) func(*exported) error {
		return func(s *exported) error { return acp.Encode(w, s.Session) }
	},
	explain: func(s *exported) []codec.Loss { return acp.Explain(s.Session) },
}, {
	name: "sqlite", title: "a session store of its own, for --store and for import", ext: ".db", many: true,
	store: sqlitefile.EncodeFile, read: readWhole, explain: explainWhole,
}}

// readWhole reads a session as a store holds it, all of it.
func readWhole(ctx context.Context, r *sqlite.Reader, id string) (*codec.Session, error) {
	var damaged error
	s, err := sqlitefile.Read(ctx, r, id, func(p codec.Problem) { damaged = errors.Join(damaged, errors.New(p.String())) })
	return s, errors.Join(err, damaged)
}

func exportNames(which func(*exportFormat) bool) []string {
	var names []string
	for i := range exportFormats {
		if which == nil || which(&exportFormats[i]) {
			names = append(names, exportFormats[i].name)
		}
	}
	return names
}

func isText(f *exportFormat) bool { return f.text }

// either names one of several things.
func either(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func exportList() string {
	var b strings.Builder
	for i := range exportFormats {
		fmt.Fprintf(&b, "  %-10s  %s\n", exportFormats[i].name, exportFormats[i].title)
	}
	return b.String()
}

func exportFormatOf(name string) (*exportFormat, error) {
	i := slices.IndexFunc(exportFormats, func(f exportFormat) bool { return f.name == name })
	if i < 0 {
		return nil, usagef("unknown format %q: use %s", name, either(exportNames(nil)))
	}
	return &exportFormats[i], nil
}

func parts(s *exported) int {
	n := 0
	for i := range s.Messages {
		n += len(s.Messages[i].Parts)
	}
	return n
}

// loss is nothing where there is none of it.
func loss(what string, count int) []codec.Loss {
	if count == 0 {
		return nil
	}
	return []codec.Loss{{What: what, Count: count}}
}

// explainWhole is for the formats that hold all that a store says of a session.
func explainWhole(s *exported) []codec.Loss {
	return sqlitefile.Explain(s.Session, s.observed)
}

func explainRows(s *exported) []codec.Loss {
	return append(loss("permission decisions", len(s.Decisions)), loss("system prompts and tool catalogs", len(s.Blobs))...)
}

func explainTranscript(s *exported) []codec.Loss {
	all := loss("ids of parts, and metadata that tells a reader nothing", parts(s))
	if !s.full {
		all = append(all, codec.Loss{What: "ends of long inputs, outputs and prompts, if any", Count: parts(s), Kept: "with --full"})
	}
	return all
}
