// Package sqlite keeps sessions in one SQLite file: the three canonical tables that any SQLite tool reads, and beside
// them what agenttrace adds. FORMAT.md describes the file.
//
// One process writes ([Open]), holding a lock file beside the database; any
// number read ([OpenReader]), also while it writes. The driver is pure Go.
package sqlite
