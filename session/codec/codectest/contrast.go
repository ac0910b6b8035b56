package codectest

import (
	"bytes"
	_ "embed" // the answers
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// contrast is two sessions whose answers must not be written alike: what a reader takes the first for when it is
// written as the second would be false.
type contrast struct {
	name          string
	first, second *codec.Session
	// always reports that no loss excuses it.
	always bool
}

// contrastText has them as answers after a question, in the form of the corpus.
//
//go:embed contrast.txt
var contrastText string

func readContrasts() (all []contrast) {
	for name, rows := range sections(contrastText) {
		var answers []*codec.Session
		for _, answer := range strings.Split(rows, "assistant ")[1:] {
			b := build("ses_contrast", began)
			b.add(began, session.RoleUser, "{}", said("go"))
			b.rows(name, "assistant "+answer)
			answers = append(answers, b.done())
		}
		name, always := strings.CutPrefix(name, "always: ")
		all = append(all, contrast{name, answers[0], answers[1], always})
	}
	return all
}

// contrasts has what a format makes of two sessions that say different things be
// different. Where it has no word for the difference, Explain lists that.
func (x *examination) contrasts() error {
	all := readContrasts()
	for _, c := range all {
		a := x.write(c.first)
		b := x.write(c.second)
		differ := sameOutput(a, b) != nil
		x.drop(a)
		x.drop(b)
		if !differ && (c.always || !x.lists(c.first, codec.Lost(c.first, c.second))) {
			return fmt.Errorf("%s: both are written as\n%s\nthe losses of the first: %v\nthe differences: %v",
				c.name, a.data, x.Explain(c.first), codec.Lost(c.first, c.second))
		}
	}
	if x.reads() {
		return nil // what is withheld is read as that
	}
	unknown := x.write(all[0].first, all[2].first)
	known := x.write(all[0].second, all[2].second)
	if a, b := bytes.Count(unknown.data, []byte("null")), bytes.Count(known.data, []byte("null")); a >= max(b, 1) {
		return fmt.Errorf("a withheld value is written as null:\n%s", unknown.data)
	}
	return nil
}

// lists reports whether Explain lists all of the differences.
func (x *examination) lists(s *codec.Session, differences []codec.Loss) bool {
	losses := x.Explain(s)
	return !slices.ContainsFunc(differences, func(d codec.Loss) bool {
		return d.What != "ids and times" && !listed(losses, d.What) // of the part that one has
	})
}
