package cli_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"go.opentelemetry.io/otel"
	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/setup"
	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestCommandsThroughCollector: every command prints what it prints of a file when it asks a collector over HTTP, plain
// or with TLS and a token, and when a collector holds the file, those that change something included. While commands
// read, the collectors store telemetry.
func TestCommandsThroughCollector(t *testing.T) {
	t.Setenv("AGENTTRACE_PRICES", filepath.Join("..", "..", "session", "price", "testdata", "litellm.json"))
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name+".db") }
	for _, name := range []string{"file", "remote", "held", "beside", "guarded"} {
		newStore(t, path(name), fixture())
	}
	at := func(name string) place {
		return place{name, map[string]string{"AGENTTRACE_STORE": path(name)}, strings.NewReplacer(path(name), "STORE")}
	}
	through := func(name, address string, env map[string]string) place {
		env["AGENTTRACE_REMOTE"] = address
		return place{name, env, strings.NewReplacer(path(name), "STORE", address, "STORE")}
	}
	certificate, key := selfSigned(t)
	remote := collecting(t, path("remote"), collector.Options{Store: path("remote")})
	held := collecting(t, path("held"), collector.Options{Store: path("held")})
	view, otlp := testscale.MustAddress(), testscale.MustAddress()
	collecting(t, path("guarded"), collector.Options{Config: []string{"yaml:" + fmt.Sprintf(`
extensions:
  bearertokenauth: {token: secret}
  session_view:
    endpoint: %q
    auth: {authenticator: bearertokenauth}
    tls: {cert_file: %q, key_file: %q}
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {session: {path: %q}}
service:
  telemetry: {metrics: {level: none}}
  extensions: [bearertokenauth, session_view]
  pipelines: {traces: {receivers: [otlp], exporters: [session]}, logs: {receivers: [otlp], exporters: [session]}}
`, view, certificate, key, otlp, path("guarded"))}})
	compareOutputs(t, []string{"ls --all", "show last --json", "search test", "export " + main, "title last titled",
		"import ../../session/codec/testdata/reference.jsonl", "rm " + main + " --yes", "ls --all", "show nothing"},
		at("beside"), through("guarded", "https://"+view,
			map[string]string{"AGENTTRACE_TOKEN": "secret", "SSL_CERT_FILE": certificate}))
	places := []place{at("file"), at("held"), through("remote", "http://"+remote.ViewEndpoint(),
		map[string]string{"AGENTTRACE_TOKEN_FILE": path("remote") + ".key"})}
	compareOutputs(t, importing(t), places...)
	stop := deliverAgain(t, remote.HTTPEndpoint(), held.HTTPEndpoint())
	compareOutputs(t, slices.Concat(reading, []string{
		"stats --by week", "ls --since 99999999h", "stats --since 99999999h", "stats --json", "ls --json",
		"show last --json",
	}), places...)
	stop()
	compareOutputs(t, slices.Concat(changes, rewinding), places...)
}

// An evaluation that arrives before what it evaluates is a score of it. One that a user took back stays so when it is
// delivered again, and one that was changed stays as the user has it.
func TestEvaluationsBecomeScores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	c := collecting(t, path, collector.Options{Store: path})
	archive, err := txtar.ParseFile("testdata/evaluations.otlp")
	testscale.Must(t, err)
	send := func() {
		for _, request := range archive.Files {
			url := "http://" + c.HTTPEndpoint() + "/v1/" + strings.Fields(request.Name)[0]
			resp, err := http.Post(url, "application/json", bytes.NewReader(request.Data))
			testscale.Must(t, err)
			if resp.Body.Close(); resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", request.Name, resp.Status)
			}
		}
	}
	annotate := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "agenttrace",
			append([]string{"--store", path, "edit", "last"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	send()
	list := annotate("--list")
	for _, want := range []string{"relevance=0.9 relevant: It is about cats. (judge)", "solved=yes (judge)"} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in\n%s", want, list)
		}
	}
	annotate("--remove", regexp.MustCompile(`ann_\S+`).FindString(list[:strings.Index(list, "relevance")]))
	annotate("--turn", "1", "--score", "solved=0.5", "--author", "judge")
	send()
	if list = annotate("--list"); strings.Contains(list, "relevance") || strings.Count(list, "solved") != 1 {
		t.Errorf("after another delivery:\n%s", list)
	}
}

