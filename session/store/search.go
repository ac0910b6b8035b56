package store

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"
	"unicode/utf8"
)

// SearchQuery selects what is looked through.
type SearchQuery struct {
	// Text is what is looked for, upper and lower case alike. Empty finds nothing.
	Text string
	// Regexp reports that Text is a regular expression: see [SearchQuery.Compile].
	Regexp bool
	// Agent, if set, selects sessions of that agent.
	Agent string
	// Session, if set, is the id of the one session that is looked through. What it copied is found in it, too.
	Session string
	// Since leaves out parts that are older; zero leaves out nothing.
	Since time.Time
}

// Compile returns the regular expression that Text is, in the syntax of package regexp. It ignores case, and ^ and $
// match at the beginning and end of each line; (?-i) and (?-m) change that. An error names the character at which the
// expression is wrong.
func (q SearchQuery) Compile() (*regexp.Regexp, error) {
	_, err := syntax.Parse(q.Text, syntax.Perl)
	if err == nil {
		return regexp.Compile("(?im)" + q.Text)
	}
	var wrong *syntax.Error
	if !errors.As(err, &wrong) {
		return nil, err
	}
	return nil, fmt.Errorf("regular expression %q, character %d: %s", q.Text, wrongAt(q.Text, wrong.Code), wrong.Code)
}

// wrongAt returns the number of the character, from 1, from which on an expression has a problem: no prefix that ends
// before it does, and all others do.
func wrongAt(text string, code syntax.ErrorCode) int {
	at, had := 0, false
	for i, r := range text {
		_, err := syntax.Parse(text[:min(i+utf8.RuneLen(r), len(text))], syntax.Perl)
		var wrong *syntax.Error
		has := errors.As(err, &wrong) && wrong.Code == code
		if has && !had {
			at = i
		}
		had = has
	}
	return utf8.RuneCountInString(text[:at]) + 1
}

// Types of hits that are in no part.
const (
	TypeSession      = "session"       // in the title of a session
	TypeSystemPrompt = "system-prompt" // in a system prompt, reported at the first message that has it
	TypeToolCatalog  = "tool-catalog"  // in a tool catalog, likewise
	TypeNote         = "note"          // in a note about a session, turn or part, or a remark on a tag or score
)

// Hit is a place where a text was found: one value of one part, or the title of a session.
type Hit struct {
	SessionID string `json:"session_id"`
	Title     string `json:"title"`
	// Opening is how the first text of a user begins, of a session without a title. An engine leaves it empty.
	Opening string `json:"opening,omitempty"`
	Agent   string `json:"agent"`
	// Turn is the number of the turn in the session's timeline; 0 where it is not known. An engine leaves it 0.
	Turn      int    `json:"turn,omitempty"`
	MessageID string `json:"message_id,omitempty"` // a title has neither message nor role nor part
	Role      string `json:"role,omitempty"`
	// Hidden reports that a rewind hid the message.
	Hidden bool   `json:"hidden,omitempty"`
	PartID string `json:"part_id,omitempty"`
	// Type is that of the part: text, reasoning, tool-<name> and so on; [TypeSession]
	// of a title, [TypeNote] of a note, of which the message and the part are what it is about.
	Type string `json:"type"`
	// Digest is that of the system prompt or tool catalog.
	Digest string `json:"digest,omitempty"`
	// Tool and CallID are those of a tool call.
	Tool   string `json:"tool,omitempty"`
	CallID string `json:"tool_call_id,omitempty"`
	// Field is where in the part: text, input.command, output[2].name; or title, system prompt, tool catalog, note.
	Field string `json:"field"`
	// Matches counts how often the text is in the value. Matches of a regular expression that are empty do not count,
	// nor do those after the first 100,000.
	Matches int `json:"matches"`
	// Context is the value around the first match, of which it has 4 KiB at most, and Marks are
	// the ranges of bytes of the matches in it.
	Context string   `json:"context"`
	Marks   [][2]int `json:"marks"`
	// CutBefore and CutAfter report that Context is not the value's beginning or end.
	CutBefore bool  `json:"cut_before,omitempty"`
	CutAfter  bool  `json:"cut_after,omitempty"`
	CreatedAt int64 `json:"created_at"`
}
