package codectest

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

func TestGenerateIsSound(t *testing.T) {
	for seed := range uint64(500) {
		size := int(seed % 12)
		s := Generate(rand.New(rand.NewPCG(seed, 3)), size)
		if v := session.Check(s.Transcript); len(v) > 0 {
			t.Fatalf("seed %d: %v", seed, v)
		}
		if d := Diff(s, Generate(rand.New(rand.NewPCG(seed, 3)), size)); d != "" {
			t.Fatalf("seed %d: a second time %s", seed, d)
		}
		if len(s.Messages) > size {
			t.Fatalf("seed %d: %d messages", seed, len(s.Messages))
		}
	}
	for _, s := range Corpus() {
		if v := session.Check(s.Session.Transcript); len(v) > 0 {
			t.Errorf("%s: %v", s.Name, v)
		}
	}
}

// TestGenerateCovers wants everything that a store may hold among the sessions of a
// run of the suite.
func TestGenerateCovers(t *testing.T) {
	seen := make(map[string]bool)
	note := func(what string, is bool) { seen[what] = seen[what] || is }
	for _, sample := range Generated(100) {
		s := sample.Session
		row := &s.Session
		note("no messages", len(s.Messages) == 0)
		note("parent", row.ParentID != nil)
		note("parent message", row.ParentMessageID != nil)
		note("archived", row.ArchivedAt != nil)
		note("empty title", row.Title == "")
		note("empty mode", row.Mode != nil && *row.Mode == "")
		note("permissions", len(row.PermissionsJSON) > 9)
		note("decisions", len(s.Decisions) > 0)
		note("blobs", len(s.Blobs) > 0)
		note("spans", len(s.SpanRefs) > 0)
		note("traces", len(s.Traces) > 0)
		note("rewinds", s.State != nil && len(s.State.Rewinds) > 0)
		note("claims", len(s.RequestedIndexes) > 0)
		note("1970", row.CreatedAt == 0)
		note("9999", row.CreatedAt > lastTime-2_000_000)
		note("cost", row.CostUSD > 0)
		for i := range s.Messages {
			m := &s.Messages[i]
			note("role "+m.Message.Role, true)
			note("hidden", m.Message.HiddenAt != nil)
			note("no parts", len(m.Parts) == 0)
			note("one time", i > 0 && m.Message.CreatedAt == s.Messages[i-1].Message.CreatedAt)
			for j := range m.Parts {
				p := &m.Parts[j]
				note("gap", p.Index > int64(j))
				note("run", p.ContinuationRunID != nil)
				kind, _, _ := strings.Cut(p.Type, "-")
				if kind != "tool" && kind != "data" || p.Type == session.TypeCompaction || p.Type == "data-damaged" {
					kind = p.Type
				}
				note("part "+kind, true)
				if p.ToolState != nil {
					note(kind+" "+*p.ToolState, true)
				}
				note("tail", p.Type == session.TypeCompaction && session.TailStartID(p.DataJSON) != "")
			}
		}
	}
	want := []string{
		"no messages", "parent", "parent message", "archived", "empty title", "empty mode", "permissions", "decisions",
		"blobs", "spans", "traces", "rewinds", "claims", "1970", "9999", "cost",
		"role user", "role assistant", "role system", "hidden", "no parts", "one time", "gap", "run", "tail",
		"part text", "part reasoning", "part tool", "part dynamic-tool", "part file", "part source-url",
		"part source-document", "part step-start",
		"part data", "part data-compaction", "part data-damaged",
	}
	for _, state := range []string{session.StateInputStreaming, session.StateInputAvailable,
		session.StateApprovalRequested, session.StateApprovalResponded,
		session.StateOutputAvailable, session.StateOutputError, session.StateOutputDenied} {
		want = append(want, "tool "+state)
	}
	for _, what := range want {
		if !seen[what] {
			t.Errorf("no session has %s", what)
		}
	}
}

// lines is a format that passes.
func lines() Codec {
	return Codec{
		Encode: func(w io.Writer, s *codec.Session) error { return jsonl.NewEncoder(w).Encode(s) },
		Decode: jsonl.Recover, Many: true, Rows: true, Slow: true,
	}
}

// foreign is a format of another program that passes, with a list of losses.
func foreign() Codec {
	c := lines()
	c.Encode = func(w io.Writer, s *codec.Session) error { return jsonl.Encode(w, s.Transcript) }
	c.Losses = codec.Losses{{What: "permissions"}, {What: "system prompts and tool catalogs"}, {What: "tool calls"},
		{What: "tags, notes and scores"}, {What: "other metadata"}}
	return c
}

// failures are the rules that the format breaks.
func failures(t *testing.T, c Codec) (broken []string) {
	x := newExamination(t, c)
	for _, k := range checks {
		if k.applies(&c) {
			if err := try(func() { k.run(x) }); err != nil {
				broken = append(broken, k.name+": "+err.Error())
			}
		}
	}
	return broken
}

