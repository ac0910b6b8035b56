package store

import (
	"regexp"
	"regexp/syntax"
	"time"
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
// match at the beginning and end of each line; (?-i) and (?-m) change that.
func (q SearchQuery) Compile() (*regexp.Regexp, error) {
	if _, err := syntax.Parse(q.Text, syntax.Perl); err != nil {
		return nil, err // as it was typed
	}
	return regexp.Compile("(?im)" + q.Text)
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
