package kubeconform

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// run returns how many resources of the manifests at a path are valid. The error has what is printed.
func run(path string) (n int, err error) {
	out, err := exec.Command("./check", path).CombinedOutput()
	for _, valid := range regexp.MustCompile(`Valid: (\d+)`).FindAllSubmatch(out, -1) {
		var some int
		_, _ = fmt.Sscan(string(valid[1]), &some)
		n += some
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return n, err
}

const policy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: x}
spec:
  podSelector: {}
  ingress: [{ports: [{protocol: TCP, port: 4317}, {port: otlp}]}]
`

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: x}
spec:
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      containers:
        - {name: x, image: x, resources: {limits: {cpu: 2, memory: 1Gi}}}
`

// What the API server refuses is refused here, at any depth.
func TestMistakesInManifests(t *testing.T) {
	for _, tt := range []struct{ name, manifest, change, to, want string }{
		{name: "none in a policy", manifest: policy},
		{name: "none in a deployment", manifest: deployment},
		{"unknown field", deployment, "image: x", "image: x, probe: {}", "'probe'"},
		{"unknown field of a list's element", policy, "port: otlp", "prot: otlp", "'prot'"},
		{"wrong type", deployment, "image: x", "image: [x]", "want string"},
		{"port of a wrong type", policy, "port: 4317", "port: [4317]", "got array"},
		{"missing field", deployment, "{name: x, image: x,", "{image: x,", "'name'"},
		{"key twice", deployment, "image: x", "image: x, image: y", "already set"},
		{"unknown kind", deployment, "kind: Deployment", "kind: Deploymnt", "could not find schema"},
		{"unknown version", deployment, "apps/v1", "apps/v1beta1", "could not find schema"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.manifest
			if tt.change != "" {
				if text = strings.Replace(text, tt.change, tt.to, 1); text == tt.manifest {
					t.Fatalf("%q is not in the manifest", tt.change)
				}
			}
			name := filepath.Join(t.TempDir(), "x.yaml")
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			n, err := run(name)
			switch {
			case tt.want == "" && (err != nil || n != 1):
				t.Errorf("%d valid resources, error %v", n, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// What kubectl would refuse of a kustomization is refused here.
func TestMistakesInKustomizations(t *testing.T) {
	for _, tt := range []struct{ name, kustomization, want string }{
		{name: "none", kustomization: "resources: [x.yaml]\nimages: [{name: x, newTag: 0.1.0}]"},
		{"unknown field", "resources: [x.yaml]\nimage: [{name: x}]", "unknown field"},
		{"missing file", "resources: [y.yaml]", "y.yaml"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"kustomization.yaml": tt.kustomization, "x.yaml": deployment} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			n, err := run(dir)
			switch {
			case tt.want == "" && (err != nil || n != 2):
				t.Errorf("%d valid resources, error %v", n, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestNoManifests(t *testing.T) {
	if _, err := run(t.TempDir()); err == nil {
		t.Error("an empty directory is valid")
	}
}
