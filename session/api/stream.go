package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// PollInterval is how often a stream of events looks for changes of the store, unless it says otherwise.
	PollInterval = 400 * time.Millisecond
	// KeepAlive is how long a stream of events is silent at most.
	KeepAlive = 15 * time.Second
	// sendTimeout is how long a reader may take for a piece of an answer. One that takes longer is cut off: what it
	// reads may be held open in the store.
	sendTimeout = 20 * time.Second
)

// Patient returns a writer of an answer that gives the reader time for each piece, however many there are.
func Patient(w http.ResponseWriter) io.Writer { return patient{w, http.NewResponseController(w)} }

type patient struct {
	io.Writer
	control *http.ResponseController
}

// Write implements [io.Writer].
func (p patient) Write(b []byte) (int, error) {
	// A server without deadlines serves all the same.
	_ = p.control.SetWriteDeadline(time.Now().Add(sendTimeout))
	return p.Writer.Write(b)
}

// ErrEnd ends a stream of events.
var ErrEnd = errors.New("the stream is over")

// Stream is an answer that reports changes of a store as server-sent events.
type Stream struct {
	// Changes counts the changes of the store.
	Changes *Counter
	// Done, if it is not nil, ends the stream when it is closed.
	Done <-chan struct{}
	// Every is how often to look for changes.
	Every time.Duration
	// Again is after how long to read once more when nothing has changed, 0 for never.
	Again time.Duration
	// Events is what is sent next.
	Events bytes.Buffer
}

// Send answers a request with the events, and with those that read adds whenever the store has changed since at, until
// the reader leaves. If read returns [ErrEnd], its events are the last; another error passes, and read is called again.
func (s *Stream) Send(w http.ResponseWriter, r *http.Request, at Position,
	read func(ctx context.Context, now Position) error) {
	w.Header().Set("Content-Type", "text/event-stream")
	ctx, control, out := r.Context(), http.NewResponseController(w), Patient(w)
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	sent, looked := time.Time{}, time.Now()
	flush := func() bool {
		if s.Events.Len() == 0 {
			if time.Since(sent) < KeepAlive {
				return true
			}
			s.Events.WriteString(": still here\n\n")
		}
		sent = time.Now()
		_, err := s.Events.WriteTo(out)
		return err == nil && control.Flush() == nil
	}
	for flush() {
		select {
		case <-ctx.Done():
			return
		case <-s.Done:
			return
		case <-tick.C:
		}
		now, err := s.Changes.Position(ctx)
		if err != nil || now == at && (s.Again == 0 || time.Since(looked) < s.Again) {
			continue // an error passes, or the reader reconnects
		}
		switch err := InSlot(ctx, func() error { return read(ctx, now) }); {
		case errors.Is(err, ErrEnd):
			flush() // the stream ends in any case
			return
		case err == nil:
			at, looked = now, time.Now()
		}
	}
}
