package html

import (
	"strings"

	"github.com/agenttrace/agenttrace/session/codec/internal/transcript/richtext"
)

// segment is a stretch of a text: prose, or code that was fenced in it.
type segment struct {
	Code bool
	Body string
}

// segments finds the fenced code in a text, as Markdown has it. A fence that is not
// closed reaches to the end.
func segments(text string) []segment {
	var all []segment
	var prose, code []string
	flush := func(lines *[]string, s segment) {
		if s.Body = strings.Join(*lines, "\n"); s.Code || strings.Trim(s.Body, "\n") != "" {
			if !s.Code {
				s.Body = strings.Trim(s.Body, "\n")
			}
			all = append(all, s)
		}
		*lines = nil
	}
	fence := ""
	for l := range strings.SplitSeq(text, "\n") {
		mark := fenceOf(l)
		switch {
		case fence == "" && mark != "":
			flush(&prose, segment{})
			fence = mark
		case fence == "":
			prose = append(prose, l)
		case mark != "" && mark[0] == fence[0] && len(mark) >= len(fence) && strings.TrimSpace(l) == mark:
			flush(&code, segment{Code: true})
			fence = ""
		default:
			code = append(code, l)
		}
	}
	if fence != "" {
		flush(&code, segment{Code: true})
	}
	flush(&prose, segment{})
	return all
}

// fenceOf is the run of backticks or tildes that a line opens or closes code with, or "".
func fenceOf(line string) string {
	s := strings.TrimSpace(line)
	run := richtext.FenceOf(s)
	if strings.HasPrefix(run, "`") && strings.Contains(s[len(run):], "`") {
		return ""
	}
	return run
}
