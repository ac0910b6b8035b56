package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// pollInterval is how often a stream of events looks for changes of the store.
	pollInterval = 400 * time.Millisecond
	// keepAlive is how long a stream of events is silent at most.
	keepAlive = 15 * time.Second
	// sendTimeout is how long a reader may take for a piece of an answer. One that takes longer is cut off: what it
	// reads may be held open in the store.
	sendTimeout = 20 * time.Second
)

// patiently returns a writer of an answer that gives the reader time for each piece, however many there are.
func patiently(w http.ResponseWriter) io.Writer { return patient{w, http.NewResponseController(w)} }

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

// errEnd ends a stream of events.
var errEnd = errors.New("the stream is over")

// stream is an answer that reports changes of a store as server-sent events. An event is what something is now, so
// losing or repeating one is harmless.
type stream struct {
	Backend
	// again is after how long to read once more when nothing has changed, 0 for never.
	again time.Duration
	// events is what is sent next, and sent the data of the last event of each subject.
	events bytes.Buffer
	sent   map[string]string
}

func newStream(b Backend, again time.Duration) *stream {
	return &stream{Backend: b, again: again, sent: make(map[string]string)}
}

// send answers a request with the events, and with those that read adds whenever the store has changed since at, until
// the reader leaves. If read returns errEnd, its events are the last; another error passes, and read is called again.
func (s *stream) send(w http.ResponseWriter, r *http.Request, at Position,
	read func(ctx context.Context, now Position) error) {
	w.Header().Set("Content-Type", "text/event-stream")
	ctx, control, out := r.Context(), http.NewResponseController(w), patiently(w)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	sent, looked := time.Time{}, time.Now()
	flush := func() bool {
		if s.events.Len() == 0 {
			if time.Since(sent) < keepAlive {
				return true
			}
			s.events.WriteString(": still here\n\n")
		}
		sent = time.Now()
		_, err := s.events.WriteTo(out)
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
		if err != nil || now == at && (s.again == 0 || time.Since(looked) < s.again) {
			continue // an error passes, or the reader reconnects
		}
		switch err := read(ctx, now); {
		case errors.Is(err, errEnd):
			flush() // the stream ends in any case
			return
		case err == nil:
			at, looked = now, time.Now()
		}
	}
}
