package web

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// slots are what readers of stores in this process need to work. There are half as many as processors, so that any
// number of readers leaves the others to telemetry, for Go has no priorities.
var slots = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// slotTimeout is how long a request waits for a slot.
const slotTimeout = 20 * time.Second

// inSlot calls do, which reads a store, in a slot.
func inSlot(ctx context.Context, do func() error) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Slots answers requests with next, each in a slot until it begins to read its body or to send its answer: the client
// may do its part as slowly as it likes. Answers are made before they are sent, except for streams of events, which
// read in slots of their own.
func Slots(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), slotTimeout)
		defer cancel()
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			w.Header().Set("Retry-After", "5")
			WriteProblem(w, NewProblem(CodeOverloaded, http.StatusServiceUnavailable, "", "try again",
				"too many requests are waiting"))
			return
		}
		give := sync.OnceFunc(func() { <-slots })
		defer give()
		r.Body = givingBody{r.Body, give}
		next.ServeHTTP(givingWriter{w, give}, r)
	})
}

type givingBody struct {
	io.ReadCloser
	give func()
}

func (b givingBody) Read(p []byte) (int, error) {
	b.give()
	return b.ReadCloser.Read(p)
}

type givingWriter struct {
	http.ResponseWriter
	give func()
}

func (w givingWriter) Write(p []byte) (int, error) {
	w.give()
	return w.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w givingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
