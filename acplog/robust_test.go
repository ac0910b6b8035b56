package acplog_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agenttrace/agenttrace/acplog"
	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

type nilStringer struct{ text string }

func (s *nilStringer) String() string { return s.text }

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("in MarshalJSON") }

type panicsAsText struct{}

func (panicsAsText) MarshalText() ([]byte, error) { panic(errors.New("in MarshalText")) }

type panicsAsError struct{}

func (panicsAsError) Error() string { panic("in Error") }

type panicsAsString struct{}

func (panicsAsString) String() string { panic("in String") }

type panicsAsLogValue struct{}

func (panicsAsLogValue) LogValue() slog.Value { panic("in LogValue") }

type invalid struct{}

func (invalid) MarshalJSON() ([]byte, error) { return []byte("{"), nil }

type node struct {
	Next *node
	Any  any
}

func hostile() object {
	ring := &node{}
	ring.Next = ring
	cyclic := object{}
	cyclic["in"] = cyclic
	list := []any{nil}
	list[0] = list
	return object{
		"typed nil error": (*nilError)(nil), "typed nil stringer": (*nilStringer)(nil), "nil": nil,
		"nil in a list": []error{(*nilError)(nil)},
		"MarshalJSON":   panics{}, "MarshalJSON within": []any{object{"x": panics{}}},
		"MarshalText": panicsAsText{},
		"key":         map[panicsAsText]int{{}: 1},
		"Error":       panicsAsError{}, "String": panicsAsString{}, "LogValue": panicsAsLogValue{},
		"invalid":    invalid{},
		"cyclic map": cyclic, "cyclic pointer": ring, "cyclic list": list, "cyclic in an interface": &node{Any: cyclic},
		"func": func() {}, "channel": make(chan int), "complex": 1i, "NaN": math.NaN(),
		"infinite": []float64{math.Inf(1)},
		"no UTF-8": "\xff\xfe", "no UTF-8 in a list": []string{"\xff"},
	}
}

// Whatever is logged, the agent goes on, and the record has the error.
func TestAgentSurvivesWhateverIsLogged(t *testing.T) {
	for name, v := range hostile() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, acplog.Options{}, withLogging, func(t *testing.T, c *client, l *slog.Logger, _ *acplog.Handler) {
				l.With("before", 1, "with", v, "logger", v).Error("it broke", "logger", v)
				l.WithGroup("g").Error("it broke", "after", 1, "value", v)
				if len(c.sent) != 2 {
					t.Fatalf("sent %v", c.sent)
				}
				g, _ := c.sent[1].data()["g"].(object)
				if data := c.sent[0].data(); data["before"] != 1.0 || g["after"] != 1.0 {
					t.Errorf("what stood beside is lost: %v, %v", data, g)
				}
			})
		})
	}
	c, l, _ := newLogger(t, acplog.Options{}, withLogging)
	l.Error("", "err", (*nilError)(nil), "p", panics{}, "ring", hostile()["cyclic pointer"])
	data := c.sent[0].data()
	if data["err"] != "<nil>" || data["p"] != "!PANIC: in MarshalJSON" ||
		!strings.HasPrefix(data["ring"].(string), "!ERROR:") {
		t.Errorf("data %v", data)
	}
}

func TestIntegersAreExact(t *testing.T) {
	inBubble(t, acplog.Options{}, withLogging, func(t *testing.T, c *client, l *slog.Logger, _ *acplog.Handler) {
		l.Info("m", "min", int64(math.MinInt64), "max", uint64(math.MaxUint64), "any",
			[]any{uint64(math.MaxUint64 - 1)}, "number", json.Number("12345678901234567890123"), "f", 0.1)
		for _, want := range []string{`"min":-9223372036854775808`, `"max":18446744073709551615`,
			`"any":[18446744073709551614]`, `"number":12345678901234567890123`, `"f":0.1`} {
			if !strings.Contains(c.sent[0].line, want) {
				t.Errorf("%s lacks %s", c.sent[0].line, want)
			}
		}
	})
}

