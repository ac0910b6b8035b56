// Package e2e has what end-to-end tests share. A server answers requests to models as the providers do, from a script:
// [Program] has one conversation with agents that are built in different ways, and checks that each of them has the
// same session. Npm projects are installed and run. The tests with a real Jaeger have the build tag e2e. Those with the
// tag long kill agents and collectors, and compare what is stored with what they had reported. One without a tag holds
// the imports of all packages against the drawing in docs/design.md.
package e2e

import (
	"bytes"
	"context"
	_ "embed" // of Weather
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/modelapi/answers"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
)

// Program is an agent that has the conversation of a script.
type Program struct {
	// API is that of the agent's model. What the agent's instrumentation sees of a failed tool
	// or of the reason for which an answer ended may differ from what the API shows.
	API *API
	// Run has the conversation, with the questions of [Console.Turns].
	Run func(c *Console) error
}

// Console is what a program is run with, and what it prints. Its methods may be called concurrently.
type Console struct {
	Context context.Context
	Script  *Script
	// URL is that of the model's server, HTTP the client to use for it.
	URL  string
	HTTP *http.Client
	// Tracer records the session, with spans of Provider; both are nil if nothing is to be recorded.
	Tracer   *agenttrace.Tracer
	Provider *sdktrace.TracerProvider
	// Stream reports that answers are to be streamed.
	Stream bool

	mu    sync.Mutex
	lines []string
}

// Lines returns what the program printed.
func (c *Console) Lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

func (c *Console) print(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
}

// Text prints a text of the model.
func (c *Console) Text(text string) {
	if text != "" {
		c.print("assistant text " + text)
	}
}

// Call executes a tool and prints that.
func (c *Console) Call(name string, input []byte) (output string, failed bool) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, input); err != nil {
		c.print(fmt.Sprintf("input %q: %v", input, err)) // no session has that
	}
	output, failed = c.Script.Call(name, compact.String())
	c.print(fmt.Sprintf("assistant call %s %s → %s", name, compact.String(), output))
	return output, failed
}

// Turns prints the questions of the script and has ask answer them.
func (c *Console) Turns(ask func(question string) error) error {
	for _, turn := range c.Script.Turns {
		c.print("user text " + turn.User)
		if err := ask(turn.User); err != nil {
			return err
		}
	}
	return nil
}

// Recording is a session store in the program's own process.
type Recording struct {
	Provider *sdktrace.TracerProvider
	Tracer   *agenttrace.Tracer
	// Memory has the spans once more.
	Memory *tracetest.InMemoryExporter
	rec    *recorder.Recorder
}

// Record returns a recording in a directory of the test's.
func Record(t testing.TB) *Recording {
	t.Helper()
	rec, err := recorder.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), recorder.Options{})
	testscale.Must(t, err)
	memory := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(rec.SpanExporter(), sdktrace.WithBlocking()), sdktrace.WithSyncer(memory))
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: provider})
	return &Recording{provider, tracer, memory, rec}
}

// Documents ends the recording and returns its sessions.
func (r *Recording) Documents(t testing.TB) []*document.Document {
	t.Helper()
	ctx := context.Background()
	defer func() {
		if err := errors.Join(r.Provider.Shutdown(ctx), r.rec.Close(ctx)); err != nil {
			t.Error(err)
		}
	}()
	testscale.Must(t, errors.Join(r.Provider.ForceFlush(ctx), r.rec.ForceFlush(ctx)))
	return Read(t, r.rec.Reader())
}

// Read returns all sessions of a store.
func Read(t testing.TB, r store.Reader) (docs []*document.Document) {
	t.Helper()
	for row, err := range r.Sessions(t.Context(), store.SessionQuery{}) {
		testscale.Must(t, err)
		d, err := document.Load(t.Context(), r, row.ID)
		testscale.Must(t, err)
		docs = append(docs, d)
	}
	return docs
}

// Test has the conversation of [Weather] with the program, with whole and with streamed answers, and compares the
// session with the script.
func Test(t *testing.T, p Program) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("streamed %v", stream), func(t *testing.T) {
			server := httptest.NewServer(&Server{API: p.API, Script: &Weather})
			defer server.Close()
			r := Record(t)
			err := p.Run(&Console{
				Context: t.Context(), Script: &Weather, URL: server.URL, HTTP: server.Client(), Tracer: r.Tracer,
				Provider: r.Provider, Stream: stream,
			})
			docs := r.Documents(t)
			switch {
			case err != nil:
				t.Fatal(err)
			case len(docs) != 1:
				t.Fatalf("have %d sessions, want 1", len(docs))
			case r.Tracer.Dropped() != 0:
				t.Fatalf("%d reports came too late", r.Tracer.Dropped())
			}
			if diff := cmp.Diff(Weather.Want(p.API), Lines(docs[0], p.API.IDs)); diff != "" {
				t.Errorf("session (-script +stored):\n%s", diff)
			}
		})
	}
}

