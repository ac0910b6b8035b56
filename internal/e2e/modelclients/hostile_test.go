package modelclients

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/e2e"
)

// hostile are servers that have the bytes of a good answer, and do something else with them.
var hostile = map[string]func(w http.ResponseWriter, all []byte){
	"cut": func(w http.ResponseWriter, all []byte) {
		_, _ = w.Write(all[:len(all)/2])
		w.(http.Flusher).Flush()
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = conn.Close()
		}
	},
	"malformed": func(w http.ResponseWriter, all []byte) {
		_, _ = w.Write(bytes.ReplaceAll(all, []byte(`":`), []byte(`";`)))
	},
	"gzip": func(w http.ResponseWriter, all []byte) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(all)
		_ = z.Close()
	},
	"refused": func(w http.ResponseWriter, _ []byte) {
		http.Error(w, `{"error":{"type":"invalid_request_error","message":"no"}}`, http.StatusBadRequest)
	},
}

// onlyReads sends bodies that have no method but Read and Close. The AWS client closes its body when the response is
// there, and its WriteTo then returns io.EOF as an error (smithy-go v1.28.8, safeWriteToReadCloser). Should net/http
// still look for the end of the body at that moment, it takes this for a failure and closes the connection, so that one
// of some sixty answers ends with another error than the server caused. Ours hides WriteTo as well.
type onlyReads struct{ http.RoundTripper }

func (t onlyReads) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.WithContext(r.Context())
	r.Body = struct {
		io.Reader
		io.Closer
	}{r.Body, r.Body}
	return t.RoundTripper.RoundTrip(r)
}

// TestClientsSeeTheSameOfHostileServers compares what a program prints, which error it gets,
// and which bytes it reads, with and without us. No span stays open.
func TestClientsSeeTheSameOfHostileServers(t *testing.T) {
	script := e2e.Weather
	for name, serve := range hostile {
		for _, p := range programs {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, streamed %v", name, p.name, stream), func(t *testing.T) {
					t.Parallel()
					run := func(transport func(http.RoundTripper) http.RoundTripper) (lines []string, err string,
						read []byte) {
						api := e2e.Named(p.api)
						server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							_, _ = io.Copy(io.Discard, r.Body)
							kind, chunks := api.Chunks(&script.Turns[0].Steps[1], "resp_0", stream)
							w.Header().Set("Content-Type", kind)
							serve(w, bytes.Join(chunks, nil))
						}))
						defer server.Close()
						base := &http.Transport{}
						defer base.CloseIdleConnections()
						tape := &tape{base: transport(onlyReads{base})}
						c := newConsole(t, &script, server.URL, stream, &http.Client{Transport: tape})
						p.run(c)
						return c.Lines(), strings.ReplaceAll(fmt.Sprint(c.err), server.URL, "server"), tape.got.Bytes()
					}
					var r *recording
					lines, err, read := run(func(base http.RoundTripper) http.RoundTripper {
						r = record(t, base)
						return r
					})
					plainLines, plainErr, plainRead := run(func(base http.RoundTripper) http.RoundTripper {
						return base
					})
					if diff := cmp.Diff(plainLines, lines); diff != "" || err != plainErr ||
						!bytes.Equal(read, plainRead) {
						t.Errorf("without us %q and %d bytes, with us %q and %d bytes; printed %s",
							plainErr, len(plainRead), err, len(read), diff)
					}
					if docs := r.documents(); len(docs) != 1 {
						t.Errorf("have %d sessions, want 1", len(docs))
					}
				})
			}
		}
	}
}
