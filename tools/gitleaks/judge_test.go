// Package gitleaks is a judge of what agenttrace stores and forwards that does not know how agenttrace redacts: its tests
// report what the rules of gitleaks find.
package gitleaks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/lucasjones/reggen"
	"github.com/zricethezav/gitleaks/v8/cmd/generate/config/utils"
	"github.com/zricethezav/gitleaks/v8/detect"
	"github.com/zricethezav/gitleaks/v8/report"

	"github.com/agenttrace/agenttrace/redact"
)

func newRedactor(t *testing.T) *redact.Redactor {
	t.Helper()
	r, err := redact.New(redact.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// detector has the default rules, and looks into what is encoded too.
func detector(t *testing.T) *detect.Detector {
	t.Helper()
	d, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal("read the default rules: ", err)
	}
	d.MaxDecodeDepth = 1
	return d
}

// findings are what is found in a text that was redacted. To gitleaks the marker of a secret is a word like any other,
// for which "curl -u user:__REDACTED__" has a password; it knows that words in brackets are none.
func findings(d *detect.Detector, text string) []report.Finding {
	return d.DetectString(strings.ReplaceAll(text, "__REDACTED__", "[REDACTED]"))
}

// judge is what is found in the files below a directory, a line for each, without the secrets.
func judge(t *testing.T, dir string) (found []string) {
	t.Helper()
	d := detector(t)
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, f := range findings(d, string(b)) {
			found = append(found, fmt.Sprintf("%s:%d: %s: %d bytes", path, f.StartLine+1, f.RuleID, len(f.Secret)))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// example is a text of gitleaks' own.
type example struct{ where, text string }

// examples returns the texts that the sources of gitleaks' rules hold in lists named name: tps are true positives, fps
// false ones. Those that a program puts together are not among them.
func examples(t *testing.T, name string) (found []example) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/zricethezav/gitleaks/v8").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "cmd/generate/config/rules/*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no sources of rules: ", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			assign, ok := n.(*ast.AssignStmt)
			if !ok || len(assign.Lhs) != 1 {
				return true
			}
			if id, ok := assign.Lhs[0].(*ast.Ident); !ok || id.Name != name {
				return true
			}
			ast.Inspect(assign.Rhs[0], func(n ast.Node) bool {
				list, ok := n.(*ast.CompositeLit)
				if !ok {
					return true
				}
				for _, e := range list.Elts {
					if text, ok := constant(e); ok {
						found = append(found, example{filepath.Base(file), text})
					}
				}
				return false
			})
			return true
		})
	}
	return found
}

// constant returns the text of string literals and of what joins them.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, ok := constant(e.X)
		y, too := constant(e.Y)
		return x + y, ok && too
	}
	return "", false
}

// drawn returns texts that the rules themselves describe, and find.
func drawn(t *testing.T, d *detect.Detector) (found []example) {
	t.Helper()
	ids := make([]string, 0, len(d.Config.Rules))
	for id := range d.Config.Rules {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	for _, id := range ids {
		rule := d.Config.Rules[id]
		if rule.Regex == nil {
			continue
		}
		for seed := range int64(3) {
			// Where a rule leaves the case open, the case it is written in is the real one.
			text := draw(strings.NewReplacer("(?i)", "", "(?i:", "(?:").Replace(rule.Regex.String()), seed)
			if strings.IndexFunc(text, func(c rune) bool { return c > 0x7e }) >= 0 {
				continue
			}
			for _, f := range d.DetectString(text) {
				if f.RuleID != id || len(f.Secret) < 20 && !strings.ContainsAny(f.Secret, "0123456789") {
					continue // a token of that length has a digit
				}
				if len(rule.Keywords) > 0 {
					for _, sample := range utils.GenerateSampleSecrets(rule.Keywords[0], f.Secret) {
						found = append(found, example{id, sample})
					}
				}
				break
			}
		}
	}
	return found
}

// draw returns a text that matches an expression, the same for the same seed; "" where it has none to offer.
func draw(expression string, seed int64) string {
	g, err := reggen.NewGenerator(expression)
	if err != nil {
		return ""
	}
	g.SetSeed(seed)
	return g.Generate(1)
}

// spared are the rules whose examples may stay, and why.
var spared = map[string]string{
	"discord-client-id": "a number that names an application to everybody",
	"asana-client-id":   "a number that names an application to everybody",
	"curl-auth-user":    "a user with an empty password, and quotes that no shell takes for one word",
	"facebook-access-token": "two numbers and a name of letters joined by a line, without a name of " +
		"their own",
	"huggingface-access-token":           "drawn in lower case alone, while tokens have both",
	"huggingface-organization-api-token": "drawn in lower case alone, while tokens have both",
	"private-key": "drawn by chance from an expression that leaves out the spaces of its " +
		"first line",
}

// What gitleaks calls a secret, in the examples of its own rules, is none any more when it has been redacted.
func TestGitleaksFindsNothingInItsExamples(t *testing.T) {
	r, d := newRedactor(t), detector(t)
	all := append(examples(t, "tps"), drawn(t, d)...)
	judged, left := 0, map[string]int{}
	for _, e := range all {
		if len(d.DetectString(e.text)) == 0 {
			continue
		}
		judged++
		for _, f := range findings(d, r.Text(e.text)) {
			if spared[f.RuleID] != "" {
				continue
			}
			if left[f.RuleID]++; left[f.RuleID] <= 3 {
				t.Errorf("%s finds %q, an example of %s", f.RuleID, f.Match, e.where)
			}
		}
	}
	t.Logf("%d examples", judged)
	if judged < 1000 {
		t.Errorf("%d examples are too few to tell", judged)
	}
}

// Most of what gitleaks says is no secret stays as it is. The rest are keys that stand for a secret in documentation,
// under a name that promises one: a redactor has to doubt, a scanner that people run wants silence.
func TestMostOfWhatGitleaksAllowsStays(t *testing.T) {
	r := newRedactor(t)
	all := examples(t, "fps")
	changed := 0
	for _, e := range all {
		if out := r.Text(e.text); out != e.text {
			changed++
			if testing.Verbose() {
				fmt.Printf("%s: %.160q became %.160q\n", e.where, e.text, out)
			}
		}
	}
	t.Logf("%d of %d are changed", changed, len(all))
	if len(all) < 100 || changed*10 > len(all)*3 {
		t.Errorf("%d of %d are changed", changed, len(all))
	}
}

// The judge itself finds what was not redacted.
func TestJudgeFindsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("token: ghp_"+"0f3A9c4E7b1D8265e4a70b9d3C5f1826Kx9Z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := judge(t, filepath.Dir(path)); len(found) == 0 {
		t.Error("nothing is found")
	}
}

// What other tests stored and forwarded holds no secret: see the Makefile.
func TestEvidenceHasNoSecrets(t *testing.T) {
	dir := os.Getenv("AGENTTRACE_EVIDENCE")
	if dir == "" {
		t.Skip("AGENTTRACE_EVIDENCE names no directory")
	}
	for _, line := range judge(t, dir) {
		t.Error(line)
	}
}
