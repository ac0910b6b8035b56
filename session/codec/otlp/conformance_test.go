package otlp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// format is the codec as the suite takes it: what is read is what an empty store makes
// of the spans.
func format(tb testing.TB) codectest.Codec {
	dir := tb.TempDir()
	n := 0
	return codectest.Codec{

		Encode: WriteJSON,
		Decode: func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			n++
			return ingestFile(r, filepath.Join(dir, fmt.Sprint(n)), report)
		},
		Explain: Explain,
		Ignore:  func(s *codec.Session) { s.SpanRefs, s.Traces, s.State, s.RequestedIndexes = nil, nil, nil, nil },
		Many:    true, Slow: true,
	}
}

// ingestFile is what an empty store makes of a file of OTLP.
func ingestFile(r io.Reader, dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		if report == nil {
			report = func(codec.Problem) {}
		}
		all, err := ingestAll(context.Background(), r, dir, report)
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func ingestAll(ctx context.Context, r io.Reader, dir string, report func(codec.Problem)) (all []*codec.Session,
	failed error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() { failed = errors.Join(failed, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "sessions.db")
	failed = ingestInto(ctx, r, path, report)
	for s, err := range sqlitefile.DecodeFile(ctx, path, report) {
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		all = append(all, s)
	}
	return all, failed
}

func ingestInto(ctx context.Context, r io.Reader, path string, report func(codec.Problem)) (err error) {
	st, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	in := ingest.New(st, ingest.Options{})
	for body, err := range otlpfile.Read(r, otlpfile.Options{}) {
		if damaged, ok := errors.AsType[*otlpfile.DamagedError](err); ok {
			report(codec.Problem{Line: damaged.Line, Record: fmt.Sprintf("byte %d", damaged.Offset),
				Reason: damaged.Err.Error()})
			continue
		}
		if err != nil {
			return err
		}
		if _, err := in.Traces(ctx, body.Traces); err != nil {
			return err
		}
	}
	return nil
}

func TestConformance(t *testing.T) { codectest.Run(t, format(t)) }

// FuzzDecode reads any file of OTLP, and wants what is stored of it to come back.
func FuzzDecode(f *testing.F) { codectest.Fuzz(f, format(f)) }
