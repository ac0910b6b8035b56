package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/replay"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

// replayer is one run of replay.
type replayer struct {
	output
	Run, Session, Local, JSON, Full         bool
	Format, Endpoint, Model, Effort, KeyEnv string
	Header, Tools                           []string
	Turn, From, MaxCalls                    int
	Timeout                                 time.Duration

	cmd    *cobra.Command
	bundle *replay.Bundle // what the model was given
}

func newReplay() *cobra.Command {
	var p replayer
	return described("replay", &p, func(cmd *cobra.Command, args []string) error {
		if p.Session && len(args) > 1 {
			return nil
		} else if p.Session {
			return usagef("--session runs the agent again; name its command after a --, as in replay %s --session -- claude",
				"last")
		}
		return exactly(1, "a session")(cmd, args)
	}, func(cmd *cobra.Command, args []string) error {
		p.cmd = cmd
		if p.Session {
			return p.play(args[0], args[1:])
		}
		if err := p.check(); err != nil {
			return err
		}
		if p.Run {
			return p.ask(args[0])
		}
		return withSession(cmd, args[0], func(ctx context.Context, r document.Reader, id string) error {
			in, err := document.Collect(ctx, r, id)
			if err != nil {
				return err
			}
			if doc := document.Build(in); p.Format == "" && p.Output == "" {
				return p.report(doc)
			} else if p.bundle, err = replay.ForTurn(doc, in.Transcript, p.Turn, p.Model, p.Effort); err != nil {
				return err
			}
			p.source = r.Name()
			return p.write()
		})
	})
}

func replayFormats() string {
	var b strings.Builder
	for _, f := range replay.Formats() {
		fmt.Fprintf(&b, "  %-16s  %s\n", f.Name, f.Title)
	}
	fmt.Fprintf(&b, "  %-16s  %s\n", replay.BundleName, "the request in a provider-neutral form, with what is missing")
	return b.String()
}

// check finds what on the command line contradicts itself.
func (p *replayer) check() error {
	switch {
	case p.Format != "" && p.Format != replay.BundleName && replay.FormatOf(p.Format) == nil:
		return usagef("unknown format %q: use %s", p.Format, either(replay.Names()))
	case p.Run:
		return p.checkRun()
	}
	switch writes := p.Format != "" || p.Output != ""; {
	case !writes && (p.Model != "" || p.Effort != ""):
		return usagef("--model and --effort are for requests; add --format or --run")
	case p.Output != "" && p.Format == "" && !p.toDirectory():
		return usagef("--output %s needs --format; name a directory, ending in a slash, for all formats", p.Output)
	case p.Format != "" && p.toDirectory():
		return usagef("--output %s is a directory, which gets all formats; leave out --format, or name a file",
			p.Output)
	}
	return nil
}

func (p *replayer) checkRun() error {
	switch {
	case p.Format == replay.BundleName:
		return usagef("a bundle is not a request; use --format %s with --run",
			either(replay.Names()[:len(replay.Names())-1]))
	case p.Timeout <= 0:
		return usagef("--timeout %s is not a time to wait; give more than 0", p.Timeout)
	}
	return nil
}

func (p *replayer) toDirectory() bool {
	if p.Output == "" {
		return false
	}
	info, err := os.Stat(p.Output)
	return err == nil && info.IsDir() || os.IsPathSeparator(p.Output[len(p.Output)-1])
}

// report prints which turns can be rerun, or whether the one that is named can.
func (p *replayer) report(doc *document.Document) (err error) {
	verdict := doc.Eligibility()
	if p.Turn > 0 {
		one := doc.TurnEligibility(p.Turn)
		if one == nil {
			return doc.NoTurn(p.Turn)
		}
		verdict = &document.Eligibility{SessionID: doc.Session.ID, Eligible: one.Eligible,
			Turns: []*document.TurnEligibility{one}}
	}
	if p.JSON {
		err = writeJSON(p.cmd, verdict)
	} else {
		o := terminal(p.cmd)
		o.Full = p.Full || p.Turn > 0
		err = render.Eligibility(p.cmd.OutOrStdout(), verdict, o)
	}
	if err == nil && !verdict.Eligible {
		err = errFinding
	}
	return err
}

// write writes the request of a turn, or all forms of it.
func (p *replayer) write() error {
	p.warn()
	if !p.toDirectory() {
		return p.output.write(p.cmd, p.Output, true, func(w io.Writer) error { return p.bundle.Encode(w, p.Format) })
	}
	if err := makeDirectory(p.Output); err != nil {
		return err
	}
	for _, name := range replay.Names() {
		path := filepath.Join(p.Output, name+".json")
		encode := func(w io.Writer) error { return p.bundle.Encode(w, name) }
		if err := p.file(path, true, encode); err != nil {
			return err
		}
		fmt.Fprintln(p.cmd.OutOrStdout(), document.Sanitize(path))
	}
	return nil
}

// warn says on standard error what the requests do not hold.
func (p *replayer) warn() {
	for _, m := range p.bundle.Missing {
		_ = note(p.cmd, "missing: %s: %s\n", strings.ReplaceAll(m.What, "_", " "), document.Sanitize(m.Why))
	}
	for _, n := range p.bundle.Notes {
		_ = note(p.cmd, "note: %s\n", n)
	}
}

