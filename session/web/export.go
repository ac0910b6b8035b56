package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/store"
)

type exportParams struct {
	sessionPath
	Format       string
	Full, Redact bool
}

// mediaTypes are those of files by their extensions.
var mediaTypes = map[string]string{".json": "application/json", ".jsonl": "application/x-ndjson",
	".ndjson": "application/x-ndjson", ".md": "text/markdown; charset=utf-8", ".html": "text/html; charset=utf-8",
	".csv": "text/csv; charset=utf-8", ".pb": "application/x-protobuf"}

func mediaTypeOf(ext string) string { return cmp.Or(mediaTypes[ext], "application/vnd.sqlite3") }

func exportTypes() (all []string) {
	for _, f := range formats.Filter((*formats.Format).InFile) {
		mediaType, _, _ := mime.ParseMediaType(mediaTypeOf(f.Ext)) // it is one of the above
		if !slices.Contains(all, mediaType) {
			all = append(all, mediaType)
		}
	}
	return all
}

// export answers with a session in a format. The file is made before it is sent: an error is answered as one, and the
// ETag is known.
func (a *api) export(w http.ResponseWriter, r *http.Request, p exportParams) error {
	ctx := r.Context()
	f := formats.Named(p.Format, (*formats.Format).InFile)
	if p.Full && !f.Text {
		return Invalidf("full",
			"leave it out, or use a format for people", "full is for transcripts, which %s is not", f.Name)
	}
	source, err := f.Load(ctx, a.Sessions, p.ID, formats.LoadOptions{Full: p.Full})
	if err != nil {
		return err
	}
	if p.Redact {
		secrets, err := redact.New(redact.Config{})
		if err != nil {
			return err
		}
		source.Redact(secrets)
	}
	file, err := exported(ctx, f, source)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{
		"filename": codec.FileName(p.ID) + f.Ext}))
	WriteBody(w, r, http.StatusOK, mediaTypeOf(f.Ext), file)
	return nil
}

func exported(ctx context.Context, f *formats.Format, source *formats.Source) (file []byte, err error) {
	var b bytes.Buffer
	if f.Stream != nil {
		err = f.Stream(&b)(source)
	} else {
		dir, failed := os.MkdirTemp("", "agenttrace-export-*")
		if failed != nil {
			return nil, fmt.Errorf("%w: make room for the export: %w", store.ErrUnavailable, failed)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "export"+f.Ext)
		if err = f.WriteFile(ctx, path, source); err == nil {
			return os.ReadFile(path)
		}
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok || err == nil || ctx.Err() != nil {
		return b.Bytes(), err
	}
	return nil, NewProblem("not-in-format", http.StatusUnprocessableEntity, "format", "choose another format",
		fmt.Sprintf("the session cannot be written as %s: %v", f.Name, err))
}
