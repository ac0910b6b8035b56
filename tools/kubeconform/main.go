// Command kubeconform validates manifests against the schemas of Kubernetes: unknown fields,
// wrong types and missing values are errors.
//
//	kubeconform FILE|DIRECTORY...
//
// A directory with a kustomization.yaml is built too, and the result validated. The schemas are made of the API's
// description in the module k8s.io/kubernetes, which the Go module proxy has, so nothing else is downloaded.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/yannh/kubeconform/pkg/validator"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The version of Kubernetes, and the checksum of its module as in a go.sum. The module
// cannot be required in go.mod: it requires others in versions that do not exist.
const (
	version  = "v1.37.2"
	checksum = "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE="
)

func main() {
	n, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubeconform:", err)
		os.Exit(1)
	}
	fmt.Printf("%d valid resources, Kubernetes %s\n", n, version)
}

// run validates the manifests below the paths and returns the number of resources.
func run(ctx context.Context, paths []string) (int, error) {
	schemas, err := os.MkdirTemp("", "kubernetes-schemas-*")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(schemas)
	if err := writeSchemas(ctx, schemas); err != nil {
		return 0, fmt.Errorf("schemas of Kubernetes %s: %w", version, err)
	}
	v, err := validator.New([]string{filepath.Join(schemas, "{{.ResourceKind}}{{.KindSuffix}}.json")},
		validator.Opts{Strict: true, KubernetesVersion: strings.TrimPrefix(version, "v")})
	if err != nil {
		return 0, err
	}
	var n int
	var errs []error
	validate := func(name string, manifest []byte) {
		for _, r := range v.ValidateWithContext(ctx, name, io.NopCloser(bytes.NewReader(manifest))) {
			switch r.Status {
			case validator.Empty:
			case validator.Valid:
				n++
			default:
				errs = append(errs, fmt.Errorf("%s: %w", name, r.Err))
			}
		}
	}
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err != nil || d.IsDir() || ext != ".yaml" && ext != ".yml" {
				return err
			}
			read := os.ReadFile
			if d.Name() == kustomization {
				read = build
			}
			manifest, err := read(path)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			validate(path, manifest)
			return nil
		})
		if err != nil {
			return n, err
		}
	}
	if n == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no resources found: name a file or a directory of manifests"))
	}
	return n, errors.Join(errs...)
}

const kustomization = "kustomization.yaml"

// build returns the resources that "kubectl apply -k" would apply for a kustomization.
func build(path string) ([]byte, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return resources.AsYaml()
}

// writeSchemas writes a file for each kind, with the name under which kubeconform looks for
// it, and one with the definitions that they share.
func writeSchemas(ctx context.Context, dir string) error {
	swagger, err := download(ctx)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(swagger)
	if err != nil {
		return err
	}
	var api struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(b, &api); err != nil {
		return fmt.Errorf("%s: %w", swagger, err)
	}
	for name, d := range api.Definitions {
		strict(name, d)
	}
	if err := writeJSON(filepath.Join(dir, "definitions.json"), api); err != nil {
		return err
	}
	for name, d := range api.Definitions {
		kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // options of requests, which every group has
		}
		kind := kinds[0].(map[string]any)
		file := kind["kind"].(string)
		if group, _, _ := strings.Cut(kind["group"].(string), "."); group != "" {
			file += "-" + group
		}
		file = strings.ToLower(file + "-" + kind["version"].(string) + ".json")
		schema := map[string]any{"$ref": "definitions.json#/definitions/" + name}
		if err := writeJSON(filepath.Join(dir, file), schema); err != nil {
			return err
		}
	}
	return nil
}

// strict changes a definition to what the API server accepts from kubectl: no fields but
// those that are defined, and numbers where the description has their text only.
func strict(name string, d map[string]any) {
	switch name {
	case "io.k8s.apimachinery.pkg.util.intstr.IntOrString", "io.k8s.apimachinery.pkg.api.resource.Quantity":
		delete(d, "format")
		d["type"] = []string{"string", "number"}
	}
	if _, ok := d["properties"]; ok {
		d["additionalProperties"] = false
	}
}

func writeJSON(path string, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// download returns the path of the API's description in the module cache.
func download(ctx context.Context) (string, error) {
	const module = "k8s.io/kubernetes@" + version
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Env = append(os.Environ(), "GOSUMDB=off") // the checksum is checked below
	out, err := cmd.Output()
	var m struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &m); jsonErr != nil {
		return "", fmt.Errorf("download %s: %w", module, errors.Join(err, jsonErr))
	}
	if m.Error != "" {
		return "", fmt.Errorf("download %s: %s", module, m.Error)
	}
	if m.Sum != checksum {
		return "", fmt.Errorf("download %s: checksum is %s, want %s", module, m.Sum, checksum)
	}
	return filepath.Join(m.Dir, "api", "openapi-spec", "swagger.json"), nil
}