// Project is an installed npm project that pins the software of others, to test ours with it. It needs node 20 or
// newer and npm in PATH. It is safe for concurrent use.
type Project struct {
	// Dir is its directory.
	Dir string
}

// InstallProject writes the files of a project into dir, which must exist, and installs the
// packages that it pins, from npm's cache or from the configured registry. It runs no
// scripts of packages. Everything is in dir, which the caller removes.
func InstallProject(ctx context.Context, files fs.FS, dir string) (*Project, error) {
	if err := os.CopyFS(dir, files); err != nil {
		return nil, fmt.Errorf("write npm project: %w", err)
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
		"--engine-strict=false", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("install what package.json pins with npm in %s: %w: %s", dir, err, bytes.TrimSpace(out))
	}
	return &Project{dir}, nil
}

// Run runs a script of the project with node and returns its output, even after an error.
func (p *Project) Run(ctx context.Context, script string, stdin io.Reader) (stdout []byte, err error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Dir, stdin, &out, &said
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("run %s with node: %w: %s", script, err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), err
}

// These are what a script is, and how it is written in the APIs of providers.
type (
	// API is a provider's API.
	API = answers.API
	// Script is a conversation.
	Script = answers.Script
	// Turn is a question and the answers to it.
	Turn = answers.Turn
	// Step is one answer of the model.
	Step = answers.Step
	// Call is a tool call with what the tool makes of it.
	Call = answers.Call
)

// APIs are those of the providers.
var APIs = answers.APIs()

// Named returns the API of the name.
var Named = answers.Named

//go:embed weather.json
var weather []byte

// Weather is a conversation of two turns with calls at once, one that fails, and an output that is JSON.
var Weather = func() (s Script) {
	if err := json.Unmarshal(weather, &s); err != nil {
		panic(err) // a mistake in this package
	}
	return s
}()

// Server answers with the steps of a script, one after another. Use it as an [http.Handler].
type Server struct {
	API    *API
	Script *Script
	// Fail, if it is set, is asked before each request is answered and may answer it.
	Fail func(w http.ResponseWriter, r *http.Request, attempt int) bool
	Type string // the content type that it states, "" for that of its answers

	requests, answered atomic.Int64
}

// ServeHTTP implements [http.Handler]. The request is streamed if its path or body says so.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	attempt := int(s.requests.Add(1) - 1)
	if s.Fail != nil && s.Fail(w, r, attempt) {
		return
	}
	n, steps := int(s.answered.Add(1)-1), s.Script.Steps()
	if n >= len(steps) {
		http.Error(w, `{"error":{"message":"the script has ended"}}`, http.StatusBadRequest)
		return
	}
	var in struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &in) // some bodies do not say
	stream := in.Stream || strings.Contains(r.URL.Path, "stream")
	kind, chunks := s.API.Chunks(steps[n], fmt.Sprintf("resp_%04d", n), stream)
	if w.Header().Set("Content-Type", kind); s.Type != "" {
		w.Header().Set("Content-Type", s.Type)
	}
	for _, c := range chunks {
		if _, err := w.Write(c); err != nil {
			return
		}
		if f, ok := w.(http.Flusher); ok && stream {
			f.Flush()
		}
	}
}

// Lines returns what is in a session, without what differs from run to run.
func Lines(d *document.Document, ids bool) (lines []string) {
	for _, p := range d.SystemPrompts {
		lines = append(lines, "system "+p.Body)
	}
	for _, c := range d.ToolCatalogs {
		for _, t := range c.Tools {
			lines = append(lines, "tool "+t.Name+" "+t.Description)
		}
	}
	for _, t := range d.Turns {
		for _, m := range t.Messages {
			for _, p := range m.Parts {
				lines = append(lines, partLine(m.Role, p, ids))
			}
		}
		in, out := int64(0), int64(0)
		if u := t.Usage; u != nil {
			in, out = u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
		}
		lines = append(lines, fmt.Sprintf("turn %d+%d %s %d calls", in, out, t.StopReason, t.ModelCalls))
	}
	return lines
}

func partLine(role string, p *document.Part, ids bool) string {
	line := role + " "
	switch {
	case p.Tool != nil:
		line += fmt.Sprintf("call %s %s", p.Tool.Name, p.Tool.Input)
		if ids {
			line += " " + p.Tool.CallID
		}
		switch {
		case p.Tool.State == "output-error":
			line += " error " + p.Tool.Error
		case len(p.Tool.Output) > 0:
			line += " output " + string(p.Tool.Output)
		default:
			line += " " + p.Tool.State
		}
	case p.Text != "":
		line += p.Type + " " + p.Text
	case len(p.Data) > 0:
		line += p.Type + " " + string(p.Data)
	default:
		line += p.Type
	}
	return line
}
