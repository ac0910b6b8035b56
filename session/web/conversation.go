package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Conversation is a session at rest, in which a user names the message to fork at or to rewind to.
type Conversation struct {
	ID         string
	Transcript *session.Transcript
	Timeline   *document.Document
	// Turns are the numbers of the turns by the ids of their messages; a message that
	// waits in the queue is of none.
	Turns map[string]int
}

// Place is a message of a session. At most one of the two is set; nil is the place that a method has by default.
type Place struct {
	// Message is the id of a message, or the beginning of one.
	Message *string `json:"message,omitempty"`
	// Turn is the number of a turn, from 1.
	Turn *int `json:"turn,omitempty"`
}

// Forked describes a fork.
type Forked struct {
	SessionID       string `json:"session_id"`
	Title           string `json:"title"`
	ParentID        string `json:"parent_id"`
	ParentMessageID string `json:"parent_message_id"`
	// Turn is the last that was copied, Messages the number of copies.
	Turn     int `json:"turn"`
	Messages int `json:"messages"`
}

// Rewound describes a rewind, or the undoing of one.
type Rewound struct {
	SessionID string `json:"session_id"`
	Undone    bool   `json:"undone"`
	// To is the question that stays visible, Turn its turn.
	To   string `json:"to_message_id"`
	Turn int    `json:"turn"`
	// Messages are those that were hidden or shown, Turns the numbers of their turns in order.
	Messages []string `json:"messages"`
	Turns    []int    `json:"turns"`
}

// AtRest reads a session that is to be changed. A session that is at work is an error with the code [CodeBusy].
func AtRest(ctx context.Context, r document.Reader, id string) (*Conversation, error) {
	in, err := r.Collect(ctx, id)
	if err != nil {
		return nil, err
	}
	c := &Conversation{ID: id, Transcript: in.Transcript, Timeline: document.Build(in), Turns: make(map[string]int)}
	if st := c.Timeline.Status.State; st == document.ActivityBusy || st == document.ActivityRetrying {
		return nil, NewProblem(CodeBusy, http.StatusConflict, "", "wait until it is idle",
			fmt.Sprintf("session %s is %s", id, st))
	}
	for turn, m := range c.Timeline.Messages() {
		c.Turns[m.ID] = turn.Number
	}
	return c, nil
}

// Fork copies the session up to and including a place, by default its last message.
func (c *Conversation) Fork(ctx context.Context, s store.Service, at Place, title string, now time.Time) (*Forked,
	error) {
	point, err := c.last()
	switch {
	case err != nil:
		return nil, err
	case at.Message != nil:
		point, err = c.named(*at.Message)
	case at.Turn != nil:
		point, err = c.inTurn(*at.Turn, "")
	}
	if err != nil {
		return nil, err
	}
	if err := c.settledAt(point); err != nil {
		return nil, err
	}
	id, err := s.Fork(ctx, store.ForkOptions{From: c.ID, Message: point.ID, Title: title, Now: now})
	if err != nil {
		return nil, err
	}
	child, err := s.Transcript(ctx, id)
	if err != nil {
		return nil, err
	}
	return &Forked{id, child.Session.Title, c.ID, point.ID, c.Turns[point.ID], len(child.Messages)}, nil
}

// Rewind hides what comes after a place, which is a question: of a turn, or the user's message.
func (c *Conversation) Rewind(ctx context.Context, s store.Service, to Place, now time.Time) (*Rewound, error) {
	var point *session.Message
	var err error
	switch {
	case to.Message != nil:
		point, err = c.named(*to.Message)
	case to.Turn != nil:
		point, err = c.inTurn(*to.Turn, session.RoleUser)
	default:
		err = Invalidf("turn", "name a turn, or a message of the user's", "a rewind needs a place")
	}
	switch {
	case err != nil:
		return nil, err
	case point.Role != session.RoleUser:
		return nil, Invalidf("message", fmt.Sprintf("name one of the user's, or turn %d", c.Turns[point.ID]),
			"message %s is the %s's", point.ID, point.Role)
	case point.HiddenAt != nil:
		return nil, Invalidf("message",
			"choose an earlier one, or undo the rewind first", "message %s is hidden already", point.ID)
	}
	done, err := s.Rewind(ctx, c.ID, point.ID, now)
	done.To = point.ID // also where nothing came after it
	return c.rewound(done, false), err
}

