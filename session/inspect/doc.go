// Package inspect makes a session readable: what the model saw, said, tried and
// failed at, turn by turn. It is what the command line and a viewer both print.
//
// [Build] turns the rows of one session into a [Timeline], a typed value that
// also is the documented JSON of "agenttrace show --json"; [Load] collects those
// rows from a store. [Timeline.Render] prints a timeline on a terminal, and
// [RenderSessions] a list of sessions.
//
// Nothing is assumed of the rows but that they are rows: sessions of the
// reference program, sessions that are still running and sessions of which half
// was lost are read as what they are. What a source did not say is nil or
// empty, never zero.
package inspect