// The SDK gives scores to a session, a turn, an answer and a tool call, while the agent works and afterwards, with
// events and without. Files of every complete format keep them.
func TestScoresOfTheSDKAreStoredAndExported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	c := collecting(t, path, collector.Options{Store: path})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+c.HTTPEndpoint())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_SERVICE_NAME", "coder")
	shutdown, err := setup.Init(t.Context())
	testscale.Must(t, err)
	tracer := agenttrace.New(agenttrace.Options{LoggerProvider: otel.GetLoggerProvider()})
	session := tracer.NewSession(t.Context(), agenttrace.SessionOptions{ID: "ses_scored", Agent: "coder"})
	ctx, run := session.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	ctxCall, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	call.Text("working")
	agenttrace.Score(ctxCall, agenttrace.ScoreOptions{Name: "tone", Label: "calm"})
	call.End(agenttrace.ModelResult{}, nil)
	ctxTool, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash", Input: "ls"})
	agenttrace.Score(ctxTool, agenttrace.ScoreOptions{Name: "needed", Value: new(0.25), Author: "nightly"})
	tool.End("x")
	agenttrace.Score(ctx, agenttrace.ScoreOptions{Name: "solved", Label: "no"})
	agenttrace.Score(ctx, agenttrace.ScoreOptions{
		Name: "solved", Label: "yes", Explanation: "Bearer abcdefghijklmnopqrstuvwxyz0123",
	})
	agenttrace.Score(ctx, agenttrace.ScoreOptions{Name: "neither"})
	session.Score(ctx, agenttrace.ScoreOptions{
		Name: "overall", Value: new(0.5), Label: "fair", Explanation: "It is slow.",
	})
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	session = agenttrace.New(agenttrace.Options{}).NewSession(ctx, agenttrace.SessionOptions{ID: "ses_scored"})
	session.Score(ctx, agenttrace.ScoreOptions{Name: "late", Value: new(0.75), MessageID: turn.UserMessageID()})
	session.Score(ctx, agenttrace.ScoreOptions{Name: "last", Value: new(1.0), Author: "judge"})
	testscale.Must(t, shutdown(t.Context()))
	list := func(path string) string {
		out := command(t, 0, "--store", path, "edit", "ses_scored", "--list")
		lines := strings.Split(regexp.MustCompile(`(?m)^\S+ +(.*?) +ann_.*$|ann_\S+ +`).ReplaceAllString(out, "$1"), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	have := list(path)
	for _, want := range []string{"session  score  last=1 (judge)",
		"session  score  overall=0.5 fair: It is slow. (coder)",
		"turn 1  score  late=0.75 (coder)", "turn 1  score  solved=yes: Bearer [redacted:authorization] (coder)",
		"turn 1  score  tone=calm (coder)", "turn 1, part " + tool.PartID() + "  score  needed=0.25 (nightly)"} {
		if !strings.Contains(have, want) {
			t.Errorf("%q is not in\n%s", want, have)
		}
	}
	other := filepath.Join(t.TempDir(), "other.db")
	for _, format := range []string{"otlp-json", "otlp-proto", "jsonl"} {
		file := filepath.Join(t.TempDir(), "scores")
		command(t, 0, "--store", path, "export", "ses_scored", "--format", format, "--output", file)
		command(t, 0, "--store", other+format, "import", file)
		if again := list(other + format); again != have {
			t.Errorf("after %s:\n%s\nwant\n%s", format, again, have)
		}
	}
	table := command(t, 0, "--store", path, "export", "ses_scored", "--format", "csv")
	for _, want := range []string{"overall=0.5 fair", "needed=0.25"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
}

// The health check of docker-compose.yml succeeds while the collector serves its sessions, and fails without it.
func TestHealthCheckOfCompose(t *testing.T) {
	b := testscale.ReadFile(t, "../../docker-compose.yml")
	var compose struct {
		Services map[string]struct{ Healthcheck struct{ Test []string } }
	}
	testscale.Must(t, yaml.Unmarshal(b, &compose))
	check := compose.Services["collector"].Healthcheck.Test
	if len(check) < 3 || check[0] != "CMD" || check[1] != "/agenttrace" {
		t.Fatalf("the check is %q", check)
	}
	const address = "http://localhost:4320"
	if !slices.Contains(check, address) {
		t.Fatalf("the check %q asks somebody else than %s", check, address)
	}
	c := collecting(t, "", collector.Options{Store: filepath.Join(t.TempDir(), "s.db")})
	t.Setenv("AGENTTRACE_TOKEN_FILE", c.Store()+".key")
	for _, test := range []struct {
		address string
		healthy bool
	}{{"http://" + c.ViewEndpoint(), true}, {"http://" + testscale.MustAddress(), false}} {
		args := strings.Fields(strings.ReplaceAll(strings.Join(check[2:], " "), address, test.address))
		out, err := exec.CommandContext(t.Context(), "agenttrace", args...).CombinedOutput()
		if (err == nil) != test.healthy {
			t.Errorf("agenttrace %q: %v\n%s", args, err, out)
		}
	}
}

// deliverAgain sends telemetry that was stored already to the collectors, each up to four times, until stop is called:
// they do all of the work of storing it, and change nothing.
func deliverAgain(t *testing.T, endpoints ...string) (stop func()) {
	t.Helper()
	files := telemetry(t)
	ctx, cancel := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	sent := make([]int, len(endpoints))
	for i, endpoint := range endpoints {
		senders.Go(func() {
			for ctx.Err() == nil && sent[i] < 4*len(files) {
				body, err := os.ReadFile(files[sent[i]%len(files)])
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := http.Post("http://"+endpoint+"/v1/traces", "application/json", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				if resp.Body.Close(); resp.StatusCode != http.StatusOK {
					t.Errorf("%s was answered with %s", files[sent[i]%len(files)], resp.Status)
					return
				}
				sent[i]++
			}
		})
	}
	return func() {
		cancel()
		senders.Wait()
		t.Logf("requests that were sent meanwhile: %d", sent)
		for i, n := range sent {
			if n < len(files) {
				t.Errorf("collector %d stored %d requests only", i, n)
			}
		}
	}
}

// selfSigned returns files with a certificate of 127.0.0.1 and its key.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testscale.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	testscale.Must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	testscale.Must(t, err)
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		testscale.WriteFile(t, path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", encoded)
}

// collecting runs a collector that holds the store at a path.
func collecting(t *testing.T, path string, o collector.Options) *collector.Running {
	t.Helper()
	c, err := collector.Start(t.Context(), o)
	testscale.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path + ".sock"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket of %s is left: %v", path, err)
		}
	})
	return c
}
