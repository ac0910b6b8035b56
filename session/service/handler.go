package service

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

// writeTimeout is how long a reader may take for a part of an answer. One that takes longer is cut off: what it reads
// is held open in the store.
const writeTimeout = 30 * time.Second

// operation is a method or a sequence.
type operation interface {
	operation() string
	serve(w http.ResponseWriter, r *http.Request, s Service) error
}

func (m method[Q, A]) operation() string   { return m.name }
func (m sequence[Q, A]) operation() string { return m.name }

func (m method[Q, A]) serve(w http.ResponseWriter, r *http.Request, s Service) error {
	q, err := arguments[Q](r)
	if err != nil {
		return err
	}
	a, err := m.call(s, r.Context(), q)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return encoder(w).Encode(a)
}

func (m sequence[Q, A]) serve(w http.ResponseWriter, r *http.Request, s Service) error {
	q, err := arguments[Q](r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, control := encoder(w), http.NewResponseController(w)
	last := line[A]{End: true}
	for a, err := range m.call(s, r.Context(), q) {
		if err != nil {
			last = line[A]{Problem: ProblemOf(err)}
			break
		}
		// A server without deadlines serves all the same.
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err := out.Encode(line[A]{Value: &a}); err != nil {
			return nil // the reader is gone
		}
	}
	_ = out.Encode(last)
	return nil
}

// arguments are the body of a request.
func arguments[Q any](r *http.Request) (q Q, err error) {
	err = json.NewDecoder(r.Body).Decode(&q)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p := NewProblem(CodeInvalid, http.StatusRequestEntityTooLarge, "", "", tooLarge.Error())
		p.Remedy = "raise max_request_body_size of the server"
		return q, p
	}
	if err != nil {
		return q, Invalidf("", "", "the body is not the JSON of the arguments: %v", err)
	}
	return q, nil
}

func encoder(w http.ResponseWriter) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// Handler answers the requests of clients of a store, below [Prefix]. The counter is for those that follow it, and
// complete, which may be nil, sets the functions of a batch that a client applies. Who may ask is for the server to
// decide.
func Handler(s Service, changes *Counter, complete func(*store.Batch)) http.Handler {
	mux := http.NewServeMux()
	position := callPosition
	position.call = func(_ Service, ctx context.Context, _ none) (Position, error) { return changes.Position(ctx) }
	apply := callApply
	apply.call = func(s Service, ctx context.Context, b *store.Batch) (store.Result, error) {
		if b == nil {
			return store.Result{}, Invalidf("", "", "the body is not the JSON of a batch: it is null")
		}
		if complete != nil {
			complete(b)
		}
		return s.Apply(ctx, b)
	}
	for _, op := range append(operations, position, apply) {
		mux.HandleFunc("POST "+Prefix+op.operation(), func(w http.ResponseWriter, r *http.Request) {
			if err := op.serve(w, r, s); err != nil {
				WriteProblem(w, err)
			}
		})
	}
	return mux
}

// WriteBody answers a request with a body, compressed if the client can read that. Of an answer that is a success a
// client which has it already, by its ETag, gets the report of that.
func WriteBody(w http.ResponseWriter, r *http.Request, status int, mediaType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Add("Vary", "Accept-Encoding")
	if status == http.StatusOK {
		tag := Tag(sha256.Sum256(body))
		h.Set("ETag", tag)
		if Has(r, tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = w.Write(body) // a reader that is gone needs no answer
		return
	}
	h.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is a valid one
	_, _ = z.Write(body)
	_ = z.Close()
}

// Tag is the weak ETag of a body with a checksum.
func Tag(sum [sha256.Size]byte) string { return `W/"` + hex.EncodeToString(sum[:12]) + `"` }

// Has reports whether the client has the answer with the ETag already.
func Has(r *http.Request, tag string) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		strings.Contains(r.Header.Get("If-None-Match"), tag)
}

// WriteProblem answers a request with an error.
func WriteProblem(w http.ResponseWriter, err error) {
	p := ProblemOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = encoder(w).Encode(p) // a reader that is gone needs no answer
}