// No text of a record leaves with a secret in it.
func TestNoFieldLeavesWithASecret(t *testing.T) {
	const core = "aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"
	secret := "ghp_" + core
	for _, initialize := range []string{withLogging, withNotices} {
		for name, log := range map[string]func(*slog.Logger){
			"message":          func(l *slog.Logger) { l.Info(secret) },
			"logger":           func(l *slog.Logger) { l.Info("m", "logger", secret) },
			"logger of With":   func(l *slog.Logger) { l.With("logger", secret).Info("m") },
			"value":            func(l *slog.Logger) { l.Info("m", "k", secret) },
			"key":              func(l *slog.Logger) { l.Info("m", secret, 1) },
			"group":            func(l *slog.Logger) { l.WithGroup(secret).Info("m", "k", 1) },
			"key of a map":     func(l *slog.Logger) { l.Info("m", "k", map[string]int{secret: 1}) },
			"error":            func(l *slog.Logger) { l.Info("m", "err", errors.New(secret)) },
			"bytes of JSON":    func(l *slog.Logger) { l.Info("m", "k", json.RawMessage(`{"password":"`+core+`"}`)) },
			"under its name":   func(l *slog.Logger) { l.Info("m", "password", core) },
			"panic":            func(l *slog.Logger) { l.Info("m", "k", panicsWith(secret)) },
			"cut in the midst": func(l *slog.Logger) { l.Info(strings.Repeat("x", 16<<10-50) + " " + secret) },
		} {
			t.Run(name, func(t *testing.T) {
				o := acplog.Options{SessionID: inSession("s")}
				inBubble(t, o, initialize, func(t *testing.T, c *client, l *slog.Logger, _ *acplog.Handler) {
					log(l)
					if len(c.sent) != 1 || strings.Contains(c.sent[0].line, core[:12]) {
						t.Errorf("sent %v", c.sent)
					}
				})
			})
		}
		c, l, _ := newLogger(t, acplog.Options{Logger: secret, SessionID: inSession("s")}, initialize)
		if l.Info("m"); strings.Contains(c.sent[0].line, core) {
			t.Errorf("the option Logger: %v", c.sent)
		}
	}
}

type panicsWith string

func (p panicsWith) MarshalJSON() ([]byte, error) { panic(string(p)) }

// traced is a turn whose data-log parts can be counted.
func traced(t *testing.T) (ctx context.Context, end func() []string) {
	t.Helper()
	rec := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec})
	sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"})
	ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hi"}, agenttrace.TurnOptions{})
	return ctx, func() []string {
		turn.End(agenttrace.TurnResult{})
		run.End(nil)
		var parts []string
		for _, p := range rec.All().Turns()[0].Assistant.Parts {
			parts = append(parts, string(p.Data))
		}
		return parts
	}
}

// The rate is the client's: the session has every record, and the client the error
// that came when the rate was used up, and what was dropped before it.
func TestFloodReachesTheSessionAndItsErrorTheClient(t *testing.T) {
	now := func() time.Time { return time.Unix(1e9, 0) }
	o := acplog.Options{Level: slog.LevelDebug, Now: now}
	inBubble(t, o, withLogging, func(t *testing.T, c *client, l *slog.Logger, _ *acplog.Handler) {
		ctx, end := traced(t)
		for i := range 250 {
			l.DebugContext(ctx, "noise", "i", i)
			l.InfoContext(ctx, "again", "i", i)
		}
		l.WarnContext(ctx, "careful")
		l.ErrorContext(ctx, "it broke")
		for range 1000 {
			l.ErrorContext(ctx, "and again")
		}
		l.Log(ctx, acplog.LevelEmergency, "on fire")
		levels := make(map[string]int)
		for _, s := range c.sent {
			levels[s.params["level"].(string)]++
		}
		last := c.sent[len(c.sent)-1]
		if levels["debug"] > 50 || levels["info"] < 50 || levels["warning"] != 1 || levels["error"] < 10 ||
			levels["error"] > 50 || levels["emergency"] != 1 {
			t.Errorf("the client got %v", levels)
		}
		if last.data()["agenttrace.dropped"].(float64) < 700 {
			t.Errorf("the last record: %v", last)
		}
		if parts := end(); len(parts) != 2*250+2+1000+1 {
			t.Errorf("the session has %d records", len(parts))
		}
	})
}

// A client that does not read costs the agent next to nothing, and gets the worst of
// what it missed when it reads again.
func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := traced(t)
		c, reads := new(client), make(chan struct{})
		_, l, h := newLogger(t, acplog.Options{Burst: 100_000,
			Notify: func(ctx context.Context, method string, params any) error {
				<-reads
				return c.notify(ctx, method, params)
			}}, withLogging)
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			for i := range 1000 {
				l.InfoContext(ctx, "again", "i", i)
				if i%100 == 0 {
					l.ErrorContext(ctx, "it broke", "i", i)
				}
			}
		}()
		select {
		case <-logged:
		case <-time.After(30 * time.Second):
			t.Fatal("the agent is blocked")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := h.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush: %v", err)
		}
		close(reads)
		if err := h.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		broke := 0
		for _, s := range c.sent {
			if s.params["message"] == "it broke" {
				broke++
			}
		}
		if broke != 10 || len(c.sent) > 300 {
			t.Errorf("the client got %d records, %d of 10 errors", len(c.sent), broke)
		}
		if parts := end(); len(parts) != 1010 {
			t.Errorf("the session has %d records", len(parts))
		}
	})
}

