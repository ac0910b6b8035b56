package formats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// IsDatabase reports whether a file that begins with text is an SQLite database.
func IsDatabase(text []byte) bool { return bytes.HasPrefix(text, []byte(rows.DatabaseHeader)) }

// Named returns the format of a name that which accepts, or nil. A nil which accepts all.
func Named(name string, which func(*Format) bool) *Format {
	return first(func(f *Format) bool { return f.Name == name && (which == nil || which(f)) })
}

// Filter returns the formats that which accepts.
func Filter(which func(*Format) bool) (all []*Format) {
	for i := range All {
		if which(&All[i]) {
			all = append(all, &All[i])
		}
	}
	return all
}

// Names returns the names of the formats that which accepts.
func Names(which func(*Format) bool) (names []string) {
	for _, f := range Filter(which) {
		names = append(names, f.Name)
	}
	return names
}

// sniffLines is how many lines of a file are looked at, for the first may be
// damaged, or report nothing that the format is known by.
const sniffLines = 32

// OfText returns the format of a file that begins with text, or nil. It does not look into
// databases. It reads JSON lines, an array of objects, or one object, of which text may hold the
// beginning only. The first object that is of a format decides.
func OfText(text []byte) *Format {
	var found *Format
	rest := bytes.TrimPrefix(text, []byte("\uFEFF"))
	for n := 0; n < sniffLines && found == nil; n++ {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		if len(rest) == 0 || rest[0] != '{' && rest[0] != '[' {
			break
		}
		keys := otlpfile.FirstObject(rest)
		found = first(func(f *Format) bool { return codec.HasKeys(keys, f.Keys...) })
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	return first(func(f *Format) bool { return f == found || f.SniffText != nil && f.SniffText(text) })
}

func first(is func(*Format) bool) *Format {
	for i := range All {
		if is(&All[i]) {
			return &All[i]
		}
	}
	return nil
}

// OfDatabase returns the format of an SQLite database by its tables.
func OfDatabase(path string) (*Format, error) {
	tables, err := sqliteTables(path)
	if err != nil {
		return nil, err
	}
	for i := len(All) - 1; i >= 0; i-- { // a store of sessions may have a table of any name beside
		f := &All[i]
		lacks := slices.ContainsFunc(f.Tables, func(table string) bool { return !slices.Contains(tables, table) })
		if len(f.Tables) > 0 && !lacks {
			return f, nil
		}
	}
	if len(tables) == 0 {
		return nil, errors.New("it is an SQLite database without tables")
	}
	return nil, fmt.Errorf("it is an SQLite database, but of its tables (%s) none is of a store that import knows",
		strings.Join(tables, ", "))
}

// OfDirectory returns the format whose programs lay out a directory like this, or nil.
func OfDirectory(path string) *Format {
	return first(func(f *Format) bool {
		return slices.ContainsFunc(f.Layout, func(pattern string) bool {
			names, _ := filepath.Glob(filepath.Join(GlobEscape(path), filepath.FromSlash(pattern)))
			return slices.ContainsFunc(names, func(name string) bool { return formatOf(name) == f })
		})
	})
}

// OfFile returns the format of a file that has the extension of one, or nil.
func OfFile(path string) *Format {
	of := sync.OnceValue(func() *Format { return formatOf(path) })
	return first(func(f *Format) bool { return f.HasExtension(path) && of() == f })
}

// GlobEscape makes a path a pattern that only it matches.
func GlobEscape(path string) string {
	if filepath.Separator == '\\' {
		return path // where a backslash parts names, nothing escapes
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// formatOf reads the head of a file, and returns its format, or nil.
func formatOf(path string) *Format {
	file, err := codec.OpenFile(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text := make([]byte, 64<<10)
	n, _ := io.ReadFull(file, text)
	if text = text[:n]; IsDatabase(text) {
		of, _ := OfDatabase(path) // nil with an error
		return of
	}
	return OfText(text)
}
