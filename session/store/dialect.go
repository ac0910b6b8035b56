package store

import "strings"

// Dialect is in what engines differ where they share SQL.
type Dialect struct {
	// Foreign reports that the store has the three canonical tables only: another program wrote it.
	Foreign bool
	// Distributed reports that rows are distributed over several nodes.
	Distributed bool
	// Unannotated reports that it has no annotations: an early version or another program wrote it.
	Unannotated bool
	// SessionColumns and PartColumns are the columns of a session s and a part p, NULL for those that an old file
	// lacks.
	SessionColumns, PartColumns string
	// AnnotationColumns are likewise those of annotations.
	AnnotationColumns string
	// SameSession is a condition beside the join of a message with what is of it, beginning with AND: an engine that
	// distributes sessions over nodes has to know that the rows are of one. "" for a file, where another program may
	// have written something else.
	SameSession func(a, b string) string
	// NoSession is a condition: there is no session with the id in a column.
	NoSession func(column string) string

	// Stored is the column of chat_sessions and chat_parts that orders rows by when they were stored.
	Stored string
	// Find is the function that finds where a text, the first argument, contains another: 0 if it does not.
	Find string
	// MayContain is a condition: a text in lower case, of which ASCII counts only, contains the parameter. It
	// saves sending rows from a server that Go code would leave out. "" where there is no server.
	MayContain func(column, param string) string
	// JSON is the text at a path of keys in a column of JSON, NULL where there is none or the column has no JSON.
	// JSONInt is the whole number there, and 0 or 1 for a boolean.
	JSON, JSONInt func(column string, path ...string) string
	// Elements follows FROM for the texts of a list in a column of JSON: the column value of a table with a name.
	Elements func(column, name string) string
	// Greatest is the function for the greatest of several values.
	Greatest string
	// PutRequested notes which index a part of a message requested: its parameters are the ids of both and the index.
	PutRequested string
	// Opens is the condition for an observation to open a turn, as the indexes have it.
	Opens string
	// Figures reports that the store keeps figures of sessions, in session_stats. NewRows selects the sessions of which
	// they may be out of date all the same, and SettleFigures are statements after which none is; both are empty where
	// that cannot be. ClaimFigures makes the row of a session, whose id is the parameter: until the end of the
	// transaction nobody changes the session unnoticed. A row without turns has no figures. Where NewRows is empty, writers do so, too.
	Figures       bool
	NewRows       string
	SettleFigures []string
	ClaimFigures  string
	// SpanTimes selects the times of an observation by its trace and source: start_nano, end_nano, until_nano and
	// last_below.
	SpanTimes string
}

// Contains is a condition: a text contains a literal.
func (d *Dialect) Contains(column, literal string) string {
	return d.Find + "(" + column + ", '" + strings.ReplaceAll(literal, "'", "''") + "') > 0"
}

// Having returns the dialect for tables chat_sessions, chat_parts and annotations that have these columns only, as an
// earlier version or another program made them.
func (d Dialect) Having(sessions, parts, annotations []string) Dialect {
	d.SessionColumns = SessionTable.Prefixed("s.", SessionTable.without(sessions)...)
	d.PartColumns = PartTable.Prefixed("p.", PartTable.without(parts)...)
	d.AnnotationColumns = AnnotationTable.Prefixed("", AnnotationTable.without(annotations)...)
	d.Unannotated = len(annotations) == 0
	return d
}
