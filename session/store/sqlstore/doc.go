// Package sqlstore has what engines share beside the merge: reading, searching, counting and managing. The tables are
// those of package store, which FORMAT.md of package sqlite describes.
package sqlstore
