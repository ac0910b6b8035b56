// Package codec holds what the formats of sessions share. A [Reading] is all that is known of reading a
// format; package formats has them, with what writes them and what they lose.
//
// A decoder reads damaged input as far as it is good and reports the rest. It returns an error only where there is
// nothing to read or reading itself fails. The same input gives the same rows, ids included, always.
package codec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Session is a session as a format reads and writes it. Only a format that is
// complete has SpanRefs, Traces, State and RequestedIndexes.
type Session = store.Imported

// Wanted reports whether a session is to be read of which a file has a version: two versions differ where the session
// does. A nil Wanted wants all. It is called for the sessions of a database, in their order.
type Wanted func(id, version string) bool

// Problem is a piece of the input that could not be read, or only in part. The rest of the input was.
type Problem struct {
	// File is the path within the input, empty when the input is one file. Line counts from 1; 0 is unknown. Record
	// names a record that has no line, such as a row.
	File   string
	Line   int
	Record string
	// Reason states what is wrong and what was done about it.
	Reason string
}

func (p Problem) String() string {
	place := p.File
	if p.Line > 0 && place != "" {
		place += ":" + strconv.Itoa(p.Line)
	} else if p.Line > 0 {
		place = "line " + strconv.Itoa(p.Line)
	}
	all := []string{place, p.Record, p.Reason}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), ": ")
}

// Loss is something of sessions that a format does not hold, or not in every case.
type Loss struct {
	// What names it: an aspect of a session, or what only this format loses.
	What string
	// Note describes which part of it is lost, or what is written instead. It is empty if all of it is lost.
	Note string
	// Kept is where in the format it is kept anyway, empty if it is lost.
	Kept string
	// Count is the number of its entries in a session. In a list of losses it is 0.
	Count int
}

// Losses is the list of all aspects that a format does not hold. Each format of another program has one, which the
// conformance suite checks: what is not listed survives a round trip, and what is listed is lost in some session.
type Losses []Loss

// foreign are the aspects for which hardly any format of another program has a field.
var foreign = []string{"columns of the session", "tags, notes and scores", "other metadata"}

// ForeignLosses returns the list of a format of another program: the losses with a note,
// the aspects that it does not hold at all, and those that hardly any such format holds.
func ForeignLosses(noted Losses, whole ...string) Losses {
	for _, name := range slices.Concat(whole, foreign) {
		if !slices.ContainsFunc(noted, func(l Loss) bool { return l.What == name }) {
			noted = append(noted, Loss{What: name})
		}
	}
	return noted
}

// AddLoss counts n of what to the losses, beside those of the same name that are there. Zero adds nothing.
func AddLoss(losses []Loss, what, kept string, n int) []Loss {
	if n == 0 {
		return losses
	}
	for i := range losses {
		if losses[i].What == what {
			losses[i].Count += n
			return losses
		}
	}
	return append(losses, Loss{What: what, Count: n, Kept: kept})
}

// WithheldText is where a format of another program has a value that took place and
// that no source reports: an empty value would report something else.
const WithheldText = "[withheld: the source does not report it]"

// Withheld reports whether the input and the output of a tool call that has ended are
// unknown. A part that is no such call has nothing withheld.
func Withheld(p *session.Part) (input, output bool) {
	if p.ToolCallID == nil || p.ToolState == nil ||
		*p.ToolState != session.StateOutputAvailable && *p.ToolState != session.StateOutputError &&
			*p.ToolState != session.StateOutputDenied {
		return false, false
	}
	data, err := session.ParseUIPart(p.DataJSON)
	if err != nil {
		return false, false
	}
	trace := data.Trace()
	input = len(data.Input) == 0 || trace.InputWithheld
	return input, trace.Withheld && *p.ToolState == session.StateOutputAvailable
}
