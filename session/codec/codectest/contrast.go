package codectest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// contrast is two answers that must not be written alike: what a reader takes the first
// for when it is written as the second would be false.
type contrast struct {
	name          string
	first, second answer
	// always reports that no loss excuses it.
	always bool
}

// answer is an assistant's message: its metadata and its only part, if it has one.
type answer struct{ metadata, part string }

func (a answer) session() *codec.Session {
	b := build("ses_contrast", began)
	b.add(began, session.RoleUser, "{}", said("go"))
	parts := []string{said("so far"), a.part}
	if a.part == "" {
		parts = parts[:1]
	}
	b.add(began+1, session.RoleAssistant, a.metadata, parts...)
	return b.done()
}

// call is an answer that is a tool call.
func call(rest string) answer {
	return answer{"{}", `{"type":"tool-bash","toolCallId":"call_1",` + rest + `}`}
}

// ended is an answer whose turn ended in some way.
func ended(end, part string) answer { return answer{`{"agenttrace":{` + end + `}}`, part} }

const (
	done     = `"state":"output-available","input":{"command":"ls"},"output":`
	withheld = `null,"toolMetadata":{"agenttrace":{"withheld":true}}`
	// noInput follows the rest of a call whose input is withheld.
	noInput = `,"toolMetadata":{"agenttrace":{"input_withheld":true}}`
	failed  = `"end_reason":"error","error":"overloaded"`
)

var (
	finished = ended(`"end_reason":"finish"`, "")
	open     = call(`"state":"input-available","input":{"command":"ls"}`)
)

var contrasts = []contrast{
	{"an output that is withheld, and one that is null", call(done + withheld), call(done + `null`), true},
	{"an output that is withheld, and an empty one", call(done + withheld), call(done + `""`), true},
	{"an input that is withheld, and an empty one",
		call(`"state":"output-available","input":null,"output":"a"` + noInput),
		call(`"state":"output-available","input":{},"output":"a"`), true},
	{"a call that failed, and one that returned the text of the error",
		call(`"state":"output-error","input":{"command":"ls"},"errorText":"exit 1"`), call(done + `"exit 1"`), true},
	{"a call that was denied, and one that returned the reason",
		call(`"state":"output-denied","input":{"command":"ls"},"approval":{"id":"a","approved":false,"reason":"no"}`),
		call(done + `"no"`), true},
	{"a call without a result, and one that returned nothing", open, call(done + `""`), true},
	{"a call without a result, and one that returned null", open, call(done + `null`), true},
	{"a failed call whose input is withheld, and one without input",
		call(`"state":"output-error","input":null,"errorText":"exit 1"` + noInput),
		call(`"state":"output-error","input":{},"errorText":"exit 1"`), true},
	{"content that is withheld, and none",
		answer{"{}", `{"type":"data-withheld","data":{"text":"the answer was not reported"}}`}, answer{"{}", ""}, false},
	{"an answer that never ended, and one that did",
		ended(`"incomplete":true`, `{"type":"data-unfinished","data":{"text":"the end of the turn was not reported"}}`),
		finished, false},
	{"an answer that failed, and one that did not",
		ended(failed, `{"type":"data-error","data":{"text":"overloaded"}}`), finished, false},
	{"a turn that failed, and one that finished", ended(failed, ""), finished, false},
	{"a turn that was interrupted, and one that finished", ended(`"end_reason":"abort"`, ""), finished, false},
	{"tokens that are unknown, and none", answer{"{}", ""},
		answer{`{"usage":{"input":0,"output":0,"reasoning":0,"cache_read":0,"cache_write":0}}`, ""}, false},
}

// contrasts has what a format makes of two sessions that say different things be
// different. Where it has no word for the difference, Explain lists that.
func (x *examination) contrasts() error {
	for _, c := range contrasts {
		first, second := c.first.session(), c.second.session()
		a := x.write(first)
		b := x.write(second)
		differ := sameOutput(a, b) != nil
		x.drop(a)
		x.drop(b)
		if !differ && (c.always || !x.lists(first, codec.Lost(first, second))) {
			return fmt.Errorf("%s: both are written as\n%s\nthe losses of the first: %v\nthe differences: %v",
				c.name, a.data, x.Explain(first), codec.Lost(first, second))
		}
	}
	if x.reads() {
		return nil // what is withheld is read as that
	}
	unknown := x.write(contrasts[0].first.session(), contrasts[2].first.session())
	known := x.write(contrasts[0].second.session(), contrasts[2].second.session())
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

// claims compares what was read of the sessions that c writes with what they state.
func (x *examination) claims(s *codec.Session) error {
	r := x.firstRead(s)
	if r.w.dir == "" && len(r.w.data) == 0 {
		return nil // there is nothing of the session that the format has
	}
	end("", r.err)
	if invented := codec.Invented(s, r.got); invented != nil {
		return fmt.Errorf("what was read states what the session does not: %q", invented)
	}
	return nil
}
