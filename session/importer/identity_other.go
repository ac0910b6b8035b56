//go:build !unix

package importer

import "io/fs"

// identity is not known.
func identity(fs.FileInfo) (device, inode int64) { return 0, 0 }