// Unrewind undoes the last rewind of the session.
func (c *Conversation) Unrewind(ctx context.Context, s store.Service) (*Rewound, error) {
	done, err := s.Unrewind(ctx, c.ID)
	if errors.Is(err, store.ErrNoRewind) {
		return nil, Invalidf("", "all of it is shown", "session %s has no rewind to undo", c.ID)
	}
	return c.rewound(done, true), err
}

func (c *Conversation) rewound(done store.Rewound, undone bool) *Rewound {
	turns := []int{}
	for _, id := range done.Messages {
		if n := c.Turns[id]; n > 0 && !slices.Contains(turns, n) {
			turns = append(turns, n)
		}
	}
	slices.Sort(turns)
	return &Rewound{c.ID, undone, done.To, c.Turns[done.To], append([]string{}, done.Messages...), turns}
}

// named is the message of an id, or of the beginning of one.
func (c *Conversation) named(name string) (*session.Message, error) {
	var found []*session.Message
	for i := range c.Transcript.Messages {
		m := &c.Transcript.Messages[i].Message
		if m.ID == name {
			return m, nil
		}
		if name != "" && (strings.HasPrefix(m.ID, name) || strings.HasPrefix(m.ID, "msg_"+name)) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return nil, Invalidf("message", "its JSON has their ids", "session %s has no message %q", c.ID, name)
	case 1:
		return found[0], nil
	}
	return nil, Invalidf("message", "type more of the id", "%d messages of session %s begin with %q",
		len(found), c.ID, name)
}

// inTurn is the last message of a turn that is not hidden, of a role where one is
// given.
func (c *Conversation) inTurn(number int, role string) (*session.Message, error) {
	if number < 1 || number > len(c.Timeline.Turns) {
		return nil, c.Timeline.NoTurn(number)
	}
	var last *session.Message
	for i := range c.Transcript.Messages {
		if m := &c.Transcript.Messages[i].Message; c.Turns[m.ID] == number && m.HiddenAt == nil &&
			(role == "" || m.Role == role) {
			last = m
		}
	}
	if last == nil && role != "" {
		return nil, Invalidf("turn", "choose another turn", "turn %d of session %s has no question that is seen",
			number, c.ID)
	}
	if last == nil {
		return nil, Invalidf("turn", "choose another turn", "turn %d of session %s is hidden by a rewind", number, c.ID)
	}
	return last, nil
}

// last is the last message of the conversation that is not hidden.
func (c *Conversation) last() (*session.Message, error) {
	var last *session.Message
	for i := range c.Transcript.Messages {
		if m := &c.Transcript.Messages[i].Message; m.HiddenAt == nil && c.Turns[m.ID] > 0 {
			last = m
		}
	}
	if last == nil {
		return nil, Invalidf("", "there is nothing to copy", "session %s has no message that is seen", c.ID)
	}
	return last, nil
}

// settledAt refuses a copy of what is not over: a call that waits for a human.
func (c *Conversation) settledAt(point *session.Message) error {
	if point.HiddenAt != nil {
		return Invalidf("message", "choose another, or take the rewind back", "message %s is hidden by a rewind", point.ID)
	}
	last, err := c.last()
	if err != nil || !c.Timeline.Status.State.Waiting() || c.Turns[point.ID] < c.Turns[last.ID] ||
		point.Role == session.RoleUser {
		return err
	}
	return Invalidf("turn", "copy less of it, or answer first", "session %s waits for a human in turn %d", c.ID,
		c.Turns[last.ID])
}
