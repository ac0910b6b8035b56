package deploy

import (
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/exporter/sessionexporter"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

func readText(t *testing.T, path string) string {
	t.Helper()
	b := testscale.ReadFile(t, path)
	return string(b)
}

// validCollector checks that the configuration is valid with the environment, and heeds all of it.
func validCollector(t *testing.T, config string, environment map[string]string) {
	t.Helper()
	text := readText(t, config)
	for name, value := range environment {
		t.Setenv(name, value)
		if !strings.HasPrefix(name, "PG") && !strings.Contains(text, "${env:"+name+":-") {
			t.Errorf("%s does not heed %s", config, name)
		}
	}
	if err := collector.Validate(t.Context(), collector.Options{Config: []string{config}}); err != nil {
		t.Error(err)
	}
}

// attemptTimeout is how long an attempt of the session exporter to write takes at most.
func attemptTimeout(t *testing.T) time.Duration {
	t.Helper()
	return sessionexporter.NewFactory().CreateDefaultConfig().(*sessionexporter.Config).TimeoutConfig.Timeout
}

// Several collectors are behind the load balancer and write the database of the file.
func TestCollectorsInCompose(t *testing.T) {
	c := readCompose(t, withPostgres)
	s, balancer, database := c.Services["collector"], c.Services["haproxy"], c.Services["postgres"]
	validCollector(t, "collector-postgres.yaml", s.Environment)
	if s.Deploy.Replicas < 2 {
		t.Errorf("%d collectors", s.Deploy.Replicas)
	}
	if len(s.Ports) > 0 || len(database.Ports) > 0 {
		t.Error("a port of this machine belongs to one collector, or to the database")
	}
	if grace, err := time.ParseDuration(s.StopGrace); err != nil || grace <= attemptTimeout(t) {
		t.Errorf("a collector is killed after %q, where a request may take %v", s.StopGrace, attemptTimeout(t))
	}
	if s.DependsOn["postgres"] != "service_healthy" {
		t.Error("collectors start before the database is ready")
	}

	dsn, err := url.Parse(s.Environment["AGENTTRACE_STORE"])
	testscale.Must(t, err)
	want := url.URL{Scheme: "postgres", Host: "postgres:5432", User: url.User(database.Environment["POSTGRES_USER"]),
		Path: "/" + database.Environment["POSTGRES_DB"], RawQuery: dsn.RawQuery}
	if dsn.String() != want.String() {
		t.Errorf("collectors use %s, the database is %s", dsn, &want)
	}
	password := database.Environment["POSTGRES_PASSWORD"]
	if s.Environment["PGPASSWORD"] != password || !strings.HasPrefix(password, "${PGPASSWORD:?") {
		t.Errorf("password of the database %q, of the collectors %q", password, s.Environment["PGPASSWORD"])
	}
	if !slices.Contains(database.Volumes, "postgres:/var/lib/postgresql") {
		t.Errorf("the database is not on a volume: %q", database.Volumes)
	}

	config := readText(t, "haproxy.cfg")
	for _, name := range []string{"GRPC", "HTTP", "HEALTH"} {
		_, port, err := net.SplitHostPort(s.Environment["AGENTTRACE_"+name+"_ENDPOINT"])
		if err != nil {
			t.Error(err)
		}
		if !slices.Contains(balancer.Ports, "127.0.0.1:"+port+":"+port) {
			t.Errorf("port %s of the load balancer is not published", port)
		}
		if !strings.Contains(config, "${"+name+"_PORT-"+port+"}") {
			t.Errorf("the load balancer does not use port %s", port)
		}
	}
	if !strings.Contains(config, "${COLLECTOR-collector}") {
		t.Error("the load balancer does not look up the service collector")
	}
	if _, limit, _ := strings.Cut(config, "timeout server "); parseDuration(t, limit) <= attemptTimeout(t) {
		t.Error("the load balancer gives up before a collector does")
	}
}

// parseDuration parses the duration that the text begins with.
func parseDuration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.Fields(text)[0])
	testscale.Must(t, err)
	return d
}

// Passwords come from the environment, never from an address in a file.
func TestNoPasswordInAddresses(t *testing.T) {
	password := regexp.MustCompile(`postgres(ql)?://[^\s/@]*:[^\s/@]*@|password=`)
	var files []string
	for _, pattern := range []string{"../*.yml", "*.yaml", "*.cfg", "kubernetes/*"} {
		found, err := filepath.Glob(pattern)
		testscale.Must(t, err)
		files = append(files, found...)
	}
	if len(files) < 10 {
		t.Errorf("only %q found", files)
	}
	for _, file := range files {
		if m := password.FindString(readText(t, file)); m != "" {
			t.Errorf("%s has an address with a password: %s", file, m)
		}
	}
}
