package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// pipeOptions are the flags of run for a program that speaks a protocol on its standard input and output.
type pipeOptions struct{ ACP, MCP, Propagate bool }

// runPiped runs a program between the client, which is on standard input and output, and records what the two send to
// each other. Nothing that happens to the recording changes anything for them.
func (o *runOptions) runPiped(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("run what? name the command of the agent or server, as in %s run --acp -- my-agent", ownName())
	}
	// A signal is for the program. What it said is stored after it has ended.
	ctx := context.WithoutCancel(cmd.Context())
	cmd.SetContext(ctx)
	program := exec.Command(args[0], args[1:]...)
	program.Stderr = cmd.ErrOrStderr()
	say := func(format string, args ...any) {
		_ = note(cmd, "agenttrace: %s\n", document.Line(fmt.Sprintf(format, args...)))
	}
	pipe := &recorder.Pipe{Cmd: program, In: cmd.InOrStdin(), Out: cmd.OutOrStdout()}
	recording := o.recordACP
	if o.MCP {
		recording = o.recordMCP
	}
	record, finish, err := recording(cmd, say)
	if err != nil {
		say("nothing is recorded: %v", err)
		record, finish = func([]recorder.Message) {}, func(*os.ProcessState) {}
	}
	pipe.Queue = recorder.NewQueue(record)
	if address := replayAddress(); o.MCP && address != "" {
		pipe.Answer = recorder.ReplayTools(address)
	}
	if o.Propagate {
		pipe.Rewrite = func(line []byte) []byte { return recorder.Propagate(line, newTraceparent) }
	}
	var stop func()
	pipe.Started, stop = takeSignals()
	err = pipe.Run()
	stop()
	pipe.Queue.Close()
	finish(program.ProcessState)
	state := program.ProcessState
	if state == nil {
		return notRun(cmd, args[0], err)
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exited{dieOf(status.Signal())}
	}
	return exited{state.ExitCode()}
}

// busyLimit is how long another one may hold the store when what was said last is stored.
const busyLimit = 2 * time.Second

// newTraceparent begins a trace.
func newTraceparent() string {
	var id [24]byte
	_, _ = rand.Read(id[:])
	return "00-" + hex.EncodeToString(id[:16]) + "-" + hex.EncodeToString(id[16:]) + "-01"
}

// recordACP records a connection of the Agent Client Protocol. While it lasts, what was said so far is imported now and
// then; finish imports the rest.
func (o *runOptions) recordACP(cmd *cobra.Command, say func(string, ...any)) (record func([]recorder.Message),
	finish func(*os.ProcessState), err error) {
	dir, err := runDirectory(newRunID())
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, "acp.jsonl")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	trace := recorder.NewTrace(file)
	format := formats.Named("acp", nil)
	watch := importer.Watch{Paths: []string{path}, Format: format, Lasting: true,
		New: func() (*importer.Importer, error) {
			return importer.New("", importer.Options{Format: format, Open: opener(cmd)})
		},
		Warn: func(string) {}} // the last import reports what is wrong
	ctx, stop := context.WithCancel(cmd.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = watch.Run(ctx)
	}()
	return trace.Record, func(state *os.ProcessState) {
		if state != nil {
			trace.Ended(state)
		}
		stop()
		<-watched
		if trace.Lost > 0 {
			say("%s not recorded: %v", document.Plural(int(trace.Lost), "message was", "messages were"),
				cmp.Or(trace.Err, errors.New("they came faster than they could be written")))
		}
		all, err := importLast(cmd, path, format)
		if err == nil {
			if err := errors.Join(file.Close(), os.RemoveAll(dir)); err != nil {
				say("the trace is still in %s, with secrets that were in it: %v", path, err)
			}
		} else {
			say("not all that was said is stored: %v; it is in %s, with secrets that were in it: "+
				"agenttrace import --format acp %[2]s", err, path)
		}
		if all == nil || o.Quiet {
			return
		}
		if err := o.summarize(cmd, slices.Sorted(maps.Keys(all))); err != nil {
			say("%v", err)
		}
	}, nil
}

// recordMCP records the calls of tools of a server of the Model Context Protocol, each when it has its result.
func (o *runOptions) recordMCP(cmd *cobra.Command, say func(string, ...any)) (record func([]recorder.Message),
	finish func(*os.ProcessState), err error) {
	r, err := shareStore(cmd)
	if err != nil {
		return nil, nil, err
	}
	m := recorder.NewMCP(r, "mcp-"+newRunID())
	return m.Record, func(*os.ProcessState) {
		m.End()
		ctx, cancel := context.WithTimeout(cmd.Context(), busyLimit)
		defer cancel()
		err := r.Close(ctx)
		if ids := r.Sessions(); err == nil && len(ids) > 0 && !o.Quiet {
			err = o.summarize(cmd, ids)
		}
		if err != nil {
			say("%v", err)
		}
	}, nil
}

// importLast imports a file that grows no more, and returns the ids of its sessions. The error is why some of it is
// not stored.
func importLast(cmd *cobra.Command, path string, format *formats.Format) (importer.SessionSet, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), busyLimit)
	defer cancel()
	sum, failed, err := importInto(ctx, "", importer.Options{Format: format, Open: patientOpener(cmd)},
		importer.Inputs([]string{path}, nil, format))
	total := &sum.Total
	if err = errors.Join(err, failed); err == nil && total.Refused+int64(total.Damaged) > 0 {
		err = errors.New(cmp.Or(append(sum.Files[0].Damages, "the store refused some of it")...))
	}
	return total.Sessions, err
}
