package fact

import (
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// CountBefore sets Before and BeforeTurns to what all, of which Input is the end, has
// before the last messages of the user.
func (f *Fact) CountBefore(all []Message) {
	f.Before, f.BeforeTurns = 0, 0
	messages, turns, said := 0, 0, false // up to here, and whether the user spoke last
	for i := range all {
		switch all[i].Role {
		case "system":
			continue
		case "user":
			if !said {
				f.Before, f.BeforeTurns = messages, turns
				turns++
			}
			said = true
		default:
			said = false
		}
		messages++
	}
}

// SplitWords makes parts of their own of what clients put around the words of the user, see [session.Words]. They come
// after the words of their message.
func (f *Fact) SplitWords() {
	for _, messages := range [][]Message{f.Input, f.Unanswered} {
		for i := range messages {
			if m := &messages[i]; m.Role == session.RoleUser {
				m.splitWords()
			}
		}
	}
}

func (m *Message) splitWords() {
	var own, around []Part
	ofAgents := false // Google's ADK writes "For context:", and what other agents did in further parts
	for _, p := range m.Parts {
		if p.Kind == PartText {
			words, context := session.Words(p.Text)
			if ofAgents && len(context) == 0 {
				words, context = "", []string{p.Text}
			}
			ofAgents = ofAgents || words == "" && strings.TrimSpace(p.Text) == agentContext
			for _, text := range context {
				around = append(around, Part{Kind: PartContext, Text: text})
			}
			if p.Text = words; words == "" && len(context) > 0 {
				continue
			}
		}
		own = append(own, p)
	}
	if len(around) > 0 || len(own) > 0 {
		m.Parts = append(own, around...)
	}
}

// UserRun returns where the last consecutive messages of the user are, an empty range at the start where there is none.
func UserRun(messages []Message) (start, end int) {
	for end = len(messages); end > 0 && !messages[end-1].ByUser(); end-- {
	}
	for start = end; start > 0 && messages[start-1].ByUser(); start-- {
	}
	return start, end
}

// agentContext begins what Google's ADK writes in the user's name: what other agents did.
const agentContext = "For context:"

// ByClient reports whether a client wrote all of a message in the user's name, such as that a sub-agent is done.
func ByClient(parts []Part) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(p Part) bool { return p.Kind != PartContext })
}

// ByUser reports whether the user wrote the message, and not a framework in the user's name about other agents.
func (m *Message) ByUser() bool {
	return m.Role == "user" && !(len(m.Parts) > 0 && strings.HasPrefix(m.Parts[0].Text, agentContext) &&
		(m.Parts[0].Kind == PartContext || strings.TrimSpace(m.Parts[0].Text) == agentContext || isContext(m.Parts[0].Text)))
}

func isContext(text string) bool {
	words, _ := session.Words(text)
	return words == ""
}

// SplitPrompts takes the prompts of turns that failed from the Input of a request whose source has one message of the
// user for each turn.
func (f *Fact) SplitPrompts() {
	n := 0
	for n < len(f.Input) && f.Input[n].ByUser() {
		n++
	}
	if n > 1 {
		f.Unanswered, f.Input = f.Input[:n-1], f.Input[n-1:]
		f.History += n - 1
	}
}

// PartsOf returns the parts of all messages, in order.
func PartsOf(messages []Message) (parts []Part) {
	for _, m := range messages {
		parts = append(parts, m.Parts...)
	}
	return parts
}
