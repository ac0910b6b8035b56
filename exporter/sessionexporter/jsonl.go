package sessionexporter

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/exporter/sessionexporter/internal/metadata"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	fileSuffix = ".jsonl"
	// tempPrefix begins the names of files in the making. No session's file
	// begins with a dot.
	tempPrefix = ".agenttrace-"
)

// files keeps one JSONL file per session equal to the store. The store remembers
// which sessions changed until their files are written, so neither a crash nor a
// failed write loses one.
//
// One goroutine owns the files. It sleeps until rows are written and then until
// the next session has been quiet for long enough.
type files struct {
	directory string
	quiet     time.Duration
	store     sessionStore
	logger    *zap.Logger
	telemetry *metadata.TelemetryBuilder

	kick   chan struct{} // holds one token when rows were written since the last look
	cancel context.CancelFunc
	done   sync.WaitGroup

	// failing says that the last round failed, so that a lasting failure is
	// logged once. It belongs to the goroutine.
	failing bool
}

func newFiles(c JSONLConfig, s sessionStore, logger *zap.Logger, t *metadata.TelemetryBuilder) (*files, error) {
	if err := os.MkdirAll(c.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("create jsonl directory %s: %w; make its parent writable or name another", c.Directory, err)
	}
	// What a crash left half written is of no use: its session is still due.
	left, err := filepath.Glob(filepath.Join(globQuote(c.Directory), tempPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("look for unfinished files in %s: %w", c.Directory, err)
	}
	for _, name := range left {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove unfinished file: %w", err)
		}
	}
	return &files{
		directory: c.Directory, quiet: c.QuietPeriod, store: s, logger: logger, telemetry: t,
		kick: make(chan struct{}, 1),
	}, nil
}

// globQuote escapes what filepath.Glob would expand.
func globQuote(path string) string {
	if os.PathSeparator == '\\' {
		return path // Windows knows no escape, and its names hold no '*' or '?'
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (f *files) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.done.Go(func() { f.follow(ctx) })
}

// wake says that rows were written. It never blocks.
func (f *files) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// stop ends the goroutine and writes every file that is due, quiet or not, for
// as long as ctx allows.
func (f *files) stop(ctx context.Context) {
	f.cancel()
	f.done.Wait()
	f.write(ctx, 0)
}

func (f *files) follow(ctx context.Context) {
	timer := time.NewTimer(0) // what the last process left is looked at first
	defer timer.Stop()
	armed := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
			// What has just changed is not due before the period is over, and
			// an armed timer goes off no later than that.
			if !armed {
				timer.Reset(f.quiet)
				armed = true
			}
		case <-timer.C:
			next := f.write(ctx, f.quiet)
			if armed = next >= 0; armed {
				timer.Reset(max(next, f.quiet/10)) // so that many sessions share a look
			}
		}
	}
}

// write writes the files of all sessions that have been quiet for the period.
// It returns how long to wait for the next, negative when none is due.
func (f *files) write(ctx context.Context, quiet time.Duration) (next time.Duration) {
	type due struct {
		id      string
		touched int64
	}
	var ready []due
	next = -1
	now := time.Now()
	err := f.store.Outbox(ctx, func(id string, touched int64) {
		if wait := time.UnixMilli(touched).Add(quiet).Sub(now); quiet > 0 && wait > 0 {
			// A clock that was set back must not put a file off for long.
			if wait = min(wait, quiet); next < 0 || wait < next {
				next = wait
			}
			return
		}
		ready = append(ready, due{id, touched})
	})
	failed := err
	for _, d := range ready {
		if ctx.Err() != nil {
			return next
		}
		if err := f.export(ctx, d.id, d.touched); err != nil {
			f.telemetry.ExporterSessionJsonlFailures.Add(ctx, 1)
			failed = errors.Join(failed, err)
		}
	}
	if ctx.Err() != nil {
		return next
	}
	if failed == nil {
		f.failing = false
		return next
	}
	if !f.failing {
		f.failing = true
		f.logger.Warn("Writing session files failed, will be tried again.", zap.Error(failed))
	}
	// The session stays due: the next look finds it.
	return max(f.quiet, time.Second)
}

// export replaces the file of one session and tells the store.
func (f *files) export(ctx context.Context, id string, touched int64) error {
	var damaged error
	s, err := sqlitefile.Read(ctx, f.store, id, func(p codec.Problem) { damaged = errors.Join(damaged, errors.New(p.String())) })
	name := filepath.Join(f.directory, fileName(id))
	if errors.Is(err, store.ErrNotFound) {
		// Deleted since, or told under another id now that its own is known.
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove file of session %s: %w", id, err)
		}
		return f.store.Exported(ctx, id, touched)
	}
	if err = errors.Join(err, damaged); err != nil {
		return fmt.Errorf("read session %s: %w", id, err)
	}
	err = replaceFile(name, func(w *bufio.Writer) error { return jsonl.NewEncoder(w).Encode(s) })
	if err != nil {
		return fmt.Errorf("write session %s: %w", id, err)
	}
	f.telemetry.ExporterSessionJsonlFiles.Add(ctx, 1)
	return f.store.Exported(ctx, id, touched)
}

// replaceFile writes a file (0600) so that its name always leads to a whole one.
func replaceFile(name string, write func(*bufio.Writer) error) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(name), tempPrefix+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = temp.Close() // may be closed already
			_ = os.Remove(temp.Name())
		}
	}()
	w := bufio.NewWriter(temp)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), name)
}

// fileName turns a session id, which any sender may have chosen, into the name
// of a file in the directory. Two ids never share a name, not even where case
// does not count: an id that is not plain lower case is followed by "~" and a
// hash of it, and no plain id holds "~".
func fileName(id string) string {
	const longest = 100
	plain := make([]byte, 0, min(len(id), longest))
	for i := 0; i < len(id) && len(plain) < longest; i++ {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' && i > 0:
		case c >= 'A' && c <= 'Z':
		default:
			c = '_'
		}
		plain = append(plain, c)
	}
	if string(plain) == id && id != "" && id == strings.ToLower(id) && !reserved(id) {
		return id + fileSuffix
	}
	sum := sha256.Sum256([]byte(id))
	return string(plain) + "~" + hex.EncodeToString(sum[:8]) + fileSuffix
}

// reserved says whether Windows takes the name, with whatever suffix, for a
// device.
func reserved(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	switch base {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(base) == 4 && (strings.HasPrefix(base, "com") || strings.HasPrefix(base, "lpt")) && base[3] >= '0' && base[3] <= '9'
}
