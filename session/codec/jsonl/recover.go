package jsonl

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// Recover yields what is good of the sessions in r, all of each, and reports the rest
// by its lines; report may be nil. The transcript of a session without damage is the
// same as Decode yields.
//
// A line that cannot be read, that is of an unknown type, that is where it cannot
// belong, or that has an id which the session has already is left out, and with it the
// rows that belong to it.
// A message that then lacks a part between others is marked incomplete, as a store
// marks it.
//
// An error is yielded once, with a nil session, and ends the sequence: when reading r
// fails, after what was read of the last session, and when nothing in r is a session.
func Recover(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	if report == nil {
		report = func(codec.Problem) {}
	}
	return func(yield func(*codec.Session, error) bool) {
		s := recoverer{
			decoder: decoder{parts: make(map[string]bool), others: make(map[otherKey]bool)}, report: report,
			lines: lineReader{r: bufio.NewReaderSize(r, 64<<10), maximum: MaxLine},
		}
		for {
			done, err := s.next()
			if done != nil && !yield(done, nil) {
				return
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, err)
				}
				return
			}
		}
	}
}

// hopeless is how many damaged lines before any session make a file one of another
// kind.
const hopeless = 100

// recoverer reads lines of which some are damaged.
type recoverer struct {
	decoder
	lines  lineReader
	report func(codec.Problem)
	// damaged reports that something was left out since the session began.
	damaged bool
	// lost are rows without what they belong to, one after the other.
	lost struct {
		of          string
		line, count int
		first       error
	}
	// found reports that there was a session, held are the problems until then.
	found bool
	held  []codec.Problem
}

// next reads a line and returns the session that it ended, if it did. The last one
// comes with the error that ends the input, io.EOF where that is not a failure.
func (s *recoverer) next() (*codec.Session, error) {
	line, err := s.lines.next()
	if _, long := errors.AsType[tooLongError](err); err != nil && !long {
		return s.end(err)
	}
	var done *codec.Session
	if err == nil {
		done, err = s.take(line)
	}
	if err != nil {
		s.leaveOut(err)
	}
	if len(s.held) == hopeless {
		return nil, errors.New(s.held[0].String())
	}
	return done, nil
}

// end returns what there is of the last session, and why there is no more.
func (s *recoverer) end(err error) (last *codec.Session, _ error) {
	s.reportLost()
	if s.s != nil {
		last = s.finish()
		s.repair(last.Transcript)
	}
	switch {
	case !errors.Is(err, io.EOF):
		err = fmt.Errorf("line %d: %w", s.lines.n, err)
	case len(s.held) > 0:
		err = errors.New(s.held[0].String())
	}
	return last, err
}

// take takes one line as [decoder.line] does.
func (s *recoverer) take(line []byte) (*codec.Session, error) {
	before := s.s
	done, err := s.line(line)
	if err != nil || s.s == before {
		return done, err
	}
	// A session began.
	s.reportLost()
	if done != nil {
		s.repair(done.Transcript)
	}
	s.damaged, s.found = false, true
	for _, p := range s.held {
		s.report(p)
	}
	s.held = nil
	return done, nil
}

// leaveOut notes that a line is left out. Rows that follow each other and lack the
// same are one problem: it is the line of what they lack that is damaged.
func (s *recoverer) leaveOut(err error) {
	if _, unknown := errors.AsType[unknownTypeError](err); !unknown {
		s.damaged = true // and not the work of a newer writer
	}
	orphan, ok := errors.AsType[*orphanError](err)
	if !ok {
		s.reportLost()
		s.problem(s.lines.n, err.Error()+"; it is left out")
		return
	}
	if of := cmp.Or(orphan.above, orphan.of); of != s.lost.of {
		s.reportLost()
		s.lost.of, s.lost.line, s.lost.first = of, s.lines.n, err
	}
	s.lost.count++
}

// reportLost reports the rows that lack what they belong to.
func (s *recoverer) reportLost() {
	switch lost := s.lost; {
	case lost.count == 1:
		s.problem(lost.line, lost.first.Error()+"; it is left out")
	case lost.count > 1:
		s.problem(lost.line, fmt.Sprintf("%d rows belong to %s, which is not above them; they are left out", lost.count,
			lost.of))
	}
	s.lost.of, s.lost.count = "", 0
}

func (s *recoverer) problem(line int, reason string) {
	p := codec.Problem{Line: line, Reason: reason}
	if s.found {
		s.report(p)
	} else {
		s.held = append(s.held, p)
	}
}

// repair marks the messages of a damaged session as incomplete that lack a part between
// others, as the store does.
func (s *recoverer) repair(t *session.Transcript) {
	if !s.damaged {
		return
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		n := len(m.Parts)
		if n == 0 || m.Parts[n-1].Index == int64(n-1) {
			continue
		}
		var metadata map[string]json.RawMessage
		if json.Unmarshal([]byte(m.Message.MetadataJSON), &metadata) == nil && metadata != nil {
			m.Message.MetadataJSON = store.MarkGap(m.Message.MetadataJSON, true)
		}
	}
}
