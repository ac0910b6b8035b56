package agenttrace

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// match is the rule that decides a call, if any.
type match struct {
	Rule
	found bool
}

// action is the action of the match: ask when no rule matched, deny when the rule reports nothing that is an action.
func (m match) action() Action {
	switch {
	case !m.found:
		return ActionAsk
	case m.Action.narrowness() > ActionAsk.narrowness():
		return ActionDeny
	}
	return m.Action
}

// because explains a denial.
func (m match) because() string {
	if !m.found {
		return "no rule allows it"
	}
	return "the " + string(m.Source) + " denies " + strings.TrimSpace(m.Permission+" "+m.Pattern)
}

// evaluate finds the rule that decides a call.
func (s *Session) evaluate(tool string, kind ToolKind, subject string) match {
	var manifest, best match
	var manifestRank, bestRank specificity
	for _, r := range slices.Concat(s.tracer.rules, s.Rules()) {
		rank := r.rank(tool, kind, subject)
		if rank == nil {
			continue
		}
		if r.Source == SourceManifest && slices.Compare(rank, manifestRank) >= 0 {
			manifest, manifestRank = match{r, true}, rank
		}
		if slices.Compare(rank, bestRank) >= 0 {
			best, bestRank = match{r, true}, rank
		}
	}
	if manifest.found && manifest.action() == ActionDeny {
		return manifest
	}
	return best
}

// specificity orders the rules that match a call: by the permission (2 names the tool, 1 its kind, 0 is "*"), whether
// the pattern has no wildcards (1), its literal characters, and the source. It is nil of a rule that does not match.
type specificity []int

// rank returns how specifically the rule matches a call.
func (r Rule) rank(tool string, kind ToolKind, subject string) specificity {
	permission, exact, literals := 0, 1, 0
	switch {
	case r.Permission == tool:
		permission = 2
	case kind != "" && r.Permission == string(kind):
		permission = 1
	case r.Permission != "*":
		return nil
	}
	pattern := cmp.Or(r.Pattern, "*")
	var expression strings.Builder
	expression.WriteString(`(?s)\A`)
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*':
			expression.WriteString(".*")
			exact = 0
			continue
		case '?':
			expression.WriteByte('.')
			exact = 0
			continue
		case '\\':
			if i+1 < len(pattern) {
				i++
			}
		}
		expression.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		literals++
	}
	matches, err := regexp.MatchString(expression.String()+`\z`, subject)
	if err != nil || !matches { // it is not UTF-8, which every subject is
		return nil
	}
	return specificity{permission, exact, literals, slices.Index([]Source{SourceProject, SourceSession}, r.Source)}
}