// TestSuiteFinds has formats that break one promise each, and wants them found.
func TestSuiteFinds(t *testing.T) {
	if broken := failures(t, lines()); broken != nil {
		t.Fatalf("a format that is sound breaks %q", broken)
	}
	if broken := failures(t, foreign()); broken != nil {
		t.Fatalf("a format of another program that lists its losses breaks %q", broken)
	}
	native := filepath.Join(t.TempDir(), "native.jsonl")
	if err := os.WriteFile(native, []byte(`{"type":"session","data":{"id":"s"}}`+"\n"+
		`{"type":"message","data":{"id":"m","session_id":"s","role":"robot"}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// changed decodes, and gives each session to f before anybody sees it.
	changed := func(c *Codec, f func(*codec.Session)) {
		decode := c.Decode
		c.Decode = func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return func(yield func(*codec.Session, error) bool) {
				for s, err := range decode(r, report) {
					if s != nil {
						f(s)
					}
					if !yield(s, err) {
						return
					}
				}
			}
		}
	}
	calls := 0
	for name, tt := range map[string]struct {
		spoil func(*Codec)
		want  string
	}{
		"says another thing each time": {func(c *Codec) {
			encode := c.Encode
			c.Encode = func(w io.Writer, s *codec.Session) error {
				calls++
				_, err := w.Write(bytes.Repeat([]byte("\n"), calls%7))
				if err != nil {
					return err
				}
				return encode(w, s)
			}
		}, "encode"},
		"changes what it writes": {func(c *Codec) {
			encode := c.Encode
			c.Encode = func(w io.Writer, s *codec.Session) error { s.Session.Title += "!"; return encode(w, s) }
		}, "encode"},
		"loses a column in silence": {func(c *Codec) { changed(c, func(s *codec.Session) { s.Session.Mode = nil }) },
			"round trip"},
		"of another program loses what its list does not have": {func(c *Codec) {
			*c = foreign()
			changed(c, func(s *codec.Session) { s.Session.Mode = nil })
		}, "round trip"},
		"of another program lists what it never loses": {func(c *Codec) {
			*c = foreign()
			c.Losses = append(c.Losses, codec.Loss{What: "title"})
		}, "losses"},
		"lists a thing twice": {func(c *Codec) {
			c.Explain = func(*codec.Session) []codec.Loss { return []codec.Loss{{What: "x", Count: 1}, {What: "x", Count: 1}} }
		}, "explain"},
		"adds something each time": {func(c *Codec) {
			*c = foreign()
			c.Losses = append(c.Losses, codec.Loss{What: "agents and models"})
			changed(c, func(s *codec.Session) { s.Session.Agent += "x" })
		}, "fixed point"},
		"swallows the error of a writer": {func(c *Codec) {
			encode := c.Encode
			c.Encode = func(w io.Writer, s *codec.Session) error { _ = encode(w, s); return nil }
		}, "writer fails"},
		"swallows the error of a reader": {func(c *Codec) {
			decode := c.Decode
			c.Decode = func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return func(yield func(*codec.Session, error) bool) {
					for s, err := range decode(r, report) {
						if err != nil || !yield(s, nil) {
							return
						}
					}
				}
			}
		}, "reader fails"},
		"gives other ids each time": {func(c *Codec) {
			changed(c, func(s *codec.Session) { calls++; s.Session.MetadataJSON = string(rune('a' + calls%26)) })
		}, "same rows"},
		"drops what follows damage": {func(c *Codec) {
			c.Decode = func(r io.Reader, _ func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return func(yield func(*codec.Session, error) bool) {
					for t, err := range jsonl.Decode(r, nil) {
						if err != nil {
							yield(nil, err)
							return
						}
						if !yield(&codec.Session{Transcript: t}, nil) {
							return
						}
					}
				}
			}
		}, "damage"},
		"panics at damage": {func(c *Codec) {
			decode := c.Decode
			c.Decode = func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				data, err := io.ReadAll(r)
				for line := range bytes.Lines(data) {
					if err == nil && !json.Valid(line) {
						panic("no JSON")
					}
				}
				return decode(io.MultiReader(bytes.NewReader(data), failing{err}), report)
			}
		}, "damage"},
		"mixes up sessions": {func(c *Codec) {
			last := ""
			changed(c, func(s *codec.Session) { s.Session.Agent, last = s.Session.Agent+last, s.Session.ID })
		}, "many"},
		"reads what is invalid": {func(c *Codec) { c.Rows, c.Native = false, []string{native} }, "native"},
	} {
		c := lines()
		tt.spoil(&c)
		if broken := strings.Join(failures(t, c), "\n"); !strings.Contains(broken, tt.want+": ") {
			t.Errorf("a format that %s breaks, and not %q:\n%s", name, tt.want, broken)
		}
	}
}

// failing is the end of a stream.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}
