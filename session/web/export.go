package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/store"
)

type exportParams struct {
	sessionPath
	Format exportFormat `query:"format" default:"jsonl" doc:"the format to write"`
	Full   bool         `query:"full" doc:"whether to cut nothing of a transcript for people"`
	Redact bool         `query:"redact" doc:"whether to take secrets out"`
}

// mediaTypeOf is the media type of files with an extension.
func mediaTypeOf(ext string) string {
	switch ext {
	case ".json":
		return "application/json"
	case ".jsonl", ".ndjson":
		return "application/x-ndjson"
	case ".md":
		return "text/markdown; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".csv":
		return "text/csv; charset=utf-8"
	case ".pb":
		return "application/x-protobuf"
	}
	return "application/vnd.sqlite3"
}

// exportTypes are the media types of exports.
func exportTypes() (all []string) {
	for _, f := range formats.Filter((*formats.Format).Written) {
		mediaType, _, _ := mime.ParseMediaType(mediaTypeOf(f.Ext)) // it is one of the above
		if !slices.Contains(all, mediaType) {
			all = append(all, mediaType)
		}
	}
	return all
}

// export answers with a session in a format. The file is made before it is sent: an error is answered as one, and the
// ETag is known. Then it is sent piece by piece, so its size needs no memory.
func (a *api) export(w http.ResponseWriter, r *http.Request, p exportParams) error {
	ctx := r.Context()
	f := formats.Named(string(p.Format), (*formats.Format).Written)
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
	dir, err := os.MkdirTemp("", "agenttrace-export-*")
	if err != nil {
		return fmt.Errorf("%w: make room for the export: %w", store.ErrUnavailable, err)
	}
	defer os.RemoveAll(dir)
	file, err := writeExport(ctx, filepath.Join(dir, "export"+f.Ext), f, source)
	if err != nil {
		return err
	}
	defer file.Close()
	sum, size, err := checksum(file)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", mediaTypeOf(f.Ext))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{
		"filename": codec.FileName(p.ID) + f.Ext}))
	h.Set("ETag", Tag(sum))
	if Has(r, Tag(sum)) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	if r.Method == http.MethodHead {
		return nil
	}
	_, _ = io.Copy(patiently(w), file) // a reader that is gone needs no answer
	return nil
}

// writeExport writes a session to a file that does not exist, and opens that.
func writeExport(ctx context.Context, path string, f *formats.Format, source *formats.Source) (*os.File, error) {
	refused := func(err error) error {
		if _, ok := errors.AsType[*fs.PathError](err); ok || ctx.Err() != nil {
			return err
		}
		return NewProblem("not-in-format", http.StatusUnprocessableEntity, "format", "choose another format",
			fmt.Sprintf("the session cannot be written as %s: %v", f.Name, err))
	}
	if f.Stream == nil {
		if err := f.WriteFile(ctx, path, source); err != nil {
			return nil, refused(err)
		}
		return os.Open(path)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Stream(file)(source); err != nil {
		return nil, errors.Join(refused(err), file.Close())
	}
	return file, nil
}

// checksum reads a file from its beginning, where it leaves it.
func checksum(file *os.File) (sum [sha256.Size]byte, size int64, err error) {
	if _, err = file.Seek(0, io.SeekStart); err != nil {
		return sum, 0, err
	}
	digest := sha256.New()
	if size, err = io.Copy(digest, file); err != nil {
		return sum, 0, err
	}
	_, err = file.Seek(0, io.SeekStart)
	return [sha256.Size]byte(digest.Sum(nil)), size, err
}