// A record that is logged after its context was canceled has the reason.
func TestRecordUnderACanceledContext(t *testing.T) {
	o := acplog.Options{Notify: func(ctx context.Context, _ string, _ any) error { return ctx.Err() }}
	inBubble(t, o, withLogging, func(t *testing.T, _ *client, l *slog.Logger, h *acplog.Handler) {
		ctx, end := traced(t)
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		l.ErrorContext(ctx, "canceled")
		if err := h.Flush(t.Context()); err != nil || h.Failed() != 0 {
			t.Errorf("%d failed, %v", h.Failed(), err)
		}
		if parts := end(); len(parts) != 1 {
			t.Errorf("the session has %q", parts)
		}
	})
}

// A client that is gone, and a function of the agent's that panics or ends its goroutine, as a test's does that fails,
// end neither the program nor the log.
func TestNotifyThatFails(t *testing.T) {
	for name, fail := range map[string]func() error{
		"client gone": func() error { return errors.New("broken pipe") },
		"panic":       func() error { panic("no connection") },
		"exit":        func() error { runtime.Goexit(); return nil },
	} {
		sent := 0
		_, l, h := newLogger(t, acplog.Options{Notify: func(context.Context, string, any) error {
			if sent++; sent%2 == 1 {
				return fail()
			}
			return nil
		}}, withLogging)
		for range 10 {
			l.Info("m")
		}
		if err := h.Flush(t.Context()); err != nil || sent != 10 || h.Failed() != 5 {
			t.Errorf("%s: %d sent, %d failed, %v", name, sent, h.Failed(), err)
		}
	}
}

// A client that takes its time with every record does not take the agent's.
func TestClientThatReadsSlowly(t *testing.T) {
	o := acplog.Options{PerSecond: 1000, Notify: func(context.Context, string, any) error {
		time.Sleep(40 * time.Millisecond)
		return nil
	}}
	inBubble(t, o, withLogging, func(t *testing.T, _ *client, l *slog.Logger, h *acplog.Handler) {
		start := time.Now() // of the bubble, whose clock stands still while anything runs
		for range 50 {
			l.Info("m")
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the agent waited %v for 50 records", took)
		}
		_ = h.Close(context.Background())
		synctest.Wait()
	})
}

// What is too long for a client is cut, with a mark; the session has it as it is.
func TestRecordOf8MB(t *testing.T) {
	inBubble(t, acplog.Options{}, withLogging, func(t *testing.T, c *client, l *slog.Logger, _ *acplog.Handler) {
		ctx, end := traced(t)
		long := strings.Repeat("spam and ham ", 8<<20/13)
		l.ErrorContext(ctx, long, "output", long, "exit", 1, "list", strings.Split(long, " "))
		l.ErrorContext(ctx, "m", long, 1)
		for _, s := range c.sent {
			if len(s.line) > 40<<10 || !strings.Contains(s.line, "__TRUNCATED__[") {
				t.Errorf("%d bytes are sent: %.100s", len(s.line), s.line)
			}
		}
		if data := c.sent[0].data(); data["exit"] != 1.0 {
			t.Errorf("what is short is lost: %.200v", data)
		}
		if parts := end(); len(parts) != 2 || !strings.Contains(parts[0], "data-log") {
			t.Errorf("the session has %d parts", len(parts))
		}
	})
}

func TestClosedHandlerIsSilent(t *testing.T) {
	inBubble(t, acplog.Options{}, withLogging, func(t *testing.T, c *client, l *slog.Logger, h *acplog.Handler) {
		l.Info("before")
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
		l.Info("after")
		if len(c.sent) != 1 {
			t.Errorf("sent %v", c.sent)
		}
	})
}

const envAgent = "ACPLOG_TEST_AGENT"

// TestMain is also the agent whose client goes away.
func TestMain(m *testing.M) {
	if os.Getenv(envAgent) != "" {
		agentWithoutClient()
		return
	}
	os.Exit(m.Run())
}

func agentWithoutClient() {
	wire := acplog.NewWire(os.Stdin, os.Stdout)
	h := acplog.New(acplog.Options{Notify: wire.Notify})
	wire.OnInitialize(h.Initialize)
	lines := bufio.NewScanner(wire)
	lines.Scan() // initialize
	fmt.Fprintln(wire, `{"jsonrpc":"2.0","id":0,"result":{}}`)
	lines.Scan() // until the client is gone
	for range 10 {
		slog.New(h).Info("is anybody there?")
	}
	_ = h.Flush(context.Background())
	fmt.Fprintln(os.Stderr, "failed:", h.Failed())
}

