// Package sqlstore has what engines that speak SQL share: the rows of their tables, reading, searching, counting
// and managing, and those queries of a transaction ([Ask]) that need no form of their own.
//
// The tables and their columns are those that FORMAT.md of package sqlite describes, in every engine. A [Table]
// follows from the type of its rows, so neither SQL nor scanning has a list of columns of its own:
//
//	query := "SELECT " + sqlstore.PartTable.List + " FROM chat_parts WHERE message_id = ?"
//	…
//	var p session.Part
//	err := sqlstore.PartTable.Scan(row, &p) // row is the engine's
package sqlstore
