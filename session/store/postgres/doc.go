// Package postgres keeps sessions in a PostgreSQL database: the tables of package sqlite, with the same columns, for
// any number of programs that write and read at the same time.
//
// What is merged is the same as in a file, row for row. Two batches that touch the same session, trace or tool call
// wait for one another ([Store.Transact]); all others are written side by side. Writing needs no session-level
// advisory locks, no LISTEN and no server code, so engines that speak PostgreSQL's protocol can be used as well.
package postgres
