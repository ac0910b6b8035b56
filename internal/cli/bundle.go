package cli

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
)

// A path in a session is what some telemetry reported, and a bundle is made to be sent. So a
// file goes into it only when it is what the agent reported that it is: its SHA-256 stands
// with the path. A path that leads to somebody's keys leads nowhere then.

// maxSideFile is the greatest side file that is bundled.
const maxSideFile = 256 << 20

// sideFile is a file that a session refers to.
type sideFile struct {
	path   string
	size   int64
	sha256 string
}

// writeBundle writes a zip with a transcript per session and the side files.
func (e *exporter) writeBundle() error {
	var missing []string
	err := e.out.write(e.cmd, e.bundle, e.format.JSON, func(w io.Writer) error {
		z := zip.NewWriter(w)
		packed := make(map[string]string) // by SHA-256, the name in the zip
		err := e.each(func(s *formats.Source) error {
			s.Files = make(map[string]string)
			seen := make(map[string]bool)
			for c := range document.Build(s.Input).ToolCalls() {
				f := sideFile{c.OutputPath, c.OutputSize, strings.ToLower(c.OutputSHA256)}
				if f.path == "" || seen[f.path] {
					continue
				}
				seen[f.path] = true
				name, ok := packed[f.sha256]
				if !ok {
					content, err := f.read(s.Transcript.Session.WorkspaceRoot)
					if err != nil {
						missing = append(missing, fmt.Sprintf("%s: %s: %v", s.Transcript.Session.ID, f.path, err))
						continue
					}
					name = "files/" + f.sha256[:16] + "-" + codec.FileName(
						strings.TrimSuffix(filepath.Base(f.path), filepath.Ext(f.path))) + fileExt(f.path)
					if err := pack(z, name, content); err != nil {
						return err
					}
					packed[f.sha256] = name
				}
				s.Files[f.path] = name
			}
			var page bytes.Buffer
			if err := e.format.Stream(&page)(s); err != nil {
				return err // before it has an entry
			}
			return pack(z, codec.FileName(s.Transcript.Session.ID)+e.format.Ext, page.Bytes())
		})
		if err = e.some(err); err == nil && len(missing) > 0 {
			err = pack(z, "missing.txt", []byte(document.Sanitize(strings.Join(missing, "\n"))+"\n"))
		}
		return errors.Join(err, z.Close())
	})
	if err != nil {
		return err
	}
	for _, m := range missing {
		_ = note(e.cmd, "agenttrace: left out: %s\n", document.Line(m))
	}
	return nil
}

func pack(z *zip.Writer, name string, content []byte) error {
	w, err := z.Create(name)
	if err == nil {
		_, err = w.Write(content)
	}
	if err != nil {
		return outputError{err}
	}
	return nil
}

// fileExt is the extension of a path, if it is a plain one.
func fileExt(path string) string {
	ext := filepath.Ext(path)
	if len(ext) > 10 || strings.ContainsFunc(strings.TrimPrefix(ext, "."), func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9')
	}) {
		return ""
	}
	return ext
}

// read returns the file, which is looked for below the workspace where its path says no
// more, if it is the one that was meant.
func (f *sideFile) read(root *string) ([]byte, error) {
	if sum, err := hex.DecodeString(f.sha256); err != nil || len(sum) != sha256.Size {
		return nil, errors.New("the session has no SHA-256 of it")
	}
	path := f.path
	if root != nil && *root != "" && !filepath.IsAbs(path) {
		path = filepath.Join(*root, path)
	}
	info, err := os.Stat(path)
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a file")
	case info.Size() > maxSideFile:
		return nil, errors.New("it is larger than 256 MiB")
	case f.size > 0 && info.Size() != f.size:
		return nil, errors.New("its size differs from the one in the session")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != f.sha256 {
		return nil, errors.New("its SHA-256 differs from the one in the session")
	}
	return content, nil
}
