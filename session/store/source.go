package store

import "context"

// ImportSource is a file that sessions were imported from, or a directory that is one input, as it
// was then. By it the next import knows what it need not read again.
type ImportSource struct {
	// Path is absolute.
	Path string `column:"path"`
	// Format is that of the file, "" if import does not know it. Reading is what the result
	// depends on beside the file: the options of the import, and what the program can read.
	Format  string `column:"format,omitempty"`
	Reading string `column:"reading"`

	// Device and Inode are those of the file, 0 where the system has none; Size and
	// ModifiedNano what it reported of the file before it was read.
	Device       int64 `column:"device"`
	Inode        int64 `column:"inode"`
	Size         int64 `column:"size"`
	ModifiedNano int64 `column:"modified_nano"`
	// Beside is a digest of what the system reports of the other files that were read.
	Beside string `column:"beside,omitempty"`

	// ReadTo is how many bytes were read. It differs from Size where the file grew meanwhile.
	// Tail is a digest of the last of them.
	ReadTo int64  `column:"read_to"`
	Tail   string `column:"tail,omitempty"`
	// Resume is always 0.
	Resume int64 `column:"resume_from"`
	// State is, of a database of many sessions, JSON of their versions.
	State []byte `column:"state"`

	// Report counts what was made of the file: JSON of package importer.
	Report string `column:"report_json"`
	// Sessions are the ids of the sessions that the file is a source of. Deleted are those of them
	// that the store does not have, which it knows when it is asked for the source.
	Sessions []string `column:"-"`
	Deleted  []string `column:"-"`
}

// ImportSources is the part of a store that remembers the files which sessions were imported from.
// A source that is part of an [Imported] is recorded by its transaction.
type ImportSources interface {
	// ImportSources returns the sources whose path begins with prefix, by path. They have no State.
	ImportSources(ctx context.Context, prefix string) ([]ImportSource, error)
	// ImportSource returns the whole of the source with the path, or ErrNotFound.
	ImportSource(ctx context.Context, path string) (ImportSource, error)
	// RecordSources replaces the sources with the same paths, in one transaction.
	RecordSources(ctx context.Context, sources ...*ImportSource) error
}

// RecordSources is [ImportSources.RecordSources] in a transaction of any engine.
func RecordSources(tx Tx, sources ...*ImportSource) error {
	return tx.Do(func(s Statements) {
		for _, source := range sources {
			putSource(source)(s)
		}
	})
}
