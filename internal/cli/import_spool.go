package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/spool"
)

// importSpool reads a file of a spool. A tail that was being written when its
// process died is said and is no damage: nobody was told that it is there.
func importSpool(ctx context.Context, im *importer, r io.Reader, t *tally) error {
	b := batch{im: im, t: t, traces: ptrace.NewTraces(), logs: plog.NewLogs()}
	var failed error
	for record, err := range spool.Read(r) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if piece, ok := errors.AsType[*spool.DamagedError](err); ok {
			if piece.Tail {
				im.warnf("%s: %v", t.File, piece)
			} else {
				im.damaged(t, piece)
			}
			continue
		}
		if err != nil {
			failed = err
			break
		}
		if err := b.add(ctx, otlpfile.Body{Traces: record.Traces, Logs: record.Logs, Offset: record.Offset}); err != nil {
			return err
		}
	}
	return cmp.Or(b.deliver(ctx), failed)
}

// spoolFiles lists the files of a directory that is a spool.
func spoolFiles(path string) ([]input, error) {
	paths, err := spool.Files(path)
	if err != nil {
		return nil, err
	}
	var files []input
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue // somebody has sent it meanwhile
		}
		in := fileInput(path, info)
		in.found = true
		files = append(files, in)
	}
	return files, nil
}
