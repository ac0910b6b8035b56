//go:build !linux

package sqlite

import "os"

// inodeLock is none: here a database is locked by the file beside it alone.
type inodeLock struct{ f *os.File }

func (l *inodeLock) lock(f *os.File) (holder string, err error) {
	l.f = f
	return "", nil
}

func (l *inodeLock) unlock() error {
	if l.f != nil {
		files.close(l.f)
		l.f = nil
	}
	return nil
}
