// Command gitleaks is a judge of what agenttrace stores and forwards that does not know
// how agenttrace redacts: it reports what the rules of gitleaks find in files.
//
//	gitleaks FILE|DIRECTORY...
//
// It prints a line per finding, without the secret, and fails when there is one.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"
	"github.com/zricethezav/gitleaks/v8/detect"
	"github.com/zricethezav/gitleaks/v8/logging"
	"github.com/zricethezav/gitleaks/v8/report"
)

// marker is what agenttrace writes for a secret. To gitleaks it is a word like any other, for which
// "curl -u user:__REDACTED__" has a password; it knows that words in brackets are none.
const (
	marker      = "__REDACTED__"
	placeholder = "[REDACTED]"
)

func main() {
	logging.Logger = logging.Logger.Level(zerolog.ErrorLevel)
	n, err := judge(os.Args[1:], func(path string, f report.Finding) {
		fmt.Printf("%s:%d: %s: %d bytes\n", path, f.StartLine+1, f.RuleID, len(f.Secret))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "gitleaks:", err)
		os.Exit(2)
	}
	fmt.Printf("%d secrets\n", n)
	if n > 0 {
		os.Exit(1)
	}
}

// judge calls found for what is found in the files below the paths.
func judge(paths []string, found func(path string, f report.Finding)) (int, error) {
	detector, err := newDetector()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, f := range findings(detector, string(b)) {
				found(path, f)
				n++
			}
			return nil
		})
		if err != nil {
			return n, fmt.Errorf("judge %s: %w", root, err)
		}
	}
	return n, nil
}

func findings(d *detect.Detector, text string) []report.Finding {
	return d.DetectString(strings.ReplaceAll(text, marker, placeholder))
}

// newDetector returns a detector with the default rules, which looks into what is encoded too.
func newDetector() (*detect.Detector, error) {
	d, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return nil, fmt.Errorf("read the default rules: %w", err)
	}
	d.MaxDecodeDepth = 1
	return d, nil
}
