package agenttrace

import "cmp"

// match is the rule that decides a call, if any.
type match struct {
	rule  Rule
	found bool
}

// action is the action of the match: ask when no rule matched, deny when the rule
// reports nothing that is an action.
func (m match) action() Action {
	switch {
	case !m.found:
		return ActionAsk
	case m.rule.Action.narrowness() > ActionAsk.narrowness():
		return ActionDeny
	}
	return m.rule.Action
}

// because explains a denial.
func (m match) because() string {
	if !m.found {
		return "no rule allows it"
	}
	return "the " + string(m.rule.Source) + " denies " + m.rule.Permission + " " + m.rule.Pattern
}

// evaluate finds the rule that decides a call.
func (s *Session) evaluate(tool string, kind ToolKind, subject string) match {
	var manifest, best match
	var manifestRank, bestRank specificity
	consider := func(r Rule) {
		rank, ok := r.rank(tool, kind, subject)
		if !ok {
			return
		}
		if r.Source == SourceManifest && (!manifest.found || rank.compare(manifestRank) >= 0) {
			manifest, manifestRank = match{r, true}, rank
		}
		if !best.found || rank.compare(bestRank) >= 0 {
			best, bestRank = match{r, true}, rank
		}
	}
	for _, r := range s.tracer.rules {
		consider(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.st.Rules {
		consider(r)
	}
	if manifest.found && manifest.action() == ActionDeny {
		return manifest
	}
	return best
}

// specificity orders the rules that match a call.
type specificity struct {
	permission int // 2 names the tool, 1 its kind, 0 is "*"
	exact      int // 1: the pattern has no wildcards
	literals   int
	source     int
}

func (s specificity) compare(o specificity) int {
	return cmp.Or(cmp.Compare(s.permission, o.permission), cmp.Compare(s.exact, o.exact),
		cmp.Compare(s.literals, o.literals), cmp.Compare(s.source, o.source))
}

// rank reports whether the rule matches a call, and how specifically.
func (r Rule) rank(tool string, kind ToolKind, subject string) (specificity, bool) {
	var s specificity
	switch {
	case r.Permission == tool:
		s.permission = 2
	case kind != "" && r.Permission == string(kind):
		s.permission = 1
	case r.Permission != "*":
		return s, false
	}
	pattern := cmp.Or(r.Pattern, "*")
	if !matchPattern(pattern, subject) {
		return s, false
	}
	s.exact = 1
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?':
			s.exact = 0
			continue
		case '\\':
			if i+1 < len(pattern) {
				i++
			}
		}
		s.literals++
	}
	switch r.Source {
	case SourceSession:
		s.source = 2
	case SourceProject:
		s.source = 1
	}
	return s, true
}

// matchPattern reports whether the pattern matches all of s. It takes time
// proportional to the product of the lengths at worst.
func matchPattern(pattern, s string) bool {
	// star and mark are where to go on from when what follows the last "*" does
	// not fit: the "*" takes one character more.
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		if p < len(pattern) {
			switch c := pattern[p]; {
			case c == '*':
				star, mark = p, i
				p++
				continue
			case c == '?':
				p++
				i += runeLen(s[i:])
				continue
			case c == '\\' && p+1 < len(pattern):
				if pattern[p+1] == s[i] {
					p += 2
					i++
					continue
				}
			case c == s[i]:
				p++
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark += runeLen(s[mark:])
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
