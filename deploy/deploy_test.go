package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// compose has the fields of a compose file that the tests use.
type compose struct {
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Build       string
	Image       string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Deploy      struct{ Replicas int }
	Healthcheck struct{ Test []string }
	DependsOn   dependencies `yaml:"depends_on"`
	StopGrace   string       `yaml:"stop_grace_period"`
}

// dependencies maps services to conditions. A list of services has none.
type dependencies map[string]string

func (d *dependencies) UnmarshalYAML(n *yaml.Node) error {
	*d = make(dependencies)
	var names []string
	if err := n.Decode(&names); err == nil {
		for _, name := range names {
			(*d)[name] = "service_started"
		}
		return nil
	}
	var conditions map[string]struct{ Condition string }
	err := n.Decode(&conditions)
	for name, c := range conditions {
		(*d)[name] = c.Condition
	}
	return err
}

const (
	withSQLite   = "docker-compose.yml"
	withPostgres = "docker-compose.postgres.yml"
)

// composeFiles are all compose files of the repository, with their services.
var composeFiles = map[string][]string{
	withSQLite:   {"collector", "grafana", "jaeger", "prometheus", "tempo"},
	withPostgres: {"collector", "haproxy", "postgres"},
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	b := testscale.ReadFile(t, path)
	if err := yaml.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// readCompose reads a compose file. Environment variables of services have their defaults.
func readCompose(t *testing.T, name string) compose {
	t.Helper()
	var c compose
	readYAML(t, filepath.Join("..", name), &c)
	for _, s := range c.Services {
		for name, value := range s.Environment {
			s.Environment[name] = defaults.ReplaceAllString(value, "$1")
		}
	}
	return c
}

// defaults matches a variable of a compose file with its default.
var defaults = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)

func TestCompose(t *testing.T) {
	found, err := filepath.Glob("../*compose*.y*ml")
	if err != nil || len(found) != len(composeFiles) {
		t.Errorf("compose files are %q, the tests know %d", found, len(composeFiles))
	}
	for file, want := range composeFiles {
		t.Run(file, func(t *testing.T) {
			c := readCompose(t, file)
			names := slices.Sorted(maps.Keys(c.Services))
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("services (-want +got):\n%s", diff)
			}
			for name, s := range c.Services {
				checkImage(t, name, s)
				checkMounts(t, c, name, s)
				checkDependencies(t, c, name, s)
				for _, port := range s.Ports {
					if !regexp.MustCompile(`^127\.0\.0\.1:\d+:\d+$`).MatchString(port) {
						t.Errorf("%s: port %q is published beyond this machine", name, port)
					}
				}
			}
		})
	}
}

func checkImage(t *testing.T, name string, s service) {
	t.Helper()
	if (s.Build == "") == (s.Image == "") {
		t.Errorf("%s: want either build or image", name)
	}
	if _, tag, _ := strings.Cut(s.Image, ":"); s.Image != "" && (tag == "" || tag == "latest") {
		t.Errorf("%s: image %q is not pinned to a version", name, s.Image)
	}
}

// Files are mounted for reading, and exist. Those that commands refer to are mounted.
func checkMounts(t *testing.T, c compose, name string, s service) {
	t.Helper()
	for _, volume := range s.Volumes {
		source, rest, _ := strings.Cut(volume, ":")
		if !strings.HasPrefix(source, ".") {
			if _, ok := c.Volumes[source]; !ok {
				t.Errorf("%s: volume %q is not declared", name, source)
			}
			continue
		}
		if _, err := os.Stat(filepath.Join("..", source)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.HasSuffix(rest, ":ro") {
			t.Errorf("%s: %q is mounted for writing", name, source)
		}
	}
	for _, arg := range s.Command {
		path := arg[strings.LastIndexByte(arg, '=')+1:]
		if filepath.IsAbs(path) && !slices.ContainsFunc(s.Volumes,
			func(v string) bool { return strings.Contains(v, ":"+path+":") }) {
			t.Errorf("%s: %s is not mounted", name, path)
		}
	}
}

func checkDependencies(t *testing.T, c compose, name string, s service) {
	t.Helper()
	for other, condition := range s.DependsOn {
		o, ok := c.Services[other]
		if !ok {
			t.Errorf("%s depends on %q, which is not there", name, other)
		}
		if healthy := condition == "service_healthy"; healthy != (len(o.Healthcheck.Test) > 0) {
			t.Errorf("%s depends on %s with condition %s, where the health check is %q", name, other, condition,
				o.Healthcheck.Test)
		}
	}
}

// The collector's configuration is valid with the environment in the compose file, and heeds it.
func TestCollectorInCompose(t *testing.T) {
	environment := readCompose(t, withSQLite).Services["collector"].Environment
	delete(environment, "TZ") // of Go
	validCollector(t, "collector.yaml", environment)
}

// Tempo stores its data on its volume.
func TestTempoVolume(t *testing.T) {
	var config struct {
		Server struct {
			HTTPListenPort int `yaml:"http_listen_port"`
		}
		Storage struct {
			Trace struct{ WAL, Local struct{ Path string } }
		}
	}
	readYAML(t, "tempo.yaml", &config)
	for _, path := range []string{config.Storage.Trace.WAL.Path, config.Storage.Trace.Local.Path} {
		if !strings.HasPrefix(path, "/var/tempo/") {
			t.Errorf("path %q is not on the volume", path)
		}
	}
	s := readCompose(t, withSQLite).Services["tempo"]
	if !slices.Contains(s.Volumes, "tempo:/var/tempo") || !slices.Contains(s.Command, "-target=all") {
		t.Errorf("tempo: volumes %q, command %q", s.Volumes, s.Command)
	}
	if config.Server.HTTPListenPort != 3200 {
		t.Errorf("tempo serves on port %d, the compose file and the data source say 3200", config.Server.HTTPListenPort)
	}
}

// The image does not run as root and has the store on a volume that its user owns.
func TestDockerfile(t *testing.T) {
	b := testscale.ReadFile(t, "../Dockerfile")
	_, final, _ := strings.Cut(string(b), "\nFROM scratch\n")
	for _, line := range []string{
		"COPY --from=build --chown=10001:10001 /out/store /var/lib/agenttrace",
		"USER 10001:10001", "ENV AGENTTRACE_STORE=/var/lib/agenttrace/sessions.db", "VOLUME /var/lib/agenttrace",
		`ENTRYPOINT ["/agenttrace"]`,
	} {
		if !slices.Contains(strings.Split(final, "\n"), line) {
			t.Errorf("the final stage lacks %q", line)
		}
	}
	if !strings.Contains(string(b), "CGO_ENABLED=0 go build -trimpath") {
		t.Error("the binary is not built static and reproducible")
	}
	if !slices.Contains(readCompose(t, withSQLite).Services["collector"].Volumes, "sessions:/var/lib/agenttrace") {
		t.Error("the compose file does not keep the store on a volume")
	}
}
