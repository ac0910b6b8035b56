package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// manifest has the fields of all kinds of resources that the tests use.
type manifest struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Data       map[string]string
	StringData map[string]string `yaml:"stringData"`
	Spec       struct {
		Replicas    int
		MinReplicas int `yaml:"minReplicas"`
		Selector    map[string]any
		PodSelector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"podSelector"`
		ScaleTargetRef struct{ Kind, Name string } `yaml:"scaleTargetRef"`
		Strategy       struct {
			RollingUpdate struct {
				MaxUnavailable *int `yaml:"maxUnavailable"`
				MaxSurge       int  `yaml:"maxSurge"`
			} `yaml:"rollingUpdate"`
		}
		Ports []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Ingress  []struct{ Ports []struct{ Port string } }
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
	}
}

type podSpec struct {
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
	TerminationGrace             int   `yaml:"terminationGracePeriodSeconds"`
	SecurityContext              struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		RunAsUser      int                   `yaml:"runAsUser"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	TopologySpread []struct {
		LabelSelector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Containers []container
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct {
		Name, Value string
		ValueFrom   struct {
			ConfigMap struct{ Name, Key string } `yaml:"configMapKeyRef"`
			Secret    struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe   probe `yaml:"startupProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	Lifecycle      struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// manifests returns the resources in deploy/kubernetes by kind and name.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob("kubernetes/*.yaml")
	testscale.Must(t, err)
	resources := make(map[string]manifest)
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		b := testscale.ReadFile(t, file)
		for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
			var m manifest
			if err := d.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if m.Metadata.Namespace != "" {
				t.Errorf("%s: %s has a namespace", file, m.Metadata.Name)
			}
			resources[m.Kind+" "+m.Metadata.Name] = m
		}
	}
	return resources
}

// environment returns the variables of a container. References to the ConfigMap have its
// values, and those to the Secret the placeholders in its example.
func environment(t *testing.T, c container, resources map[string]manifest) map[string]string {
	t.Helper()
	values := make(map[string]string)
	for _, e := range c.Env {
		value, ok := e.Value, e.Value != ""
		if ref := e.ValueFrom.ConfigMap; ref.Key != "" {
			value, ok = resources["ConfigMap "+ref.Name].Data[ref.Key]
		}
		if ref := e.ValueFrom.Secret; ref.Key != "" {
			value, ok = resources["Secret "+ref.Name].StringData[ref.Key]
		}
		if !ok {
			t.Errorf("%s: %s has no value", c.Name, e.Name)
		}
		values[e.Name] = value
	}
	return values
}

func TestKubernetesResources(t *testing.T) {
	var k struct {
		Resources []string
		Images    []struct {
			Name string
			Tag  string `yaml:"newTag"`
		}
		Namespace string
	}
	readYAML(t, "kubernetes/kustomization.yaml", &k)
	if len(k.Images) != 1 || k.Images[0].Name != "agenttrace" || k.Images[0].Tag == "" || k.Images[0].Tag == "latest" {
		t.Errorf("images %v, want agenttrace with a version", k.Images)
	}
	if k.Namespace != "" {
		t.Errorf("namespace is %q", k.Namespace)
	}
	files, err := filepath.Glob("kubernetes/*")
	testscale.Must(t, err)
	// The example of the Secret would replace the password.
	want := append([]string{"kustomization.yaml", "secret-example.yaml"}, k.Resources...)
	slices.Sort(want)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-listed +there):\n%s", diff)
	}
	got := slices.Sorted(maps.Keys(manifests(t)))
	if diff := cmp.Diff([]string{
		"ConfigMap agenttrace", "Deployment agenttrace", "HorizontalPodAutoscaler agenttrace", "Job agenttrace-migrate",
		"NetworkPolicy agenttrace", "PodDisruptionBudget agenttrace", "Secret agenttrace", "Service agenttrace",
		"Service agenttrace-headless",
	}, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// Selectors match the collectors, and those of Services and the budget nothing else.
func TestKubernetesSelectors(t *testing.T) {
	resources := manifests(t)
	labels := resources["Deployment agenttrace"].Spec.Template.Metadata.Labels
	migration := resources["Job agenttrace-migrate"].Spec.Template.Metadata.Labels
	want := fmt.Sprint(labels)
	if fmt.Sprint(migration) == want {
		t.Error("the migration has the labels of the collectors, so it would get requests")
	}
	for _, name := range []string{"Service agenttrace", "Service agenttrace-headless"} {
		if got := fmt.Sprint(resources[name].Spec.Selector); got != want {
			t.Errorf("%s selects %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"Deployment agenttrace", "PodDisruptionBudget agenttrace"} {
		if got := fmt.Sprint(resources[name].Spec.Selector["matchLabels"]); got != want {
			t.Errorf("%s selects %s, want %s", name, got, want)
		}
	}
	for _, spread := range resources["Deployment agenttrace"].Spec.Template.Spec.TopologySpread {
		if got := fmt.Sprint(spread.LabelSelector.MatchLabels); got != want {
			t.Errorf("pods are spread by %s, want %s", got, want)
		}
	}
	for key, value := range resources["NetworkPolicy agenttrace"].Spec.PodSelector.MatchLabels {
		if labels[key] != value || migration[key] != value {
			t.Errorf("the network policy selects %s=%s, which not all pods have", key, value)
		}
	}
	if target := resources["HorizontalPodAutoscaler agenttrace"].Spec.ScaleTargetRef; resources[target.Kind+" "+
		target.Name].Kind != "Deployment" {
		t.Errorf("the autoscaler scales %v", target)
	}
}

// The collector runs with the configuration and the ports that it is given.
func TestCollectorInKubernetes(t *testing.T) {
	resources := manifests(t)
	if diff := cmp.Diff(readText(t, "collector-postgres.yaml"),
		resources["ConfigMap agenttrace"].Data["collector.yaml"]); diff != "" {
		t.Errorf("ConfigMap (-collector-postgres.yaml +collector.yaml):\n%s", diff)
	}
	c := resources["Deployment agenttrace"].Spec.Template.Spec.Containers[0]
	env := environment(t, c, resources)
	validCollector(t, "collector-postgres.yaml", env)
	if dsn, err := url.Parse(env["AGENTTRACE_STORE"]); err != nil || dsn.Query().Get("sslmode") != "verify-full" {
		t.Errorf("the database is %s (%v): its certificate is not verified", dsn, err)
	}

	ports := make(map[string]int)
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for name, variable := range map[string]string{"otlp-grpc": "GRPC", "otlp-http": "HTTP", "health": "HEALTH"} {
		_, port, err := net.SplitHostPort(env["AGENTTRACE_"+variable+"_ENDPOINT"])
		if err != nil || strconv.Itoa(ports[name]) != port {
			t.Errorf("port %s is %d, the collector listens on %s (%v)", name, ports[name], port, err)
		}
	}
	for _, p := range []probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if p.HTTPGet.Port != "health" || p.HTTPGet.Path != "/" {
			t.Errorf("a probe asks %v", p.HTTPGet)
		}
	}
	for _, name := range []string{"Service agenttrace", "Service agenttrace-headless"} {
		got := make(map[int]int)
		for _, p := range resources[name].Spec.Ports {
			got[p.Port] = ports[p.TargetPort]
		}
		if diff := cmp.Diff(map[int]int{4317: 4317, 4318: 4318}, got); diff != "" {
			t.Errorf("ports of %s (-want +got):\n%s", name, diff)
		}
	}
	for _, rule := range resources["NetworkPolicy agenttrace"].Spec.Ingress {
		for _, p := range rule.Ports {
			if ports[p.Port] == 0 || p.Port == "health" {
				t.Errorf("the network policy opens port %q", p.Port)
			}
		}
	}
}

// An update, an eviction or a smaller number of collectors loses no request.
func TestUpdateInKubernetes(t *testing.T) {
	resources := manifests(t)
	deployment := resources["Deployment agenttrace"].Spec
	pod := deployment.Template.Spec
	c := pod.Containers[0]
	stop := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + attemptTimeout(t)
	if grace := time.Duration(pod.TerminationGrace) * time.Second; grace <= stop {
		t.Errorf("a collector is killed after %v, where it may take %v to stop", grace, stop)
	}
	if u := deployment.Strategy.RollingUpdate; u.MaxUnavailable == nil || *u.MaxUnavailable != 0 || u.MaxSurge < 1 {
		t.Error("an update stops collectors before new ones are ready")
	}
	if least := resources["HorizontalPodAutoscaler agenttrace"].Spec.MinReplicas; deployment.Replicas < 2 ||
		least != deployment.Replicas {
		t.Errorf("%d collectors, at least %d with the autoscaler", deployment.Replicas, least)
	}
	limit, err := strconv.Atoi(strings.TrimSuffix(c.Resources.Limits["memory"], "Gi"))
	testscale.Must(t, err)
	env := environment(t, c, resources)
	if memory, err := strconv.Atoi(env["AGENTTRACE_MEMORY_MIB"]); err != nil || memory > limit*1024*8/10 {
		t.Errorf("the collector may use %s MiB (%v) of %d GiB", env["AGENTTRACE_MEMORY_MIB"], err, limit)
	}
}

// Pods have no privileges, and the user of the image. Collectors and the migration use the same database.
func TestKubernetesPods(t *testing.T) {
	user := regexp.MustCompile(`(?m)^USER (\d+):`).FindStringSubmatch(readText(t, "../Dockerfile"))
	resources := manifests(t)
	stores := make(map[string]bool)
	for _, name := range []string{"Deployment agenttrace", "Job agenttrace-migrate"} {
		pod := resources[name].Spec.Template.Spec
		if s := pod.SecurityContext; !s.RunAsNonRoot || strconv.Itoa(s.RunAsUser) != user[1] ||
			s.SeccompProfile.Type != "RuntimeDefault" {
			t.Errorf("%s: security context %+v", name, s)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s: the API's token is mounted", name)
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !s.ReadOnlyRootFilesystem ||
				!slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
				t.Errorf("%s: security context %+v", name, s)
			}
			if c.Resources.Requests["cpu"] == "" || c.Resources.Requests["memory"] == "" ||
				c.Resources.Limits["memory"] == "" {
				t.Errorf("%s: resources %v", name, c.Resources)
			}
			if c.Image != "agenttrace" {
				t.Errorf("%s: kustomization.yaml does not set image %q", name, c.Image)
			}
			env := environment(t, c, resources)
			if env["PGPASSWORD"] != "change-me" {
				t.Errorf("%s: the password is not that of the Secret", name)
			}
			stores[env["AGENTTRACE_STORE"]] = true
		}
	}
	if len(stores) != 1 {
		t.Errorf("collectors and migration use %v", stores)
	}
}