// An agent outlives its client: it has its work to save.
func TestAgentSurvivesAClientThatIsGone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGPIPE")
	}
	self, err := os.Executable()
	testscale.Must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envAgent+"=1")
	in, err := cmd.StdinPipe()
	testscale.Must(t, err)
	r, w, err := os.Pipe()
	testscale.Must(t, err)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	testscale.Must(t, cmd.Start())
	_ = w.Close()
	if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+withLogging+
		"}\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Error(err)
	}
	_, _ = r.Close(), in.Close()
	if err := cmd.Wait(); err != nil || stderr.String() != "failed: 10\n" {
		t.Errorf("the agent ended with %v: %s", err, stderr.String())
	}
}

// The lines of the library and of the handler do not mix, however they are written.
func TestWireKeepsLinesWhole(t *testing.T) {
	r, w := io.Pipe()
	wire := acplog.NewWire(strings.NewReader(""), w)
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			for i := range 200 {
				if n < 3 {
					if err := wire.Notify(t.Context(), "log", object{"from": n, "i": i}); err != nil {
						t.Error(err)
					}
					continue
				}
				line := fmt.Sprintf(`{"from":%d,"i":%d}`, n, i) + "\n"
				for _, p := range []string{line[:3], line[3:5], line[5:]} { // the library's only writer
					if k, err := io.WriteString(wire, p); err != nil || k != len(p) {
						t.Error(k, err)
					}
				}
			}
		})
	}
	go func() {
		writers.Wait()
		w.Close()
	}()
	lines := 0
	for s := bufio.NewScanner(r); s.Scan(); lines++ {
		if !json.Valid(s.Bytes()) {
			t.Fatalf("line %q", s.Text())
		}
	}
	if lines != 800 {
		t.Errorf("%d lines", lines)
	}
}

// The wire finds the initialize request wherever the reads cut it.
func TestWireFindsInitialize(t *testing.T) {
	stream := `{"jsonrpc":"2.0","method":"x","params":"` + strings.Repeat("initialize", 200_000) + `"}` +
		"\nno JSON: initialize\n" + `{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + withLogging + "}\r\n" +
		`{"jsonrpc":"2.0","id":2,"method":"session/new"}` + "\n"
	for _, size := range []int{1, 7, 4096, 1 << 20} {
		var got []string
		wire := acplog.NewWire(strings.NewReader(stream), io.Discard)
		wire.OnInitialize(func(params json.RawMessage) error {
			got = append(got, string(params))
			return errors.New("not understood")
		})
		var read bytes.Buffer
		if _, err := io.CopyBuffer(&read, struct{ io.Reader }{wire}, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if read.String() != stream || len(got) != 1 || got[0] != withLogging {
			t.Errorf("by %d bytes: %d bytes are read, initialized with %q", size, read.Len(), got)
		}
	}
}

// A client that does not read holds a notification up only as long as its context.
func TestWireWaitsNoLongerThanItsContext(t *testing.T) {
	stuck := blocked{entered: make(chan struct{}), leave: make(chan struct{})}
	defer close(stuck.leave)
	wire := acplog.NewWire(strings.NewReader(""), stuck)
	go func() { _, _ = io.WriteString(wire, "{}\n") }()
	<-stuck.entered
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := wire.Notify(ctx, "log", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// blocked is a pipe that nobody reads.
type blocked struct{ entered, leave chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	close(b.entered)
	<-b.leave
	return len(p), nil
}

// FuzzHandler: any record becomes one line of valid JSON, of bounded length.
func FuzzHandler(f *testing.F) {
	f.Add("message", "key", "value", "group", int64(1), []byte(`{"a":[1]}`))
	f.Add("", "", "\xff", "", int64(math.MinInt64), []byte("{"))
	f.Add("password=hunter2", "logger", "x", "logger", int64(0), []byte(`[[[[]]]]`))
	f.Fuzz(func(t *testing.T, message, key, value, group string, n int64, doc []byte) {
		c, l, _ := newLogger(t, acplog.Options{MaxBytes: 1000}, withLogging)
		l.With(key, value).WithGroup(group).Info(message, key, n,
			slog.Group(group, key, value, "doc", json.RawMessage(doc)), "v", doc)
		if len(c.sent) != 1 {
			t.Fatalf("sent %v", c.sent)
		}
		line := c.sent[0].line
		// Of a name, a message and data each at most 1000 bytes are left, which escapes make six times as long.
		if !json.Valid([]byte(line)) || len(line) > 20_000 {
			t.Errorf("sent %q", line)
		}
	})
}