func (p *replayer) client() (*replay.Client, error) {
	c := &replay.Client{Format: replay.Formats()[0], Endpoint: p.Endpoint, MaxCalls: p.MaxCalls, Header: http.Header{}}
	if p.Format != "" {
		c.Format = replay.FormatOf(p.Format)
	}
	if _, err := c.URL(); err != nil {
		return nil, usagef("%w", err)
	}
	env := c.Format.KeyEnv
	if p.KeyEnv != "" {
		env = p.KeyEnv
	}
	if env != "" {
		c.Key = os.Getenv(env)
	}
	if c.Key == "" && p.KeyEnv != "" {
		return nil, usagef("%s is empty, or not in the environment; "+
			"set it to the key of the API, or leave out --key-env",
			p.KeyEnv)
	}
	for _, h := range p.Header {
		name, value, ok := strings.Cut(h, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usagef("--header %q is not a header; write it as %q", h, "name: value")
		}
		c.Header.Add(name, strings.TrimSpace(value))
	}
	var err error
	c.Redactor, err = redact.New(redact.Config{MaxBytes: ingest.DefaultMaxBytes})
	return c, err
}

func (p *replayer) ask(name string) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	// The store is taken first, so that no answer is paid for that cannot be kept.
	err = withIdle(p.cmd, name, func(ctx context.Context, s store.Service, of *web.Conversation) error {
		b, err := replay.ForTurn(of.Timeline, of.Transcript, p.Turn, p.Model, p.Effort)
		if err != nil {
			return err
		}
		if p.bundle = b; b.MessageID == "" {
			return usagef("turn %d of session %s has no user message to ask again; choose another with --turn", b.Turn,
				of.ID)
		}
		if !b.Eligible && !p.Force {
			p.warn()
			return usagef("turn %d of session %s is not replay-eligible; add --force to ask with what there is", b.Turn,
				of.ID)
		}
		if p.Model != "" {
			b.Model.ProviderID = c.Provider()
		}
		asking, cancel := context.WithTimeout(ctx, p.Timeout)
		defer cancel()
		a, err := b.Run(asking, c)
		if err != nil {
			return p.refused(err, c)
		}
		ctx = context.WithoutCancel(ctx) // what has come is kept, also when nobody waits for more
		fork, err := keepAnswer(ctx, s, of, c, b, a)
		if err == nil {
			err = p.printReport(a, fork)
		}
		if err == nil {
			err = a.Err
		}
		return err
	})
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("%w; stop it, or replay in a copy: agenttrace store backup copy.db", err)
	}
	return err
}

// keepAnswer stores an answer in a fork of the session, and returns its id.
func keepAnswer(ctx context.Context, s store.Service, of *web.Conversation, c *replay.Client, b *replay.Bundle,
	a *replay.Answer) (fork string, err error) {
	title := replayTitle(of.Transcript.Session.Title, b)
	fork, err = s.Fork(ctx, store.ForkOptions{From: of.ID, Message: b.MessageID, Title: title, Now: time.Now()})
	if errors.Is(err, store.ErrHidden) {
		return "", usagef("%w; rewind --undo brings it back", err)
	}
	if err != nil {
		return "", err
	}
	changes, err := a.Changes(b, c, fork)
	if err != nil {
		return "", err
	}
	// The fork is the newest session, also where the clock of what recorded another is
	// ahead of this one: "last" is what was made last.
	for newest, err := range s.Sessions(ctx, store.SessionQuery{Limit: 1, Children: true}) {
		if err != nil {
			return "", err
		}
		c := &changes.Sessions[0]
		c.End = max(c.End, newest.UpdatedAt+1)
	}
	_, err = s.Apply(ctx, changes)
	return fork, err
}

func (p *replayer) refused(err error, c *replay.Client) error {
	status, isStatus := errors.AsType[*replay.StatusError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w; --timeout waits longer than %s", err, p.Timeout)
	case !isStatus || status.Code != http.StatusUnauthorized && status.Code != http.StatusForbidden:
		return err
	}
	return fmt.Errorf("%w; put a key that the server accepts into the environment variable %s, or name another "+
		"with --key-env", err, cmp.Or(p.KeyEnv, c.Format.KeyEnv, "of its own"))
}

func replayTitle(of string, b *replay.Bundle) string {
	what := fmt.Sprintf("replay of turn %d", b.Turn)
	if b.Model.ModelID != "" {
		what += " with " + b.Model.ModelID
	}
	if of == "" || of == session.Untitled {
		return strings.ToUpper(what[:1]) + what[1:]
	}
	return of + " (" + what + ")"
}

// report is what is printed of a run, as JSON.
type report struct {
	SessionID  string         `json:"session_id"`
	Turn       int            `json:"turn"`
	ForkID     string         `json:"fork_id"`
	Model      string         `json:"model"`
	ModelCalls int            `json:"model_calls"`
	StopReason string         `json:"stop_reason"`
	Reused     int            `json:"recorded_outputs"`
	Open       []string       `json:"open_calls,omitempty"`
	Limited    bool           `json:"limited,omitempty"`
	DurationMS int64          `json:"duration_ms"`
	Usage      *session.Usage `json:"usage,omitempty"`
	Error      string         `json:"error,omitempty"`
	// Took and Tokens are for a person.
	Took   time.Duration `json:"-"`
	Tokens int64         `json:"-"`
}

func (p *replayer) printReport(a *replay.Answer, fork string) error {
	b := p.bundle
	t := report{
		SessionID: b.SessionID, Turn: b.Turn, ForkID: fork, Model: a.Model.ModelID, ModelCalls: a.ModelCalls,
		StopReason: a.StopReason, Reused: a.Reused, Open: a.Open, Limited: a.Limited, Usage: a.Usage,
		DurationMS: a.Duration().Milliseconds(), Took: a.Duration().Round(time.Millisecond),
	}
	if a.Usage != nil {
		t.Tokens = a.Usage.Total()
	}
	if a.Err != nil {
		t.Error = a.Err.Error()
	}
	if p.JSON {
		return writeJSON(p.cmd, t)
	}
	_, err := io.WriteString(p.cmd.OutOrStdout(), phrases.Text("rerun", &t))
	return err
}
