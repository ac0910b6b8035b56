package web

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
)

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
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(p) // a reader that is gone needs no answer
}
