// Command benchimport measures the import of transcripts: of files that are new, unchanged, and
// grown by a line. It prints the CPU seconds of each, and compares them with those of agentsview.
//
//	go run . -ours ../../agenttrace-bin [-base agenttrace-of-788e038]
//
// Where the module proxy has agentsview, it is built and measured in the same run. Where not, the
// program is compared with its own former version, whose ratio to agentsview is in ratios.json:
// absolute times move from machine to machine, the ratio of two programs in one run does not.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

//go:embed ratios.json
var ratiosJSON []byte

// ratio is what a passage took on another machine, in CPU seconds.
type ratio struct {
	Peer float64 `json:"peer_cpu_s"`
	Base float64 `json:"base_cpu_s"`
}

const peerModule = "github.com/wesm/agentsview/cmd/agentsview@v0.31.1"

func main() {
	ours := flag.String("ours", "", "the program to measure")
	base := flag.String("base", "", "the program as of commit 788e038, to compare with by ratios.json")
	files := flag.Int("files", 300, "number of transcripts")
	rounds := flag.Int("rounds", 5, "rounds; the median counts")
	flag.Parse()
	if err := run(*ours, *base, *files, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "benchimport:", err)
		os.Exit(1)
	}
}

func run(ours, base string, files, rounds int) error {
	dir, err := os.MkdirTemp("", "benchimport-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	size, err := writeCorpus(filepath.Join(dir, "claude"), files)
	if err != nil {
		return err
	}
	fmt.Printf("%d transcripts, %.0f MB\n", files, float64(size)/1e6)
	var programs []program
	if ours != "" {
		programs = append(programs, agenttrace("agenttrace", ours))
	}
	if base != "" {
		programs = append(programs, agenttrace("agenttrace 788e038", base))
	}
	if peer, err := buildPeer(dir); err != nil {
		fmt.Printf("agentsview is not measured here: %v\n", err)
	} else {
		programs = append(programs, peer)
	}
	took := make(map[string]map[string][]float64)
	for range rounds {
		for _, p := range programs { // interleaved, so that what else the machine does is shared
			if err := measure(p, dir, took); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return report(programs, took)
}

var passages = []string{"first", "unchanged", "appended"}

// program imports a directory of transcripts; its store is below home.
type program struct {
	name    string
	command func(home, transcripts string) *exec.Cmd
}

func agenttrace(name, path string) program {
	return program{name, func(home, transcripts string) *exec.Cmd {
		return exec.Command(path, "import", "-q", "--store", filepath.Join(home, "sessions.db"), transcripts)
	}}
}

// buildPeer builds agentsview, which needs cgo.
func buildPeer(dir string) (program, error) {
	build := exec.Command("go", "install", "-tags", "fts5", peerModule)
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "GOBIN="+dir, "GOFLAGS=-mod=mod", "GOWORK=off")
	build.Dir = os.TempDir() // outside of any module
	if out, err := build.CombinedOutput(); err != nil {
		return program{}, fmt.Errorf("%w: %.200s", err, out)
	}
	return program{"agentsview", func(home, transcripts string) *exec.Cmd {
		c := exec.Command(filepath.Join(dir, "agentsview"), "sync")
		c.Env = append(os.Environ(), "HOME="+home, "CLAUDE_PROJECTS_DIR="+filepath.Join(transcripts, "projects"))
		return c
	}}, nil
}

// measure runs the three passages of one round.
func measure(p program, dir string, took map[string]map[string][]float64) error {
	home, err := os.MkdirTemp(dir, "home-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	transcripts := filepath.Join(home, "claude")
	if err := os.CopyFS(transcripts, os.DirFS(filepath.Join(dir, "claude"))); err != nil {
		return err
	}
	for _, passage := range passages {
		if passage == "appended" {
			if err := appendLine(transcripts); err != nil {
				return err
			}
		}
		c := p.command(home, transcripts)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %.300s", passage, err, out)
		}
		if took[p.name] == nil {
			took[p.name] = make(map[string][]float64)
		}
		spent := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		took[p.name][passage] = append(took[p.name][passage], spent.Seconds())
	}
	return nil
}

// appendLine repeats the last record of a transcript, later and with another id.
func appendLine(transcripts string) error {
	names, err := filepath.Glob(filepath.Join(transcripts, "projects", "*", "*.jsonl"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("no transcripts in %s: %w", transcripts, err)
	}
	f, err := os.OpenFile(names[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	id := filepath.Base(names[0][:len(names[0])-len(".jsonl")])
	_, err = fmt.Fprintf(f, `{"type":"user","uuid":"appended","parentUuid":null,"sessionId":%q,"isSidechain":false,`+
		`"timestamp":%q,"message":{"role":"user","content":"and now?"}}`+"\n",
		id, time.Now().UTC().Format(time.RFC3339Nano))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func report(programs []program, took map[string]map[string][]float64) error {
	median := func(name, passage string) float64 {
		all := slices.Sorted(slices.Values(took[name][passage]))
		if len(all) == 0 {
			return 0
		}
		return all[len(all)/2]
	}
	fmt.Printf("%-20s", "CPU s")
	for _, passage := range passages {
		fmt.Printf("%12s", passage)
	}
	fmt.Println()
	for _, p := range programs {
		fmt.Printf("%-20s", p.name)
		for _, passage := range passages {
			fmt.Printf("%12.2f", median(p.name, passage))
		}
		fmt.Println()
	}
	var stored map[string]json.RawMessage
	if err := json.Unmarshal(ratiosJSON, &stored); err != nil {
		return err
	}
	for _, passage := range passages {
		var r ratio
		if err := json.Unmarshal(stored[passage], &r); err != nil {
			return err
		}
		ours := median("agenttrace", passage)
		if peer := median("agentsview", passage); peer > 0 {
			fmt.Printf("%-9s %.1f times agentsview, in this run\n", passage, ours/peer)
		} else if base := median("agenttrace 788e038", passage); base > 0 {
			fmt.Printf("%-9s %.1f times agentsview, by ratios.json\n", passage, ours/base*r.Base/r.Peer)
		}
	}
	return nil
}
